//! Group commit: one writer, the leader, commits for all writers that wait.
//!
//! ```text
//!   writer A ── leads ── commit A ── commit B C D ─┬ A returns
//!   writers B, C, D ──── wait ─────────────────────┴ B, C, D return
//! ```
//!
//! A writer that finds no leader becomes one at once, even if other writers have waited longer for
//! a CPU. The leader commits its own request together with those that wait, and then, in further
//! groups, those that have arrived meanwhile, so the memory that a commit changes stays in the
//! caches of one core. When nobody waits, or after a number of groups, it returns.
//!
//! Waiting writers spin for a few microseconds before they sleep, so a write seldom takes a system
//! call. If the system preempts the leader, the others go to sleep, and the leader commits all of
//! them when it runs again.
//!
//! A slow request (a sync) is different: its writer sleeps at once. Its leader commits one group
//! and wakes its writers before it resigns, and the next leader yields to them before it takes the
//! queue: so with writers that do nothing else, almost all of them share each sync.
//!
//! Invariant: there is at most one leader. It commits each request in exactly one group, with which
//! it succeeds or fails.
//!
//! Source: flat combining (Hendler et al., SPAA 2010); group commit of RocksDB's `WriteThread`, in
//! outline.

mod queue;

use siltstone_engine::{Error, Result};

use self::queue::{Chain, EnterOutcome, Queue, Requests};
use crate::sync::{Thread, thread};

/// A leader whose own request is committed returns after this many groups of others, if there is a
/// spinning writer to take over.
const MAX_SERVED_GROUPS: usize = 16;
/// How often a writer polls for its result before it sleeps: 10 to 20 microseconds.
#[cfg(not(loom))]
const SPINS: u32 = 400;
#[cfg(loom)]
const SPINS: u32 = 1;

/// The requests of a commit queue.
pub trait Request: 'static {
    /// A request, borrowed from its writer.
    type Ref<'a>: Copy + Send + Sync;

    /// The same request, borrowed for a shorter time.
    fn shorten<'short, 'long: 'short>(request: Self::Ref<'long>) -> Self::Ref<'short>;

    /// Its share of a group's budget, in bytes.
    fn size_bytes(request: Self::Ref<'_>) -> usize;

    /// Whether its commit takes so long that its writer should sleep meanwhile.
    fn is_slow(request: Self::Ref<'_>) -> bool;
}

/// A commit queue.
pub struct GroupCommit<R: Request> {
    queue: Queue<R>,
    budget_bytes: usize,
    spins: u32,
}

/// The requests that are committed together.
pub struct Group<'g, R: Request> {
    own: Option<R::Ref<'g>>,
    others: Requests<'g, R>,
    /// The number of requests of `others` in the group.
    count: usize,
}

impl<R: Request> Clone for Group<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Request> Copy for Group<'_, R> {}

impl<'g, R: Request> Group<'g, R> {
    /// One request, which is committed outside of a queue.
    pub fn of_one(request: R::Ref<'g>) -> Self {
        Group { own: Some(request), others: Requests::none(), count: 0 }
    }

    /// The requests, at least one, in the order in which they are committed.
    pub fn requests(&self) -> impl Iterator<Item = R::Ref<'g>> + Clone + use<'g, R> {
        self.own.into_iter().chain(self.others.take(self.count))
    }
}

impl<R: Request> GroupCommit<R> {
    /// A queue whose leaders commit up to `budget_bytes` of others' requests in one group.
    pub fn new(budget_bytes: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spins = if cores > 1 { SPINS } else { 0 };
        GroupCommit { queue: Queue::new(), budget_bytes, spins }
    }

    /// Commits one request. If this thread becomes leader, `commit_group` is called with a group
    /// that begins with this request, and then perhaps with groups of others, whose failures do not
    /// concern this request. Before such a group, `may_serve` is called. It returns false if the
    /// commit would have to wait for anything but the device, e.g. in a write stall; then this
    /// thread resigns, and a writer of that group becomes leader and waits itself.
    ///
    /// # Errors
    /// That of the group with the request; `ReadOnly` if its leader panicked.
    pub fn commit(
        &self,
        request: R::Ref<'_>,
        may_serve: impl Fn(&Group<'_, R>) -> bool,
        mut commit_group: impl FnMut(Group<'_, R>) -> Result<()>,
    ) -> Result<()> {
        let is_slow = R::is_slow(request);
        let pending = match self.queue.enter(request, if is_slow { 0 } else { self.spins }) {
            EnterOutcome::Done(result) => return result,
            EnterOutcome::Leads(pending) => pending,
        };
        if is_slow {
            // The writers that the last leader woke come first, so that this group has their next
            // requests, too.
            thread::yield_now();
        }
        let mut leader = Leader { group: self, pending, count: 0, leads: true, woken: Vec::new() };
        self.queue.take(&mut leader.pending);
        let result = commit_group(leader.begin(Some(R::shorten(request))));
        leader.complete(&result);
        if is_slow {
            // Before the next leader begins, for the same reason.
            leader.wake();
        }
        let mut served = 0;
        while !is_slow && leader.has_more(served) {
            let group = leader.begin(None);
            if !may_serve(&group) {
                leader.count = 0;
                break;
            }
            // Its error concerns only its own writers.
            let result = commit_group(group);
            leader.complete(&result);
            served += 1;
        }
        result
    }
}

/// The one leader. When it is dropped, also by a panic, it completes its group and resigns.
struct Leader<'c, R: Request> {
    group: &'c GroupCommit<R>,
    /// Requests of other writers that were taken from the queue.
    pending: Chain<R>,
    /// How many of them are in the group that is being committed.
    count: usize,
    /// Whether this thread is still the leader.
    leads: bool,
    /// The threads to be woken at the end.
    woken: Vec<Thread>,
}

impl<R: Request> Leader<'_, R> {
    /// A group of `own` and as many waiting requests as the budget allows. Without `own` it has at
    /// least one, and none of them is slow.
    fn begin<'g>(&'g mut self, own: Option<R::Ref<'g>>) -> Group<'g, R> {
        let (is_served, budget_bytes, mut bytes) = (own.is_none(), self.group.budget_bytes, 0);
        let fits = |request: &R::Ref<'_>| {
            bytes += R::size_bytes(*request);
            bytes <= budget_bytes && !(is_served && R::is_slow(*request))
        };
        let others = self.pending.requests();
        let count = others.take_while(fits).count();
        self.count = if is_served { count.max(1) } else { count };
        Group { own, others, count: self.count }
    }

    /// Whether there is a group of others to be committed by this leader, after `served` such
    /// groups.
    fn has_more(&mut self, served: usize) -> bool {
        self.group.queue.take(&mut self.pending);
        while self.pending.is_empty() {
            if self.group.queue.release() {
                self.leads = false;
                return false;
            }
            self.group.queue.take(&mut self.pending);
        }
        let is_slow = self.pending.requests().next().is_some_and(R::is_slow);
        self.leads = !(served >= MAX_SERVED_GROUPS && self.pending.hand_over_to_spinning());
        self.leads && !is_slow
    }

    fn complete(&mut self, result: &Result<()>) {
        for _ in 0..std::mem::take(&mut self.count) {
            self.woken.extend(self.pending.complete_first(result));
        }
    }

    fn wake(&mut self) {
        self.woken.drain(..).for_each(|thread| thread.unpark());
    }

    /// Makes the writer that has waited longest the leader. If nobody waits, the queue has no
    /// leader.
    fn resign(&mut self) {
        while self.pending.is_empty() {
            if self.group.queue.release() {
                return;
            }
            self.group.queue.take(&mut self.pending);
        }
        self.woken.extend(self.pending.promote_first());
    }
}

impl<R: Request> Drop for Leader<'_, R> {
    fn drop(&mut self) {
        if self.count > 0 {
            self.complete(&Err(Error::ReadOnly { cause: "a writer panicked".to_owned() }));
        }
        if self.leads {
            self.resign();
        }
        self.wake();
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)]
mod tests;
