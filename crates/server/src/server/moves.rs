//! The thread that moves tables to other engines.
//!
//! It copies beside the workers. For the switch it waits until all of them are between two
//! iterations of their event loops, as a long script does, and until no job runs: so no command
//! sees two contents, and none waits longer than the switch takes.
//!
//! ```text
//!   copy ── jobs paused ── workers paused ── all keys locked ── last rows ── catalogue ── content
//!                          └──────────────────── the pause that INFO reports ────────────────────┘
//! ```
//!
//! While a job runs, which may wait for another machine, the copy goes on. So it does if a long
//! script has written many keys before the pause.
//!
//! What belongs to the number that clients select stays: locks, watches, waiting commands,
//! expiries, tracked keys. Positions of SCAN are forgotten, since engines differ in their order; the
//! scans begin again.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use siltstone::TableMove;
use siltstone_engine::{Error, Result};

use crate::process;
use crate::shared::Shared;
use crate::store::Content;
use crate::table_moves::MoveOutcome;

/// For how long the switch waits for a job before the copy goes on, so that few keys are left.
const JOB_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Carries out moves until the server stops.
pub(super) fn run(shared: &Shared) {
    while let Some(moving) = shared.moves.next() {
        let outcome = match move_table(shared, moving) {
            Ok(Some(pause)) => MoveOutcome::Done { pause },
            Ok(None) => MoveOutcome::Cancelled,
            Err(error) => MoveOutcome::Failed(error.to_string()),
        };
        shared.moves.finish(outcome);
    }
}

/// Returns the length of the pause; `None` if the move was cancelled.
fn move_table(shared: &Shared, mut moving: TableMove) -> Result<Option<Duration>> {
    loop {
        let copied = moving.copy(&mut |progress| match shared.moves.advance(*progress) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        });
        if !copied? || !shared.moves.advance(moving.progress()) {
            return Ok(None);
        }
        if let Some(pause) = switch(shared, &mut moving)? {
            shared.moves.advance(moving.progress());
            let table = moving.table().clone();
            if let Err(error) = moving.retire() {
                let text = "the old files could not be removed, the next start does";
                process::log(&format!("table {}: {text}: {error}", table.name()));
            }
            return Ok(Some(pause));
        }
    }
}

/// Puts the new table in the place of the old one. `None`: it must be copied again.
fn switch(shared: &Shared, moving: &mut TableMove) -> Result<Option<Duration>> {
    let Some(_no_jobs) = shared.moves.jobs.try_lock_for(JOB_POLL_INTERVAL) else { return Ok(None) };
    let began = Instant::now();
    let _no_commands = shared.long_runs.pause_workers();
    // SWAPDB may have moved it to another number.
    let name = moving.table().name();
    let found = shared.databases.iter().enumerate().find(|(_, database)| database.name == name);
    let Some((index, database)) = found else { return Err(Error::Closed) };
    let _all_keys = database.locks.all();
    if !shared.moves.begin_switch() {
        return Ok(None);
    }
    let mut content = None;
    let switched = moving.try_switch(&mut |table| {
        database.check_move(table.engine().as_ref())?;
        let (max_value_bytes, now) = (shared.options.max_value_bytes(), shared.now(index));
        content = Some(Content::open(table.clone(), max_value_bytes, now)?);
        Ok(())
    })?;
    let (Some(_), Some(content)) = (switched, content) else {
        shared.moves.put_off_switch();
        return Ok(None);
    };
    database.replace(content);
    shared.cursors.lock().forget(index);
    Ok(Some(began.elapsed()))
}
