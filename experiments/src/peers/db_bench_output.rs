//! Parses the output of RocksDB's `db_bench`.
//!
//! ```text
//! fillrandom   :       5.708 micros/op 175182 ops/sec 0.285 seconds 50000 operations;   19.4 MB/s
//! Microseconds per write:
//! Count: 50000 Average: 5.7066  StdDev: 50.17
//! Min: 2  Median: 4.4754  Max: 6352
//! Percentiles: P50: 4.48 P75: 5.32 P99: 9.76 P99.9: 74.72 P99.99: 3275.00
//! …
//! STATISTICS:
//! rocksdb.wal.bytes COUNT : 6550000
//! rocksdb.read.block.get.micros P50 : 5.1 P95 : 9.9 … P100 : 28139.0 COUNT : 607 SUM : 48258
//! ```
//!
//! Invariant: a missing or malformed line gives no figure; only the line of the benchmark itself is
//! required.
//!
//! Source: the output of db_bench 7.8.3.

use std::collections::BTreeMap;

use siltstone_bench::report::{Percentiles, Timeline};

/// The output of one benchmark.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Output {
    pub(super) ops: u64,
    pub(super) seconds: f64,
    pub(super) latency: Option<Percentiles>,
    /// Tickers by name, and the `COUNT` of histograms.
    pub(super) counts: BTreeMap<String, u64>,
    /// The largest value of each histogram that has values.
    pub(super) maxima: BTreeMap<String, f64>,
}

impl Output {
    /// Parses the output of the benchmark `name`.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, String> {
        // Progress lines end with carriage returns.
        let mut lines = text.split(['\n', '\r']).map(str::trim);
        let headline = lines
            .by_ref()
            .find(|line| is_headline(line, name))
            .ok_or_else(|| format!("db_bench printed no line for {name}"))?;
        let before = |unit: &str| {
            let mut words = headline.split_whitespace().collect::<Vec<_>>().into_iter().rev();
            words.find(|word| word.trim_end_matches(';') == unit)?;
            words.next()
        };
        let wrong = || format!("cannot read db_bench's line '{headline}'");
        let ops = before("operations").and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
        let seconds = before("seconds").and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
        let mut output = Output { ops, seconds, ..Output::default() };
        let mut max = None;
        for line in lines {
            // The first histogram is the benchmark's; the statistics follow.
            if output.latency.is_none() {
                max = max.or_else(|| labelled(line, "Max:"));
                output.latency = max.and_then(|max| percentiles(line, max));
            }
            if let Some((name, count)) = counted(line) {
                if let Some(max) = labelled_with_colon(line, "P100").filter(|_| count > 0) {
                    output.maxima.insert(name.clone(), max);
                }
                output.counts.insert(name, count);
            }
        }
        Ok(output)
    }

    /// A ticker, if it was printed.
    pub(super) fn count(&self, name: &str) -> Option<u64> {
        self.counts.get(name).copied()
    }
}

/// Parses the throughput over time in `--report_file`: seconds, and operations in each.
pub(super) fn timeline(csv: &str) -> Option<Timeline> {
    let row = |line: &str| line.split_once(',')?.1.trim().parse().ok();
    let ops_per_second: Vec<f64> = csv.lines().skip(1).filter_map(row).collect();
    (!ops_per_second.is_empty()).then_some(Timeline { slice_seconds: 1.0, ops_per_second })
}

fn is_headline(line: &str, name: &str) -> bool {
    line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(':'))
        && line.contains("micros/op")
}

fn percentiles(line: &str, max: f64) -> Option<Percentiles> {
    let rest = line.strip_prefix("Percentiles:")?;
    Some(Percentiles {
        p50: labelled(rest, "P50:")?,
        p99: labelled(rest, "P99:")?,
        p999: labelled(rest, "P99.9:")?,
        p9999: labelled(rest, "P99.99:")?,
        max,
        // `db_bench` does not report it.
        slowest_mean: 0.0,
    })
}

/// The number after a label.
fn labelled(line: &str, label: &str) -> Option<f64> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == label)?;
    words.next()?.parse().ok()
}

/// The number after a label that a colon follows.
fn labelled_with_colon(line: &str, label: &str) -> Option<f64> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == label)?;
    words.nth(1)?.parse().ok()
}

/// `rocksdb.NAME … COUNT : N …`.
pub(super) fn counted(line: &str) -> Option<(String, u64)> {
    if !line.starts_with("rocksdb.") {
        return None;
    }
    let name = line.split_whitespace().next()?;
    let (_, count) = line.split_once("COUNT : ")?;
    Some((name.to_owned(), count.split_whitespace().next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Captured from db_bench 7.8.3, shortened.
    const FILLRANDOM: &str = include_str!("testdata/fillrandom.txt");
    const READMISSING: &str = include_str!("testdata/readmissing.txt");

    #[test]
    fn fill_output_is_parsed() {
        let output = Output::parse("fillrandom", FILLRANDOM).unwrap();
        assert_eq!((output.ops, output.seconds), (50_000, 0.285));
        let expected = Percentiles {
            p50: 4.48,
            p99: 9.76,
            p999: 74.72,
            p9999: 3275.0,
            max: 6352.0,
            slowest_mean: 0.0,
        };
        assert_eq!(output.latency, Some(expected));
        assert_eq!(output.count("rocksdb.wal.bytes"), Some(6_550_000));
        assert_eq!(output.count("rocksdb.flush.write.bytes"), Some(5_643_818));
        assert_eq!(output.count("rocksdb.compact.write.bytes"), Some(2_634_825));
        assert_eq!(output.count("rocksdb.number.keys.written"), Some(50_000));
        assert_eq!(output.count("rocksdb.db.write.micros"), Some(50_000));
        assert_eq!(output.count("rocksdb.no.such"), None);
        assert_eq!(output.maxima.get("rocksdb.db.write.micros"), Some(&8126.0));
        assert_eq!(output.maxima.get("rocksdb.wal.bytes"), None);
    }

    #[test]
    fn read_output_is_parsed() {
        let output = Output::parse("readmissing", READMISSING).unwrap();
        assert_eq!((output.ops, output.seconds), (5000, 0.024));
        assert_eq!(output.latency.unwrap().max, 4114.0);
        assert_eq!(output.count("rocksdb.read.block.get.micros"), Some(605));
    }

    #[test]
    fn line_of_another_benchmark_is_ignored() {
        assert!(Output::parse("fill", FILLRANDOM).is_err());
        assert!(Output::parse("readrandom", READMISSING).is_err());
        let cut = "fillrandom   :       5.708 micros/op 175182 ops/sec";
        assert!(Output::parse("fillrandom", cut).unwrap_err().contains("cannot read"));
    }

    #[test]
    fn output_without_histogram_has_no_percentiles() {
        let line = FILLRANDOM.lines().find(|line| line.contains("micros/op")).unwrap();
        assert_eq!(Output::parse("fillrandom", line).unwrap().latency, None);
    }

    #[test]
    fn report_file_is_parsed_as_timeline() {
        let csv = "secs_elapsed,interval_qps\n1,173000\n2,150000\n";
        assert_eq!(timeline(csv).unwrap().ops_per_second, [173_000.0, 150_000.0]);
        assert_eq!(timeline("secs_elapsed,interval_qps\n"), None);
    }
}
