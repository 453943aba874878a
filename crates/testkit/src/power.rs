//! Power cuts: at any operation of a history, then again while recovering, and again after that.
//!
//! ```text
//!   history ──✂ operation n          a life: the engine runs until power goes off
//!      └─ survivors ─ open ──✂       the next life, cut while opening or soon after
//!            └─ survivors ─ open ──✂
//!                  └─ survivors ─ open, write, verify, close, open, read: nothing fails any more
//! ```
//!
//! One life in eight ends with the process alone: everything that was written stays, as durable or not
//! as it was.
//!
//! Promise checked: opening succeeds without repair; the state is that after some number of batches
//! (so a batch is wholly there or not at all), at least all that were synced — or, if only the
//! process died, all that were acknowledged. What a completed opening has shown after a power cut is not
//! lost again: the medium then holds nothing that is not durable. After the death of a process it may be.
//!
//! Source: ours, after Pillai et al., OSDI 2014; cutting recovery too is FoundationDB's habit.

use std::collections::HashMap;
use std::sync::Arc;

use siltstone_faults::Faulty;
use siltstone_vfs::Vfs;

use crate::histories::guarded;
use crate::history::{self, Shape, Step};
use crate::scale::Case;
use crate::trace::{Kinds, Traced};
use crate::{Dice, Scale, Session, Subject, Verdict, Wrong};

/// So many cases share a history, so that its length is learnt once for all of them.
const CASES_OF_A_HISTORY: u64 = 16;
/// A second cut falls into one of so many operations: opening takes some tens.
const EARLY_OPERATIONS: u64 = 60;
/// Lives that end before the last one.
const CUTS: usize = 3;

/// Cuts power in many ways.
///
/// # Errors
/// What was lost or wrong, and how to repeat it.
pub fn power_cuts(subject: &dyn Subject, scale: &Scale) -> Verdict {
    if !subject.capabilities().durable {
        return Ok("not durable: nothing to check".to_owned());
    }
    let mut trial = Trial::new(subject);
    for case in scale.cases(scale.power_cuts, subject.variants()) {
        trial.run(case).map_err(|what| {
            let options = subject.describe(case.variant);
            format!("{} ({options}) after a power cut: {what}\n{case}", subject.name())
        })?;
    }
    Ok(trial.report())
}

struct Trial<'s> {
    subject: &'s dyn Subject,
    kinds: Kinds,
    /// How many operations a history takes, by its seed and variant.
    lengths: HashMap<(u64, u32), u64>,
    cuts: u64,
    process_deaths: u64,
    cuts_while_opening: u64,
    /// Batches that a cut took, all of them rightly.
    lost: u64,
}

impl<'s> Trial<'s> {
    fn new(subject: &'s dyn Subject) -> Self {
        Trial {
            subject,
            kinds: Kinds::default(),
            lengths: HashMap::new(),
            cuts: 0,
            process_deaths: 0,
            cuts_while_opening: 0,
            lost: 0,
        }
    }

    fn run(&mut self, case: Case) -> Result<(), String> {
        let mut dice = Dice::of(case.seed, 2);
        let group = CASES_OF_A_HISTORY * u64::from(self.subject.variants());
        let history_seed = case.seed / group;
        let history = history::draw(history_seed, &Shape::WRITES);
        let length = self.length(case, history_seed, &history)?;

        let mut medium = Faulty::new(case.seed);
        medium.cut_power_at(dice.below(length));
        let vfs = self.traced(&medium);
        let mut session = Session::unopened(self.subject, case.variant, case.seed, vfs);
        if self.opens(&mut session, &medium)? {
            self.live(&mut session, &medium, &history)?;
        }
        for life in 0..CUTS {
            let process_only = dice.one_in(8);
            let survivors = match process_only {
                true => medium.after_death(dice.draw()),
                false => medium.survivors(dice.draw()),
            };
            self.cuts += u64::from(!process_only);
            self.process_deaths += u64::from(process_only);
            if !process_only {
                session.acknowledged = session.synced;
            }
            let floor = session.acknowledged;
            let is_last = life + 1 == CUTS;
            if !is_last {
                survivors.cut_power_at(dice.below(EARLY_OPERATIONS));
            }
            session = session.moved_to(self.traced(&survivors));
            medium = survivors;
            if self.recovers(&mut session, &medium, floor, !process_only)? {
                let more = 4 + dice.index(12);
                let more = after_life(dice.draw(), more, is_last);
                self.live(&mut session, &medium, &more)?;
            }
            if !is_last {
                medium.cut_power();
            }
        }
        Ok(())
    }

    fn traced(&self, medium: &Faulty) -> Arc<dyn Vfs> {
        Arc::new(Traced::new(medium, self.kinds.clone()))
    }

    /// How many operations the history takes without a fault.
    fn length(&mut self, case: Case, seed: u64, history: &[Step]) -> Result<u64, String> {
        if let Some(&known) = self.lengths.get(&(seed, case.variant)) {
            return Ok(known);
        }
        let medium = Faulty::new(case.seed);
        let vfs = Arc::new(medium.clone());
        let mut session = Session::unopened(self.subject, case.variant, case.seed, vfs);
        self.opens(&mut session, &medium)?;
        self.live(&mut session, &medium, history)?;
        let length = medium.operations().max(1);
        self.lengths.insert((seed, case.variant), length);
        Ok(length)
    }

    /// Opens; `false` if power went off meanwhile.
    fn opens(&self, session: &mut Session<'s>, medium: &Faulty) -> Result<bool, String> {
        match guarded(|| Ok(session.open()?)) {
            Ok(()) => Ok(!medium.power_is_off()),
            Err(_) if medium.power_is_off() => Ok(false),
            Err(what) => Err(format!("opening fails: {what}")),
        }
    }

    /// Opens after a cut and checks what is there; `false` if power went off again.
    fn recovers(
        &mut self,
        session: &mut Session<'s>,
        medium: &Faulty,
        floor: u64,
        is_durable: bool,
    ) -> Result<bool, String> {
        if !self.opens(session, medium)? {
            self.cuts_while_opening += 1;
            return Ok(false);
        }
        let before = session.oracle.moment();
        let settled = guarded(|| session.settle(floor));
        if medium.power_is_off() {
            return Ok(false);
        }
        let moment = settled?;
        if is_durable {
            session.synced = moment;
        }
        self.lost += before - moment;
        Ok(true)
    }

    /// Does steps until they end or power goes off.
    fn live(
        &self,
        session: &mut Session<'s>,
        medium: &Faulty,
        steps: &[Step],
    ) -> Result<(), String> {
        for (at, step) in steps.iter().enumerate() {
            let wrong = guarded(|| match session.step(step) {
                Err(Wrong::Fault(_)) if medium.power_is_off() => {
                    session.doubt(step);
                    Ok(())
                }
                done => done,
            });
            wrong.map_err(|what| format!("step {at}, {step}: {what}"))?;
            if medium.power_is_off() {
                break;
            }
        }
        Ok(())
    }

    fn report(&self) -> String {
        let kinds = self.kinds.lock();
        let list: Vec<_> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        format!(
            "{} power cuts ({} while opening), {} process deaths; {} unsynced batches lost; cut in \
             {} kinds of operation: {}",
            self.cuts,
            self.cuts_while_opening,
            self.process_deaths,
            self.lost,
            kinds.len(),
            list.join(", ")
        )
    }
}

/// What happens after a recovery; the last time with an ending in which all must be well.
fn after_life(seed: u64, steps: usize, is_last: bool) -> Vec<Step> {
    let shape = Shape { steps, ..Shape::WRITES };
    let mut steps = history::draw(seed, &shape);
    // A history of its own would set the clock back.
    steps.retain(|step| !matches!(step, Step::Clock(_)));
    if is_last {
        let ending = [Step::Maintain, Step::Verify, Step::ReadAll, Step::Reopen, Step::ReadAll];
        steps.extend(ending);
    }
    steps
}
