//! Moves of tables to other engines: the one that is requested or runs, and the outcome of the
//! last.
//!
//! ```text
//!   CONFIG MOVE ─ begun move ─▶ thread `siltstone-move`: copies, switches ─▶ report: INFO
//!   CONFIG MOVE ABORT ─ is cancelled ─▶ after the batch in progress
//! ```
//!
//! Invariant: at most one table moves.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use siltstone::{MoveProgress, TableMove};

/// The outcome of a move.
#[derive(Debug, Clone)]
pub(crate) enum MoveOutcome {
    /// The table is on the other engine. Commands waited this long for the switch.
    Done {
        pause: Duration,
    },
    Cancelled,
    Failed(String),
}

/// A move, for INFO.
#[derive(Debug, Clone)]
pub(crate) struct MoveReport {
    pub(crate) table: String,
    pub(crate) engine: String,
    /// The number of rows as the old engine estimated it at the beginning.
    pub(crate) total: Option<u64>,
    pub(crate) progress: MoveProgress,
    pub(crate) since: Instant,
    /// How long it took, if it has ended.
    pub(crate) took: Option<Duration>,
    /// `None`: it is in progress.
    pub(crate) outcome: Option<MoveOutcome>,
}

/// The current move.
#[derive(Default)]
pub(crate) struct TableMoves {
    state: Mutex<State>,
    changed: Condvar,
    /// Held by jobs that run commands beside the workers, and by the switch.
    pub(crate) jobs: Mutex<()>,
}

#[derive(Default)]
struct State {
    requested: Option<TableMove>,
    /// The current move, or the last.
    report: Option<MoveReport>,
    is_cancelled: bool,
    /// The switch has begun: the move cannot be cancelled any more.
    is_switching: bool,
    is_stopping: bool,
}

impl State {
    fn is_in_progress(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.outcome.is_none())
    }
}

impl TableMoves {
    /// Has the thread carry out a move that has begun; `false` if another is in progress, or the
    /// server stops.
    pub(crate) fn request(&self, moving: TableMove, report: MoveReport) -> bool {
        let mut state = self.state.lock();
        if state.is_in_progress() || state.is_stopping {
            return false;
        }
        state.requested = Some(moving);
        state.report = Some(report);
        (state.is_cancelled, state.is_switching) = (false, false);
        self.changed.notify_one();
        true
    }

    /// Cancels the move in progress; or why not.
    pub(crate) fn cancel(&self) -> Result<(), &'static str> {
        let mut state = self.state.lock();
        match (state.is_in_progress(), state.is_switching) {
            (false, _) => Err("no table is moving"),
            (true, true) => Err("the table has moved already"),
            (true, false) => {
                state.is_cancelled = true;
                Ok(())
            }
        }
    }

    /// Begins the switch, while no command runs; `false` if the move is cancelled.
    pub(crate) fn begin_switch(&self) -> bool {
        let mut state = self.state.lock();
        state.is_switching = !state.is_cancelled && !state.is_stopping;
        state.is_switching
    }

    /// The switch has not happened: the copy goes on.
    pub(crate) fn put_off_switch(&self) {
        self.state.lock().is_switching = false;
    }

    /// Whether a move is in progress.
    pub(crate) fn is_in_progress(&self) -> bool {
        self.state.lock().is_in_progress()
    }

    /// The current move, or the last.
    pub(crate) fn report(&self) -> Option<MoveReport> {
        self.state.lock().report.clone()
    }

    /// Cancels the move, and ends the thread.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.changed.notify_one();
    }

    /// The next move to carry out; `None` when the server stops.
    pub(crate) fn next(&self) -> Option<TableMove> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopping {
                state.requested = None;
                return None;
            }
            if let Some(moving) = state.requested.take() {
                return Some(moving);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Records how far the move is. Returns false if it is cancelled.
    pub(crate) fn advance(&self, progress: MoveProgress) -> bool {
        let mut state = self.state.lock();
        if let Some(report) = &mut state.report {
            report.progress = progress;
        }
        !state.is_cancelled && !state.is_stopping
    }

    /// Records the end of the move.
    pub(crate) fn finish(&self, outcome: MoveOutcome) {
        let mut state = self.state.lock();
        if let Some(report) = &mut state.report {
            report.took = Some(report.since.elapsed());
            report.outcome = Some(outcome);
        }
    }
}
