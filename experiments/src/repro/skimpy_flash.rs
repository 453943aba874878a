//! The device of the SkimpyFTL paper under its three mappings, in virtual time.
//!
//! ```text
//!   clients, each with its own time: the client with the earliest time runs its next operation,
//!   which advances its time by its wait for the device; 128 clients keep the device's queue full
//! ```
//!
//! Device: pages of 4 KiB, 32 per block, 50 µs per read, 100 µs per program, 1 ms per erase, a
//! queue of 128 and 16 channels (not given in the paper). The capacity is 3.35 records of 512 bytes
//! per key, as 32 GB are for 20 million keys. The device is conditioned until collection has passed
//! over all of it.
//!
//! Only the device takes time. A processor, locks and the wait for a shared page take none; a
//! client waits for its own collection, while others continue.
//!
//! Invariant: a run is a function of its parameters and a seed.
//!
//! Source: SkimpyFTL paper, section 4 (experimental setup).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use siltstone_bench::generate::{Chooser, Draw, KeySpace, Rng, stream};
use siltstone_engine::{Clock, Durability, Engine, IoCounts, Result, Stats, Timestamp, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::flash::{DeviceClock, Emulator, FlashOptions, Geometry, Timing, VirtualTime};
use siltstone_skimpy::{FtlPlacement, Options, Skimpy};

pub(super) const PAPER: &str =
    "Misra, Chase, Gehrke, Lebeck, Multi-version Indexing in Flash-based Key-Value Stores, 2018";
/// VFTL as described in the paper, with two uncoordinated logs.
pub(super) const VFTL_UNCOORDINATED: &str = "vftl-apart";
/// VFTL with as many buffered pages of records as SkimpyFTL.
pub(super) const VFTL_BUFFERED: &str = "vftl-accumulates";
/// Keys at scale 1.
pub(super) const KEYS: f64 = 40_000.0;
/// Minimal number of keys: their device has the blocks that a table of eight channels needs.
pub(super) const MIN_KEYS: u64 = 10_000;
/// Capacity in records per key.
const ROOM: f64 = 67.1 / 20.0;
const CLIENTS: usize = 128;
/// The number of channels of the device.
const CHANNELS: u32 = Timing::PAPER.channels;
const KEY_BYTES: usize = 16;
/// With its key and overhead a record takes at most an eighth of a page.
pub(super) const VALUE_BYTES: usize = 440;
pub(super) const SKEW: f64 = 0.99;
pub(super) const SEED: u64 = 18;
/// Number of placements on which gets only are measured.
const PLACEMENTS: u64 = 8;

/// One device with one mapping.
pub(super) struct FlashTable {
    pub(super) engine: Arc<Skimpy>,
    pub(super) time: Arc<VirtualTime>,
    keys: u64,
    space: KeySpace,
    rng: Rng,
    chooser: Chooser,
}

/// A clock of the engine that is the device's.
struct DeviceTimeClock(Arc<VirtualTime>);

impl Clock for DeviceTimeClock {
    fn now(&self) -> Timestamp {
        1_000_000 + self.0.now().as_millis() as u64
    }
}

/// Measurement of a run of operations.
#[derive(Default)]
pub(super) struct Run {
    pub(super) per_second: f64,
    pub(super) hit_rate: f64,
    pub(super) reads_per_get: f64,
    pub(super) device: DeviceTime,
}

/// Device time of operations.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeviceTime {
    /// Microseconds of device time per operation, by [`CAUSES`].
    pub(super) micros: [f64; CAUSES.len()],
    /// Records per page, of at most eight.
    pub(super) packed: f64,
    /// Share of time for which the channels are busy.
    pub(super) busy: f64,
}

/// Causes of device time.
pub(super) const CAUSES: [&str; 9] = [
    "gets, their first page",
    "gets, further pages of chains",
    "programs of puts",
    "programs of relocations",
    "programs of checkpoints",
    "reads of collection, for space",
    "reads of collection, for readers",
    "copies of the layer below",
    "erases",
];
/// Short names of the parts in [`DeviceTime::summary`].
pub(super) const PARTS: &str = "gets, programs, collection's reads, copies below, erases";

impl Run {
    /// Combines runs with equal numbers of operations into one.
    fn of(runs: &[Run]) -> Run {
        let mean = |of: &dyn Fn(&Run) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        Run {
            per_second: 1.0 / mean(&|run| 1.0 / run.per_second),
            hit_rate: mean(&|run| run.hit_rate),
            reads_per_get: mean(&|run| run.reads_per_get),
            device: DeviceTime {
                micros: std::array::from_fn(|cause| mean(&|run| run.device.micros[cause])),
                packed: mean(&|run| run.device.packed),
                busy: mean(&|run| run.device.busy),
            },
        }
    }
}

impl DeviceTime {
    /// Device time between two snapshots of the table's counters, for `operations` operations.
    pub(super) fn between(before: &Stats, after: &Stats, operations: u64, took: Duration) -> Self {
        let io = |purpose: &str, of: &dyn Fn(&IoCounts) -> u64| {
            let count = |stats: &Stats| stats.io.get(purpose).map_or(0, of);
            (count(after) - count(before)) as f64
        };
        let more = |counter: &str| (of(after, counter) - of(before, counter)) as f64;
        let operations = operations as f64;
        let micros = |count: f64, each: Duration| count * each.as_secs_f64() * 1e6 / operations;
        let Timing { read, program, erase, .. } = Timing::PAPER;
        let (below, further) = (more("ftl_pages_copied"), more("extra_page_reads"));
        let gets = io("get", &|io| io.reads);
        let (put, remapped) = ((after.writes - before.writes) as f64, more("versions_relocated"));
        // Records of puts and relocations may share a page.
        let pages = io("flush", &|io| io.writes) + io("compaction", &|io| io.writes) - below;
        let of_records =
            |records: f64| micros(pages * records / (put + remapped).max(1.0), program);
        let for_readers = more("read_triggered_page_reads");
        let collected = io("compaction", &|io| io.reads) - below - for_readers;
        let erased = match after.counters.contains_key("ftl_blocks_erased") {
            true => more("ftl_blocks_erased"),
            false => more("blocks_erased"),
        };
        let micros = [
            micros(gets - further, read),
            micros(further, read),
            of_records(put),
            of_records(remapped),
            micros(io("manifest", &|io| io.writes), program),
            micros(collected, read),
            micros(for_readers, read),
            micros(below, read + program),
            micros(erased, erase),
        ];
        let busy = micros.iter().sum::<f64>() / 1e6 * operations;
        DeviceTime {
            micros,
            packed: (put + remapped) / pages.max(1.0),
            busy: busy / took.as_secs_f64() / f64::from(CHANNELS),
        }
    }

    /// Microseconds of device time per operation.
    pub(super) fn sum(&self) -> f64 {
        self.micros.iter().sum()
    }

    /// A text with the parts of [`PARTS`].
    pub(super) fn summary(&self) -> String {
        let sum = |parts: &[f64]| parts.iter().sum::<f64>();
        let micros = &self.micros;
        let parts =
            [sum(&micros[..2]), sum(&micros[2..5]), sum(&micros[5..7]), micros[7], micros[8]];
        let parts = parts.map(|micros| format!("{micros:.1}")).join(" + ");
        format!("{:.1} = {parts}, {:.0} % busy", self.sum(), 100.0 * self.busy)
    }
}

impl FlashTable {
    /// A table of `keys` keys, each written once, on a conditioned device.
    pub(super) fn open(mapping: &str, keys: u64, keys_per_bucket: u64) -> Result<Self> {
        let block_bytes = 4096 * 32;
        let blocks = (keys as f64 * ROOM * 512.0 / f64::from(block_bytes)).ceil() as u32;
        let (mapping, ftl_placement, accumulates_writes) = match mapping {
            VFTL_UNCOORDINATED => ("vftl", FtlPlacement::LeastLoaded, false),
            VFTL_BUFFERED => ("vftl", FtlPlacement::RoundRobin, true),
            other => (other, FtlPlacement::RoundRobin, false),
        };
        let options: BTreeMap<String, String> = [
            ("capacity", (u64::from(blocks) * u64::from(block_bytes as u32)).to_string()),
            ("mapping", mapping.to_owned()),
            ("buckets", (keys / keys_per_bucket).max(1).to_string()),
            ("cache", (keys / 10).to_string()),
            ("channels", CHANNELS.to_string()),
            ("reserved_space", "0.1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let time = Arc::new(VirtualTime::start());
        let device = Emulator::in_memory(FlashOptions {
            geometry: Geometry::paper(blocks)?,
            timing: Timing::PAPER,
            clock: time.clone(),
            endurance: u64::MAX,
        });
        let env = Env::replayable(Arc::new(DeviceTimeClock(time.clone())), SEED);
        let options = Options { ftl_placement, accumulates_writes, ..Options::from_map(&options)? };
        let engine = Skimpy::over(Arc::new(device), env, options)?;
        let (engine, space) = (Arc::new(engine), KeySpace::new(KEY_BYTES, keys)?);
        let chooser = Chooser::new(Draw::Zipf { skew: SKEW }, keys, SEED, 0, 1);
        let mut table = FlashTable { engine, time, keys, space, rng: stream(SEED, 1), chooser };
        for key in 0..keys {
            table.put(key)?;
        }
        table.engine.flush()?;
        Ok(table)
    }

    /// Writes until collection has passed over the device, and reads until the cache is warm.
    pub(super) fn condition(&mut self) -> Result<()> {
        let rounds = (2.0 * ROOM * self.keys as f64) as u64;
        self.run(100, rounds)?;
        self.run(0, self.keys / 2).map(drop)
    }

    fn put(&mut self, key: u64) -> Result<()> {
        let mut value = [0; VALUE_BYTES];
        value[..8].copy_from_slice(&self.rng.random::<u64>().to_le_bytes());
        let mut batch = WriteBatch::new();
        batch.put(&self.key(key), &value);
        self.engine.write(&batch, Durability::Buffered)
    }

    /// Runs gets on several placements of the same keys: the distribution of hot keys over channels
    /// is random and determines the throughput of gets.
    pub(super) fn gets_of_places(&mut self, operations: u64) -> Result<Run> {
        let mut runs = Vec::new();
        for _ in 0..PLACEMENTS {
            self.run(100, self.keys / 4)?;
            self.engine.flush()?;
            self.run(0, self.keys / 4)?;
            runs.push(self.run(0, operations / PLACEMENTS)?);
        }
        Ok(Run::of(&runs))
    }

    /// Runs operations of all clients, `puts` percent of them puts.
    pub(super) fn run(&mut self, puts: u32, operations: u64) -> Result<Run> {
        let start = self.time.now();
        let before = self.engine.stats();
        let mut clients: BinaryHeap<Reverse<(Duration, usize)>> =
            (0..CLIENTS).map(|client| Reverse((start, client))).collect();
        let mut end = start;
        for _ in 0..operations {
            let Some(Reverse((at, client))) = clients.pop() else { break };
            self.time.set(at);
            let key = self.chooser.next(&mut self.rng, self.keys);
            if self.rng.random_range(0..100) < puts {
                self.put(key)?;
            } else {
                self.engine.get(&self.key(key))?;
            }
            // A client without a wait still runs after the others.
            let now = self.time.now().max(at + Duration::from_nanos(1));
            end = end.max(now);
            clients.push(Reverse((now, client)));
        }
        self.time.set(end);
        let after = self.engine.stats();
        let more = |name: &str| (of(&after, name) - of(&before, name)) as f64;
        let (hits, misses) = (more("translation_cache_hits"), more("translation_cache_misses"));
        let reads = |stats: &Stats| stats.io.get("get").map_or(0, |io| io.reads);
        let gets = (after.gets - before.gets).max(1) as f64;
        let seconds = (end - start).as_secs_f64();
        Ok(Run {
            device: DeviceTime::between(&before, &after, operations, end - start),
            per_second: operations as f64 / seconds,
            hit_rate: hits / (hits + misses).max(1.0),
            reads_per_get: (reads(&after) - reads(&before)) as f64 / gets,
        })
    }

    fn key(&self, number: u64) -> Vec<u8> {
        let mut key = Vec::new();
        self.space.write(number, &mut key);
        key
    }

    pub(super) fn stats(&self) -> Stats {
        self.engine.stats()
    }
}

fn of(stats: &Stats, counter: &str) -> u64 {
    stats.counters.get(counter).copied().unwrap_or(0)
}
