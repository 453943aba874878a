//! The disk becomes full at any point of a history, and has space again later.
//!
//! ```text
//!   capacity   ____________                 ________________
//!                          \_ full: a step  / raised: the same step succeeds without a
//!                             fails ───────   reopen in between
//! ```
//!
//! Checked: a step that needs space fails with a disk-full error and has no effect; reads
//! go on; when there is space again the same step succeeds without reopening; and nothing
//! acknowledged is lost, neither by a process crash nor in a later recovery. Half of the runs leave
//! torn writes when the disk becomes full.

use std::sync::Arc;

use siltstone_engine::Error;
use siltstone_faults::FaultyVfs;

use crate::histories::catch_panics;
use crate::history::{self, HistoryShape, Step};
use crate::scale::Case;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, Session, TestRng};

const SHAPE: HistoryShape =
    HistoryShape { steps: 90, clock_goes_back: false, ..HistoryShape::EVERYTHING };

/// Fills the disk at many points.
///
/// # Errors
/// What did not follow as it must, and how to repeat it.
pub fn disk_full(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let (mut runs, mut refused) = (0, 0);
    let points = (scale.faults / 4).max(2);
    for option_set in scale.option_sets(tested.option_set_count()) {
        let case = Case { seed: scale.seed.unwrap_or(0), option_set };
        let history = history::draw(case.seed ^ u64::from(option_set) ^ 0x66, &SHAPE);
        let peak = run(tested, case, &history, u64::MAX, false)
            .map_err(|what| format!("with space: {what}\n{case}"))?
            .peak_bytes;
        let mut rng = TestRng::of(case.seed, 5);
        for point in 0..points {
            let capacity = peak * point / points + rng.below(peak / points + 1);
            let outcome = run(tested, case, &history, capacity, point % 2 == 1);
            refused += outcome
                .map_err(|what| {
                    let options = tested.describe(option_set);
                    format!("{} ({options}) with {capacity} bytes: {what}\n{case}", tested.name())
                })?
                .refused;
            runs += 1;
        }
    }
    Ok(format!("{runs} runs, {refused} steps refused for lack of space"))
}

#[derive(Default)]
struct Outcome {
    peak_bytes: u64,
    refused: u64,
}

fn run(
    tested: &dyn EngineUnderTest,
    case: Case,
    history: &[Step],
    capacity: u64,
    torn: bool,
) -> Result<Outcome, String> {
    let disk = FaultyVfs::new(case.seed);
    disk.set_capacity(capacity);
    disk.set_torn_on_full(torn);
    let mut outcome = Outcome::default();
    let vfs = Arc::new(disk.clone());
    let mut session = Session::unopened(tested, case.option_set, case.seed, vfs);
    catch_panics(|| match session.open() {
        Err(error) if error.is_disk_full() => {
            disk.set_capacity(u64::MAX);
            Ok(session.open()?)
        }
        opened => Ok(opened?),
    })
    .map_err(|what| format!("opening: {what}"))?;
    let mut rng = TestRng::of(case.seed, capacity);
    for (at, step) in history.iter().enumerate() {
        catch_panics(|| {
            match session.step(step) {
                Err(CheckError::Engine(error)) => {
                    outcome.refused += 1;
                    follow(&mut session, &disk, step, error)?;
                    // A few steps with space, and then it is full again.
                    if rng.one_in(2) {
                        disk.set_capacity(disk.space_used() + rng.below(40 << 10));
                    }
                }
                done => done?,
            }
            outcome.peak_bytes = outcome.peak_bytes.max(disk.space_used());
            Ok(())
        })
        .map_err(|what| format!("step {at}, {step}: {what}"))?;
    }
    disk.set_capacity(u64::MAX);
    catch_panics(|| {
        for step in [Step::ReadAll, Step::Crash, Step::ReadAll, Step::Maintain, Step::Verify] {
            session.step(&step)?;
        }
        session.step(&Step::Reopen)?;
        session.step(&Step::ReadAll)
    })
    .map_err(|what| format!("at the end: {what}"))?;
    Ok(outcome)
}

/// Checks the engine after `step` has failed with `error`.
fn follow(
    session: &mut Session<'_>,
    disk: &FaultyVfs,
    step: &Step,
    error: Error,
) -> Result<(), CheckError> {
    if !error.is_disk_full() {
        return Err(CheckError::Mismatch(format!("the disk is full, but the error is: {error}")));
    }
    if matches!(step, Step::Reopen | Step::Crash) {
        // The close or the open failed: there is no engine to read from until there is space.
        disk.set_capacity(u64::MAX);
        session.open()?;
        return session.read_all();
    }
    session
        .read_all()
        .map_err(|wrong| CheckError::Mismatch(format!("after {error}, reading: {wrong}")))?;
    disk.set_capacity(u64::MAX);
    session.step(step).map_err(|wrong| {
        CheckError::Mismatch(format!("after {error}, there is space again: {wrong}"))
    })
}
