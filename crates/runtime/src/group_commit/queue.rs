//! The queue of a group commit: requests on the stacks of the writers that wait.
//!
//! ```text
//!   newest ─▶ D ─link─▶ C ─link─▶ B          writers push themselves with one CAS
//!   leader: first B ─link─▶ C ─link─▶ D last  takes all with one swap, and reverses the links
//!
//!   newest = FREE   no leader: whoever changes it to LED leads
//!          = LED    there is a leader, and nobody waits
//! ```
//!
//! A writer that waits spins for a moment, then sleeps. The leader completes it, or makes it the
//! next leader, by its state. The threads to be woken are returned: waking one takes a system call
//! after which the leader may be preempted, so the leader does it last.
//!
//! Invariant: a writer leaves [`Queue::enter`] only after its state has left `WAITING` and
//! `ASLEEP`, and the one [`Chain`] with its waiter changes that state in the same call that removes
//! the waiter. So each waiter in a chain is valid, and nothing of a waiter is used after the
//! change.
//!
//! Source: the stack of waiting requests is that of flat combining (Hendler, Incze, Shavit,
//! Tzafrir, "Flat Combining and the Synchronization-Parallelism Tradeoff", SPAA 2010), in outline.

use std::marker::PhantomData;
use std::ptr;

use siltstone_engine::{Error, Result};

use super::Request;
use crate::sync::{AtomicPtr, AtomicU32, Mutex, Ordering, Thread, spin_loop, thread};

/// The waiter's thread spins.
const WAITING: u32 = 0;
/// The waiter's thread sleeps, or is about to; `thread` is set.
const ASLEEP: u32 = 1;
/// Committed.
const DONE: u32 = 2;
/// Not committed; `error` is set.
const FAILED: u32 = 3;
/// The waiter's thread is the leader now; `link` and `last` are the chain that it takes over.
const LEADS: u32 = 4;

/// The head of the queue, alone on its cache line, which is contended.
#[repr(align(64))]
pub(super) struct Queue<R: Request> {
    /// [`FREE`](Self::FREE), [`LED`](Self::led), or the waiter that came last.
    newest: AtomicPtr<Waiter<'static, R>>,
}

/// The result of [`Queue::enter`].
pub(super) enum EnterOutcome<R: Request> {
    /// Another thread has committed it.
    Done(Result<()>),
    /// This thread is the leader. It commits its request together with those in the chain.
    Leads(Chain<R>),
}

/// A request on its writer's stack; what the leader needs is in the first cache line.
#[repr(C, align(64))]
struct Waiter<'a, R: Request> {
    request: R::Ref<'a>,
    state: AtomicU32,
    /// In the queue the waiter before, in a chain the one after; null if there is none.
    link: AtomicPtr<Waiter<'static, R>>,
    last: AtomicPtr<Waiter<'static, R>>,
    error: Mutex<Option<Error>>,
    thread: Mutex<Option<Thread>>,
}

/// Waiting requests, the oldest first.
pub(super) struct Chain<R: Request> {
    /// Null if it is empty.
    first: *const Waiter<'static, R>,
    /// Valid unless it is empty.
    last: *const Waiter<'static, R>,
}

impl<R: Request> Queue<R> {
    const FREE: *mut Waiter<'static, R> = ptr::null_mut();

    /// An address that no waiter has.
    fn led() -> *mut Waiter<'static, R> {
        ptr::without_provenance_mut(1)
    }

    /// A queue without a leader.
    pub(super) fn new() -> Self {
        Queue { newest: AtomicPtr::new(Self::FREE) }
    }

    /// Becomes leader, or waits until a leader has committed `request` or hands over. Spins
    /// `spins` times before it sleeps.
    pub(super) fn enter(&self, request: R::Ref<'_>, spins: u32) -> EnterOutcome<R> {
        if self.lead(Self::FREE) {
            return EnterOutcome::Leads(Chain::empty());
        }
        let waiter = Waiter {
            request,
            state: AtomicU32::new(WAITING),
            link: AtomicPtr::new(ptr::null_mut()),
            last: AtomicPtr::new(ptr::null_mut()),
            error: Mutex::new(None),
            thread: Mutex::new(None),
        };
        // The lifetime of the request is forgotten here; `Chain::requests` restores one.
        let me = ptr::from_ref(&waiter).cast_mut().cast::<Waiter<'static, R>>();
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            if newest == Self::FREE {
                if self.lead(newest) {
                    return EnterOutcome::Leads(Chain::empty());
                }
                newest = self.newest.load(Ordering::Relaxed);
                continue;
            }
            let before = if newest == Self::led() { ptr::null_mut() } else { newest };
            waiter.link.store(before, Ordering::Relaxed);
            // Release: the leader sees the waiter. All later changes are read-modify-writes, so the
            // leader that acquires a later one sees this waiter, too.
            let pushed =
                self.newest.compare_exchange(newest, me, Ordering::Release, Ordering::Relaxed);
            match pushed {
                Ok(_) => return waiter.wait(spins),
                Err(other) => newest = other,
            }
        }
    }

    /// Becomes leader if there is none.
    fn lead(&self, free: *mut Waiter<'static, R>) -> bool {
        let led =
            self.newest.compare_exchange(free, Self::led(), Ordering::Acquire, Ordering::Relaxed);
        led.is_ok()
    }

    /// Moves the requests that have arrived since the last call to the end of the leader's chain.
    pub(super) fn take(&self, chain: &mut Chain<R>) {
        if self.newest.load(Ordering::Relaxed) == Self::led() {
            return;
        }
        let newest = self.newest.swap(Self::led(), Ordering::Acquire);
        let mut taken = Chain { first: ptr::null(), last: newest };
        let mut next = newest.cast_const();
        while !next.is_null() {
            // SAFETY: a waiter of the queue, of which this thread has just become the only owner.
            let link = unsafe { &(*next).link };
            let older = link.load(Ordering::Relaxed);
            link.store(taken.first.cast_mut(), Ordering::Relaxed);
            taken.first = next;
            next = older;
        }
        chain.append(taken);
    }

    /// Ends this thread's leadership unless somebody waits in the queue.
    pub(super) fn release(&self) -> bool {
        // Release: the next leader sees what this one did.
        let freed = self.newest.compare_exchange(
            Self::led(),
            Self::FREE,
            Ordering::Release,
            Ordering::Relaxed,
        );
        freed.is_ok()
    }
}

#[cfg(all(test, not(loom)))]
impl<R: Request> Queue<R> {
    /// Whether there is a leader and nobody waits in the queue.
    pub(super) fn is_led(&self) -> bool {
        self.newest.load(Ordering::Relaxed) == Self::led()
    }

    /// Whether somebody waits in the queue.
    pub(super) fn is_waited_for(&self) -> bool {
        ![Self::FREE, Self::led()].contains(&self.newest.load(Ordering::Relaxed))
    }
}

impl<R: Request> Waiter<'_, R> {
    fn wait(&self, spins: u32) -> EnterOutcome<R> {
        let mut state = self.state.load(Ordering::Acquire);
        for _ in 0..spins {
            if state != WAITING {
                break;
            }
            spin_loop();
            state = self.state.load(Ordering::Acquire);
        }
        if state == WAITING {
            *lock(&self.thread) = Some(thread::current());
            // Release: the leader finds the thread.
            let slept =
                self.state.compare_exchange(WAITING, ASLEEP, Ordering::Release, Ordering::Acquire);
            state = slept.map_or_else(|changed| changed, |_| ASLEEP);
            while state == ASLEEP {
                thread::park();
                state = self.state.load(Ordering::Acquire);
            }
        }
        match state {
            DONE => EnterOutcome::Done(Ok(())),
            FAILED => EnterOutcome::Done(lock(&self.error).take().map_or(Ok(()), Err)),
            _ => {
                let first = self.link.load(Ordering::Relaxed).cast_const();
                EnterOutcome::Leads(Chain { first, last: self.last.load(Ordering::Relaxed) })
            }
        }
    }
}

impl<R: Request> Chain<R> {
    fn empty() -> Self {
        Chain { first: ptr::null(), last: ptr::null() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    fn append(&mut self, other: Chain<R>) {
        if self.is_empty() {
            *self = other;
        } else if !other.is_empty() {
            // SAFETY: a waiter of a chain is valid.
            unsafe { &(*self.last).link }.store(other.first.cast_mut(), Ordering::Relaxed);
            self.last = other.last;
        }
    }

    /// The requests in their order.
    pub(super) fn requests(&self) -> Requests<'_, R> {
        Requests { next: self.first, chain: PhantomData }
    }

    /// Removes the first waiter and completes it; returns its thread if that is to be woken.
    pub(super) fn complete_first(&mut self, result: &Result<()>) -> Option<Thread> {
        let first = self.first;
        if first.is_null() {
            return None;
        }
        // SAFETY: a waiter of a chain is valid, and its state is still unchanged.
        let waiter = unsafe { &*first };
        self.first = waiter.link.load(Ordering::Relaxed);
        let state = match result {
            Ok(()) => DONE,
            Err(error) => {
                *lock(&waiter.error) = Some(error.clone());
                FAILED
            }
        };
        // SAFETY: it was valid, and has just been removed from the chain.
        unsafe { Waiter::set(first, state) }
    }

    /// Makes the first waiter leader if there is one and it spins.
    pub(super) fn hand_over_to_spinning(&mut self) -> bool {
        let first = self.first;
        if first.is_null() {
            return false;
        }
        self.prepare_promotion();
        // SAFETY: a waiter of a chain is valid. If its state is changed here, the chain forgets it.
        let is_led = unsafe { &(*first).state }
            .compare_exchange(WAITING, LEADS, Ordering::Release, Ordering::Relaxed)
            .is_ok();
        if is_led {
            *self = Chain::empty();
        }
        is_led
    }

    /// Makes the first waiter leader, if there is one; returns its thread if that is to be woken.
    pub(super) fn promote_first(&mut self) -> Option<Thread> {
        self.prepare_promotion();
        let first = std::mem::replace(self, Chain::empty()).first;
        // SAFETY: it was valid, and has just been removed from the chain.
        if first.is_null() { None } else { unsafe { Waiter::set(first, LEADS) } }
    }

    fn prepare_promotion(&self) {
        // SAFETY: a waiter of a chain is valid.
        if let Some(first) = unsafe { self.first.as_ref() } {
            first.last.store(self.last.cast_mut(), Ordering::Relaxed);
        }
    }
}

impl<R: Request> Waiter<'static, R> {
    /// Changes the state of a waiter that is in no chain any more; returns its thread if it sleeps.
    ///
    /// # Safety
    /// The waiter is valid, and its state is `WAITING` or `ASLEEP`.
    unsafe fn set(waiter: *const Self, new: u32) -> Option<Thread> {
        // SAFETY: by the caller's guarantee. No reference to the waiter outlives the change.
        let state = unsafe { &(*waiter).state };
        let spinning =
            state.compare_exchange(WAITING, new, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if spinning {
            return None;
        }
        // SAFETY: its state is `ASLEEP`, which only this thread changes.
        let thread = lock(unsafe { &(*waiter).thread }).take();
        // SAFETY: as before.
        unsafe { &(*waiter).state }.store(new, Ordering::Release);
        thread
    }
}

/// The requests of a chain, in their order.
pub(super) struct Requests<'c, R: Request> {
    next: *const Waiter<'static, R>,
    chain: PhantomData<&'c Chain<R>>,
}

impl<R: Request> Clone for Requests<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Request> Copy for Requests<'_, R> {}

impl<R: Request> Requests<'_, R> {
    /// No requests.
    pub(super) fn none() -> Self {
        Requests { next: std::ptr::null(), chain: PhantomData }
    }
}

impl<'c, R: Request> Iterator for Requests<'c, R> {
    type Item = R::Ref<'c>;

    fn next(&mut self) -> Option<R::Ref<'c>> {
        // SAFETY: null, or a waiter of a chain that is not changed for 'c. The writer's request
        // lives until the waiter is removed from it, so for 'c at least.
        let waiter = unsafe { self.next.cast::<Waiter<'c, R>>().as_ref() }?;
        self.next = waiter.link.load(Ordering::Relaxed);
        Some(waiter.request)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> + use<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
