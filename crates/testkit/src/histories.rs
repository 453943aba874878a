//! Random histories, each answer compared with the oracle's.
//!
//! A history that fails is run again and again with steps left out, until what remains is short
//! enough to read; both are reported, with the line that repeats it.
//!
//! Promise checked: every answer of every operation, through flushes, compactions, snapshots,
//! kept cursors, checkpoints, clocks that move, reopening with and without a close.
//!
//! Source: ours; the method is that of model-based testing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use siltstone_vfs::Ram;

use crate::history::{self, Shape, Step};
use crate::scale::Case;
use crate::shrink::shrink;
use crate::{Scale, Session, Subject, Verdict, Wrong};

/// Runs random histories.
///
/// # Errors
/// What is wrong, with a shrunk history and how to repeat it.
pub fn histories(subject: &dyn Subject, scale: &Scale) -> Verdict {
    let (mut count, mut steps) = (0, 0);
    for case in scale.cases(scale.histories, subject.variants()) {
        let history = history::draw(case.seed, &Shape::EVERYTHING);
        if let Err(failure) = run(subject, case, &history) {
            return Err(explain(subject, case, history, &failure));
        }
        count += 1;
        steps += history.len();
    }
    Ok(format!("{count} histories, {steps} steps"))
}

/// Where and how a history failed.
pub(crate) struct Failure {
    pub(crate) at: usize,
    pub(crate) what: String,
}

/// Runs one history to its end, and gives the number that stands for its answers.
pub(crate) fn run(subject: &dyn Subject, case: Case, history: &[Step]) -> Result<u64, Failure> {
    let mut session =
        guarded(|| Ok(Session::begin(subject, case.variant, case.seed, Arc::new(Ram::new()))?))
            .map_err(|what| Failure { at: 0, what })?;
    let ending = [Step::ReadAll, Step::Verify, Step::Reopen, Step::ReadAll, Step::Verify];
    for (at, step) in history.iter().chain(&ending).enumerate() {
        guarded(|| session.step(step)).map_err(|what| Failure { at, what })?;
    }
    Ok(session.answers())
}

/// Turns a panic of the engine into words.
pub(crate) fn guarded<T>(run: impl FnOnce() -> Result<T, Wrong>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(done) => done.map_err(|wrong| wrong.to_string()),
        Err(panic) => Err(format!("panic: {}", words(panic.as_ref()))),
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words").to_owned()
}

fn explain(subject: &dyn Subject, case: Case, history: Vec<Step>, first: &Failure) -> String {
    let failed = history[..history.len().min(first.at + 1)].to_vec();
    let short = shrink(failed, |steps| run(subject, case, steps).is_err());
    let mut text = format!(
        "{} variant {} ({}), seed {}, step {}: {}\n",
        subject.name(),
        case.variant,
        subject.describe(case.variant),
        case.seed,
        first.at,
        first.what
    );
    if let Err(again) = run(subject, case, &short) {
        text += &format!("shrunk to {} steps, failing with: {}\n", short.len(), again.what);
    }
    for (at, step) in short.iter().enumerate() {
        text += &format!("  {at:3}  {step}\n");
    }
    text + &case.to_string()
}
