//! The medium is full, at any point of a history, and has space again later.
//!
//! ```text
//!   capacity   ____________                 ________________
//!                          \_ full: a step  / raised: the same step succeeds, the engine was
//!                             fails ───────   not reopened in between
//! ```
//!
//! Promise checked: what needs space fails with an error that says disk full; nothing of it is to be
//! seen; reads go on; when there is space again the very same step succeeds without reopening; and
//! nothing acknowledged is lost, neither with the process nor in a later recovery. Half of the runs
//! leave torn writes when they fill up.
//!
//! Source: ours.

use std::sync::Arc;

use siltstone_engine::Error;
use siltstone_faults::Faulty;

use crate::histories::guarded;
use crate::history::{self, Shape, Step};
use crate::scale::Case;
use crate::{Dice, Scale, Session, Subject, Verdict, Wrong};

const SHAPE: Shape = Shape { steps: 90, clock_goes_back: false, ..Shape::EVERYTHING };

/// Fills the medium at many points.
///
/// # Errors
/// What did not follow as it must, and how to repeat it.
pub fn full_medium(subject: &dyn Subject, scale: &Scale) -> Verdict {
    let (mut runs, mut refused) = (0, 0);
    let points = (scale.faults / 4).max(2);
    for variant in scale.variants(subject.variants()) {
        let case = Case { seed: scale.seed.unwrap_or(0), variant };
        let history = history::draw(case.seed ^ u64::from(variant) ^ 0x66, &SHAPE);
        let peak = run(subject, case, &history, u64::MAX, false)
            .map_err(|what| format!("with space: {what}\n{case}"))?
            .peak_bytes;
        let mut dice = Dice::of(case.seed, 5);
        for point in 0..points {
            let capacity = peak * point / points + dice.below(peak / points + 1);
            let outcome = run(subject, case, &history, capacity, point % 2 == 1);
            refused += outcome
                .map_err(|what| {
                    let options = subject.describe(variant);
                    format!("{} ({options}) with {capacity} bytes: {what}\n{case}", subject.name())
                })?
                .refused;
            runs += 1;
        }
    }
    Ok(format!("{runs} runs, {refused} steps refused for want of space"))
}

#[derive(Default)]
struct Outcome {
    peak_bytes: u64,
    refused: u64,
}

fn run(
    subject: &dyn Subject,
    case: Case,
    history: &[Step],
    capacity: u64,
    torn: bool,
) -> Result<Outcome, String> {
    let medium = Faulty::new(case.seed);
    medium.set_capacity(capacity);
    medium.set_torn_on_full(torn);
    let mut outcome = Outcome::default();
    let vfs = Arc::new(medium.clone());
    let mut session = Session::unopened(subject, case.variant, case.seed, vfs);
    guarded(|| match session.open() {
        Err(error) if error.is_disk_full() => {
            medium.set_capacity(u64::MAX);
            Ok(session.open()?)
        }
        opened => Ok(opened?),
    })
    .map_err(|what| format!("opening: {what}"))?;
    let mut dice = Dice::of(case.seed, capacity);
    for (at, step) in history.iter().enumerate() {
        guarded(|| {
            match session.step(step) {
                Err(Wrong::Fault(error)) => {
                    outcome.refused += 1;
                    follow(&mut session, &medium, step, error)?;
                    // A few steps with space, and then it is short again.
                    if dice.one_in(2) {
                        medium.set_capacity(medium.space_used() + dice.below(40 << 10));
                    }
                }
                done => done?,
            }
            outcome.peak_bytes = outcome.peak_bytes.max(medium.space_used());
            Ok(())
        })
        .map_err(|what| format!("step {at}, {step}: {what}"))?;
    }
    medium.set_capacity(u64::MAX);
    guarded(|| {
        for step in [Step::ReadAll, Step::Crash, Step::ReadAll, Step::Maintain, Step::Verify] {
            session.step(&step)?;
        }
        session.step(&Step::Reopen)?;
        session.step(&Step::ReadAll)
    })
    .map_err(|what| format!("at the end: {what}"))?;
    Ok(outcome)
}

/// What must follow when `step` has failed with `error`.
fn follow(
    session: &mut Session<'_>,
    medium: &Faulty,
    step: &Step,
    error: Error,
) -> Result<(), Wrong> {
    if !error.is_disk_full() {
        return Err(Wrong::Answer(format!("the medium is full, and the error is: {error}")));
    }
    if matches!(step, Step::Reopen | Step::Crash) {
        // Closing or opening failed: there is no engine to ask until there is space.
        medium.set_capacity(u64::MAX);
        session.open()?;
        return session.read_all();
    }
    session
        .read_all()
        .map_err(|wrong| Wrong::Answer(format!("after {error}, reading: {wrong}")))?;
    medium.set_capacity(u64::MAX);
    session
        .step(step)
        .map_err(|wrong| Wrong::Answer(format!("after {error}, there is space again: {wrong}")))
}
