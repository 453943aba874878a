//! One thread of a workload.
//!
//! In a *closed loop* an operation starts when the one before has ended. In an *open loop*
//! operations start on a timetable, and each is timed from when it was due: an operation that waits
//! because the one before was slow counts as slow, as it would for the user behind it.
//!
//! Invariant: drawing keys and values is not timed; the engine's call, and in the open loop the wait
//! for it, is.
//!
//! Source: on timing from the intended start, Tene, "How NOT to Measure Latency" (coordinated
//! omission).

use std::hint::black_box;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use siltstone_engine::{Durability, Engine, KeyRange, Result, WriteBatch};

use super::latency::{Kind, Latencies};
use super::source::{Deed, Source};
use super::timeline::Slices;

/// Operations between two looks at the shared counters.
const REPORT_EVERY: u64 = 64;

/// Below this the rest of a wait is spent spinning: a sleep would overshoot it.
const SPIN: Duration = Duration::from_micros(100);

/// What threads of one pass share.
pub(super) struct Pass<'a> {
    /// When it began.
    pub(super) start: Instant,
    /// Operations done by the threads that count.
    pub(super) done: &'a AtomicU64,
    /// Set when threads should end early.
    pub(super) stop: &'a AtomicBool,
}

/// When a thread's operations are due: the i-th at `first + i · interval`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timetable {
    pub(super) first: Duration,
    pub(super) interval: Duration,
}

/// One thread of a workload: what it draws from, and what it measured.
pub(super) struct Worker<'a> {
    pub(super) engine: &'a dyn Engine,
    pub(super) source: Source<'a>,
    pub(super) durability: Durability,
    pub(super) timetable: Option<Timetable>,
    /// Whether its operations count towards the throughput.
    pub(super) counts: bool,
    /// After so many operations all due background work is done.
    pub(super) pace: Option<u64>,
    pub(super) latencies: Latencies,
    pub(super) slices: Slices,
    pub(super) key: Vec<u8>,
    pub(super) batch: WriteBatch,
}

impl Worker<'_> {
    /// Does `quota` operations, or fewer if told to stop. What earlier passes measured is forgotten.
    pub(super) fn run(&mut self, pass: &Pass<'_>, quota: u64) -> Result<()> {
        self.latencies = Latencies::default();
        self.slices = Slices::default();
        let mut unreported = 0;
        for i in 0..quota {
            let due = match self.timetable {
                Some(table) => Some(table.first + mul(table.interval, i)),
                None => self.source.due(),
            };
            let due = due.map(|due| pass.start + due);
            due.inspect(|due| wait_until(*due));
            if pass.stop.load(Relaxed) {
                break;
            }
            if let Err(error) = self.operation(due) {
                // The others need not go on: the run has failed.
                pass.stop.store(true, Relaxed);
                return Err(error);
            }
            if self.pace.is_some_and(|pace| i % pace == pace - 1) {
                self.engine.maintain()?;
            }
            if self.counts {
                self.slices.record(pass.start.elapsed());
                unreported += 1;
                if unreported == REPORT_EVERY {
                    pass.done.fetch_add(std::mem::take(&mut unreported), Relaxed);
                }
            }
        }
        pass.done.fetch_add(unreported, Relaxed);
        Ok(())
    }

    fn operation(&mut self, due: Option<Instant>) -> Result<()> {
        match self.source.next(&mut self.key) {
            Deed::Put => self.put(due),
            Deed::Get => self.get(due),
            Deed::GetAndPut => {
                self.get(due)?;
                self.put(None)
            }
            Deed::Delete => {
                self.batch.clear();
                self.batch.delete(&self.key);
                self.write(due)
            }
            Deed::Scan { nexts } => self.scan(nexts, due),
        }
    }

    fn put(&mut self, due: Option<Instant>) -> Result<()> {
        self.batch.clear();
        self.batch.put(&self.key, self.source.value());
        self.write(due)
    }

    fn write(&mut self, due: Option<Instant>) -> Result<()> {
        let start = due.unwrap_or_else(Instant::now);
        self.engine.write(&self.batch, self.durability)?;
        self.latencies.record(Kind::Put, start.elapsed());
        Ok(())
    }

    fn get(&mut self, due: Option<Instant>) -> Result<()> {
        let start = due.unwrap_or_else(Instant::now);
        let entry = self.engine.get(&self.key)?;
        self.latencies.record(Kind::Get, start.elapsed());
        black_box(entry);
        Ok(())
    }

    /// Reads the entry at the key and `nexts` after it.
    fn scan(&mut self, nexts: u64, due: Option<Instant>) -> Result<()> {
        let range = KeyRange { start: Bound::Included(self.key.clone()), end: Bound::Unbounded };
        let start = due.unwrap_or_else(Instant::now);
        let mut cursor = self.engine.range(range, None)?;
        let mut valid = cursor.first()?;
        for _ in 0..nexts {
            if !valid {
                break;
            }
            black_box(cursor.value());
            valid = cursor.next()?;
        }
        if valid {
            black_box(cursor.value());
        }
        self.latencies.record(Kind::Scan, start.elapsed());
        Ok(())
    }
}

fn wait_until(due: Instant) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        match left.checked_sub(SPIN) {
            Some(rest) if !rest.is_zero() => std::thread::sleep(rest),
            _ => std::hint::spin_loop(),
        }
    }
}

/// `interval · times` for counts past 32 bits.
fn mul(interval: Duration, times: u64) -> Duration {
    interval.mul_f64(times as f64)
}
