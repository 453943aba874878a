//! Linearizability of single operations. Threads operate on few keys; each key's history is checked
//! separately, since a history is linearizable if that of every key is.
//!
//! The checker searches for an order of the operations that agrees with their times (one that ended
//! before another began comes first) and with the semantics of a register. It tries each operation
//! that may come next, and remembers visited states:
//!
//! ```text
//!   state = (all operations below `done`, and the set `ahead`, are ordered; the register)
//!   next  = any other operation that began before the first end among the rest
//! ```
//!
//! With few threads `ahead` is small and there are few states for each `done`.
//!
//! Checked: each put, delete and get takes effect at one moment between call and return.
//!
//! Source: Wing and Gong, "Testing and Verifying Concurrent Objects", JPDC 17, 1993; the visited
//! states after Lowe, "Testing for Linearizability", CCPE 29(4), 2017.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use siltstone_engine::{Durability, Engine, WriteBatch};
use siltstone_runtime::Env;
use siltstone_vfs::Ram;

use crate::{CheckError, CheckResult, EngineUnderTest, Scale, TestRng};

const THREADS: u64 = 4;
const KEYS: u64 = 3;
const OPERATIONS: u64 = 400;

/// What an operation did to the register, or read from it; `None` is a missing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Act {
    /// A put or a delete.
    Write(Option<u64>),
    /// A get and its result.
    Read(Option<u64>),
    /// A compare-and-swap that has found its expected value.
    Swap {
        /// The value found.
        from: Option<u64>,
        /// The value written.
        to: Option<u64>,
    },
}

/// An operation and its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The time of the call.
    pub called: u64,
    /// The time of the return; [`NEVER`] if the outcome is unknown.
    pub returned: u64,
    /// The effect.
    pub act: Act,
}

/// The return of an operation whose outcome is unknown: it takes effect at any time after its call,
/// or never.
pub const NEVER: u64 = u64::MAX;

/// Whether the history of one register is linearizable. Cost: the number of states, about the
/// number of operations times two to the power of the threads, for each value.
pub fn is_linearizable(history: &[Operation]) -> bool {
    let mut history = history.to_vec();
    history.sort_by_key(|operation| operation.called);
    let mut seen: HashSet<State> = HashSet::new();
    let mut open = vec![State { done: 0, ahead: Vec::new(), value: None }];
    while let Some(state) = open.pop() {
        if state.is_complete(&history) {
            return true;
        }
        if seen.insert(state.clone()) {
            state.push_next(&history, &mut open);
        }
    }
    false
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    done: usize,
    /// Sorted.
    ahead: Vec<usize>,
    value: Option<u64>,
}

impl State {
    /// Whether every operation is ordered, except for some that may never take effect.
    fn is_complete(&self, history: &[Operation]) -> bool {
        let mut rest =
            (self.done..history.len()).filter(|at| self.ahead.binary_search(at).is_err());
        rest.all(|at| history[at].returned == NEVER)
    }

    fn push_next(&self, history: &[Operation], open: &mut Vec<State>) {
        let mut first_return = u64::MAX;
        for (at, operation) in history.iter().enumerate().skip(self.done) {
            if operation.called > first_return {
                break;
            }
            if self.ahead.binary_search(&at).is_ok() {
                continue;
            }
            first_return = first_return.min(operation.returned);
            match operation.act {
                Act::Write(value) => open.push(self.with(at, value)),
                Act::Read(value) if value == self.value => open.push(self.with(at, value)),
                Act::Swap { from, to } if from == self.value => open.push(self.with(at, to)),
                Act::Read(_) | Act::Swap { .. } => {}
            }
        }
    }

    fn with(&self, at: usize, value: Option<u64>) -> State {
        let mut next = State { value, ..self.clone() };
        let at_index = next.ahead.partition_point(|&other| other < at);
        next.ahead.insert(at_index, at);
        while next.ahead.first() == Some(&next.done) {
            next.ahead.remove(0);
            next.done += 1;
        }
        next
    }
}

/// Runs threads and checks the history of every key.
///
/// # Errors
/// The key whose history is not linearizable.
pub fn linearizable(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let mut checked = 0;
    for case in scale.cases(scale.rounds, tested.option_set_count()) {
        let vfs = Arc::new(Ram::new());
        let engine =
            tested.open(vfs, Env::system(2), case.option_set).map_err(|error| error.to_string())?;
        let histories = record(engine.as_ref(), case.seed).map_err(|wrong| wrong.to_string())?;
        for (key, history) in histories.iter().enumerate() {
            if !is_linearizable(history) {
                return Err(format!("the history of key {key} is not linearizable\n{case}"));
            }
            checked += history.len();
        }
    }
    Ok(format!("{} runs, {checked} operations by {THREADS} threads", scale.rounds))
}

/// The operations of the threads, by key.
fn record(engine: &dyn Engine, seed: u64) -> Result<Vec<Vec<Operation>>, CheckError> {
    let clock = AtomicU64::new(0);
    let work = |thread: u64| -> Result<Vec<(u64, Operation)>, CheckError> {
        let mut rng = TestRng::of(seed, thread);
        let mut done = Vec::new();
        for number in 0..OPERATIONS {
            let key = rng.below(KEYS);
            // Unique in the run, so that a read identifies the write it saw.
            let unique = thread << 32 | number;
            let kind = rng.below(5);
            let called = clock.fetch_add(1, SeqCst);
            let act = act(engine, key, kind, unique, rng.draw())?;
            let returned = clock.fetch_add(1, SeqCst);
            done.push((key, Operation { called, returned, act }));
        }
        Ok(done)
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || work(t))).collect();
        threads.into_iter().map(|t| t.join().expect("the thread does not panic")).collect()
    });
    let mut histories = vec![Vec::new(); KEYS as usize];
    for done in done {
        for (key, operation) in done? {
            histories[key as usize].push(operation);
        }
    }
    Ok(histories)
}

fn act(
    engine: &dyn Engine,
    key: u64,
    kind: u64,
    unique: u64,
    random: u64,
) -> Result<Act, CheckError> {
    let name = [b'k', key as u8];
    let durability =
        if random.is_multiple_of(16) { Durability::Synced } else { Durability::Buffered };
    let mut batch = WriteBatch::new();
    match kind {
        0 | 1 => {
            // Padding, so that memtables fill up and are flushed.
            let mut value = unique.to_le_bytes().to_vec();
            value.resize(8 + (random >> 8) as usize % 600, 0);
            batch.put(&name, &value);
            engine.write(&batch, durability)?;
            Ok(Act::Write(Some(unique)))
        }
        2 => {
            batch.delete(&name);
            engine.write(&batch, durability)?;
            Ok(Act::Write(None))
        }
        _ => {
            let read = |value: Vec<u8>| {
                let bytes = value.first_chunk().copied();
                bytes
                    .map(u64::from_le_bytes)
                    .ok_or_else(|| CheckError::Mismatch("truncated value".into()))
            };
            Ok(Act::Read(engine.get(&name)?.map(|entry| read(entry.value)).transpose()?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(called: u64, returned: u64, act: Act) -> Operation {
        Operation { called, returned, act }
    }

    #[test]
    fn linearizable_histories_pass() {
        use Act::{Read, Write};
        assert!(is_linearizable(&[]));
        // The read overlaps the write: both results are right.
        for seen in [None, Some(1)] {
            assert!(is_linearizable(&[op(0, 9, Write(Some(1))), op(1, 2, Read(seen))]));
        }
        // Two concurrent writes, seen in the opposite order of their calls.
        assert!(is_linearizable(&[
            op(0, 9, Write(Some(1))),
            op(1, 8, Write(Some(2))),
            op(2, 3, Read(Some(2))),
            op(4, 5, Read(Some(1))),
        ]));
    }

    #[test]
    fn histories_that_are_not_linearizable_fail() {
        use Act::{Read, Write};
        let bad: [&[Operation]; 5] = [
            // Stale: the write had returned.
            &[op(0, 1, Write(Some(1))), op(2, 3, Read(None))],
            // Never written.
            &[op(0, 1, Write(Some(1))), op(2, 3, Read(Some(2)))],
            // Seen, and then not any more.
            &[op(0, 9, Write(Some(1))), op(1, 2, Read(Some(1))), op(3, 4, Read(None))],
            // Seen before the call.
            &[op(0, 1, Read(Some(1))), op(2, 3, Write(Some(1)))],
            // A deletion undone.
            &[op(0, 1, Write(Some(1))), op(2, 3, Write(None)), op(4, 5, Read(Some(1)))],
        ];
        for history in bad {
            assert!(!is_linearizable(history), "{history:?}");
        }
    }

    #[test]
    fn swap_finds_its_value_and_unknown_outcome_may_be_none() {
        use Act::{Read, Swap, Write};
        let swap = |from, to| Swap { from: Some(from), to: Some(to) };
        let history = [
            op(0, 1, Write(Some(1))),
            op(2, 3, swap(1, 2)),
            op(4, NEVER, swap(2, 3)),
            op(4, NEVER, swap(7, 8)),
            op(5, 6, Read(Some(2))),
        ];
        assert!(is_linearizable(&history));
        let with = |last: Operation| is_linearizable(&[&history[..], &[last]].concat());
        assert!(with(op(7, 8, Read(Some(3)))));
        assert!(!with(op(7, 8, Read(Some(8)))));
        assert!(!with(op(7, 8, swap(1, 4))));
        assert!(!is_linearizable(&[op(0, 1, swap(1, 2))]));
    }

    #[test]
    fn long_operation_beside_many_short_ones_is_checked_quickly() {
        let mut history = vec![op(0, 10_000, Act::Write(Some(0)))];
        history.extend((0..400).map(|i| op(2 * i + 1, 2 * i + 2, Act::Write(Some(i + 1)))));
        history.push(op(5_000, 5_001, Act::Read(Some(400))));
        assert!(is_linearizable(&history));
        history.push(op(5_002, 5_003, Act::Read(Some(3))));
        assert!(!is_linearizable(&history));
    }
}
