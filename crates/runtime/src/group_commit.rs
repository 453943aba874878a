//! Group commit: one writer, the leader, appends and syncs for all writers that wait.
//!
//! ```text
//!   writer A ── leader ─────────────┐ append A, sync            ┌ A returns
//!   writer B ────── waits ──────────┤                           ├ leader: append B C D, one sync
//!   writers C, D ────── wait ───────┘                           ┴ ……………………………… C, D return
//! ```
//!
//! The leader takes the waiting requests up to a budget of bytes, appends and syncs once, and
//! completes them. Then the next waiting writer becomes leader. A lone writer becomes leader at
//! once and copies nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use siltstone_engine::{Error, Result};

/// A commit queue. `T` is an owned request of a follower.
pub struct GroupCommit<T> {
    queue: Mutex<Queue<T>>,
    budget_bytes: usize,
}

struct Queue<T> {
    has_leader: bool,
    waiting: VecDeque<(T, Arc<Waiter>)>,
}

struct Waiter {
    state: Mutex<FollowerState>,
    changed: Condvar,
}

enum FollowerState {
    Waiting,
    BecomeLeader,
    Done(Result<()>),
}

impl<T: Size> GroupCommit<T> {
    /// A queue whose leaders take up to `budget_bytes` of followers' requests.
    pub fn new(budget_bytes: usize) -> Self {
        let queue = Queue { has_leader: false, waiting: VecDeque::new() };
        GroupCommit { queue: Mutex::new(queue), budget_bytes }
    }

    /// Commits one request. If there is a leader, `own` creates the request that is queued for it.
    /// If this thread becomes leader, `commit_group` must commit this thread's own request and then
    /// those of the followers, in order.
    ///
    /// # Errors
    /// The leader's result; `ReadOnly` if the leader panicked.
    pub fn commit(
        &self,
        own: impl FnOnce() -> T,
        commit_group: impl FnOnce(&[T]) -> Result<()>,
    ) -> Result<()> {
        let mut queue = self.queue.lock();
        if queue.has_leader {
            let waiter = Arc::new(Waiter {
                state: Mutex::new(FollowerState::Waiting),
                changed: Condvar::new(),
            });
            queue.waiting.push_back((own(), waiter.clone()));
            drop(queue);
            if let Some(done) = waiter.wait() {
                return done;
            }
            queue = self.queue.lock();
        } else {
            queue.has_leader = true;
        }
        let (requests, followers): (Vec<T>, Vec<Arc<Waiter>>) =
            queue.take_up_to(self.budget_bytes).into_iter().unzip();
        drop(queue);

        // If `commit_group` panics, the guard completes the followers with an error.
        let mut guard = LeaderGuard { group: self, followers, result: None };
        let result = commit_group(&requests);
        guard.result = Some(result.clone());
        result
    }
}

/// The share of the budget that a request takes.
pub trait Size {
    /// Its size in bytes.
    fn size_bytes(&self) -> usize;
}

impl<T: Size> Queue<T> {
    fn take_up_to(&mut self, budget_bytes: usize) -> Vec<(T, Arc<Waiter>)> {
        let mut bytes = 0;
        let mut fits = |(request, _): &(T, Arc<Waiter>)| {
            bytes += request.size_bytes();
            bytes <= budget_bytes
        };
        let count = self.waiting.iter().take_while(|waiting| fits(waiting)).count();
        self.waiting.drain(..count).collect()
    }
}

impl Waiter {
    /// Waits for the result of the request. `None`: this thread becomes leader.
    fn wait(&self) -> Option<Result<()>> {
        let mut state = self.state.lock();
        loop {
            match std::mem::replace(&mut *state, FollowerState::Waiting) {
                FollowerState::Waiting => self.changed.wait(&mut state),
                FollowerState::BecomeLeader => return None,
                FollowerState::Done(result) => return Some(result),
            }
        }
    }

    fn set(&self, state: FollowerState) {
        *self.state.lock() = state;
        self.changed.notify_one();
    }
}

/// Completes the followers and makes the next waiting writer leader, also after a panic.
struct LeaderGuard<'a, T> {
    group: &'a GroupCommit<T>,
    followers: Vec<Arc<Waiter>>,
    result: Option<Result<()>>,
}

impl<T> Drop for LeaderGuard<'_, T> {
    fn drop(&mut self) {
        let panicked = || Err(Error::ReadOnly { cause: "a writer panicked".to_owned() });
        let result = self.result.take().unwrap_or_else(panicked);
        for follower in &self.followers {
            follower.set(FollowerState::Done(result.clone()));
        }
        let mut queue = self.group.queue.lock();
        match queue.waiting.pop_front() {
            // The new leader commits its own request itself, so the queued copy is dropped.
            Some((_, waiter)) => waiter.set(FollowerState::BecomeLeader),
            None => queue.has_leader = false,
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
    fn concurrent_requests_are_committed_once_with_one_leader_at_a_time() {
        let group = GroupCommit::new(8);
        let (leaders, committed, groups) =
            (AtomicUsize::new(0), Mutex::new(Vec::new()), AtomicUsize::new(0));
        let commit_group = |own: usize, followers: &[usize]| {
            assert_eq!(leaders.fetch_add(1, SeqCst), 0);
            assert!(followers.len() <= 8);
            groups.fetch_add(1, SeqCst);
            committed.lock().push(own);
            committed.lock().extend_from_slice(followers);
            std::thread::yield_now();
            leaders.fetch_sub(1, SeqCst);
            Ok(())
        };
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (group, commit_group) = (&group, &commit_group);
                scope.spawn(move || {
                    for i in 0..200 {
                        let request = thread * 1000 + i;
                        let commit = |followers: &[usize]| commit_group(request, followers);
                        group.commit(|| request, commit).unwrap();
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
    fn follower_that_becomes_leader_returns_its_own_result() {
        let group = GroupCommit::<usize>::new(100);
        let closed = || Err(Error::Closed);
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| {
                group.commit(
                    || 0,
                    |_| {
                        while group.queue.lock().waiting.is_empty() {
                            std::thread::yield_now();
                        }
                        Ok(())
                    },
                )
            });
            while !group.queue.lock().has_leader {
                std::thread::yield_now();
            }
            // This writer waits, becomes leader, and fails with its own error.
            let follower = group.commit(|| 1, |_| closed());
            assert!(matches!(follower, Err(Error::Closed)));
            leader.join().unwrap().unwrap();
        });
        assert!(!group.queue.lock().has_leader);
    }

    #[test]
    fn panic_of_the_leader_releases_the_queue() {
        let group = GroupCommit::<usize>::new(100);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = group.commit(|| 0, |_| std::panic::resume_unwind(Box::new("on purpose")));
        }));
        assert!(caught.is_err());
        group.commit(|| 1, |_| Ok(())).unwrap();
    }
}
