//! A sync fails in one thread, and another thread writes before the error is returned.
//!
//! ```text
//!   flush    sync: fails ······································ error returned
//!   writer                synced write ─ acknowledged?                  then power is cut
//! ```
//!
//! The system reports the failure of a sync once, and a later sync succeeds without the bytes and
//! names that the failed one covered. Checked: a synced write that is acknowledged in the meantime
//! is there after a power cut, as is every earlier one.
//!
//! The pause ends after a while if the write has not ended, because it may wait for the failed
//! sync. What the table may answer does not depend on that.
//!
//! Source: Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use parking_lot::Mutex;
use siltstone_engine::{Durability, Engine, WriteBatch};
use siltstone_faults::{FaultKind, FaultyVfs, Survival};
use siltstone_runtime::Env;

use crate::scale::Case;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, session};

/// How long a failed sync waits for the write of the other thread.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// Fails the first sync of a flush, of a directory or of a file, and writes before it returns.
///
/// # Errors
/// An acknowledged write that is lost.
pub fn late_sync_errors(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    if !tested.capabilities().durable {
        return Ok("not durable: nothing to check".to_owned());
    }
    let (mut failed, mut acknowledged) = (0, 0);
    for option_set in scale.option_sets(tested.option_set_count()) {
        for kind in [FaultKind::DirSync, FaultKind::Sync] {
            let case = Case { seed: 0, option_set };
            let outcome = write_during_failure(tested, case, kind);
            let outcome = outcome.map_err(|wrong| {
                let options = tested.describe(option_set);
                format!("{} ({options}), {kind:?}: {wrong}\n{case}", tested.name())
            })?;
            failed += u64::from(outcome.is_some());
            acknowledged += u64::from(outcome == Some(true));
        }
    }
    Ok(format!("{failed} failed syncs, {acknowledged} writes acknowledged meanwhile"))
}

/// Whether the write was acknowledged; `None` if no sync failed.
fn write_during_failure(
    tested: &dyn EngineUnderTest,
    case: Case,
    kind: FaultKind,
) -> Result<Option<bool>, CheckError> {
    let disk = FaultyVfs::new(case.seed);
    let engine = tested.open(Arc::new(disk.clone()), Env::system(2), case.option_set)?;
    let engine: &dyn Engine = engine.as_ref();
    let put = |key: &str, durability| {
        engine.write(WriteBatch::new().put(key.as_bytes(), &[7; 100]), durability)
    };
    put("synced", Durability::Synced)?;
    (0..10).try_for_each(|i| put(&format!("buffered {i}"), Durability::Buffered))?;

    // One message when a sync has failed, and one at the end of the flush.
    let (report, reports) = sync_channel(16);
    let (resume, resumed) = sync_channel(1);
    let (paused, resumed) = (report.clone(), Mutex::new(resumed));
    disk.before_sync_error(move || {
        let _ = paused.send(true);
        let _ = resumed.lock().recv_timeout(MAX_PAUSE);
    });
    disk.fail_next(kind, 1);
    let written = std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = engine.flush();
            let _ = report.send(false);
        });
        let has_failed = reports.recv().unwrap_or(false);
        let written = has_failed.then(|| put("meanwhile", Durability::Synced));
        let _ = resume.send(());
        written
    });

    let disk = disk.survivors_as(Survival::LoseAll, case.seed);
    let reopened = tested.open(Arc::new(disk), Env::system(2), case.option_set)?;
    let found = session::contents(reopened.as_ref())?;
    let is_acknowledged = written.map(|written| written.is_ok());
    for (key, must_be_there) in [("synced", true), ("meanwhile", is_acknowledged == Some(true))] {
        if must_be_there && !found.contains_key(key.as_bytes()) {
            return Err(CheckError::Mismatch(format!("{key} is lost: {found:?}")));
        }
    }
    Ok(is_acknowledged)
}
