//! Throughput of a comparison as a chart: a group of bars per workload, a bar per store.
//!
//! Rates differ by a factor of a hundred between workloads, so a bar is a store's median as a
//! multiple of the first store's.
//!
//! Invariant: a workload that the first store did not finish is left out; a store that did not
//! finish a workload has a bar of no length.

use siltstone_bench::plot::{Bars, Plot};

use super::groups::Group;
use super::record::Record;
use super::table::{median, numbers};

/// The chart of the groups and stores.
pub fn throughput_chart(record: &Record, groups: &[Group], stores: &[String], keys: u64) -> Plot {
    let mut titles = Vec::new();
    let mut series: Vec<_> = stores.iter().map(|store| (store.clone(), Vec::new())).collect();
    for group in groups {
        for workload in group.workloads.split(',') {
            let rate = |store: &String| {
                median(&numbers(record, group, store, keys, workload, |f| Some(f.ops_per_second)))
            };
            let Some(first) = stores.first().and_then(rate).filter(|rate| *rate > 0.0) else {
                continue;
            };
            titles.push(group.title(workload));
            for (store, bars) in &mut series {
                bars.push(rate(store).unwrap_or(0.0) / first);
            }
        }
    }
    let first = stores.first().map_or("", String::as_str);
    Plot::Bars(Bars {
        title: format!("Operations per second over {keys} keys, as a multiple of {first}'s"),
        y: format!("times {first}"),
        groups: titles,
        series,
    })
}

#[cfg(test)]
mod tests {
    use siltstone_bench::report::{Figures, Report};

    use super::*;
    use crate::compare::groups::GROUPS;
    use crate::compare::record::Outcome;

    #[test]
    fn bars_are_medians_as_multiples_of_the_first_store() {
        let mut record = Record::default();
        for (store, run, rate) in
            [("lsm", 0, 100.0), ("lsm", 1, 300.0), ("lsm", 2, 200.0), ("redb", 0, 50.0)]
        {
            let figures = Figures {
                workload: "fillrandom".to_owned(),
                ops_per_second: rate,
                ..Figures::default()
            };
            let report = Some(Report { phases: vec![figures], ..Report::default() });
            let (group, store) = ("fill".to_owned(), store.to_owned());
            record.push(Outcome { group, store, keys: 10, run, report, error: None }).unwrap();
        }
        let stores = ["lsm", "redb", "fjall"].map(str::to_owned);
        let Plot::Bars(bars) = throughput_chart(&record, &GROUPS[..2], &stores, 10) else {
            panic!("no bars")
        };
        assert_eq!(bars.groups, ["fill"]);
        let lengths: Vec<_> = bars.series.iter().map(|(_, bars)| bars[0]).collect();
        assert_eq!(lengths, [1.0, 0.25, 0.0]);
    }
}
