//! The result of a run.
//!
//! [`Report`] is the object that `bench --json` prints: the [`Figures`] of all workloads together
//! at the top, those of each workload under `phases`, and a peer's report of the same shape under
//! `peer`.
//!
//! Invariant: a figure that was not measured is `null`, never zero; units are in the names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod chart;
mod table;

pub use chart::throughput_chart;
pub use table::table;

/// The figures of one workload, or of several together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Name of the engine or the peer.
    pub engine: String,
    /// The workload, or several joined by commas.
    pub workload: String,
    /// Keys of the key space.
    pub keys: u64,
    /// Operations of the workload's threads, without those of an additional writer.
    pub ops: u64,
    /// Threads of the workload.
    pub threads: usize,
    /// Time of the operations.
    pub seconds: f64,
    /// Time after them until background work was idle; its writes are counted below.
    pub settle_seconds: Option<f64>,
    /// CPU time of all threads of the process in both, per operation: it includes drawing the keys
    /// and values.
    #[serde(default)]
    pub cpu_us_per_op: Option<f64>,
    /// Resident memory of the process at the end.
    #[serde(default)]
    pub rss_bytes: Option<u64>,
    /// Throughput of the operations.
    pub ops_per_second: f64,
    /// Bytes of keys and values written.
    pub user_bytes_written: u64,
    /// Bytes written to storage.
    pub media_bytes_written: u64,
    /// Bytes that the process wrote to a device, as counted by the kernel (`/proc/self/io`): whole
    /// blocks, so a synced append of 100 bytes counts 4 KiB. Bytes of files that were deleted
    /// before they reached the device are not counted.
    #[serde(default)]
    pub process_bytes_written: Option<u64>,
    /// Bytes that the store's block device wrote in that time, for all processes and the file
    /// system's journal.
    #[serde(default)]
    pub device_bytes_written: Option<u64>,
    /// Bytes written to storage by purpose.
    pub by_purpose: BTreeMap<String, u64>,
    /// Bytes stored in byte-addressable persistent memory, which are not included above.
    #[serde(default)]
    pub nvm_bytes_stored: u64,
    /// Bytes stored in persistent memory by purpose.
    #[serde(default)]
    pub nvm_by_purpose: BTreeMap<String, u64>,
    /// Bytes written to storage per byte that the user wrote.
    pub write_amplification: Option<f64>,
    /// Read requests to storage per point lookup.
    pub reads_per_lookup: Option<f64>,
    /// Bytes read from storage per point lookup.
    pub bytes_read_per_lookup: Option<f64>,
    /// Memory of the engine's structures per live key, at the end.
    pub memory_bytes_per_key: Option<f64>,
    /// Memory per live key by structure.
    pub by_structure: BTreeMap<String, f64>,
    /// Bytes of live files at the end.
    pub space_bytes: u64,
    /// Latencies in microseconds.
    pub latency_us: LatencyByKind,
    /// Write stalls in milliseconds.
    pub stall_ms: StallMs,
    /// Seconds for which a device of each class would have been busy with these requests, one at a
    /// time: computed from counts, if requests were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_seconds: Option<BTreeMap<String, f64>>,
    /// Throughput over time, if it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// Writes into each level, if the engine has levels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelFigures>,
    /// Write amplification as a function of the operations done, with pending background work not
    /// counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<Growth>,
}

/// A level of an engine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LevelFigures {
    /// Name of the level.
    pub name: String,
    /// Bytes written into it.
    pub bytes_written: u64,
    /// Bytes written into it per byte that the user wrote.
    pub write_amplification: Option<f64>,
    /// Bytes of its files at the end.
    pub space_bytes: u64,
    /// Its files at the end.
    pub files: u64,
}

/// Write amplification up to a point of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Growth {
    /// Operations done up to this point.
    pub ops: u64,
    /// Bytes written to storage up to this point per byte that the user wrote.
    pub write_amplification: Option<f64>,
}

/// Latencies by kind of operation; `None` for a kind without operations.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LatencyByKind {
    /// Writes.
    pub put: Option<Percentiles>,
    /// Point lookups.
    pub get: Option<Percentiles>,
    /// Seeks and scans.
    pub scan: Option<Percentiles>,
}

/// Percentiles of a latency in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The 99.99th percentile.
    pub p9999: f64,
    /// The maximum.
    pub max: f64,
    /// The mean of the slowest 0.1 %.
    #[serde(default)]
    pub slowest_mean: f64,
}

/// Write stalls in milliseconds, summed over all threads, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StallMs {
    /// Slowed down in proportion to the backlog of background work.
    pub insert: Option<f64>,
    /// Stopped until a memtable was flushed.
    pub flush: Option<f64>,
    /// Stopped until a compaction finished.
    pub compaction: Option<f64>,
    /// All causes together.
    pub total: f64,
    /// The longest single stall; an upper bound if an earlier phase had a longer one.
    pub longest: Option<f64>,
}

/// Throughput over time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Timeline {
    /// Length of a slice.
    pub slice_seconds: f64,
    /// Operations per second in each slice.
    pub ops_per_second: Vec<f64>,
}

impl Timeline {
    /// The middle of each slice in seconds, and its throughput.
    pub fn points(&self) -> Vec<(f64, f64)> {
        let middle = |i: usize| (i as f64 + 0.5) * self.slice_seconds;
        self.ops_per_second.iter().enumerate().map(|(i, rate)| (middle(i), *rate)).collect()
    }

    /// The timeline in slices of about this length, if that is longer: means of consecutive slices.
    pub fn folded(&self, slice_seconds: f64) -> Timeline {
        let fold = (slice_seconds / self.slice_seconds).round().max(1.0) as usize;
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
        Timeline {
            slice_seconds: self.slice_seconds * fold as f64,
            ops_per_second: self.ops_per_second.chunks(fold).map(mean).collect(),
        }
    }
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// All requested workloads together, without loading.
    #[serde(flatten)]
    pub total: Figures,
    /// Each workload, preceded by the load that it needed.
    pub phases: Vec<Figures>,
    /// Peak resident memory of the process.
    pub peak_rss_bytes: Option<u64>,
    /// Settings of the run.
    pub settings: BTreeMap<String, String>,
    /// Another store under the same workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Box<Report>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_documented_fields() {
        let report = Report { peer: Some(Box::default()), ..Report::default() };
        let json = serde_json::to_value(&report).unwrap();
        let fields = [
            "engine",
            "workload",
            "keys",
            "ops",
            "threads",
            "seconds",
            "ops_per_second",
            "user_bytes_written",
            "media_bytes_written",
            "by_purpose",
            "nvm_bytes_stored",
            "nvm_by_purpose",
            "write_amplification",
            "reads_per_lookup",
            "bytes_read_per_lookup",
            "memory_bytes_per_key",
            "by_structure",
            "space_bytes",
        ];
        for part in [&json, &json["peer"]] {
            for field in fields {
                assert!(part.get(field).is_some(), "{field}");
            }
            for kind in ["put", "get", "scan"] {
                assert!(part["latency_us"].get(kind).is_some(), "{kind}");
            }
            for cause in ["insert", "flush", "compaction", "longest"] {
                assert!(part["stall_ms"].get(cause).is_some(), "{cause}");
            }
            for field in ["phases", "peak_rss_bytes", "settings"] {
                assert!(part.get(field).is_some(), "{field}");
            }
        }
    }

    #[test]
    fn folded_timeline_keeps_its_mean() {
        let fine = Timeline { slice_seconds: 0.1, ops_per_second: vec![10.0, 20.0, 30.0, 40.0] };
        assert_eq!(fine.folded(0.2).ops_per_second, [15.0, 35.0]);
        assert_eq!(fine.folded(0.01), fine);
        assert_eq!(fine.folded(0.2).points(), [(0.1, 15.0), (0.30000000000000004, 35.0)]);
    }

    #[test]
    fn report_round_trips_through_json() {
        let get =
            Percentiles { p50: 1.0, p99: 2.0, p999: 3.0, p9999: 4.0, max: 5.0, slowest_mean: 4.5 };
        let figures = Figures {
            engine: "lsm".to_owned(),
            write_amplification: Some(3.5),
            latency_us: LatencyByKind { get: Some(get), ..LatencyByKind::default() },
            timeline: Some(Timeline { slice_seconds: 0.1, ops_per_second: vec![1.0, 2.0] }),
            ..Figures::default()
        };
        let report = Report { total: figures.clone(), phases: vec![figures], ..Report::default() };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }
}
