//! Counters and latencies of the server, for INFO and Prometheus.
//!
//! Counters are relaxed atomics. Latencies are collected in a worker's [`Samples`] and merged into
//! its histograms once per event-loop iteration, so a command takes no lock.
//!
//! | module | contents |
//! | --- | --- |
//! | [`text`] | the Prometheus text format |
//! | [`http`] | the metrics port |

pub(crate) mod http;
pub(crate) mod text;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::command::CommandIndex;

/// Maximum recorded latency, in nanoseconds: one minute.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// Counters and latencies of the server.
pub(crate) struct Metrics {
    pub(crate) accepted: AtomicU64,
    pub(crate) rejected_clients: AtomicU64,
    pub(crate) rejected_passwords: AtomicU64,
    /// Failed TLS handshakes, and invalid records.
    pub(crate) tls_errors: AtomicU64,
    pub(crate) protocol_errors: AtomicU64,
    pub(crate) slow_readers: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) failed_syncs: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    /// Lookups of Redis clients that found the key.
    pub(crate) keyspace_hits: AtomicU64,
    /// Lookups of Redis clients that did not find the key.
    pub(crate) keyspace_misses: AtomicU64,
    /// Fields of hashes that have expired, and were taken out of the count.
    pub(crate) expired_fields: AtomicU64,
    /// Error replies by their code.
    error_codes: Mutex<BTreeMap<String, u64>>,
    rate: Mutex<Rate>,
    commands: &'static CommandIndex,
    /// Histograms per worker, so that workers do not contend.
    workers: Vec<Mutex<Histograms>>,
}

/// Maximum number of error codes that are counted.
const MAX_ERROR_CODES: usize = 128;
/// Minimum time over which the rate of commands is measured.
const RATE_INTERVAL: Duration = Duration::from_secs(1);

/// Rate of commands over the last [`RATE_INTERVAL`] or more.
struct Rate {
    since: Instant,
    /// Commands run until `since`.
    before: u64,
    per_second: u64,
}

/// Counts per counter of [`CommandIndex`], created at the first call.
type Histograms = Vec<Option<Box<CommandCounts>>>;

/// Counts of one command.
pub(crate) struct CommandCounts {
    /// Latencies of all calls, including rejected ones.
    pub(crate) latencies: Histogram<u64>,
    /// Calls rejected before they ran: wrong arguments, not authenticated, ….
    pub(crate) rejected: u64,
    /// Calls that ran and returned an error.
    pub(crate) failed: u64,
}

impl CommandCounts {
    fn new() -> Self {
        CommandCounts { latencies: histogram(), rejected: 0, failed: 0 }
    }
}

/// Outcome of a command call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    Done,
    /// It ran and returned an error.
    Failed,
    /// It did not run.
    Rejected,
}

/// Latencies of one event-loop iteration.
#[derive(Default)]
pub(crate) struct Samples {
    samples: Vec<(usize, u64, Duration)>,
    /// Calls that failed or were rejected.
    errors: Vec<(usize, CallOutcome)>,
    /// Lookups that found the key.
    pub(crate) hits: u64,
    /// Lookups that did not find the key.
    pub(crate) misses: u64,
}

impl Samples {
    /// Records `count` calls that took `each`, by their counter.
    #[inline]
    pub(crate) fn add(&mut self, counter: usize, count: u64, each: Duration) {
        self.samples.push((counter, count, each));
    }

    /// Records a call that failed or was rejected.
    pub(crate) fn add_error(&mut self, counter: usize, outcome: CallOutcome) {
        self.errors.push((counter, outcome));
    }
}

impl Metrics {
    pub(crate) fn new(workers: usize, commands: &'static CommandIndex) -> Self {
        let histograms = || Mutex::new(commands.counters().iter().map(|_| None).collect());
        Metrics {
            accepted: AtomicU64::new(0),
            rejected_clients: AtomicU64::new(0),
            rejected_passwords: AtomicU64::new(0),
            tls_errors: AtomicU64::new(0),
            protocol_errors: AtomicU64::new(0),
            slow_readers: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            failed_syncs: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            keyspace_hits: AtomicU64::new(0),
            keyspace_misses: AtomicU64::new(0),
            expired_fields: AtomicU64::new(0),
            error_codes: Mutex::default(),
            rate: Mutex::new(Rate { since: Instant::now(), before: 0, per_second: 0 }),
            commands,
            workers: (0..workers).map(|_| histograms()).collect(),
        }
    }

    /// Counts an error reply, whose text begins with its code.
    pub(crate) fn record_error(&self, text: &str) {
        self.errors.fetch_add(1, Relaxed);
        let code = text.split(' ').next().unwrap_or_default();
        let mut codes = self.error_codes.lock();
        if let Some(count) = codes.get_mut(code) {
            *count += 1;
        } else if codes.len() < MAX_ERROR_CODES {
            codes.insert(code.to_owned(), 1);
        }
    }

    /// Error replies by their code.
    pub(crate) fn error_codes(&self) -> BTreeMap<String, u64> {
        self.error_codes.lock().clone()
    }

    /// Measures the rate of commands, if enough time has passed.
    pub(crate) fn measure_rate(&self, now: Instant) {
        let mut rate = self.rate.lock();
        let elapsed = now.saturating_duration_since(rate.since);
        if elapsed >= RATE_INTERVAL {
            let total = self.total_commands();
            let commands = total.saturating_sub(rate.before) as f64;
            let per_second = (commands / elapsed.as_secs_f64()).round() as u64;
            *rate = Rate { since: now, before: total, per_second };
        }
    }

    /// Commands per second when last measured.
    pub(crate) fn commands_per_second(&self) -> u64 {
        self.rate.lock().per_second
    }

    /// Merges the samples of a worker.
    pub(crate) fn record(&self, worker: usize, samples: &mut Samples) {
        if samples.samples.is_empty() && samples.hits + samples.misses == 0 {
            return;
        }
        self.keyspace_hits.fetch_add(std::mem::take(&mut samples.hits), Relaxed);
        self.keyspace_misses.fetch_add(std::mem::take(&mut samples.misses), Relaxed);
        let mut histograms = self.workers[worker].lock();
        for (command, count, each) in samples.samples.drain(..) {
            let counts = histograms[command].get_or_insert_with(|| Box::new(CommandCounts::new()));
            let histogram = &mut counts.latencies;
            let nanos = u64::try_from(each.as_nanos()).unwrap_or(MAX_LATENCY_NS);
            histogram.saturating_record(nanos.min(MAX_LATENCY_NS));
            // A batch shares one latency; its other calls are recorded with it.
            if count > 1 {
                let _ = histogram.record_n(nanos.clamp(1, MAX_LATENCY_NS), count - 1);
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

    /// Counts of every called command and subcommand, summed over all workers.
    pub(crate) fn commands(&self) -> Vec<(&'static str, CommandCounts)> {
        let mut all = Vec::new();
        for (index, name) in self.commands.counters().iter().enumerate() {
            let mut sum = CommandCounts::new();
            for worker in &self.workers {
                if let Some(counts) = &worker.lock()[index] {
                    // The bounds are equal, so every value is in range.
                    let _ = sum.latencies.add(&counts.latencies);
                    sum.rejected += counts.rejected;
                    sum.failed += counts.failed;
                }
            }
            if !sum.latencies.is_empty() {
                all.push((name.as_str(), sum));
            }
        }
        all
    }

    /// Resets the counters of CONFIG RESETSTAT.
    pub(crate) fn reset(&self) {
        for counter in [
            &self.accepted,
            &self.rejected_clients,
            &self.errors,
            &self.bytes_in,
            &self.bytes_out,
            &self.keyspace_hits,
            &self.keyspace_misses,
            &self.expired_fields,
        ] {
            counter.store(0, Relaxed);
        }
        self.error_codes.lock().clear();
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

/// From a nanosecond to a minute with two significant digits: about 30 KB.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY_NS, 2).expect("the bounds are constant and valid")
}
