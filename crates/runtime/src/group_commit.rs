//! Group commit: whoever comes first writes for all who wait.
//!
//! ```text
//!   writer A ── leads ──────────────┐ append A, sync            ┌ A returns
//!   writer B ────── waits ──────────┤                           ├ leads: append B C D, one sync
//!   writers C, D ────── wait ───────┘                           ┴ ……………………………… C, D return
//! ```
//!
//! The leader takes all that wait (up to a budget of bytes), writes once, syncs once, and answers
//! them; then it hands the lead to the next in line. A lone writer leads at once and copies
//! nothing. Ours; the scheme is the classic one of database logs.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use siltstone_engine::{Error, Result};

/// Requests of other writers are `T`, owned, with a size in bytes.
pub struct GroupCommit<T> {
    line: Mutex<Line<T>>,
    budget_bytes: usize,
}

struct Line<T> {
    led: bool,
    waiting: VecDeque<(T, Arc<Slot>)>,
}

struct Slot {
    turn: Mutex<Turn>,
    changed: Condvar,
}

enum Turn {
    Waiting,
    Lead,
    Done(Result<()>),
}

impl<T: Size> GroupCommit<T> {
    /// A line whose leaders take at most `budget_bytes` of other writers' requests.
    pub fn new(budget_bytes: usize) -> Self {
        let line = Line { led: false, waiting: VecDeque::new() };
        GroupCommit { line: Mutex::new(line), budget_bytes }
    }

    /// Commits one request. If another writer leads, `own` makes the request that is left in line
    /// for it; if the lead falls to this thread, `lead` must commit this thread's request and then
    /// those it is given, in order.
    ///
    /// # Errors
    /// What the leader answered; `ReadOnly` if it panicked.
    pub fn commit(
        &self,
        own: impl FnOnce() -> T,
        lead: impl FnOnce(&[T]) -> Result<()>,
    ) -> Result<()> {
        let mut line = self.line.lock();
        if line.led {
            let slot = Arc::new(Slot { turn: Mutex::new(Turn::Waiting), changed: Condvar::new() });
            line.waiting.push_back((own(), slot.clone()));
            drop(line);
            if let Some(done) = slot.wait() {
                return done;
            }
            line = self.line.lock();
        } else {
            line.led = true;
        }
        let (requests, slots): (Vec<T>, Vec<Arc<Slot>>) =
            line.take_up_to(self.budget_bytes).into_iter().unzip();
        drop(line);

        // If `lead` panics, whoever waits must hear of it rather than wait for ever.
        let mut handover = Handover { group: self, slots, result: None };
        let result = lead(&requests);
        handover.result = Some(result.clone());
        result
    }
}

/// How much of the budget a request takes.
pub trait Size {
    /// Its size in bytes.
    fn size_bytes(&self) -> usize;
}

impl<T: Size> Line<T> {
    fn take_up_to(&mut self, budget_bytes: usize) -> Vec<(T, Arc<Slot>)> {
        let mut bytes = 0;
        let mut fits = |(request, _): &(T, Arc<Slot>)| {
            bytes += request.size_bytes();
            bytes <= budget_bytes
        };
        let count = self.waiting.iter().take_while(|waiting| fits(waiting)).count();
        self.waiting.drain(..count).collect()
    }
}

impl Slot {
    /// `None`: the lead falls to this thread.
    fn wait(&self) -> Option<Result<()>> {
        let mut turn = self.turn.lock();
        loop {
            match std::mem::replace(&mut *turn, Turn::Waiting) {
                Turn::Waiting => self.changed.wait(&mut turn),
                Turn::Lead => return None,
                Turn::Done(result) => return Some(result),
            }
        }
    }

    fn set(&self, turn: Turn) {
        *self.turn.lock() = turn;
        self.changed.notify_one();
    }
}

/// Answers the group and passes the lead on, whatever happened.
struct Handover<'a, T> {
    group: &'a GroupCommit<T>,
    slots: Vec<Arc<Slot>>,
    result: Option<Result<()>>,
}

impl<T> Drop for Handover<'_, T> {
    fn drop(&mut self) {
        let panicked = || Err(Error::ReadOnly { cause: "a writer panicked".to_owned() });
        let result = self.result.take().unwrap_or_else(panicked);
        for slot in &self.slots {
            slot.set(Turn::Done(result.clone()));
        }
        let mut line = self.group.line.lock();
        match line.waiting.pop_front() {
            // Its request travels in its own hands from here on.
            Some((_, slot)) => slot.set(Turn::Lead),
            None => line.led = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    impl Size for usize {
        fn size_bytes(&self) -> usize {
            1
        }
    }

    #[test]
    fn every_request_is_committed_once_and_by_one_leader_at_a_time() {
        let group = GroupCommit::new(8);
        let (leaders, committed, groups) =
            (AtomicUsize::new(0), Mutex::new(Vec::new()), AtomicUsize::new(0));
        let lead = |own: usize, others: &[usize]| {
            assert_eq!(leaders.fetch_add(1, SeqCst), 0);
            assert!(others.len() <= 8);
            groups.fetch_add(1, SeqCst);
            committed.lock().push(own);
            committed.lock().extend_from_slice(others);
            std::thread::yield_now();
            leaders.fetch_sub(1, SeqCst);
            Ok(())
        };
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (group, lead) = (&group, &lead);
                scope.spawn(move || {
                    for i in 0..200 {
                        let request = thread * 1000 + i;
                        group.commit(|| request, |others| lead(request, others)).unwrap();
                    }
                });
            }
        });
        let mut all = committed.into_inner();
        all.sort_unstable();
        let expected: Vec<_> = (0..8).flat_map(|t| (0..200).map(move |i| t * 1000 + i)).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_writer_in_line_is_handed_the_lead_and_its_own_result() {
        let group = GroupCommit::<usize>::new(100);
        let closed = || Err(Error::Closed);
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| {
                group.commit(
                    || 0,
                    |_| {
                        while group.line.lock().waiting.is_empty() {
                            std::thread::yield_now();
                        }
                        Ok(())
                    },
                )
            });
            while !group.line.lock().led {
                std::thread::yield_now();
            }
            // This one waits, is then handed the lead, and fails with its own error.
            let follower = group.commit(|| 1, |_| closed());
            assert!(matches!(follower, Err(Error::Closed)));
            leader.join().unwrap().unwrap();
        });
        assert!(!group.line.lock().led);
    }

    #[test]
    fn a_panicking_leader_frees_the_line() {
        let group = GroupCommit::<usize>::new(100);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = group.commit(|| 0, |_| std::panic::resume_unwind(Box::new("on purpose")));
        }));
        assert!(caught.is_err());
        group.commit(|| 1, |_| Ok(())).unwrap();
    }
}
