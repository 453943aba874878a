//! Power cuts: at any operation of a history, then again during recovery, and again after that.
//!
//! ```text
//!   history ──✂ operation n          a run: the engine works until power goes off
//!      └─ survivors ─ open ──✂       the next run, cut during open or soon after
//!            └─ survivors ─ open ──✂
//!                  └─ survivors ─ open, write, verify, close, open, read: without faults
//! ```
//!
//! One run in eight ends with a process crash instead: everything written stays readable, durable
//! or not.
//!
//! Checked: open succeeds without repair; the state is that after some number of batches
//! (so batches are atomic), no fewer than were synced, or after a process crash, acknowledged. What
//! a completed open has shown after a power cut is not lost again, since everything on disk
//! is durable then; after a process crash it may be.
//!
//! Source: after Pillai et al., OSDI 2014; cutting recovery too is FoundationDB's practice.

use std::collections::HashMap;
use std::sync::Arc;

use siltstone_faults::FaultyVfs;
use siltstone_vfs::Vfs;

use crate::histories::catch_panics;
use crate::history::{self, HistoryShape, Step};
use crate::scale::Case;
use crate::trace::{Kinds, TracedVfs};
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, Session, TestRng};

/// This many cases share a history, so that its length is measured once for all of them.
const CASES_PER_HISTORY: u64 = 16;
/// A second cut hits one of this many operations: an open takes some tens.
const EARLY_OPERATIONS: u64 = 60;
/// Runs that are cut before the last one.
const CUTS: usize = 3;

/// Cuts power in many ways.
///
/// # Errors
/// What was lost or wrong, and how to repeat it.
pub fn power_cuts(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    if !tested.capabilities().durable {
        return Ok("not durable: nothing to check".to_owned());
    }
    let mut trial = Trial::new(tested);
    for case in scale.cases(scale.power_cuts, tested.option_set_count()) {
        trial.run(case).map_err(|what| {
            let options = tested.describe(case.option_set);
            format!("{} ({options}) after a power cut: {what}\n{case}", tested.name())
        })?;
    }
    Ok(trial.report())
}

struct Trial<'s> {
    tested: &'s dyn EngineUnderTest,
    kinds: Kinds,
    /// The number of operations of a history, by its seed and option set.
    lengths: HashMap<(u64, u32), u64>,
    cuts: u64,
    process_crashes: u64,
    cuts_while_opening: u64,
    /// Batches that a cut lost, all of them unsynced.
    lost: u64,
}

impl<'s> Trial<'s> {
    fn new(tested: &'s dyn EngineUnderTest) -> Self {
        Trial {
            tested,
            kinds: Kinds::default(),
            lengths: HashMap::new(),
            cuts: 0,
            process_crashes: 0,
            cuts_while_opening: 0,
            lost: 0,
        }
    }

    fn run(&mut self, case: Case) -> Result<(), String> {
        let mut rng = TestRng::of(case.seed, 2);
        let group = CASES_PER_HISTORY * u64::from(self.tested.option_set_count());
        let history_seed = case.seed / group;
        let history = history::draw(history_seed, &HistoryShape::WRITES);
        let length = self.length(case, history_seed, &history)?;

        let mut disk = FaultyVfs::new(case.seed);
        disk.cut_power_at(rng.below(length));
        let vfs = self.traced(&disk);
        let mut session = Session::unopened(self.tested, case.option_set, case.seed, vfs);
        if self.opens(&mut session, &disk)? {
            self.run_steps(&mut session, &disk, &history)?;
        }
        for run in 0..CUTS {
            let process_only = rng.one_in(8);
            let survivors = match process_only {
                true => disk.after_crash(rng.draw()),
                false => disk.survivors(rng.draw()),
            };
            self.cuts += u64::from(!process_only);
            self.process_crashes += u64::from(process_only);
            if !process_only {
                session.acknowledged = session.synced;
            }
            let floor = session.acknowledged;
            let is_last = run + 1 == CUTS;
            if !is_last {
                survivors.cut_power_at(rng.below(EARLY_OPERATIONS));
            }
            session = session.with_vfs(self.traced(&survivors));
            disk = survivors;
            if self.recovers(&mut session, &disk, floor, !process_only)? {
                let more = 4 + rng.index(12);
                let more = steps_after_recovery(rng.draw(), more, is_last);
                self.run_steps(&mut session, &disk, &more)?;
            }
            if !is_last {
                disk.cut_power();
            }
        }
        Ok(())
    }

    fn traced(&self, disk: &FaultyVfs) -> Arc<dyn Vfs> {
        Arc::new(TracedVfs::new(disk, self.kinds.clone()))
    }

    /// The number of operations of the history without a fault.
    fn length(&mut self, case: Case, seed: u64, history: &[Step]) -> Result<u64, String> {
        if let Some(&known) = self.lengths.get(&(seed, case.option_set)) {
            return Ok(known);
        }
        let disk = FaultyVfs::new(case.seed);
        let vfs = Arc::new(disk.clone());
        let mut session = Session::unopened(self.tested, case.option_set, case.seed, vfs);
        self.opens(&mut session, &disk)?;
        self.run_steps(&mut session, &disk, history)?;
        let length = disk.operations().max(1);
        self.lengths.insert((seed, case.option_set), length);
        Ok(length)
    }

    /// Opens; `false` if power went off during the open.
    fn opens(&self, session: &mut Session<'s>, disk: &FaultyVfs) -> Result<bool, String> {
        match catch_panics(|| Ok(session.open()?)) {
            Ok(()) => Ok(!disk.power_is_off()),
            Err(_) if disk.power_is_off() => Ok(false),
            Err(what) => Err(format!("open fails: {what}")),
        }
    }

    /// Opens after a cut and checks the state; `false` if power went off again.
    fn recovers(
        &mut self,
        session: &mut Session<'s>,
        disk: &FaultyVfs,
        floor: u64,
        is_durable: bool,
    ) -> Result<bool, String> {
        if !self.opens(session, disk)? {
            self.cuts_while_opening += 1;
            return Ok(false);
        }
        let before = session.oracle.sequence();
        let aligned = catch_panics(|| session.align_oracle(floor));
        if disk.power_is_off() {
            return Ok(false);
        }
        let sequence = aligned?;
        if is_durable {
            session.synced = sequence;
        }
        self.lost += before - sequence;
        Ok(true)
    }

    /// Runs steps until they end or power goes off.
    fn run_steps(
        &self,
        session: &mut Session<'s>,
        disk: &FaultyVfs,
        steps: &[Step],
    ) -> Result<(), String> {
        for (at, step) in steps.iter().enumerate() {
            let wrong = catch_panics(|| match session.step(step) {
                Err(CheckError::Engine(_)) if disk.power_is_off() => {
                    session.apply_uncertain(step);
                    Ok(())
                }
                done => done,
            });
            wrong.map_err(|what| format!("step {at}, {step}: {what}"))?;
            if disk.power_is_off() {
                break;
            }
        }
        Ok(())
    }

    fn report(&self) -> String {
        let kinds = self.kinds.lock();
        let list: Vec<_> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        format!(
            "{} power cuts ({} during open), {} process crashes; {} unsynced batches lost; cut in \
             {} kinds of operation: {}",
            self.cuts,
            self.cuts_while_opening,
            self.process_crashes,
            self.lost,
            kinds.len(),
            list.join(", ")
        )
    }
}

/// The steps after a recovery; the last time they end with checks in which nothing may fail.
fn steps_after_recovery(seed: u64, steps: usize, is_last: bool) -> Vec<Step> {
    let shape = HistoryShape { steps, ..HistoryShape::WRITES };
    let mut steps = history::draw(seed, &shape);
    // A new history would set the clock back.
    steps.retain(|step| !matches!(step, Step::Clock(_)));
    if is_last {
        let ending = [Step::Maintain, Step::Verify, Step::ReadAll, Step::Reopen, Step::ReadAll];
        steps.extend(ending);
    }
    steps
}
