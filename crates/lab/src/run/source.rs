//! Where a thread's requests come from: drawn, or replayed from a trace.
//!
//! Invariant: threads of one workload share nothing that they draw from but the number of keys there are.
//!
//! Source: ours.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rand::RngExt;

use crate::generate::{Chooser, KeySpace, Mix, Operation, Rng, Values};
use crate::trace::{Trace, Verb};

/// What is to be done to the key that was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Put,
    Get,
    GetAndPut,
    Delete,
    /// To read the entry at the key and so many behind it.
    Scan {
        nexts: u64,
    },
}

/// Where a thread's requests come from.
pub(super) enum Source<'a> {
    Drawn(Drawn<'a>),
    Replayed(Replayed<'a>),
}

impl Source<'_> {
    /// The next request, whose key is put into `key`.
    pub(super) fn next(&mut self, key: &mut Vec<u8>) -> Deed {
        match self {
            Source::Drawn(drawn) => drawn.next(key),
            Source::Replayed(replayed) => replayed.next(key),
        }
    }

    /// A value for it.
    pub(super) fn value(&mut self) -> &[u8] {
        match self {
            Source::Drawn(drawn) => drawn.values.next(&mut drawn.rng),
            Source::Replayed(replayed) => replayed.values.of(replayed.bytes, &mut replayed.rng),
        }
    }

    /// When the next request is due, counted from the start of a pass; at once if it doesn't say.
    pub(super) fn due(&self) -> Option<Duration> {
        match self {
            Source::Replayed(replayed) if replayed.in_time => {
                Some(replayed.trace.get(replayed.next).at)
            }
            _ => None,
        }
    }
}

/// Requests drawn from a mix, keys from a distribution.
pub(super) struct Drawn<'a> {
    pub(super) keys: KeySpace,
    pub(super) chooser: Chooser,
    pub(super) values: Values,
    pub(super) mix: &'a Mix,
    pub(super) rng: Rng,
    /// Keys there are by now; shared, because inserts add to it.
    pub(super) population: &'a AtomicU64,
}

impl Drawn<'_> {
    fn next(&mut self, key: &mut Vec<u8>) -> Deed {
        let operation = self.mix.next(&mut self.rng);
        let number = match operation {
            Operation::Insert => self.population.fetch_add(1, Relaxed),
            _ => self.chooser.next(&mut self.rng, self.population.load(Relaxed)),
        };
        match operation {
            Operation::GetMissing => self.keys.write_missing(number, key),
            _ => self.keys.write(number, key),
        }
        match operation {
            Operation::Put | Operation::Insert => Deed::Put,
            Operation::Get | Operation::GetMissing => Deed::Get,
            Operation::ReadModifyWrite => Deed::GetAndPut,
            Operation::Scan { longest } => {
                Deed::Scan { nexts: self.rng.random_range(1..=longest.max(1)) - 1 }
            }
            Operation::Seek { nexts } => Deed::Scan { nexts },
        }
    }
}

/// Every so manieth request of a trace.
pub(super) struct Replayed<'a> {
    pub(super) trace: &'a Trace,
    pub(super) in_time: bool,
    /// The number of the next request.
    pub(super) next: u64,
    /// Threads that take turns.
    pub(super) step: u64,
    pub(super) values: Values,
    pub(super) rng: Rng,
    /// Bytes of the value of the request given last.
    pub(super) bytes: usize,
}

impl Replayed<'_> {
    fn next(&mut self, key: &mut Vec<u8>) -> Deed {
        let request = self.trace.get(self.next);
        self.next += self.step;
        key.clear();
        key.extend_from_slice(request.key);
        match request.verb {
            Verb::Get => Deed::Get,
            Verb::Delete => Deed::Delete,
            Verb::Scan { entries } => Deed::Scan { nexts: u64::from(entries).max(1) - 1 },
            Verb::Put { bytes } => {
                self.bytes = bytes as usize;
                Deed::Put
            }
        }
    }
}
