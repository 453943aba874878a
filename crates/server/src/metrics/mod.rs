//! What the server counts, for INFO and for Prometheus.
//!
//! Counters are relaxed atomics. Latencies gather in a worker's [`Samples`] and go to its
//! histograms once a turn, so a command costs no lock.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`text`] | everything in Prometheus's text format |
//! | [`http`] | the port on which Prometheus and browsers ask |

pub(crate) mod cpu;
pub(crate) mod http;
pub(crate) mod text;

use std::sync::atomic::AtomicU64;
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
    /// One set of histograms a worker, so that workers don't wait for one another.
    workers: Vec<Mutex<Histograms>>,
}

/// The latencies of each command, by its index; made when it is first called.
type Histograms = Vec<Option<Box<Histogram<u64>>>>;

/// Latencies of one turn of a worker.
#[derive(Default)]
pub(crate) struct Samples {
    samples: Vec<(usize, u64, Duration)>,
}

impl Samples {
    /// Notes that `count` calls of a command took `each` long.
    #[inline]
    pub(crate) fn add(&mut self, command: usize, count: u64, each: Duration) {
        self.samples.push((command, count, each));
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
            workers: (0..workers).map(|_| histograms()).collect(),
        }
    }

    /// Takes over what a worker has gathered.
    pub(crate) fn record(&self, worker: usize, samples: &mut Samples) {
        if samples.samples.is_empty() {
            return;
        }
        let mut histograms = self.workers[worker].lock();
        for (command, count, each) in samples.samples.drain(..) {
            let histogram = histograms[command].get_or_insert_with(|| Box::new(histogram()));
            let nanos = u64::try_from(each.as_nanos()).unwrap_or(LONGEST);
            histogram.saturating_record(nanos.min(LONGEST));
            // The batch shares one latency; the rest of its calls are counted with it.
            if count > 1 {
                let _ = histogram.record_n(nanos.clamp(1, LONGEST), count - 1);
            }
        }
        drop(histograms);
        samples.samples.shrink_to(4096);
    }

    /// The latencies of each command that was called, of all workers together.
    pub(crate) fn latencies(&self) -> Vec<(&'static str, Histogram<u64>)> {
        let mut all = Vec::new();
        for (index, command) in command::table().iter().enumerate() {
            let mut sum = histogram();
            for worker in &self.workers {
                if let Some(histogram) = &worker.lock()[index] {
                    // The bounds are the same, so nothing can be out of them.
                    let _ = sum.add(histogram.as_ref());
                }
            }
            if !sum.is_empty() {
                all.push((command.name, sum));
            }
        }
        all
    }

    /// Commands run so far.
    pub(crate) fn total_commands(&self) -> u64 {
        let count = |h: &Option<Box<Histogram<u64>>>| h.as_ref().map_or(0, |h| h.len());
        self.workers.iter().map(|worker| worker.lock().iter().map(count).sum::<u64>()).sum()
    }
}

/// Nanoseconds to a minute, at two digits: some 30 KB.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 2).expect("the bounds are constant and valid")
}
