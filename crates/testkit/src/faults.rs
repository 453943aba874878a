//! One request of a history fails, each in its turn: reads, writes, syncs and changes of names.
//!
//! | what failed | what must follow |
//! | --- | --- |
//! | a read | the same read, tried again, is right |
//! | anything else | earlier data stays readable at once; then either writing goes on (what failed has not happened), or every write is `ReadOnly`, with the cause, until the engine is opened anew |
//! | opening | it works when it is tried again |
//!
//! After reopening, everything acknowledged is there; and at the end a sync that succeeds makes
//! everything durable, whatever failed before it. So it is if power is cut while it is opened again.
//! Every other request fails because the disk is full, as even a sync and a change of names may.
//!
//! Promise checked: the above; no panic; no error besides the injected one and what follows from it.
//!
//! Source: ours; failing each request in turn is SQLite's way ("How SQLite Is Tested", section 3),
//! the last check after Rebello et al., ATC 2020.

use std::sync::Arc;

use siltstone_engine::{Clock, Error};
use siltstone_faults::{FaultKind, Faulty, Survival};

use crate::histories::guarded;
use crate::history::{self, Shape, Step};
use crate::scale::Case;
use crate::{Dice, Scale, Session, Subject, Verdict, Wrong, session};

/// A writing call may report the one fault late, through background work, and once more while it
/// catches up.
const PATIENCE: usize = 3;

/// Power cuts that keep some of what was pending, beside the one that keeps nothing.
const MIXTURES: u64 = 3;

/// Opening takes about so many operations.
const LONGEST_OPENING: u64 = 24;

const SHAPE: Shape =
    Shape { steps: 70, value_bytes: 2 << 10, clock_goes_back: false, ..Shape::EVERYTHING };

/// Fails requests in turn.
///
/// # Errors
/// What did not follow as it must, and how to repeat it.
pub fn faults(subject: &dyn Subject, scale: &Scale) -> Verdict {
    let mut trial = Trial { subject, heard: 0, poisoned: 0, injected: 0 };
    for variant in scale.variants(subject.variants()) {
        let case = Case { seed: scale.seed.unwrap_or(0), variant };
        let history = history::draw(case.seed ^ u64::from(variant), &SHAPE);
        let Requests { making, all } = trial.requests(case, &history)?;
        let mut dice = Dice::of(case.seed, 4);
        let stride = (all / scale.faults.max(1)).max(1);
        let mut request = 0;
        while request < all {
            trial.run(case, &history, request).map_err(|what| {
                let options = subject.describe(variant);
                format!(
                    "{} ({options}) with request {request} failing: {what}\n{case}",
                    subject.name()
                )
            })?;
            // A table is made once only: each request of that fails.
            let is_making = request < making || stride == 1;
            request += if is_making { 1 } else { 1 + dice.below(2 * stride - 1) };
        }
    }
    Ok(format!(
        "{} requests failed, {} of them heard of, {} made the engine read-only",
        trial.injected, trial.heard, trial.poisoned
    ))
}

/// How many requests there are.
struct Requests {
    /// To make the table.
    making: u64,
    /// In all.
    all: u64,
}

struct Trial<'s> {
    subject: &'s dyn Subject,
    injected: u64,
    heard: u64,
    poisoned: u64,
}

impl<'s> Trial<'s> {
    fn session(&self, case: Case, medium: &Faulty) -> Session<'s> {
        Session::unopened(self.subject, case.variant, case.seed, Arc::new(medium.clone()))
    }

    /// How many requests the history takes.
    fn requests(&self, case: Case, history: &[Step]) -> Result<Requests, String> {
        let medium = Faulty::new(case.seed);
        let mut session = self.session(case, &medium);
        guarded(|| Ok(session.open()?))?;
        let making = medium.requests();
        guarded(|| history.iter().try_for_each(|step| session.step(step)))?;
        Ok(Requests { making, all: medium.requests() })
    }

    fn run(&mut self, case: Case, history: &[Step], request: u64) -> Result<(), String> {
        let medium = Faulty::new(case.seed);
        medium.fail_at(request, FaultKind::Any);
        medium.set_errors_full(request % 2 == 1);
        self.injected += 1;
        let mut session = self.session(case, &medium);
        if guarded(|| Ok(session.open()?)).is_err() {
            self.heard += 1;
            guarded(|| Ok(session.open()?)).map_err(|what| format!("opening again: {what}"))?;
        }
        for (at, step) in history.iter().enumerate() {
            guarded(|| match session.step(step) {
                Err(Wrong::Fault(error)) => {
                    self.heard += 1;
                    self.follow(&mut session, step, error)
                }
                done => done,
            })
            .map_err(|what| format!("step {at}, {step}: {what}"))?;
        }
        if request % 4 < 2 {
            return guarded(|| end(&mut session, &medium))
                .map_err(|what| format!("at the end: {what}"));
        }
        let mut dice = Dice::of(case.seed ^ request, 6);
        guarded(|| cut_while_opening(&mut session, &medium, dice.below(LONGEST_OPENING)))
    }

    /// What must follow when `step` has failed with `error`.
    fn follow(
        &mut self,
        session: &mut Session<'s>,
        step: &Step,
        error: Error,
    ) -> Result<(), Wrong> {
        if !session.is_open() || matches!(step, Step::Reopen | Step::Crash) {
            session.open()?;
            session.settle(session.acknowledged)?;
            return Ok(());
        }
        if is_read(step) && !matches!(error, Error::ReadOnly { .. }) {
            return session.step(step).map_err(|wrong| {
                Wrong::Answer(format!("failed with {error}, and again: {wrong}"))
            });
        }
        let settled = session.acknowledged;
        session.read_all().map_err(|wrong| {
            Wrong::Answer(format!("after {error}, what was there before: {wrong}"))
        })?;
        let mut last = error;
        for _ in 0..PATIENCE {
            match session.engine().sync() {
                Ok(()) => {
                    session.synced = settled;
                    return Ok(());
                }
                Err(Error::ReadOnly { cause }) if !cause.is_empty() => {
                    return self.reopen_read_only(session, step);
                }
                Err(again) => last = again,
            }
        }
        Err(Wrong::Answer(format!("neither writes again nor says that it is read-only: {last}")))
    }

    fn reopen_read_only(&mut self, session: &mut Session<'s>, step: &Step) -> Result<(), Wrong> {
        self.poisoned += 1;
        for write in [session.engine().flush(), session.engine().maintain()] {
            if !matches!(write, Err(Error::ReadOnly { .. })) {
                return Err(Wrong::Answer(format!("read-only, and yet: {write:?}")));
            }
        }
        session.read_all()?;
        let acknowledged = session.acknowledged;
        session.doubt(step);
        session.open()?;
        session.settle(acknowledged)?;
        Ok(())
    }
}

/// Whether nothing is written by this step.
fn is_read(step: &Step) -> bool {
    matches!(
        step,
        Step::Get(_)
            | Step::GetAt(..)
            | Step::Walk(..)
            | Step::Hold(..)
            | Step::MoveHeld(_)
            | Step::Snapshot
            | Step::Release(_)
            | Step::ReadAll
            | Step::Verify
    )
}

/// The fault is over. A power cut now leaves all that was called synced; the death of the process
/// all that was acknowledged; and a sync after that makes it durable.
fn end(session: &mut Session<'_>, medium: &Faulty) -> Result<(), Wrong> {
    cut_on_a_copy(session, medium, "before reopening")?;
    session.open()?;
    session.settle(session.acknowledged)?;
    cut_on_a_copy(session, medium, "after reopening")?;
    session.step(&Step::Sync)?;
    cut_on_a_copy(session, medium, "after the last sync")?;
    session.step(&Step::Maintain)?;
    session.step(&Step::Verify)?;
    session.step(&Step::Reopen)?;
    session.step(&Step::ReadAll)
}

/// Power goes off at an operation of opening. What a failed sync left in doubt was seen by the opening, and
/// the cut takes it back.
fn cut_while_opening(
    session: &mut Session<'_>,
    medium: &Faulty,
    operation: u64,
) -> Result<(), Wrong> {
    session.drop_engine();
    medium.cut_power_at(medium.operations() + operation);
    let opened = session.open();
    if let Err(error) = opened
        && !medium.power_is_off()
    {
        return Err(error.into());
    }
    cut_on_a_copy(session, medium, "while it is opened again")
}

/// What a power cut would leave has all that was synced; the session goes on as if there was none.
fn cut_on_a_copy(session: &Session<'_>, medium: &Faulty, when: &str) -> Result<(), Wrong> {
    let lost = medium.survivors_as(Survival::LoseAll, 0);
    let mixed = (0..MIXTURES).map(|seed| medium.survivors_as(Survival::Random, seed));
    for survivors in std::iter::once(lost).chain(mixed) {
        let after_cut = session.reopened_on(Arc::new(survivors));
        let found = after_cut
            .and_then(|engine| session::contents(engine.as_ref()))
            .map_err(|wrong| Wrong::Answer(format!("a power cut {when}: {wrong}")))?;
        if session.oracle.find_moment(&found, session.synced, session.clock.now()).is_none() {
            return Err(Wrong::Answer(format!("a power cut {when} takes what was synced")));
        }
    }
    Ok(())
}
