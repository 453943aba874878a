//! Parked commands: those whose reply comes later.
//!
//! A command that found nothing (BLPOP), or that only waits (WAIT), is *parked*: its client gets no
//! reply, and its later requests wait. Four events end it:
//!
//! | event | thread | reply |
//! | --- | --- | --- |
//! | a write of one of its keys, after which it finds something | of the writer | its own |
//! | its time is over, or CLIENT UNBLOCK | of its client, or of the caller | as on a timeout |
//! | another thread has done its work | that one | its own |
//! | the client disconnects, is killed, or the server stops | of its client | none |
//!
//! Invariant: a ticket is removed once, and only the thread that removes it ends the command. So an
//! element is never taken for a command that has already timed out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::queued::QueuedCommand;
use crate::clients::{Client, Ticket};
use crate::resp::RespVersion;
use crate::store::blocked_keys::WaitKind;
use crate::store::observers::Observers;

/// Parked commands of all clients.
#[derive(Default)]
pub(crate) struct Waiters {
    last_ticket: AtomicU64,
    waiting: Mutex<HashMap<Ticket, Entry>>,
    /// Held while commands are run again, so that keys are served one by one and in order.
    serving: Mutex<()>,
}

/// A parked command.
pub(crate) struct Waiter {
    pub(crate) client: Arc<Client>,
    pub(crate) table: usize,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) command: QueuedCommand,
    pub(crate) version: RespVersion,
    /// Keys that it reads are recorded for CLIENT TRACKING.
    pub(crate) tracks_reads: bool,
    /// It does not wait for an event: another thread does its work.
    pub(crate) is_job: bool,
}

struct Entry {
    waiter: Arc<Waiter>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    /// A writer runs it again.
    Running,
    /// A writer runs it again, and the client has gone.
    Abandoned,
}

/// Whether a parked command could be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CancelOutcome {
    /// The caller must end the command.
    Removed,
    /// A writer is running it: it ends now, or goes on waiting.
    Running,
    /// It has ended; its reply is on the way.
    Ended,
}

impl Waiters {
    /// Parks a command. The caller holds the locks of its keys.
    pub(super) fn park(&self, observers: &Observers, waiter: Waiter, kind: WaitKind) -> Ticket {
        let ticket = self.last_ticket.fetch_add(1, Ordering::Relaxed) + 1;
        let waiter = Arc::new(waiter);
        let entry = Entry { waiter: waiter.clone(), state: State::Waiting };
        self.waiting.lock().insert(ticket, entry);
        for key in &waiter.keys {
            observers.block(waiter.table, key, ticket, kind);
        }
        ticket
    }

    /// Takes the right to run parked commands again.
    pub(super) fn serve(&self) -> MutexGuard<'_, ()> {
        self.serving.lock()
    }

    /// Begins to run a command again; `None` if it has ended.
    pub(super) fn start(&self, ticket: Ticket) -> Option<Arc<Waiter>> {
        let mut waiting = self.waiting.lock();
        let entry = waiting.get_mut(&ticket)?;
        if entry.state != State::Waiting {
            return None;
        }
        entry.state = State::Running;
        Some(entry.waiter.clone())
    }

    /// Lets a command wait again that has found nothing.
    pub(super) fn pause(&self, observers: &Observers, ticket: Ticket) {
        let mut waiting = self.waiting.lock();
        match waiting.get_mut(&ticket) {
            Some(entry) if entry.state == State::Running => entry.state = State::Waiting,
            _ => {
                let removed = waiting.remove(&ticket);
                drop(waiting);
                forget(observers, ticket, removed);
            }
        }
    }

    /// Removes a command that has been run with success. Returns whether its client still waits.
    pub(super) fn finish(&self, observers: &Observers, ticket: Ticket) -> bool {
        let removed = self.waiting.lock().remove(&ticket);
        let still_waits = removed.as_ref().is_some_and(|entry| entry.state == State::Running);
        forget(observers, ticket, removed);
        still_waits
    }

    /// Removes all commands that wait for keys of a table.
    pub(super) fn remove_all(&self, observers: &Observers, table: usize) -> Vec<Arc<Waiter>> {
        let mut waiting = self.waiting.lock();
        let removed: Vec<_> = waiting
            .extract_if(|_, Entry { waiter, state }| {
                *state == State::Waiting && waiter.table == table && !waiter.keys.is_empty()
            })
            .collect();
        drop(waiting);
        let waiters = removed.iter().map(|(_, entry)| entry.waiter.clone()).collect();
        for (ticket, entry) in removed {
            forget(observers, ticket, Some(entry));
        }
        waiters
    }

    /// Removes a command whose time is over.
    pub(crate) fn cancel(&self, observers: &Observers, ticket: Ticket) -> CancelOutcome {
        let mut waiting = self.waiting.lock();
        match waiting.get(&ticket).map(|entry| entry.state) {
            None => CancelOutcome::Ended,
            Some(State::Running | State::Abandoned) => CancelOutcome::Running,
            Some(State::Waiting) => {
                let removed = waiting.remove(&ticket);
                drop(waiting);
                forget(observers, ticket, removed);
                CancelOutcome::Removed
            }
        }
    }

    /// Removes a command that is no longer to wait, unless another thread does its work. Returns
    /// whether the caller must end it.
    pub(crate) fn unblock(&self, observers: &Observers, ticket: Ticket) -> bool {
        let is_job = self.waiting.lock().get(&ticket).is_some_and(|entry| entry.waiter.is_job);
        !is_job && self.cancel(observers, ticket) == CancelOutcome::Removed
    }

    /// Removes a command whose client has gone.
    pub(crate) fn abandon(&self, observers: &Observers, ticket: Ticket) {
        if self.cancel(observers, ticket) == CancelOutcome::Running {
            let mut waiting = self.waiting.lock();
            if let Some(entry) = waiting.get_mut(&ticket)
                && entry.state == State::Running
            {
                entry.state = State::Abandoned;
                return;
            }
            drop(waiting);
            // The writer has let it wait again meanwhile.
            self.cancel(observers, ticket);
        }
    }
}

fn forget(observers: &Observers, ticket: Ticket, removed: Option<Entry>) {
    let Some(Entry { waiter, .. }) = removed else { return };
    for key in &waiter.keys {
        observers.unblock(waiter.table, key, ticket);
    }
}
