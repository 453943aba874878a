//! One thread of a workload.
//!
//! In a *closed loop* an operation starts when the previous one has ended. In an *open loop*
//! operations have scheduled start times, and latency counts from them: an operation that is
//! delayed by a slow predecessor counts as slow, as it would for a user.
//!
//! Invariant: drawing keys and values is not timed; the engine's call, and in an open loop the wait
//! for it, is.
//!
//! Source: Tene, "How NOT to Measure Latency" (coordinated omission).

use std::hint::black_box;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use siltstone_engine::{Durability, Engine, KeyRange, Result, WriteBatch};

use super::latency::{Kind, Latencies};
use super::source::{Action, Source};
use super::timeline::Slices;

/// Operations between two updates of the shared counters.
const REPORT_EVERY: u64 = 64;

/// The keys of a call of `multi_get`.
const MULTI_GET_KEYS: usize = 32;

/// The last part of a wait is spent spinning, because a sleep would overshoot.
const SPIN: Duration = Duration::from_micros(100);

/// State shared by the threads of one pass over a workload.
pub(super) struct Pass<'a> {
    /// Start of the pass.
    pub(super) start: Instant,
    /// Operations done by counted threads.
    pub(super) done: &'a AtomicU64,
    /// Set to end all threads early.
    pub(super) stop: &'a AtomicBool,
}

/// Start times of a thread's operations in an open loop: the i-th at `first + i · interval`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    pub(super) first: Duration,
    pub(super) interval: Duration,
}

/// One thread of a workload, with its request source and its measurements.
pub(super) struct Worker<'a> {
    pub(super) engine: &'a dyn Engine,
    pub(super) source: Source<'a>,
    pub(super) durability: Durability,
    pub(super) schedule: Option<Schedule>,
    /// Whether its operations count towards the throughput.
    pub(super) is_counted: bool,
    /// Number of operations after which all due background work is done.
    pub(super) pace: Option<u64>,
    pub(super) latencies: Latencies,
    pub(super) slices: Slices,
    pub(super) key: Vec<u8>,
    /// Keys of the next `multi_get`.
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) batch: WriteBatch,
}

impl Worker<'_> {
    /// Runs up to `quota` operations, until `pass.stop` is set. Discards earlier measurements.
    pub(super) fn run(&mut self, pass: &Pass<'_>, quota: u64) -> Result<()> {
        self.latencies = Latencies::default();
        self.slices = Slices::default();
        let mut unreported = 0;
        for i in 0..quota {
            let due = match self.schedule {
                Some(schedule) => Some(schedule.first + mul(schedule.interval, i)),
                None => self.source.due(),
            };
            let due = due.map(|due| pass.start + due);
            due.inspect(|due| wait_until(*due));
            if pass.stop.load(Relaxed) {
                break;
            }
            if let Err(error) = self.operation(due) {
                // The run has failed: stop the other threads.
                pass.stop.store(true, Relaxed);
                return Err(error);
            }
            if self.pace.is_some_and(|pace| i % pace == pace - 1) {
                self.engine.maintain()?;
            }
            if self.is_counted {
                self.slices.record(pass.start.elapsed());
                unreported += 1;
                if unreported == REPORT_EVERY {
                    pass.done.fetch_add(std::mem::take(&mut unreported), Relaxed);
                }
            }
        }
        pass.done.fetch_add(unreported, Relaxed);
        if self.keys.is_empty() { Ok(()) } else { self.multi_get(None) }
    }

    fn operation(&mut self, due: Option<Instant>) -> Result<()> {
        match self.source.next(&mut self.key) {
            Action::Put => self.put(due),
            Action::Get => self.get(due),
            Action::MultiGet => {
                self.keys.push(self.key.clone());
                if self.keys.len() < MULTI_GET_KEYS { Ok(()) } else { self.multi_get(due) }
            }
            Action::GetAndPut => {
                self.get(due)?;
                self.put(None)
            }
            Action::Delete => {
                self.batch.clear();
                self.batch.delete(&self.key);
                self.write(due)
            }
            Action::Scan { nexts } => self.scan(nexts, due),
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

    fn multi_get(&mut self, due: Option<Instant>) -> Result<()> {
        let keys: Vec<_> = self.keys.iter().map(Vec::as_slice).collect();
        let start = due.unwrap_or_else(Instant::now);
        let entries = self.engine.multi_get(&keys, None)?;
        self.latencies.record(Kind::Get, start.elapsed());
        black_box(entries);
        self.keys.clear();
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

/// `interval · times`, for counts above 32 bits.
fn mul(interval: Duration, times: u64) -> Duration {
    interval.mul_f64(times as f64)
}
