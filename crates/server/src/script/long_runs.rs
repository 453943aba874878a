//! Scripts that run for long, one at a time, on a thread of their own.
//!
//! ```text
//! worker:  EVAL ── runs for up to 5 ms ── not done: discards its writes, parks, enqueues ticket
//! script thread:                             waits for the iterations of all workers to end
//!                                            runs the script again, alone ── writes ── reply
//! workers:   iteration ─▶ │ wait │ ... after busy-reply-threshold: BUSY to every command ... │
//! ```
//!
//! A worker enters the gate in shared mode for each iteration of its event loop. The script thread
//! enters it in exclusive mode. So nobody waits for a lock of keys that a long script holds, and
//! SCRIPT KILL can always be read.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::resp::Args;
use crate::ticket_queue::TicketQueue;

/// Delay until a waiting worker looks whether the script is busy.
const GATE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// State of the long script that runs.
#[derive(Default)]
pub(crate) struct LongRuns {
    gate: RwLock<()>,
    /// Parked commands that wait for their run.
    pub(crate) parked: TicketQueue,
    is_running: AtomicBool,
    /// When it is busy; `None`: never.
    busy_from: Mutex<Option<Instant>>,
    has_written: AtomicBool,
    is_killed: AtomicBool,
    running: Mutex<Option<LongRun>>,
}

/// The long script or function that runs.
#[derive(Clone)]
pub(crate) struct LongRun {
    /// The name of a function.
    pub(crate) name: Option<String>,
    /// The command that called it.
    pub(crate) command: Vec<Vec<u8>>,
    pub(crate) since: Instant,
}

/// Outcome of SCRIPT KILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kill {
    Requested,
    NotRunning,
    /// A function runs, and no script, or the reverse.
    OtherKind,
    HasWritten,
}

impl LongRuns {
    /// Enters the gate for an iteration of a worker. `None` if a script is busy: the worker must
    /// not touch keys.
    #[inline]
    pub(crate) fn enter(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.gate.try_read().or_else(|| self.wait())
    }

    #[cold]
    fn wait(&self) -> Option<RwLockReadGuard<'_, ()>> {
        loop {
            if let Some(guard) = self.gate.try_read_for(GATE_POLL_INTERVAL) {
                return Some(guard);
            }
            if self.busy_from.lock().is_some_and(|busy_from| busy_from <= Instant::now()) {
                return None;
            }
        }
    }

    /// Waits until all workers have ended their iterations, and keeps them from beginning others.
    /// The script is busy after the threshold.
    pub(crate) fn begin(&self, threshold: Duration) -> RwLockWriteGuard<'_, ()> {
        let guard = self.gate.write();
        self.has_written.store(false, Relaxed);
        self.is_killed.store(false, Relaxed);
        *self.busy_from.lock() = Instant::now().checked_add(threshold);
        self.is_running.store(true, Relaxed);
        guard
    }

    /// The same for work that is not a script, and is never busy.
    pub(crate) fn pause_workers(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write()
    }

    /// Ends the run.
    pub(crate) fn end(&self) {
        self.is_running.store(false, Relaxed);
        *self.busy_from.lock() = None;
        *self.running.lock() = None;
    }

    /// Records what runs: a function with its name, or a script.
    pub(crate) fn describe(&self, name: Option<&str>, args: Args<'_>) {
        let command = args.iter().map(<[u8]>::to_vec).collect();
        let running = LongRun { name: name.map(str::to_owned), command, since: Instant::now() };
        *self.running.lock() = Some(running);
    }

    /// What runs.
    pub(crate) fn running(&self) -> Option<LongRun> {
        self.running.lock().clone()
    }

    fn is_function(&self) -> bool {
        self.running.lock().as_ref().is_some_and(|running| running.name.is_some())
    }

    /// Error reply to commands while the script is busy.
    pub(crate) fn busy_text(&self) -> &'static str {
        match self.is_function() {
            true => {
                "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN \
                 NOSAVE."
            }
            false => {
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN \
                 NOSAVE."
            }
        }
    }

    /// Requests the end of the script, or of the function.
    pub(crate) fn kill(&self, is_function: bool) -> Kill {
        match (self.is_running.load(Relaxed), self.has_written.load(Relaxed)) {
            (false, _) => Kill::NotRunning,
            (true, true) => Kill::HasWritten,
            (true, false) if self.is_function() != is_function => Kill::OtherKind,
            (true, false) => {
                self.is_killed.store(true, Relaxed);
                Kill::Requested
            }
        }
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.is_killed.load(Relaxed)
    }

    /// Records that the script has written.
    pub(crate) fn set_written(&self) {
        self.has_written.store(true, Relaxed);
    }
}
