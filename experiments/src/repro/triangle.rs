//! `triangle`: the savings of a sliced level 0 (the paper's triangle container) in persistent
//! memory, compared with the designs it is based on.
//!
//! The paper writes 80 GB of random keys to five stores: RocksDB on an SSD; RocksDB with a large
//! level 0 in persistent memory; NoveLSM, with a large mutable memtable there; MatrixKV, whose
//! level 0 is there and is compacted by columns; and TriangleKV. Memtables and tables have 64 MiB,
//! level 1 256 MiB with tenfold levels below, the persistent memory 8 GB; MatrixKV and TriangleKV
//! have a first level of that size. Here all are one tree with different options, everything at
//! 1/128 of that: as many memtables of persistent memory, of level 1, and of data. (At 1/512,
//! `--scale 0.25`, an L0 run of 480 keys releases its compacted keys in units of 64, more of level
//! 0 is dead keys, and TriangleKV saves less: 3.1 times instead of 3.9.)
//!
//! Write amplification is the number of bytes written to the SSD per byte that the user wrote. As
//! in the paper the log of RocksDB is on the SSD (its figure 1a), whether level 0 is or not, and
//! that of the others in persistent memory (its sections 2.4.3 and 4). All five select tables
//! round-robin, as the RocksDB that they were built from does for uniform keys. Background work
//! runs on the writing thread when it is due, so the counts are reproducible.
//!
//! How much NoveLSM's large memtable receives depends on how long other memtables wait for their
//! flush, so with NoveLSM time passes as on the paper's devices (its table 1): a write takes the
//! time of its random writes to persistent memory, background work, one job at a time, the time of
//! its reads and writes on the SSD.
//!
//! Then the same at 20 times the memory, where levels below level 1 dominate, on which level 0 has
//! no effect: with the paper's level sizes, and with levels that grow by 5 instead of 10, so that
//! the last is not as large as the previous one. There all select tables by least overlap, which is
//! our default and helps RocksDB more than the others.
//!
//! One claim is not confirmed: NoveLSM writes less than in the paper. A writer at full speed is
//! four times as fast as flushes to the SSD, so its large memtable receives most of the writes;
//! that agrees with the paper's compactions of over 15 GB (four large memtables; section 2.4.3),
//! but not with its figure 16.
//!
//! Invariant: all stores of a part run the same operations, and differ in the listed options only.
//!
//! Source: TriangleKV paper, section 5.3.1, figures 16 and 17.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::RngExt;
use siltstone_bench::engines::{Storage, Target};
use siltstone_bench::generate::stream;
use siltstone_bench::plot::{Bars, Plot};
use siltstone_engine::{Durability, Engine, ManualClock, Result, WriteBatch};
use siltstone_runtime::{Env, Scheduler};

use super::bars::{Bar, bar};
use super::{Check, Experiment, Measurement};

/// Bytes per memtable and per table at scale 1.
const MEMTABLE: f64 = 512.0 * 1024.0;
/// Size of the persistent memory, in memtables.
const NVM: f64 = 128.0;
/// Bytes written, in sizes of the persistent memory, as in the paper.
const ROUNDS: f64 = 10.0;
/// Bytes written to a larger store, in sizes of the persistent memory.
const MORE_ROUNDS: f64 = 20.0;
/// Size ratio of a level to the level above.
const FACTOR: f64 = 10.0;
/// Size of RocksDB's first level, in memtables.
const LEVEL_1: f64 = 4.0;
/// Bytes per second of the paper's devices: random writes to persistent memory, and sequential
/// reads from and writes to the SSD.
const NVM_WRITE: f64 = 1363e6;
const SSD_READ: f64 = 445e6;
const SSD_WRITE: f64 = 354e6;
const KEY: usize = 16;
const VALUE: usize = 256;

/// The stores with their options. `NVM` and the levels are placeholders.
const SETS: [(&str, &str); 5] = [
    ("RocksDB-SSD", "l0_policy=whole experimental.l0_compaction_trigger=4 SMALL"),
    (
        "RocksDB-L0-NVM",
        "l0_policy=whole NVM pmem.hints=off experimental.l0_compaction_trigger=1000 experimental.l0_slowdown_trigger=1001 experimental.l0_stop_trigger=1002 SMALL",
    ),
    ("NoveLSM", "l0_policy=novelsm NVM experimental.l0_compaction_trigger=4 SMALL"),
    ("MatrixKV", "l0_policy=columns NVM LARGE"),
    ("TriangleKV", "l0_policy=sliced NVM LARGE"),
];
/// TriangleKV with levels for `MORE_ROUNDS`.
const SIZED: &str = "l0_policy=sliced NVM SIZED";
const SSD: usize = 0;
const L0_NVM: usize = 1;
const NOVELSM: usize = 2;
const MATRIX: usize = 3;
const TRIANGLE: usize = 4;

pub(super) struct Triangle;

/// Measurements of a store.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// Bytes written to the SSD per byte that the user wrote.
    amplification: f64,
    /// The largest compaction of level 0, in AF·S.
    largest: f64,
}

impl Experiment for Triangle {
    fn id(&self) -> &'static str {
        "triangle"
    }

    fn paper(&self) -> &'static str {
        "TriangleKV: Reducing Write Stalls and Write Amplification in LSM-Tree Based KV Stores with \
         Triangle Container in NVM"
    }

    fn figure(&self) -> &'static str {
        "figures 16 and 17"
    }

    fn claim(&self) -> &'static str {
        "write amplification of a random load 3.26 times lower than RocksDB's on an SSD, 2.56 for \
         MatrixKV, 1.83 for NoveLSM, 1.99 with level 0 in persistent memory alone; each compaction \
         of level 0 at most AF·S"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "NoveLSM writes less than in the paper, because a writer at full speed sends most of \
             its writes to the large memtable; and at 20 times the memory instead of 10, levels \
             1 and 2 dominate, which depend on level sizes and not on level 0",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let steps = SETS.len() as u64 + 3;
        let mut runs = [Run::default(); SETS.len()];
        for (s, (_, options)) in SETS.iter().enumerate() {
            progress(s as u64, steps);
            runs[s] = measure(
                &format!("{options} experimental.compaction_pri=round_robin"),
                scale,
                ROUNDS,
            )?;
        }
        let mut more = [Run::default(); 3];
        for (m, options) in [SETS[SSD].1, SETS[TRIANGLE].1, SIZED].into_iter().enumerate() {
            progress((SETS.len() + m) as u64, steps);
            more[m] = measure(options, scale, MORE_ROUNDS)?;
        }
        progress(steps, steps);
        let bars = Bars {
            title: "Bytes written to the SSD per byte of a random load".to_owned(),
            y: "write amplification".to_owned(),
            groups: vec!["random load".to_owned()],
            series: (0..SETS.len())
                .map(|s| (SETS[s].0.to_owned(), vec![runs[s].amplification]))
                .collect(),
        };
        let memtable = memtable(scale);
        Ok(Measurement {
            scale: format!(
                "{} and {} MiB of {KEY} + {VALUE} bytes, memtables of {} KiB, {} MiB of persistent memory",
                (memtable * NVM * ROUNDS) as u64 >> 20,
                (memtable * NVM * MORE_ROUNDS) as u64 >> 20,
                memtable as u64 >> 10,
                (memtable * NVM) as u64 >> 20,
            ),
            checks: checks(&runs, &more),
            plot: Some(Plot::Bars(bars)),
        })
    }
}

fn checks(runs: &[Run; SETS.len()], more: &[Run; 3]) -> Vec<Check> {
    let amplification = |s: usize| runs[s].amplification;
    let lower = |bar: &'static Bar, s: usize| {
        bar.check(
            format!("{}, write amplification, times lower than on the SSD", SETS[s].0),
            amplification(SSD) / amplification(s),
        )
    };
    let others = [SSD, L0_NVM, NOVELSM].map(amplification);
    let [rocks, flat, sized] = more.map(|run| run.amplification);
    let of_more = |bar: &'static Bar, what: &str, ours: f64| {
        bar.check(
            format!("at {MORE_ROUNDS} times the memory, TriangleKV {what}, times lower"),
            ours,
        )
    };
    let largest = |s: usize| {
        bar("triangle", "largest").check(
            format!("{}, largest compaction of level 0, in AF·S", SETS[s].0),
            runs[s].largest,
        )
    };
    vec![
        lower(bar("triangle", "trianglekv"), TRIANGLE),
        lower(bar("triangle", "matrixkv"), MATRIX),
        lower(bar("triangle", "novelsm"), NOVELSM),
        lower(bar("triangle", "rocksdb-l0-nvm"), L0_NVM),
        bar("triangle", "order-trianglekv")
            .check("MatrixKV over TriangleKV", amplification(MATRIX) / amplification(TRIANGLE)),
        bar("triangle", "order-matrixkv").check(
            "the best of the others over MatrixKV",
            others.iter().fold(f64::INFINITY, |a, &b| a.min(b)) / amplification(MATRIX),
        ),
        largest(TRIANGLE),
        largest(MATRIX),
        of_more(bar("triangle", "larger-sized"), "with levels sized for it", rocks / sized),
        of_more(bar("triangle", "larger"), "with the paper's levels", rocks / flat),
    ]
}

fn memtable(scale: f64) -> f64 {
    (MEMTABLE * scale).max(16.0 * 1024.0)
}

/// Writes random keys and measures the store.
fn measure(options: &str, scale: f64, rounds: f64) -> Result<Run> {
    let memtable = memtable(scale);
    let bytes = |memtables: f64| ((memtable * memtables) as u64).to_string();
    let levels = |first: f64| {
        let level = |n: i32| bytes(first * FACTOR.powi(n));
        format!("levels={}:{}:{}:{}", level(0), level(1), level(2), level(3))
    };
    let sized = format!("levels={}:{}:{}", bytes(NVM), bytes(5.0 * NVM), bytes(25.0 * NVM));
    let given = options
        .replace("SIZED", &sized)
        .replace("NVM", &format!("pmem.size={}", bytes(NVM)))
        .replace("SMALL", &levels(LEVEL_1))
        .replace("LARGE", &levels(NVM));
    let given = given.split(' ').filter_map(|pair| pair.split_once('='));
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut all = BTreeMap::from([
        ("memtable".to_owned(), bytes(1.0)),
        ("target_file_size".to_owned(), bytes(1.0)),
        ("cache".to_owned(), bytes(4.0)),
        ("max_subcompactions".to_owned(), "1".to_owned()),
        ("triad.log".to_owned(), "off".to_owned()),
    ]);
    all.extend(given);
    let target = Target {
        engine: "lsm".to_owned(),
        options: all,
        storage: Storage::Ram,
        keep: false,
        background_threads: 1,
    };
    let items = (memtable * NVM * rounds / (KEY + VALUE) as f64) as u64;
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    let scheduler = env.scheduler.clone();
    let opened = target.open_in(env)?;
    let engine = &*opened.engine;
    let mut time = options.contains("novelsm").then(|| Timeline {
        scheduler,
        now: 0.0,
        free_at: 0.0,
        spent: 0.0,
    });
    let mut rng = stream(1, 0);
    let (mut batch, mut value) = (WriteBatch::new(), [0; VALUE]);
    for _ in 0..items {
        let key = format!("{:0KEY$}", rng.random_range(0..items));
        rng.fill(&mut value[..]);
        batch.clear();
        batch.put(key.as_bytes(), &value);
        engine.write(&batch, Durability::Buffered)?;
        if let Some(time) = &mut time {
            time.pass(engine);
        }
    }
    engine.maintain()?;
    let stats = engine.stats();
    // RocksDB's L0 runs, in any memory, and its log, which is not in persistent memory.
    let has_log = options.starts_with("l0_policy=whole");
    let to_ssd = stats.io.iter().filter(|(purpose, _)| has_log || **purpose != "log");
    let to_ssd: u64 = to_ssd.map(|(_, io)| io.bytes_written).sum();
    let largest = stats.counters["largest_level0_bytes"];
    Ok(Run {
        amplification: to_ssd as f64 / stats.user_bytes_written as f64,
        largest: largest as f64 / (FACTOR * memtable),
    })
}

/// A simulated time line of background jobs on the paper's SSD, concurrent to a writer at full
/// speed. The result of a job is visible at its start; the next job starts when its time is over.
struct Timeline {
    scheduler: Scheduler,
    /// Time in seconds.
    now: f64,
    free_at: f64,
    /// Total duration of jobs so far.
    spent: f64,
}

impl Timeline {
    /// Advances the time after a write.
    fn pass(&mut self, engine: &dyn Engine) {
        self.now += (KEY + VALUE) as f64 / NVM_WRITE;
        if self.now < self.free_at || self.scheduler.queued() == 0 {
            return;
        }
        // The writer waited for jobs that ran in the meantime.
        self.now += self.take(engine);
        if self.scheduler.run_one() {
            self.free_at = self.now + self.take(engine);
        }
    }

    /// Duration of the jobs since the last call.
    fn take(&mut self, engine: &dyn Engine) -> f64 {
        let io = engine.stats().io;
        let jobs = ["flush", "compaction"].into_iter().filter_map(|purpose| io.get(purpose));
        let spent: f64 = jobs
            .map(|io| io.bytes_read as f64 / SSD_READ + io.bytes_written as f64 / SSD_WRITE)
            .sum();
        spent - std::mem::replace(&mut self.spent, spent)
    }
}
