//! What the server counts, for INFO and for Prometheus.
//!
//! Counters are relaxed atomics. Latencies gather in a worker's [`Samples`] and go to its
//! histograms once a turn, so a command costs no lock.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`text`] | everything in Prometheus's text format |
//! | [`http`] | the port on which Prometheus and browsers ask |

pub(crate) mod http;
pub(crate) mod text;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::command;

/// A command that takes longer counts as this long, in nanoseconds: one minute.
const LONGEST: u64 = 60_000_000_000;

/// What the server counts.
pub(crate) struct Metrics {
    pub(crate) accepted: AtomicU64,
    pub(crate) rejected_clients: AtomicU64,
    pub(crate) rejected_passwords: AtomicU64,
    pub(crate) protocol_errors: AtomicU64,
    pub(crate) slow_readers: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) failed_syncs: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    /// Keys that Redis's clients looked up and found.
    pub(crate) keyspace_hits: AtomicU64,
    /// Keys that Redis's clients looked up and did not find.
    pub(crate) keyspace_misses: AtomicU64,
    /// One set of histograms a worker, so that workers don't wait for one another.
    workers: Vec<Mutex<Histograms>>,
}

/// What is counted of each command, by its index; made when it is first called.
type Histograms = Vec<Option<Box<CommandCounts>>>;

/// What is counted of one command.
pub(crate) struct CommandCounts {
    /// The latencies of all calls, refused ones among them.
    pub(crate) latencies: Histogram<u64>,
    /// Calls that were refused before they ran: wrong arguments, not authenticated, ….
    pub(crate) rejected: u64,
    /// Calls that ran and answered with an error.
    pub(crate) failed: u64,
}

impl CommandCounts {
    fn new() -> Self {
        CommandCounts { latencies: histogram(), rejected: 0, failed: 0 }
    }
}

/// How a call of a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    Done,
    /// It ran and answered with an error.
    Failed,
    /// It did not run.
    Rejected,
}

/// Latencies of one turn of a worker.
#[derive(Default)]
pub(crate) struct Samples {
    samples: Vec<(usize, u64, Duration)>,
    /// The commands of calls that were not done.
    errors: Vec<(usize, CallOutcome)>,
    /// Keys that were looked up and found.
    pub(crate) hits: u64,
    /// Keys that were looked up and not found.
    pub(crate) misses: u64,
}

impl Samples {
    /// Notes that `count` calls of a command took `each` long.
    #[inline]
    pub(crate) fn add(&mut self, command: usize, count: u64, each: Duration) {
        self.samples.push((command, count, each));
    }

    /// Notes that a call of a command was not done.
    pub(crate) fn add_error(&mut self, command: usize, outcome: CallOutcome) {
        self.errors.push((command, outcome));
    }
}

impl Metrics {
    pub(crate) fn new(workers: usize) -> Self {
        let histograms = || Mutex::new(command::table().iter().map(|_| None).collect());
        Metrics {
            accepted: AtomicU64::new(0),
            rejected_clients: AtomicU64::new(0),
            rejected_passwords: AtomicU64::new(0),
            protocol_errors: AtomicU64::new(0),
            slow_readers: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            failed_syncs: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            keyspace_hits: AtomicU64::new(0),
            keyspace_misses: AtomicU64::new(0),
            workers: (0..workers).map(|_| histograms()).collect(),
        }
    }

    /// Takes over what a worker has gathered.
    pub(crate) fn record(&self, worker: usize, samples: &mut Samples) {
        if samples.samples.is_empty() {
            return;
        }
        self.keyspace_hits.fetch_add(std::mem::take(&mut samples.hits), Relaxed);
        self.keyspace_misses.fetch_add(std::mem::take(&mut samples.misses), Relaxed);
        let mut histograms = self.workers[worker].lock();
        for (command, count, each) in samples.samples.drain(..) {
            let counts = histograms[command].get_or_insert_with(|| Box::new(CommandCounts::new()));
            let histogram = &mut counts.latencies;
            let nanos = u64::try_from(each.as_nanos()).unwrap_or(LONGEST);
            histogram.saturating_record(nanos.min(LONGEST));
            // The batch shares one latency; the rest of its calls are counted with it.
            if count > 1 {
                let _ = histogram.record_n(nanos.clamp(1, LONGEST), count - 1);
            }
        }
        for (command, outcome) in samples.errors.drain(..) {
            let counts = histograms[command].get_or_insert_with(|| Box::new(CommandCounts::new()));
            match outcome {
                CallOutcome::Done => {}
                CallOutcome::Failed => counts.failed += 1,
                CallOutcome::Rejected => counts.rejected += 1,
            }
        }
        drop(histograms);
        samples.samples.shrink_to(4096);
        samples.errors.shrink_to(4096);
    }

    /// What was counted of each command that was called, of all workers together.
    pub(crate) fn commands(&self) -> Vec<(&'static str, CommandCounts)> {
        let mut all = Vec::new();
        for (index, command) in command::table().iter().enumerate() {
            let mut sum = CommandCounts::new();
            for worker in &self.workers {
                if let Some(counts) = &worker.lock()[index] {
                    // The bounds are the same, so nothing can be out of them.
                    let _ = sum.latencies.add(&counts.latencies);
                    sum.rejected += counts.rejected;
                    sum.failed += counts.failed;
                }
            }
            if !sum.latencies.is_empty() {
                all.push((command.name, sum));
            }
        }
        all
    }

    /// Sets to zero what CONFIG RESETSTAT does.
    pub(crate) fn reset(&self) {
        for counter in [
            &self.accepted,
            &self.rejected_clients,
            &self.errors,
            &self.bytes_in,
            &self.bytes_out,
            &self.keyspace_hits,
            &self.keyspace_misses,
        ] {
            counter.store(0, Relaxed);
        }
        for worker in &self.workers {
            worker.lock().iter_mut().for_each(|counts| *counts = None);
        }
    }

    /// Commands run so far.
    pub(crate) fn total_commands(&self) -> u64 {
        let count = |c: &Option<Box<CommandCounts>>| c.as_ref().map_or(0, |c| c.latencies.len());
        self.workers.iter().map(|worker| worker.lock().iter().map(count).sum::<u64>()).sum()
    }
}

/// Nanoseconds to a minute, at two digits: some 30 KB.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 2).expect("the bounds are constant and valid")
}
