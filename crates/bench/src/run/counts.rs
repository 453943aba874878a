//! Costs of a phase, from two snapshots of the engine's [`Stats`].
//!
//! ```text
//! Stats before ─┐
//!               ├─ Counts (differences; added over phases) ──┐
//! Stats after ──┤                                            ├─ Figures (ratios)
//!               └─ State (sizes at the end) ─────────────────┘
//! ```
//!
//! Invariant: ratios are computed from sums, never averaged, so the figures of a run are those of
//! its phases taken together.

use std::collections::BTreeMap;

use siltstone_engine::stats::Stalls;
use siltstone_engine::{IoCounts, Stats};
use siltstone_vfs::Device;

use super::{DeviceWrites, process};

use crate::report::{Figures, LatencyByKind, LevelFigures, StallMs, Timeline};

/// Device classes for which busy times are computed.
const DEVICES: [Device; 3] = [Device::NVME_SSD, Device::SATA_SSD, Device::HDD];

/// Differences of counters over a phase.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Operations of the counted threads.
    pub ops: u64,
    /// Time of these operations.
    pub seconds: f64,
    /// Time after them until background work was idle.
    pub settle_seconds: f64,
    /// CPU time of all threads of the process in both, in seconds.
    pub cpu_seconds: f64,
    /// Bytes of keys and values written.
    pub user_bytes: u64,
    /// Bytes written to storage, by purpose.
    pub written: BTreeMap<String, u64>,
    /// Bytes written below the page cache, if the kernel counts them.
    pub device_writes: DeviceWrites,
    /// Requests to storage for all purposes; `None` if they are not counted.
    pub requests: Option<IoCounts>,
    /// Bytes stored in byte-addressable memory, by purpose.
    pub nvm_stored: BTreeMap<String, u64>,
    /// Point lookups.
    pub lookups: u64,
    /// Read requests of lookups.
    pub lookup_reads: u64,
    /// Bytes read by lookups.
    pub lookup_bytes: u64,
    /// Write stalls.
    pub stalls: Stalls,
    /// Bytes written into each level.
    pub level_written: BTreeMap<String, u64>,
    /// Total time of background jobs, if the engine counts it.
    pub background_us: u64,
}

/// Sizes at the end of a phase.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Live keys.
    pub keys: u64,
    /// Bytes of memory by structure.
    pub memory: BTreeMap<String, u64>,
    /// Bytes of live files.
    pub space_bytes: u64,
    /// Bytes and files of each level.
    pub levels: BTreeMap<String, (u64, u64)>,
    /// Resident memory of the process.
    pub rss_bytes: Option<u64>,
}

impl Counts {
    /// The differences between two snapshots.
    pub fn between(before: &Stats, after: &Stats) -> Self {
        let written = after.io.iter().map(|(purpose, io)| {
            let earlier = before.io.get(purpose).copied().unwrap_or_default();
            (purpose.to_string(), io.bytes_written - earlier.bytes_written)
        });
        let stored = after.nvm.iter().map(|(purpose, nvm)| {
            let earlier = before.nvm.get(purpose).copied().unwrap_or_default();
            (purpose.to_string(), nvm.bytes_stored - earlier.bytes_stored)
        });
        let get = after.io.get("get").copied().unwrap_or_default();
        let get_before = before.io.get("get").copied().unwrap_or_default();
        let mut stalls = Stalls {
            slowdown_us: after.stall.slowdown_us - before.stall.slowdown_us,
            flush_us: after.stall.flush_us - before.stall.flush_us,
            compaction_us: after.stall.compaction_us - before.stall.compaction_us,
            longest_us: after.stall.longest_us,
        };
        if after.stall.longest_us == before.stall.longest_us {
            // The maximum is of an earlier phase: this phase's is at most its total stall time.
            stalls.longest_us = stalls.longest_us.min(total_us(&stalls));
        }
        let background_us = |stats: &Stats| stats.counters.get("background_us").copied();
        let background_us = background_us(after).zip(background_us(before));
        let into = |stats: &Stats, name: &str| {
            let level = stats.levels.iter().find(|level| level.name == name);
            level.map_or(0, |level| level.bytes_written)
        };
        let level_written = after.levels.iter().map(|level| {
            (level.name.clone(), level.bytes_written.saturating_sub(into(before, &level.name)))
        });
        Counts {
            level_written: level_written.collect(),
            background_us: background_us.map_or(0, |(after, before)| after - before),
            user_bytes: after.user_bytes_written - before.user_bytes_written,
            written: written.filter(|(_, bytes)| *bytes > 0).collect(),
            requests: requests(after).zip(requests(before)).map(|(after, before)| IoCounts {
                reads: after.reads - before.reads,
                bytes_read: after.bytes_read - before.bytes_read,
                writes: after.writes - before.writes,
                bytes_written: after.bytes_written - before.bytes_written,
                syncs: after.syncs - before.syncs,
            }),
            nvm_stored: stored.filter(|(_, bytes)| *bytes > 0).collect(),
            lookups: after.gets - before.gets,
            lookup_reads: get.reads - get_before.reads,
            lookup_bytes: get.bytes_read - get_before.bytes_read,
            stalls,
            ..Counts::default()
        }
    }

    /// Adds another phase.
    pub fn add(&mut self, other: &Counts) {
        self.seconds += other.seconds;
        self.settle_seconds += other.settle_seconds;
        self.cpu_seconds += other.cpu_seconds;
        self.user_bytes += other.user_bytes;
        for (purpose, bytes) in &other.written {
            *self.written.entry(purpose.clone()).or_default() += bytes;
        }
        for (purpose, bytes) in &other.nvm_stored {
            *self.nvm_stored.entry(purpose.clone()).or_default() += bytes;
        }
        for (level, bytes) in &other.level_written {
            *self.level_written.entry(level.clone()).or_default() += bytes;
        }
        // An empty sum has no counters; otherwise both must have counted.
        self.device_writes = match self.ops {
            0 if self.device_writes == DeviceWrites::default() => other.device_writes,
            _ => self.device_writes.plus(other.device_writes),
        };
        self.requests = match (self.ops, self.requests) {
            (0, None) => other.requests,
            (_, ours) => ours.zip(other.requests).map(|(ours, theirs)| sum([ours, theirs])),
        };
        self.ops += other.ops;
        self.lookups += other.lookups;
        self.lookup_reads += other.lookup_reads;
        self.lookup_bytes += other.lookup_bytes;
        self.stalls.slowdown_us += other.stalls.slowdown_us;
        self.stalls.flush_us += other.stalls.flush_us;
        self.stalls.compaction_us += other.stalls.compaction_us;
        self.stalls.longest_us = self.stalls.longest_us.max(other.stalls.longest_us);
        self.background_us += other.background_us;
    }

    /// Bytes written to storage per byte that the user wrote.
    pub fn write_amplification(&self) -> Option<f64> {
        let written = self.written.values().sum::<u64>() as f64;
        (self.user_bytes > 0).then(|| written / self.user_bytes as f64)
    }

    /// The figures of these counts.
    pub fn figures(
        &self,
        identity: &Identity<'_>,
        state: &State,
        latency_us: LatencyByKind,
        timeline: Option<Timeline>,
    ) -> Figures {
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let media_bytes_written = self.written.values().sum();
        let ms = |us: u64| us as f64 / 1e3;
        Figures {
            engine: identity.engine.to_owned(),
            workload: identity.workload.to_owned(),
            keys: identity.keys,
            ops: self.ops,
            threads: identity.threads,
            seconds: self.seconds,
            settle_seconds: Some(self.settle_seconds),
            cpu_us_per_op: (self.ops > 0 && self.cpu_seconds > 0.0)
                .then(|| self.cpu_seconds * 1e6 / self.ops as f64),
            rss_bytes: state.rss_bytes,
            ops_per_second: if self.seconds > 0.0 { self.ops as f64 / self.seconds } else { 0.0 },
            user_bytes_written: self.user_bytes,
            media_bytes_written,
            process_bytes_written: self.device_writes.process,
            device_bytes_written: self.device_writes.device,
            by_purpose: self.written.clone(),
            nvm_bytes_stored: self.nvm_stored.values().sum(),
            nvm_by_purpose: self.nvm_stored.clone(),
            write_amplification: ratio(media_bytes_written, self.user_bytes),
            reads_per_lookup: ratio(self.lookup_reads, self.lookups),
            bytes_read_per_lookup: ratio(self.lookup_bytes, self.lookups),
            memory_bytes_per_key: ratio(state.memory.values().sum(), state.keys),
            by_structure: (state.memory.iter())
                .filter_map(|(name, bytes)| Some((name.clone(), ratio(*bytes, state.keys)?)))
                .collect(),
            space_bytes: state.space_bytes,
            latency_us,
            stall_ms: StallMs {
                insert: Some(ms(self.stalls.slowdown_us)),
                flush: Some(ms(self.stalls.flush_us)),
                compaction: Some(ms(self.stalls.compaction_us)),
                total: ms(total_us(&self.stalls)),
                longest: Some(ms(self.stalls.longest_us)),
            },
            timeline,
            device_seconds: self.requests.filter(|requests| *requests != IoCounts::default()).map(
                |requests| {
                    let busy = |device: Device| device.time(&requests).as_secs_f64();
                    DEVICES.map(|device| (device.name.to_owned(), busy(device))).into()
                },
            ),
            levels: (state.levels.iter())
                .map(|(name, &(space_bytes, files))| {
                    let bytes_written = self.level_written.get(name).copied().unwrap_or(0);
                    let write_amplification = ratio(bytes_written, self.user_bytes);
                    let name = name.clone();
                    LevelFigures { name, bytes_written, write_amplification, space_bytes, files }
                })
                .collect(),
            growth: Vec::new(),
        }
    }
}

impl State {
    /// The sizes of an engine, and of this process now.
    pub fn of(stats: &Stats) -> Self {
        State {
            rss_bytes: process::rss_bytes(),
            keys: stats.keys_estimate.unwrap_or(0),
            memory: stats.memory.iter().map(|(name, bytes)| (name.to_string(), *bytes)).collect(),
            space_bytes: stats.space_bytes,
            levels: (stats.levels.iter())
                .map(|level| (level.name.clone(), (level.bytes, level.files)))
                .collect(),
        }
    }
}

/// Names and numbers that identify figures.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// Name of the engine or the peer.
    pub engine: &'a str,
    /// The workload, or several joined by commas.
    pub workload: &'a str,
    /// Keys of the key space.
    pub keys: u64,
    /// Threads of the workload.
    pub threads: usize,
}

/// All requests to storage since the store was opened: those of the process if a peer reports them,
/// else those of all purposes; `None` if only bytes were counted.
fn requests(stats: &Stats) -> Option<IoCounts> {
    let counter = |name: &str| stats.counters.get(name).copied();
    if let Some(writes) = counter(process::WRITES) {
        return Some(IoCounts {
            reads: counter(process::READS)?,
            bytes_read: counter(process::BYTES_READ)?,
            writes,
            bytes_written: counter(process::BYTES_WRITTEN)?,
            syncs: 0,
        });
    }
    let all = sum(stats.io.values().copied());
    let are_counted = |requests: u64, bytes: u64| requests > 0 || bytes == 0;
    (are_counted(all.reads, all.bytes_read) && are_counted(all.writes, all.bytes_written))
        .then_some(all)
}

fn sum(counts: impl IntoIterator<Item = IoCounts>) -> IoCounts {
    counts.into_iter().fold(IoCounts::default(), |a, b| IoCounts {
        reads: a.reads + b.reads,
        bytes_read: a.bytes_read + b.bytes_read,
        writes: a.writes + b.writes,
        bytes_written: a.bytes_written + b.bytes_written,
        syncs: a.syncs + b.syncs,
    })
}

fn total_us(stalls: &Stalls) -> u64 {
    stalls.slowdown_us + stalls.flush_us + stalls.compaction_us
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::stats::LevelStats;

    fn stats(user: u64, log: u64, compaction: u64, gets: u64, stall: Stalls) -> Stats {
        let wrote = |bytes_written| IoCounts { bytes_written, ..IoCounts::default() };
        let get = IoCounts { reads: 2 * gets, bytes_read: 100 * gets, ..IoCounts::default() };
        Stats {
            user_bytes_written: user,
            gets,
            io: BTreeMap::from([
                ("log", wrote(log)),
                ("compaction", wrote(compaction)),
                ("get", get),
            ]),
            stall,
            ..Stats::default()
        }
    }

    #[test]
    fn figures_are_ratios_of_differences() {
        let before = stats(1000, 1000, 9000, 10, Stalls::default());
        let after = stats(3000, 3100, 11_900, 20, Stalls::default());
        let mut counts = Counts::between(&before, &after);
        (counts.ops, counts.seconds) = (50, 2.0);
        let state = State {
            keys: 10,
            memory: BTreeMap::from([("filter".to_owned(), 25)]),
            ..State::default()
        };
        let identity = Identity { engine: "lsm", workload: "w", keys: 10, threads: 1 };
        let figures = counts.figures(&identity, &state, LatencyByKind::default(), None);
        assert_eq!(figures.user_bytes_written, 2000);
        assert_eq!(figures.media_bytes_written, 5000);
        assert_eq!(figures.by_purpose["log"], 2100);
        assert!(!figures.by_purpose.contains_key("get"));
        assert_eq!(figures.write_amplification, Some(2.5));
        assert_eq!(figures.reads_per_lookup, Some(2.0));
        assert_eq!(figures.bytes_read_per_lookup, Some(100.0));
        assert_eq!(figures.memory_bytes_per_key, Some(2.5));
        assert_eq!(figures.by_structure["filter"], 2.5);
        assert_eq!(figures.ops_per_second, 25.0);
    }

    #[test]
    fn level_writes_are_differences() {
        let with = |user, into| {
            let level = LevelStats {
                name: "L1".to_owned(),
                bytes_written: into,
                bytes: 40,
                files: 3,
                ..LevelStats::default()
            };
            Stats { levels: vec![level], ..stats(user, 0, 0, 0, Stalls::default()) }
        };
        let after = with(150, 230);
        let mut counts = Counts::between(&with(100, 30), &after);
        counts.add(&Counts::between(&with(0, 0), &with(50, 100)));
        let identity = Identity { engine: "trie", workload: "w", keys: 1, threads: 1 };
        let state = State::of(&after);
        let figures = counts.figures(&identity, &state, LatencyByKind::default(), None);
        let level = &figures.levels[0];
        assert_eq!((level.bytes_written, level.space_bytes, level.files), (300, 40, 3));
        assert_eq!(level.write_amplification, Some(3.0));
    }

    #[test]
    fn phase_without_writes_has_no_amplification() {
        let same = stats(5, 5, 0, 1, Stalls::default());
        let counts = Counts::between(&same, &same);
        let identity = Identity { engine: "lsm", workload: "w", keys: 1, threads: 1 };
        let figures = counts.figures(&identity, &State::default(), LatencyByKind::default(), None);
        assert_eq!(figures.write_amplification, None);
        assert_eq!(figures.reads_per_lookup, None);
        assert_eq!(figures.memory_bytes_per_key, None);
    }

    #[test]
    fn device_time_needs_counted_requests() {
        let snapshot =
            |io: IoCounts| Stats { io: BTreeMap::from([("log", io)]), ..Stats::default() };
        let wrote =
            |writes, bytes_written| IoCounts { writes, bytes_written, ..IoCounts::default() };
        let identity = Identity { engine: "lsm", workload: "w", keys: 1, threads: 1 };
        let busy = |counts: &Counts| {
            let state = State::default();
            counts.figures(&identity, &state, LatencyByKind::default(), None).device_seconds
        };
        let mut counts =
            Counts::between(&snapshot(wrote(5, 100)), &snapshot(wrote(105, 200_000_100)));
        counts.ops = 1;
        let seconds = busy(&counts).unwrap();
        assert_eq!(seconds["HDD"], 100.0 * 0.008 + 1.0);
        let mut twice = Counts::default();
        twice.add(&counts);
        twice.add(&counts);
        assert_eq!(busy(&twice).unwrap()["HDD"], 2.0 * seconds["HDD"]);
        // For a peer that only reports bytes the time is unknown, and so it is for a sum with it.
        let uncounted =
            Counts { ops: 1, ..Counts::between(&snapshot(wrote(0, 0)), &snapshot(wrote(0, 9))) };
        assert_eq!(busy(&uncounted), None);
        twice.add(&uncounted);
        assert_eq!(busy(&twice), None);
    }

    #[test]
    fn longest_stall_of_an_earlier_phase_is_excluded() {
        let stall = |flush_us, longest_us| Stalls { flush_us, longest_us, ..Stalls::default() };
        let longest = |before, after| {
            let snapshot = |stall| stats(0, 0, 0, 0, stall);
            Counts::between(&snapshot(before), &snapshot(after)).stalls.longest_us
        };
        assert_eq!(longest(stall(900, 900), stall(900, 900)), 0);
        assert_eq!(longest(stall(900, 900), stall(950, 900)), 50);
        assert_eq!(longest(stall(900, 900), stall(2900, 2000)), 2000);
    }

    #[test]
    fn phases_add_up() {
        let mut sum = Counts::between(
            &stats(0, 0, 0, 0, Stalls::default()),
            &stats(10, 20, 0, 1, Stalls::default()),
        );
        sum.add(&sum.clone());
        assert_eq!((sum.user_bytes, sum.written["log"], sum.lookup_reads), (20, 40, 4));
    }
}
