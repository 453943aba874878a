//! A process dies before what it wrote is durable; power goes off while the next one opens the table.
//!
//! ```text
//!   history ──† at a sync that is not of a log
//!      └─ after_death: all of it is read, none of what was pending is durable
//!            └─ open ──✂ operation 0, 1, 2 … until it is open: all that was pending is lost
//!                  └─ open, and read: what was synced is there
//! ```
//!
//! Promise checked: an opening neither removes anything nor promises anything by what it has read and a power
//! cut may still take. Every such death of a short history is taken, and every cut of the opening after it:
//! [`power`](mod@crate::power) draws both by chance, and comes upon a pair that matters once in thousands.
//!
//! Source: ours, after Pillai et al., OSDI 2014.

use std::sync::Arc;

use siltstone_faults::{Faulty, Survival};

use crate::histories::guarded;
use crate::history::{self, Shape, Step};
use crate::scale::Case;
use crate::trace::{Kinds, Traced};
use crate::{Scale, Session, Subject, Verdict};

/// Long enough for flushes and merges. No closing: what was closed is durable.
const SHAPE: Shape = Shape { steps: 40, reopens: false, ..Shape::WRITES };

/// Has a process die at each sync of a file that is not a log, and cuts the next opening everywhere.
///
/// # Errors
/// What was lost or wrong, and how to repeat it.
pub fn deaths_before_openings(subject: &dyn Subject, scale: &Scale) -> Verdict {
    let (mut deaths, mut cuts) = (0, 0);
    for variant in scale.variants(subject.variants()) {
        let case = Case { seed: scale.seed.unwrap_or(0), variant };
        let mut history = history::draw(case.seed, &SHAPE);
        history.push(Step::Maintain);
        for at in 0.. {
            let (kind, session, medium) = die(subject, case, &history, at);
            let Some(kind) = kind else { break };
            if !kind.starts_with("sync") || kind.ends_with("log") {
                continue;
            }
            deaths += 1;
            cuts += cut_openings(subject, case, &session, &medium).map_err(|what| {
                let (name, options) = (subject.name(), subject.describe(variant));
                format!("{name} ({options}), dead at operation {at} ({kind}): {what}\n{case}")
            })?;
        }
    }
    Ok(format!("{deaths} deaths of a process, {cuts} power cuts while the next one opened"))
}

/// Runs the history until the process dies at operation `at`; with the operation's kind, if it came to it.
fn die<'s>(
    subject: &'s dyn Subject,
    case: Case,
    history: &[Step],
    at: u64,
) -> (Option<String>, Session<'s>, Faulty) {
    let medium = Faulty::new(case.seed);
    medium.cut_power_at(at);
    let kinds = Kinds::default();
    let vfs = Arc::new(Traced::new(&medium, kinds.clone()));
    let mut session = Session::unopened(subject, case.variant, case.seed, vfs);
    // What fails, fails because the process is dead; the step in which it died may be there or not.
    let mut lives = session.open().is_ok();
    for step in history {
        lives = lives && !medium.power_is_off();
        if !lives {
            break;
        }
        if session.step(step).is_err() {
            session.doubt(step);
        }
    }
    session.drop_engine();
    let kind = kinds.lock().keys().next().cloned();
    (kind, session, medium)
}

/// Opens what is left and cuts the power at each operation in turn until the table is open; how often.
fn cut_openings(
    subject: &dyn Subject,
    case: Case,
    session: &Session<'_>,
    medium: &Faulty,
) -> Result<u64, String> {
    for at in 0.. {
        let heir = medium.after_death(case.seed);
        heir.cut_power_at(at);
        let opened = session.reopened_on(Arc::new(heir.clone()));
        let is_open = !heir.power_is_off();
        if let (true, Err(wrong)) = (is_open, &opened) {
            return Err(format!("the next process cannot open it: {wrong}"));
        }
        heir.cut_power();
        drop(opened);
        let left = Arc::new(heir.survivors_as(Survival::LoseAll, case.seed));
        let mut next = Session::unopened(subject, case.variant, case.seed, left);
        next.clock = session.clock.clone();
        next.oracle = session.oracle.clone();
        let read = guarded(|| {
            next.open()?;
            next.settle(session.synced)
        });
        read.map_err(|what| format!("and power off at operation {at} of the opening: {what}"))?;
        if is_open {
            return Ok(at);
        }
    }
    unreachable!("an opening ends")
}
