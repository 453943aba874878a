//! A process crashes, and the next ones crash while they open the table.
//!
//! ```text
//!   history ──† process crash: everything acknowledged is there
//!      └─ open ──† at a random one of the operations that it takes
//!            └─ open ──† at a random operation          up to MAX_CRASHES of them
//!                  └─ open, and read: everything acknowledged is there
//!                        └─ write, so that recovery has left a table that takes writes
//! ```
//!
//! Promise checked: an opening that ends early leaves the table as durable as it found it. One crash of
//! an opening is not enough to see that: what it leaves half done is read by the next one, and what
//! that one concludes by a third.
//!
//! Source: after Pillai et al., OSDI 2014.

use std::sync::Arc;

use siltstone_faults::Faulty;

use crate::histories::guarded;
use crate::history::{self, Shape, Step};
use crate::scale::Case;
use crate::{Dice, Scale, Session, Subject, Verdict, Wrong};

/// No closing: what was closed needs no recovery.
const SHAPE: Shape = Shape { steps: 60, reopens: false, ..Shape::WRITES };

/// Crashes of openings at most, one after the other.
const MAX_CRASHES: u64 = 6;

/// Has openings crash after one another, a quarter as many times as there are power cuts.
///
/// # Errors
/// What was lost or wrong, and how to repeat it.
pub fn crashes_in_openings(subject: &dyn Subject, scale: &Scale) -> Verdict {
    let (mut histories, mut crashes) = (0, 0);
    for case in scale.cases(scale.power_cuts.div_ceil(4), subject.variants()) {
        histories += 1;
        crashes += guarded(|| crash(subject, case)).map_err(|what| {
            let options = subject.describe(case.variant);
            format!("{} ({options}), seed {}: {what}\n{case}", subject.name(), case.seed)
        })?;
    }
    Ok(format!("{histories} histories, {crashes} openings that crashed after one another"))
}

/// Runs one history and its crashes; how many openings crashed.
fn crash(subject: &dyn Subject, case: Case) -> Result<u64, Wrong> {
    let mut dice = Dice::of(case.seed, 0x6f70_656e);
    let mut medium = Faulty::new(case.seed);
    let mut session = Session::begin(subject, case.variant, case.seed, Arc::new(medium.clone()))?;
    for step in history::draw(case.seed, &SHAPE) {
        session.step(&step)?;
    }
    session.drop_engine();
    medium = medium.after_death(case.seed);
    let mut crashes = 0;
    for _ in 0..1 + dice.below(MAX_CRASHES) {
        let whole = medium.after_death(case.seed);
        drop(session.reopened_on(Arc::new(whole.clone())));
        medium.cut_power_at(dice.below(whole.operations()));
        drop(session.reopened_on(Arc::new(medium.clone())));
        crashes += u64::from(medium.power_is_off());
        medium = medium.after_death(case.seed);
    }
    let mut session = session.moved_to(Arc::new(medium));
    session.open()?;
    session.settle(session.acknowledged)?;
    session.read_all()?;
    session.verify()?;
    for step in history::draw(case.seed ^ 1, &SHAPE) {
        session.step(&step)?;
    }
    session.step(&Step::ReadAll)?;
    Ok(crashes)
}
