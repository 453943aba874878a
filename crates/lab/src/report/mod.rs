//! What a run measured.
//!
//! [`Report`] is the object that `bench --json` prints: the [`Figures`] of all workloads together at
//! the top, those of each under `phases`, and a peer's report of the same shape under `peer`.
//!
//! Invariant: a figure that was not measured is `null`, never zero; units are in the names.
//!
//! Source: ours.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod picture;
mod table;

pub use picture::picture;
pub use table::table;

/// The figures of one workload, or of several together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Figures {
    /// The engine or the peer.
    pub engine: String,
    /// The workload, or several joined by commas.
    pub workload: String,
    /// Keys of the key space.
    pub keys: u64,
    /// Operations of the workload's threads (not those of a writer beside readers).
    pub ops: u64,
    /// Threads of the workload.
    pub threads: usize,
    /// The time the operations took.
    pub seconds: f64,
    /// The time after them until background work came to rest; what it wrote is counted below.
    pub settle_seconds: Option<f64>,
    /// Operations by seconds.
    pub ops_per_second: f64,
    /// Keys and values written.
    pub user_bytes_written: u64,
    /// Bytes written to the medium.
    pub media_bytes_written: u64,
    /// Bytes that the process had written to a device, as the kernel counts them (`/proc/self/io`): blocks
    /// instead of requests, so a synced append of 100 bytes counts 4 KiB. Bytes of files that were deleted
    /// before they reached the device are not counted.
    #[serde(default)]
    pub process_bytes_written: Option<u64>,
    /// Bytes that the store's block device wrote meanwhile, for all processes and the file system's journal.
    #[serde(default)]
    pub device_bytes_written: Option<u64>,
    /// The bytes written to the medium by purpose.
    pub by_purpose: BTreeMap<String, u64>,
    /// Bytes stored in byte-addressable persistent memory, which are not among those above.
    #[serde(default)]
    pub nvm_bytes_stored: u64,
    /// The same by purpose.
    #[serde(default)]
    pub nvm_by_purpose: BTreeMap<String, u64>,
    /// Bytes written to the medium for each byte of the user's.
    pub write_amplification: Option<f64>,
    /// Read requests at the medium for each point lookup.
    pub reads_per_lookup: Option<f64>,
    /// Bytes read from the medium for each point lookup.
    pub bytes_read_per_lookup: Option<f64>,
    /// Resident memory of the engine's structures for each live key, at the end.
    pub memory_bytes_per_key: Option<f64>,
    /// The same by structure.
    pub by_structure: BTreeMap<String, f64>,
    /// Bytes of live files at the end.
    pub space_bytes: u64,
    /// Latencies in microseconds.
    pub latency_us: LatencyByKind,
    /// How long writers waited, in milliseconds.
    pub stall_ms: StallMs,
    /// How long a device of each class would have been busy with these requests, each of them for itself,
    /// in seconds: arithmetic on counts, where requests were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_seconds: Option<BTreeMap<String, f64>>,
    /// Throughput over time, where it was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// What was written into each level, where the engine has levels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelFigures>,
    /// How write amplification went as operations were done, background work left behind included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<Growth>,
}

/// A level of an engine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LevelFigures {
    /// Its name.
    pub name: String,
    /// Bytes written into it.
    pub bytes_written: u64,
    /// The same for each byte of the user's.
    pub write_amplification: Option<f64>,
    /// Bytes of its files at the end.
    pub space_bytes: u64,
    /// Its files at the end.
    pub files: u64,
}

/// Write amplification up to a moment of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Growth {
    /// Operations done by then.
    pub ops: u64,
    /// Bytes written to the medium by then for each of the user's.
    pub write_amplification: Option<f64>,
}

/// Latencies by kind of operation; none where there were no such operations.
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
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// 99.99 %.
    pub p9999: f64,
    /// The longest.
    pub max: f64,
}

/// How long writers waited in milliseconds, all threads together, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StallMs {
    /// Slowed down in proportion to debt.
    pub insert: Option<f64>,
    /// Stopped until a write buffer was flushed.
    pub flush: Option<f64>,
    /// Stopped until a compaction made room.
    pub compaction: Option<f64>,
    /// All causes together.
    pub total: f64,
    /// The longest single wait; an upper bound where an earlier phase waited longer.
    pub longest: Option<f64>,
}

/// Throughput over time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Timeline {
    /// The length of a slice.
    pub slice_seconds: f64,
    /// Operations a second in each.
    pub ops_per_second: Vec<f64>,
}

impl Timeline {
    /// The middle of each slice in seconds with its throughput, for a plot.
    pub fn points(&self) -> Vec<(f64, f64)> {
        let middle = |i: usize| (i as f64 + 0.5) * self.slice_seconds;
        self.ops_per_second.iter().enumerate().map(|(i, rate)| (middle(i), *rate)).collect()
    }

    /// The same in slices about this long, if they are longer: the mean of each run of slices.
    pub fn folded(&self, slice_seconds: f64) -> Timeline {
        let fold = (slice_seconds / self.slice_seconds).round().max(1.0) as usize;
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
        Timeline {
            slice_seconds: self.slice_seconds * fold as f64,
            ops_per_second: self.ops_per_second.chunks(fold).map(mean).collect(),
        }
    }
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// All workloads that were asked for together (what was only loaded is not in it).
    #[serde(flatten)]
    pub total: Figures,
    /// Each workload, and before it what had to be loaded.
    pub phases: Vec<Figures>,
    /// The most memory the process has had resident.
    pub peak_rss_bytes: Option<u64>,
    /// What was asked for, as `name → value`.
    pub settings: BTreeMap<String, String>,
    /// Another store under the same load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Box<Report>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_has_the_fields_that_scripts_rely_on() {
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
    fn a_folded_timeline_keeps_its_mean() {
        let fine = Timeline { slice_seconds: 0.1, ops_per_second: vec![10.0, 20.0, 30.0, 40.0] };
        assert_eq!(fine.folded(0.2).ops_per_second, [15.0, 35.0]);
        assert_eq!(fine.folded(0.01), fine);
        assert_eq!(fine.folded(0.2).points(), [(0.1, 15.0), (0.30000000000000004, 35.0)]);
    }

    #[test]
    fn a_report_comes_back_from_its_json() {
        let get = Percentiles { p50: 1.0, p99: 2.0, p999: 3.0, p9999: 4.0, max: 5.0 };
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
