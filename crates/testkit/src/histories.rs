//! Random histories, each result compared with the oracle's.
//!
//! A failing history is shrunk: it is rerun without some of its steps until the rest is short
//! enough to read. The report has both failures and the command that repeats them.
//!
//! Checked: every result of every operation, through flushes, compactions, snapshots, open
//! cursors, checkpoints, clock changes, reopening with and without a close.
//!
//! Source: the method is model-based testing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use siltstone_vfs::{Ram, Vfs};

use crate::history::{self, HistoryShape, Step};
use crate::scale::Case;
use crate::shrink::shrink;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, Session};

/// Runs random histories.
///
/// # Errors
/// What is wrong, with a shrunk history and how to repeat it.
pub fn histories(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let (mut count, mut steps) = (0, 0);
    for case in scale.cases(scale.histories, tested.option_set_count()) {
        let history = history::draw(case.seed, &HistoryShape::EVERYTHING);
        if let Err(failure) = run(tested, case, &history) {
            return Err(explain(tested, case, history, &failure));
        }
        count += 1;
        steps += history.len();
    }
    Ok(format!("{count} histories, {steps} steps"))
}

/// The step and the reason of a failed history.
pub(crate) struct Failure {
    pub(crate) at: usize,
    pub(crate) what: String,
}

/// Runs one history in memory to its end; returns the digest of its results.
pub(crate) fn run(
    tested: &dyn EngineUnderTest,
    case: Case,
    history: &[Step],
) -> Result<u64, Failure> {
    run_on(tested, case, history, Arc::new(Ram::new()))
}

/// The same in an empty directory.
pub(crate) fn run_on(
    tested: &dyn EngineUnderTest,
    case: Case,
    history: &[Step],
    vfs: Arc<dyn Vfs>,
) -> Result<u64, Failure> {
    let mut session = catch_panics(|| Ok(Session::begin(tested, case.option_set, case.seed, vfs)?))
        .map_err(|what| Failure { at: 0, what })?;
    let ending = [Step::ReadAll, Step::Verify, Step::Reopen, Step::ReadAll, Step::Verify];
    for (at, step) in history.iter().chain(&ending).enumerate() {
        catch_panics(|| session.step(step)).map_err(|what| Failure { at, what })?;
    }
    Ok(session.digest())
}

/// Converts a panic of the engine to an error.
pub(crate) fn catch_panics<T>(run: impl FnOnce() -> Result<T, CheckError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(done) => done.map_err(|wrong| wrong.to_string()),
        Err(panic) => Err(format!("panic: {}", panic_message(panic.as_ref()))),
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

fn explain(
    tested: &dyn EngineUnderTest,
    case: Case,
    history: Vec<Step>,
    first: &Failure,
) -> String {
    let failed = history[..history.len().min(first.at + 1)].to_vec();
    let short = shrink(failed, |steps| run(tested, case, steps).is_err());
    let mut text = format!(
        "{} option set {} ({}), seed {}, step {}: {}\n",
        tested.name(),
        case.option_set,
        tested.describe(case.option_set),
        case.seed,
        first.at,
        first.what
    );
    if let Err(again) = run(tested, case, &short) {
        text += &format!("shrunk to {} steps, failing with: {}\n", short.len(), again.what);
    }
    for (at, step) in short.iter().enumerate() {
        text += &format!("  {at:3}  {step}\n");
    }
    text + &case.to_string()
}
