//! A process crashes before its writes are durable; power is cut while the next one opens the
//! table.
//!
//! ```text
//!   history ──† at a sync of any file but a log
//!      └─ all of it is readable, nothing that was pending is durable
//!            └─ open ──✂ operation 0, 1, 2 … until it is open: everything pending is lost
//!                  └─ open, and read: synced writes are there
//! ```
//!
//! Checked: an open removes nothing and acknowledges nothing on the ground of bytes that a
//! power cut may still take. Every such crash of a short history and every cut of the open after it
//! is tried; [`power_cuts`](mod@crate::power_cuts) draws both at random, and hits a relevant pair
//! once in thousands.
//!
//! Source: after Pillai et al., OSDI 2014.

use std::sync::Arc;

use siltstone_faults::{FaultyVfs, Survival};

use crate::histories::catch_panics;
use crate::history::{self, HistoryShape, Step};
use crate::scale::Case;
use crate::trace::{Kinds, TracedVfs};
use crate::{CheckResult, EngineUnderTest, Scale, Session};

/// Long enough for flushes and merges. No clean closes: they make everything durable.
const SHAPE: HistoryShape = HistoryShape { steps: 40, reopens: false, ..HistoryShape::WRITES };

/// Crashes a process at each sync of a file that is not a log, and cuts the next open everywhere.
///
/// # Errors
/// What was lost or wrong, and how to repeat it.
pub fn simulated_crashes(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let (mut crashes, mut cuts) = (0, 0);
    for option_set in scale.option_sets(tested.option_set_count()) {
        let case = Case { seed: scale.seed.unwrap_or(0), option_set };
        let mut history = history::draw(case.seed, &SHAPE);
        history.push(Step::Maintain);
        for at in 0.. {
            let (kind, session, disk) = crash(tested, case, &history, at);
            let Some(kind) = kind else { break };
            if !kind.starts_with("sync") || kind.ends_with("log") {
                continue;
            }
            crashes += 1;
            cuts += cut_openings(tested, case, &session, &disk).map_err(|what| {
                let (name, options) = (tested.name(), tested.describe(option_set));
                format!("{name} ({options}), crashed at operation {at} ({kind}): {what}\n{case}")
            })?;
        }
    }
    Ok(format!("{crashes} process crashes, {cuts} power cuts during the next open"))
}

/// Runs the history until the process crashes at operation `at`; returns the operation's kind, or
/// `None` if the history has fewer operations.
fn crash<'s>(
    tested: &'s dyn EngineUnderTest,
    case: Case,
    history: &[Step],
    at: u64,
) -> (Option<String>, Session<'s>, FaultyVfs) {
    let disk = FaultyVfs::new(case.seed);
    disk.cut_power_at(at);
    let kinds = Kinds::default();
    let vfs = Arc::new(TracedVfs::new(&disk, kinds.clone()));
    let mut session = Session::unopened(tested, case.option_set, case.seed, vfs);
    // Errors come from the crash; the step in progress may have happened or not.
    let mut is_alive = session.open().is_ok();
    for step in history {
        is_alive = is_alive && !disk.power_is_off();
        if !is_alive {
            break;
        }
        if session.step(step).is_err() {
            session.apply_uncertain(step);
        }
    }
    session.drop_engine();
    let kind = kinds.lock().keys().next().cloned();
    (kind, session, disk)
}

/// Opens the table and cuts the power at each operation in turn until it is open; returns the
/// count.
fn cut_openings(
    tested: &dyn EngineUnderTest,
    case: Case,
    session: &Session<'_>,
    disk: &FaultyVfs,
) -> Result<u64, String> {
    for at in 0.. {
        let successor = disk.after_crash(case.seed);
        successor.cut_power_at(at);
        let opened = session.open_on(Arc::new(successor.clone()));
        let is_open = !successor.power_is_off();
        if let (true, Err(wrong)) = (is_open, &opened) {
            return Err(format!("the next process cannot open it: {wrong}"));
        }
        successor.cut_power();
        drop(opened);
        let left = Arc::new(successor.survivors_as(Survival::LoseAll, case.seed));
        let mut next = Session::unopened(tested, case.option_set, case.seed, left);
        next.clock = session.clock.clone();
        next.oracle = session.oracle.clone();
        let read = catch_panics(|| {
            next.open()?;
            next.align_oracle(session.synced)
        });
        read.map_err(|what| format!("and a power cut at operation {at} of the open: {what}"))?;
        if is_open {
            return Ok(at);
        }
    }
    unreachable!("an open ends")
}
