//! Requests of a history fail, one per run: reads, writes, syncs and directory changes, as many of
//! each kind.
//!
//! | what failed | what must follow |
//! | --- | --- |
//! | a read | the same read, retried, is right |
//! | anything else | earlier data stays readable at once; then either writing goes on (what failed has not happened), or every write returns `ReadOnly`, with the cause, until the engine is reopened |
//! | open | a retry succeeds |
//!
//! After reopening, everything acknowledged is there; and a sync that succeeds at the end makes
//! everything durable, whatever failed before it, also if power is cut during the reopen. Every
//! other fault is a full disk, which even a sync or a directory change may report.
//!
//! Checked: the above; no panic; no error except the injected one and its consequences.
//!
//! Source: failing each request in turn is SQLite's way ("How SQLite Is Tested", section 3), the
//! last check after Rebello et al., ATC 2020.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Clock, Error};
use siltstone_faults::{FaultKind, FaultyVfs, Survival};

use crate::histories::catch_panics;
use crate::history::{self, HistoryShape, Step};
use crate::scale::Case;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, Session, TestRng, session};

/// A writing call may report the one fault late, from background work, and once more while it
/// catches up.
const MAX_LATE_REPORTS: usize = 3;

/// Power cuts that keep some of what was pending, besides the one that keeps nothing.
const MIXTURES: u64 = 3;

/// About the number of operations of an open.
const MAX_OPEN_OPERATIONS: u64 = 24;

/// All requests are of one of these.
const KINDS: [FaultKind; 5] =
    [FaultKind::Read, FaultKind::Write, FaultKind::Sync, FaultKind::Names, FaultKind::DirSync];

const SHAPE: HistoryShape = HistoryShape {
    steps: 70,
    value_bytes: 2 << 10,
    clock_goes_back: false,
    ..HistoryShape::EVERYTHING
};

/// Fails requests in turn.
///
/// # Errors
/// What did not follow as it must, and how to repeat it.
pub fn faults(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let mut trial = Trial { tested, reported: 0, read_only: 0, injected: 0 };
    for option_set in scale.option_sets(tested.option_set_count()) {
        let case = Case { seed: scale.seed.unwrap_or(0), option_set };
        let history = history::draw(case.seed ^ u64::from(option_set), &SHAPE);
        // The early requests are much the same with all option sets, so each draws its own.
        let mut rng = TestRng::of(case.seed ^ u64::from(option_set) << 32, 4);
        for (kind, Requests { creation, all }) in trial.requests(case, &history)? {
            // A table is created only once, so as many of the requests of that fail.
            let count = scale.faults / KINDS.len() as u64;
            let early = spread(0..creation, count, &mut rng);
            let late = spread(creation..all, count, &mut rng);
            for number in early.into_iter().chain(late) {
                trial.run(case, &history, kind, number).map_err(|what| {
                    let options = tested.describe(option_set);
                    format!(
                        "{} ({options}) with {kind:?} {number} failing: {what}\n{case}",
                        tested.name()
                    )
                })?;
            }
        }
    }
    Ok(format!(
        "{} requests failed, {} of them were reported, {} made the engine read-only",
        trial.injected, trial.reported, trial.read_only
    ))
}

/// About `count` of these numbers; all of them if they are fewer.
fn spread(numbers: Range<u64>, count: u64, rng: &mut TestRng) -> Vec<u64> {
    let stride = ((numbers.end - numbers.start) / count.max(1)).max(1);
    let mut chosen = Vec::new();
    let mut next = numbers.start;
    while next < numbers.end {
        chosen.push(next);
        next += 1 + rng.below(2 * stride - 1);
    }
    chosen
}

/// Numbers of requests of a kind.
struct Requests {
    /// Of the creation of the table.
    creation: u64,
    /// In total.
    all: u64,
}

struct Trial<'s> {
    tested: &'s dyn EngineUnderTest,
    injected: u64,
    reported: u64,
    read_only: u64,
}

impl<'s> Trial<'s> {
    fn session(&self, case: Case, disk: &FaultyVfs) -> Session<'s> {
        Session::unopened(self.tested, case.option_set, case.seed, Arc::new(disk.clone()))
    }

    /// The requests of the history.
    fn requests(&self, case: Case, history: &[Step]) -> Result<Vec<(FaultKind, Requests)>, String> {
        let disk = FaultyVfs::new(case.seed);
        let mut session = self.session(case, &disk);
        catch_panics(|| Ok(session.open()?))?;
        let creation = KINDS.map(|kind| disk.requests_of(kind));
        catch_panics(|| history.iter().try_for_each(|step| session.step(step)))?;
        let requests = KINDS.into_iter().zip(creation);
        Ok(requests
            .map(|(kind, creation)| (kind, Requests { creation, all: disk.requests_of(kind) }))
            .collect())
    }

    fn run(
        &mut self,
        case: Case,
        history: &[Step],
        kind: FaultKind,
        number: u64,
    ) -> Result<(), String> {
        let disk = FaultyVfs::new(case.seed);
        disk.fail_nth(kind, number);
        // From the fault alone, so that a case can be run by itself.
        let variant = number + kind as u64;
        disk.set_errors_full(variant % 2 == 1);
        let is_cut_at_end = variant % 4 >= 2;
        self.injected += 1;
        let mut session = self.session(case, &disk);
        if catch_panics(|| Ok(session.open()?)).is_err() {
            self.reported += 1;
            catch_panics(|| Ok(session.open()?)).map_err(|what| format!("reopening: {what}"))?;
        }
        for (at, step) in history.iter().enumerate() {
            catch_panics(|| match session.step(step) {
                Err(CheckError::Engine(error)) => {
                    self.reported += 1;
                    self.follow(&mut session, step, error)
                }
                done => done,
            })
            .map_err(|what| format!("step {at}, {step}: {what}"))?;
        }
        if !is_cut_at_end {
            return catch_panics(|| end(&mut session, &disk))
                .map_err(|what| format!("at the end: {what}"));
        }
        let mut rng = TestRng::of(case.seed ^ number, 6);
        catch_panics(|| cut_while_opening(&mut session, &disk, rng.below(MAX_OPEN_OPERATIONS)))
    }

    /// Checks the engine after `step` has failed with `error`.
    fn follow(
        &mut self,
        session: &mut Session<'s>,
        step: &Step,
        error: Error,
    ) -> Result<(), CheckError> {
        if !session.is_open() || matches!(step, Step::Reopen | Step::Crash) {
            session.open()?;
            session.align_oracle(session.acknowledged)?;
            return Ok(());
        }
        if is_read(step) && !matches!(error, Error::ReadOnly { .. }) {
            return session.step(step).map_err(|wrong| {
                CheckError::Mismatch(format!("failed with {error}, and again: {wrong}"))
            });
        }
        let acknowledged = session.acknowledged;
        session.read_all().map_err(|wrong| {
            CheckError::Mismatch(format!("after {error}, reading earlier data: {wrong}"))
        })?;
        let mut last = error;
        for _ in 0..MAX_LATE_REPORTS {
            match session.engine().sync() {
                Ok(()) => {
                    session.synced = acknowledged;
                    return Ok(());
                }
                Err(Error::ReadOnly { cause }) if !cause.is_empty() => {
                    return self.reopen_read_only(session, step);
                }
                Err(again) => last = again,
            }
        }
        Err(CheckError::Mismatch(format!("neither writes again nor reports ReadOnly: {last}")))
    }

    fn reopen_read_only(
        &mut self,
        session: &mut Session<'s>,
        step: &Step,
    ) -> Result<(), CheckError> {
        self.read_only += 1;
        for write in [session.engine().flush(), session.engine().maintain()] {
            if !matches!(write, Err(Error::ReadOnly { .. })) {
                return Err(CheckError::Mismatch(format!(
                    "read-only, but a write returned {write:?}"
                )));
            }
        }
        session.read_all()?;
        let acknowledged = session.acknowledged;
        session.apply_uncertain(step);
        session.open()?;
        session.align_oracle(acknowledged)?;
        Ok(())
    }
}

/// Whether this step only reads.
fn is_read(step: &Step) -> bool {
    matches!(
        step,
        Step::Get(_)
            | Step::GetAt(..)
            | Step::Scan(..)
            | Step::OpenCursor(..)
            | Step::MoveCursor(_)
            | Step::Snapshot
            | Step::Release(_)
            | Step::ReadAll
            | Step::Verify
    )
}

/// The fault is over. A power cut now leaves everything synced; a process crash everything
/// acknowledged; and a later sync makes it durable.
fn end(session: &mut Session<'_>, disk: &FaultyVfs) -> Result<(), CheckError> {
    cut_on_a_copy(session, disk, "before reopening")?;
    session.open()?;
    session.align_oracle(session.acknowledged)?;
    cut_on_a_copy(session, disk, "after reopening")?;
    session.step(&Step::Sync)?;
    cut_on_a_copy(session, disk, "after the last sync")?;
    session.step(&Step::Maintain)?;
    session.step(&Step::Verify)?;
    session.step(&Step::Reopen)?;
    session.step(&Step::ReadAll)
}

/// Cuts power at an operation of an open. The open has seen what a failed sync left uncertain, and
/// the cut takes it back.
fn cut_while_opening(
    session: &mut Session<'_>,
    disk: &FaultyVfs,
    operation: u64,
) -> Result<(), CheckError> {
    session.drop_engine();
    disk.cut_power_at(disk.operations() + operation);
    let opened = session.open();
    if let Err(error) = opened
        && !disk.power_is_off()
    {
        return Err(error.into());
    }
    cut_on_a_copy(session, disk, "during the reopen")
}

/// Checks what a power cut would leave, on a copy: everything synced must be there.
fn cut_on_a_copy(session: &Session<'_>, disk: &FaultyVfs, when: &str) -> Result<(), CheckError> {
    let lost = disk.survivors_as(Survival::LoseAll, 0);
    let mixed = (0..MIXTURES).map(|seed| disk.survivors_as(Survival::Random, seed));
    for survivors in std::iter::once(lost).chain(mixed) {
        let after_cut = session.open_on(Arc::new(survivors));
        let found = after_cut
            .and_then(|engine| session::contents(engine.as_ref()))
            .map_err(|wrong| CheckError::Mismatch(format!("a power cut {when}: {wrong}")))?;
        if session.oracle.find_sequence(&found, session.synced, session.clock.now()).is_none() {
            return Err(CheckError::Mismatch(format!("a power cut {when} loses synced writes")));
        }
    }
    Ok(())
}
