//! Request sources of a thread: random draws, or a trace.
//!
//! Invariant: threads of one workload share no random state, only the current number of keys.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rand::RngExt;

use crate::generate::{Chooser, KeySpace, Mix, Operation, Rng, Values};
use crate::trace::{Trace, Verb};

/// The operation on the chosen key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Put,
    Get,
    /// Read the key, with others in one call.
    MultiGet,
    GetAndPut,
    Delete,
    /// Read the entry at the key and `nexts` entries after it.
    Scan {
        nexts: u64,
    },
}

/// A request source of a thread.
pub(super) enum Source<'a> {
    Random(RandomSource<'a>),
    Replay(ReplaySource<'a>),
}

impl Source<'_> {
    /// The next request; its key is written to `key`.
    pub(super) fn next(&mut self, key: &mut Vec<u8>) -> Action {
        match self {
            Source::Random(random) => random.next(key),
            Source::Replay(replay) => replay.next(key),
        }
    }

    /// A value for the last request.
    pub(super) fn value(&mut self) -> &[u8] {
        match self {
            Source::Random(random) => random.values.next(&mut random.rng),
            Source::Replay(replay) => replay.values.of(replay.bytes, &mut replay.rng),
        }
    }

    /// Scheduled time of the next request since the start of a pass; `None` if it has none.
    pub(super) fn due(&self) -> Option<Duration> {
        match self {
            Source::Replay(replay) if replay.paced => Some(replay.trace.get(replay.next).at),
            _ => None,
        }
    }
}

/// Operations drawn from a mix, keys from a distribution.
pub(super) struct RandomSource<'a> {
    pub(super) keys: KeySpace,
    pub(super) chooser: Chooser,
    pub(super) values: Values,
    pub(super) mix: &'a Mix,
    pub(super) rng: Rng,
    /// Current number of keys; shared, because inserts increment it.
    pub(super) population: &'a AtomicU64,
}

impl RandomSource<'_> {
    fn next(&mut self, key: &mut Vec<u8>) -> Action {
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
            Operation::Put | Operation::Insert => Action::Put,
            Operation::Get | Operation::GetMissing => Action::Get,
            Operation::MultiGet => Action::MultiGet,
            Operation::ReadModifyWrite => Action::GetAndPut,
            Operation::Scan { longest } => {
                Action::Scan { nexts: self.rng.random_range(1..=longest.max(1)) - 1 }
            }
            Operation::Seek { nexts } => Action::Scan { nexts },
        }
    }
}

/// Every `step`-th request of a trace.
pub(super) struct ReplaySource<'a> {
    pub(super) trace: &'a Trace,
    pub(super) paced: bool,
    /// Index of the next request.
    pub(super) next: u64,
    /// Number of threads that share the trace.
    pub(super) step: u64,
    pub(super) values: Values,
    pub(super) rng: Rng,
    /// Bytes of the last request's value.
    pub(super) bytes: usize,
}

impl ReplaySource<'_> {
    fn next(&mut self, key: &mut Vec<u8>) -> Action {
        let request = self.trace.get(self.next);
        self.next += self.step;
        key.clear();
        key.extend_from_slice(request.key);
        match request.verb {
            Verb::Get => Action::Get,
            Verb::Delete => Action::Delete,
            Verb::Scan { entries } => Action::Scan { nexts: u64::from(entries).max(1) - 1 },
            Verb::Put { bytes } => {
                self.bytes = bytes as usize;
                Action::Put
            }
        }
    }
}
