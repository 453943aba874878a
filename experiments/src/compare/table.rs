//! Medians and spreads of a comparison as a table in Markdown.
//!
//! A row is a figure of a workload, a column is a store. A cell is the median of the runs, with the
//! smallest and the largest in brackets.
//!
//! Invariant: a cell without a finite number in any run is a dash.

use std::fmt::Write;

use siltstone_bench::report::{Figures, Percentiles};

use super::groups::Group;
use super::record::Record;

/// A figure of a workload, and what it is called.
type Figure = (&'static str, fn(&Figures) -> Option<f64>);

const MIB: f64 = 1024.0 * 1024.0;

const FIGURES: &[Figure] = &[
    ("k/s", |f| Some(f.ops_per_second / 1e3)),
    ("CPU µs per operation", |f| f.cpu_us_per_op),
    ("p99 µs", |f| slowest_kind(f).map(|p| p.p99)),
    ("p99.9 µs", |f| slowest_kind(f).map(|p| p.p999)),
    ("p99.99 µs", |f| slowest_kind(f).map(|p| p.p9999)),
    ("mean of the slowest 0.1 % µs", |f| slowest_kind(f).map(|p| p.slowest_mean)),
    ("longest µs", |f| slowest_kind(f).map(|p| p.max)),
    ("stalled ms", |f| writes(f).then_some(f.stall_ms.total)),
    ("write amplification", |f| f.write_amplification),
    ("process MiB written", |f| {
        f.process_bytes_written.filter(|_| writes(f)).map(|bytes| bytes as f64 / MIB)
    }),
    ("resident MiB", |f| f.rss_bytes.map(|bytes| bytes as f64 / MIB)),
    ("space MiB", |f| writes(f).then_some(f.space_bytes as f64 / MIB)),
];

/// The latencies of the kind of operation with the longest p99.
fn slowest_kind(figures: &Figures) -> Option<Percentiles> {
    let latency = &figures.latency_us;
    let kinds = [latency.put, latency.get, latency.scan];
    kinds.into_iter().flatten().max_by(|a, b| a.p99.total_cmp(&b.p99))
}

fn writes(figures: &Figures) -> bool {
    figures.user_bytes_written > 0
}

/// The table of the groups and stores, with the errors of failed runs below it.
pub fn table(record: &Record, groups: &[Group], stores: &[String], keys: u64) -> String {
    let mut text = format!("| workload | figure | {} |\n", stores.join(" | "));
    let _ = writeln!(text, "| --- | --- |{}", " --: |".repeat(stores.len()));
    for group in groups {
        for workload in group.workloads.split(',') {
            let name = group.title(workload);
            for (figure, value) in FIGURES {
                let cells: Vec<_> = stores
                    .iter()
                    .map(|store| cell(&numbers(record, group, store, keys, workload, *value)))
                    .collect();
                if cells.iter().any(Option::is_some) {
                    let cells = cells.iter().map(|cell| cell.as_deref().unwrap_or("–"));
                    let cells: Vec<_> = cells.collect();
                    let _ = writeln!(text, "| {name} | {figure} | {} |", cells.join(" | "));
                }
            }
        }
    }
    for (group, store) in groups.iter().flat_map(|g| stores.iter().map(move |s| (g, s))) {
        for failed in record.of(group.name, store, keys) {
            if let (None, Some(error)) = (&failed.report, &failed.error) {
                let _ = writeln!(text, "\n{} {store}, run {}: {error}", group.name, failed.run + 1);
            }
        }
    }
    text
}

/// The figure in each run, if it is finite.
pub(super) fn numbers(
    record: &Record,
    group: &Group,
    store: &str,
    keys: u64,
    workload: &str,
    value: fn(&Figures) -> Option<f64>,
) -> Vec<f64> {
    let reports = record.of(group.name, store, keys).filter_map(|done| done.report.as_ref());
    reports
        .filter_map(|report| report.phases.iter().rev().find(|phase| phase.workload == workload))
        .filter_map(value)
        .filter(|number| number.is_finite())
        .collect()
}

/// The median, with the smallest and the largest if there are several numbers.
pub(super) fn cell(numbers: &[f64]) -> Option<String> {
    let smallest = numbers.iter().copied().reduce(f64::min)?;
    let largest = numbers.iter().copied().reduce(f64::max)?;
    let median = median(numbers)?;
    Some(match numbers.len() {
        1 => short(median),
        _ => format!("{} ({} to {})", short(median), short(smallest), short(largest)),
    })
}

/// The middle of the numbers; of an even count, the mean of the two in the middle.
pub(super) fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(f64::midpoint(sorted[(sorted.len() - 1) / 2], upper))
}

/// Three digits, or all of a larger integer.
fn short(number: f64) -> String {
    match number.abs() {
        size if size >= 99.95 => format!("{number:.0}"),
        size if size >= 9.995 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use siltstone_bench::report::Report;

    use super::*;
    use crate::compare::groups::GROUPS;
    use crate::compare::record::Outcome;

    fn outcome(run: usize, ops_per_second: f64) -> Outcome {
        let workload = "fillrandom".to_owned();
        let figures = Figures { workload, ops_per_second, ..Figures::default() };
        let report = Some(Report { phases: vec![figures], ..Report::default() });
        let (group, store) = ("fill".to_owned(), "lsm".to_owned());
        Outcome { group, store, keys: 10, run, report, error: None }
    }

    #[test]
    fn cells_are_medians_with_their_spread() {
        let mut record = Record::default();
        for (run, rate) in [900e3, 1200e3, 1000e3].into_iter().enumerate() {
            record.push(outcome(run, rate)).unwrap();
        }
        let failed = Outcome {
            store: "redb".to_owned(),
            report: None,
            error: Some("no space".to_owned()),
            ..outcome(0, 0.0)
        };
        record.push(failed).unwrap();
        let text = table(&record, &GROUPS[..1], &["lsm".to_owned(), "redb".to_owned()], 10);
        assert!(text.contains("| fill | k/s | 1000 (900 to 1200) | – |\n"), "{text}");
        assert!(text.ends_with("\nfill redb, run 1: no space\n"), "{text}");
        assert!(!text.contains("write amplification"), "{text}");
    }

    #[test]
    fn number_has_three_digits() {
        assert_eq!(
            [0.5, 9.999, 12.34, 99.96, 1234.5].map(short),
            ["0.50", "10.0", "12.3", "100", "1234"]
        );
        assert_eq!(cell(&[]), None);
        assert_eq!(cell(&[2.0]).as_deref(), Some("2.00"));
    }
}
