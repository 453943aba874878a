//! `write-stalls`: throughput over time of a random load at full speed, by strategy.
//!
//! A random load of twenty times the capacity of level 0 goes to one tree with different options,
//! on the machine's disk and against its clock: the plain tree; level 0 in persistent memory,
//! compacted as a whole; NoveLSM's large memtables; MatrixKV's columns; TriangleKV; and our sliced
//! level 0 on plain disk. RocksDB's library runs, too, if it is installed. Persistent memory is a
//! mapped file.
//!
//! The check is the longest stall that the engine itself imposes on a write: a delay, a full
//! memtable, a full level 0. The report adds the longest write as its caller observed it, including
//! all pauses of device and machine.
//!
//! Invariant: all strategies write the same keys in the same order, one after the other.
//!
//! Source: TriangleKV paper, section 5.2, figure 15.

use std::collections::BTreeMap;

use siltstone_bench::engines::{Storage, Target, default_directory};
use siltstone_bench::generate::ValueSize;
use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_bench::run::{Phase, Session, Settings};
use siltstone_bench::workload::{Choices, Workload};
use siltstone_engine::Result;

use super::bars::bar;
use super::{Experiment, Measurement};
use crate::peers::{Task, in_process};

/// Bytes per memtable at scale 1.
const MEMTABLE: f64 = 4.0 * 1024.0 * 1024.0;
/// Capacity of level 0 in memtables, and bytes written in capacities of level 0.
const CONTAINER: f64 = 16.0;
const ROUNDS: f64 = 20.0;
const KEY: usize = 16;
const VALUE: usize = 100;

/// The strategies with their options. NVM, SMALL and LARGE are placeholders.
const SETS: [(&str, &str); 6] = [
    ("plain tree", "l0_capacity=0 triad.log=off SMALL"),
    (
        "level 0 in NVM",
        "l0_policy=whole NVM pmem.hints=off experimental.l0_compaction_trigger=1000 experimental.l0_slowdown_trigger=1001 experimental.l0_stop_trigger=1002 SMALL",
    ),
    ("NoveLSM", "l0_policy=novelsm NVM experimental.l0_compaction_trigger=4 triad.log=off SMALL"),
    ("MatrixKV", "l0_policy=columns NVM LARGE"),
    ("TriangleKV", "l0_policy=sliced NVM LARGE"),
    ("triangle on disk", "l0_policy=sliced triad.log=on l0_capacity=NVM_BYTES LARGE"),
];
const JUDGED: [usize; 2] = [4, 5];

pub(super) struct WriteStalls;

/// Measurements of a strategy.
struct Run {
    name: String,
    points: Vec<(f64, f64)>,
    ops_per_second: f64,
    longest_stall_ms: f64,
    longest_write_ms: f64,
}

impl Run {
    fn of(name: &str, phase: &Phase) -> Self {
        let took = std::time::Duration::try_from_secs_f64(phase.counts.seconds).unwrap_or_default();
        let put = phase.latencies.summary().put;
        Run {
            name: name.to_owned(),
            points: phase.slices.timeline(took).points(),
            ops_per_second: phase.counts.ops as f64 / phase.counts.seconds,
            longest_stall_ms: phase.counts.stalls.longest_us as f64 / 1e3,
            longest_write_ms: put.map_or(f64::NAN, |put| put.max / 1e3),
        }
    }
}

impl Experiment for WriteStalls {
    fn id(&self) -> &'static str {
        "write-stalls"
    }

    fn paper(&self) -> &'static str {
        "TriangleKV: Reducing Write Stalls and Write Amplification in LSM-Tree Based KV Stores with \
         Triangle Container in NVM"
    }

    fn figure(&self) -> &'static str {
        "figure 15"
    }

    fn claim(&self) -> &'static str {
        "a random load shows write stalls in RocksDB, and none in TriangleKV (ours: no wait above 10 ms)"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "a delay is at most 7 ms, and no write waited for a flush or a compaction; the rest is how late the \
             system woke the writer, while five threads of ours shared its two processors, which the kernel takes \
             from a thread at ticks of 4 ms",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let mut runs = Vec::new();
        for (s, (name, options)) in SETS.iter().enumerate() {
            progress(s as u64, SETS.len() as u64 + 1);
            runs.push(measure(name, &target(options, scale), scale)?);
        }
        progress(SETS.len() as u64, SETS.len() as u64 + 1);
        runs.extend(measure_rocksdb(scale)?);
        progress(SETS.len() as u64 + 1, SETS.len() as u64 + 1);
        let checks = JUDGED.iter().map(|&s| {
            bar("write-stalls", "longest").check(
                format!("{}, longest stall by the engine, ms", runs[s].name),
                runs[s].longest_stall_ms,
            )
        });
        let checks = checks.collect();
        let details = runs.iter().map(|run| {
            format!(
                "{} {:.0} k/s, longest stall {:.1} ms, longest write {:.1} ms",
                run.name,
                run.ops_per_second / 1e3,
                run.longest_stall_ms,
                run.longest_write_ms
            )
        });
        let details: Vec<_> = details.collect();
        let mib = |memtables: f64| (MEMTABLE * scale * memtables) as u64 >> 20;
        Ok(Measurement {
            scale: format!(
                "{} MiB of {KEY} + {VALUE} bytes, container of {} MiB; {}",
                mib(CONTAINER * ROUNDS),
                mib(CONTAINER),
                details.join("; ")
            ),
            checks,
            plot: Some(Plot::Panels(Lines {
                title: "A random load at full speed".to_owned(),
                x: "seconds".to_owned(),
                y: "writes per second".to_owned(),
                series: runs
                    .into_iter()
                    .map(|run| Line { name: run.name, points: run.points, is_reference: false })
                    .collect(),
            })),
        })
    }
}

fn target(options: &str, scale: f64) -> Target {
    let bytes = |memtables: f64| ((MEMTABLE * scale * memtables) as u64).max(1 << 16).to_string();
    let levels = |first: f64| {
        let level = |n: i32| bytes(first * 10f64.powi(n));
        format!("levels={}:{}:{}:{}", level(0), level(1), level(2), level(3))
    };
    let given = options
        .replace("NVM_BYTES", &bytes(CONTAINER))
        .replace("NVM", &format!("pmem.size={}", bytes(CONTAINER)))
        .replace("SMALL", &levels(4.0))
        .replace("LARGE", &levels(CONTAINER));
    let given = given.split(' ').filter_map(|pair| pair.split_once('='));
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut all = BTreeMap::from([
        ("memtable".to_owned(), bytes(1.0)),
        ("target_file_size".to_owned(), bytes(0.25)),
        ("cache".to_owned(), bytes(1.0)),
    ]);
    all.extend(given);
    let directory = default_directory();
    let storage = if all.contains_key("pmem.size") {
        Storage::Pmem(directory)
    } else {
        Storage::Disk(directory)
    };
    let engine = "lsm".to_owned();
    Target { engine, options: all, storage, keep: false, background_threads: 2 }
}

fn settings(scale: f64) -> Settings {
    let items = MEMTABLE * scale * CONTAINER * ROUNDS / (KEY + VALUE) as f64;
    Settings {
        keys: items as u64,
        key_bytes: KEY,
        value: ValueSize::Fixed(VALUE),
        ..Settings::default()
    }
}

fn measure(name: &str, target: &Target, scale: f64) -> Result<Run> {
    let mut session = Session::new(target.open(1)?, settings(scale))?;
    session.run(&Workload::named("fillrandom", &Choices::default())?, &mut |_| ())?;
    Ok(Run::of(name, &session.phases()[0]))
}

/// RocksDB's library, if it is installed.
fn measure_rocksdb(scale: f64) -> Result<Option<Run>> {
    let target = target("l0_capacity=0 SMALL", scale);
    let settings = settings(scale);
    let workloads = [Workload::named("fillrandom", &Choices::default())?];
    let task = Task { target: &target, settings: &settings, workloads: &workloads, seek_nexts: 0 };
    if in_process::check("librocksdb", &task).is_err() {
        return Ok(None);
    }
    let (session, _) = in_process::measure("librocksdb", &task, &mut |_| ())?;
    Ok(Some(Run::of("RocksDB", &session.phases()[0])))
}
