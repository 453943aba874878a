//! A process crashes, and the next ones crash while they open the table.
//!
//! ```text
//!   history ──† process crash: everything acknowledged is there
//!      └─ open ──† at a random operation of it
//!            └─ open ──† at a random operation          up to MAX_CRASHES of them
//!                  └─ open, and read: everything acknowledged is there
//!                        └─ write: the recovered table accepts writes
//! ```
//!
//! Checked: an interrupted open leaves the table as durable as it found it. One crash is
//! not enough to see that: the second open reads what the first left, and a third what the second
//! made of it.
//!
//! Source: after Pillai et al., OSDI 2014.

use std::sync::Arc;

use siltstone_faults::FaultyVfs;

use crate::histories::catch_panics;
use crate::history::{self, HistoryShape, Step};
use crate::scale::Case;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, Session, TestRng};

/// No clean closes: they leave nothing to recover.
const SHAPE: HistoryShape = HistoryShape { steps: 60, reopens: false, ..HistoryShape::WRITES };

/// The maximum number of crashes in a row.
const MAX_CRASHES: u64 = 6;

/// Crashes opens in a row, for a quarter as many cases as there are power cuts.
///
/// # Errors
/// What was lost or wrong, and how to repeat it.
pub fn crashes_during_open(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let (mut histories, mut crashes) = (0, 0);
    for case in scale.cases(scale.power_cuts.div_ceil(4), tested.option_set_count()) {
        histories += 1;
        crashes += catch_panics(|| crash(tested, case)).map_err(|what| {
            let options = tested.describe(case.option_set);
            format!("{} ({options}), seed {}: {what}\n{case}", tested.name(), case.seed)
        })?;
    }
    Ok(format!("{histories} histories, {crashes} crashes during open"))
}

/// Runs one history and its crashes; returns the number of opens that crashed.
fn crash(tested: &dyn EngineUnderTest, case: Case) -> Result<u64, CheckError> {
    let mut rng = TestRng::of(case.seed, 0x6f70_656e);
    let mut disk = FaultyVfs::new(case.seed);
    let mut session = Session::begin(tested, case.option_set, case.seed, Arc::new(disk.clone()))?;
    for step in history::draw(case.seed, &SHAPE) {
        session.step(&step)?;
    }
    session.drop_engine();
    disk = disk.after_crash(case.seed);
    let mut crashes = 0;
    for _ in 0..1 + rng.below(MAX_CRASHES) {
        let copy = disk.after_crash(case.seed);
        drop(session.open_on(Arc::new(copy.clone())));
        disk.cut_power_at(rng.below(copy.operations()));
        drop(session.open_on(Arc::new(disk.clone())));
        crashes += u64::from(disk.power_is_off());
        disk = disk.after_crash(case.seed);
    }
    let mut session = session.with_vfs(Arc::new(disk));
    session.open()?;
    session.align_oracle(session.acknowledged)?;
    session.read_all()?;
    session.verify()?;
    for step in history::draw(case.seed ^ 1, &SHAPE) {
        session.step(&step)?;
    }
    session.step(&Step::ReadAll)?;
    Ok(crashes)
}
