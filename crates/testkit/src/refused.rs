//! Writes are refused, the table goes on or is read-only, and it is opened again.
//!
//! ```text
//!   life     steps ──┬─ fault begins ── steps, some refused ── fault ends ──┬─ steps ──▶ ending
//!                    └────────────────── again and again ──────────────────┘
//!   fault    the medium is full (writes torn or not) · no descriptors are left · requests of one kind fail:
//!            writes, syncs, changes of names, directory syncs, reads, or any, a few of them or all
//!   ending   a clean close · the death of the process · a power cut; then the table is opened again,
//!            now and then while requests fail
//! ```
//!
//! | what failed | what must follow |
//! | --- | --- |
//! | a write, and the table takes writes after it | nothing of it is ever visible |
//! | a write, and the table is read-only after it | it is not visible; after the next opening it is there as a whole or not at all, and stays so |
//! | any other step | what was acknowledged is there |
//!
//! Promise checked: the above, and: what was acknowledged is there after a close and after a death,
//! what was synced after a power cut; a full medium and a lack of descriptors never make a table
//! read-only; where the fault has ended and the table is not read-only, writes work again; a
//! read-only table refuses each write and does not close as if all was well. A refused write is not
//! tried again, so what surfaces of it is seen.
//!
//! Many values end in zeros: what a failed write did not store reads as zeros, and such a value is
//! then whole.
//!
//! Source: Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020, for the
//! failed syncs.

use std::sync::Arc;

use siltstone_engine::{Durability, Error, Op, WriteBatch};
use siltstone_faults::{FaultError, FaultKind, Faulty};

use crate::histories::guarded;
use crate::history::{self, Shape, Step};
use crate::scale::Case;
use crate::{Dice, Scale, Session, Subject, Verdict, Wrong};

/// Times that the table is opened, runs and ends before the last, in which nothing fails.
const LIVES: usize = 3;

/// Steps of a life.
const STEPS: usize = 30;

/// A table may report a fault that has ended so many times: by background work, and once more while
/// it catches up.
const MAX_LATE_REPORTS: usize = 3;

const SHAPE: Shape = Shape { steps: LIVES * STEPS, reopens: false, ..Shape::WRITES };

/// Refuses writes in many ways.
///
/// # Errors
/// What was lost, came back or is wrong, and how to repeat it.
pub fn refused_writes(subject: &dyn Subject, scale: &Scale) -> Verdict {
    if !subject.capabilities().durable {
        return Ok("not durable: nothing to check".to_owned());
    }
    let mut counts = Counts::default();
    for case in scale.cases(scale.refused_histories, subject.variants()) {
        Run::new(subject, case, &mut counts).run().map_err(|what| {
            let options = subject.describe(case.variant);
            format!("{} ({options}): {what}\n{case}", subject.name())
        })?;
        counts.histories += 1;
    }
    Ok(counts.report())
}

#[derive(Default)]
struct Counts {
    histories: u64,
    refused: u64,
    read_only: u64,
    doubtful: u64,
    surfaced: u64,
    closes: u64,
    deaths: u64,
    cuts: u64,
    failed_openings: u64,
}

impl Counts {
    fn report(&self) -> String {
        format!(
            "{} histories, {} steps refused; {} tables read-only, {} of {} doubtful writes were there \
             after reopening; {} closes, {} process deaths, {} power cuts, {} openings failed",
            self.histories,
            self.refused,
            self.read_only,
            self.surfaced,
            self.doubtful,
            self.closes,
            self.deaths,
            self.cuts,
            self.failed_openings
        )
    }
}

/// A fault that lasts for some steps.
#[derive(Debug, Clone, Copy)]
struct Fault {
    steps_left: u64,
    may_make_read_only: bool,
}

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Close,
    Death,
    PowerCut,
}

struct Run<'s, 'c> {
    dice: Dice,
    medium: Faulty,
    session: Session<'s>,
    counts: &'c mut Counts,
    fault: Option<Fault>,
    /// The write whose failure made the table read-only.
    doubtful: Option<Step>,
    is_read_only: bool,
    late_reports: usize,
}

impl<'s, 'c> Run<'s, 'c> {
    fn new(subject: &'s dyn Subject, case: Case, counts: &'c mut Counts) -> Self {
        let medium = Faulty::new(case.seed);
        let vfs = Arc::new(medium.clone());
        Run {
            dice: Dice::of(case.seed, 8),
            medium,
            session: Session::unopened(subject, case.variant, case.seed, vfs),
            counts,
            fault: None,
            doubtful: None,
            is_read_only: false,
            late_reports: 0,
        }
    }

    fn run(mut self) -> Result<(), String> {
        let mut history = history::draw(self.dice.draw(), &SHAPE);
        history.iter_mut().for_each(|step| end_values_in_zeros(step, &mut self.dice));
        guarded(|| self.open(0)).map_err(|what| format!("opening: {what}"))?;
        for (life, steps) in history.chunks(STEPS).enumerate() {
            for (at, step) in steps.iter().enumerate() {
                guarded(|| self.step(step))
                    .map_err(|what| format!("life {life}, step {at}, {step}: {what}"))?;
            }
            let mut ending = Ending::Close;
            guarded(|| {
                ending = self.draw_ending()?;
                self.end(ending)
            })
            .map_err(|what| format!("life {life}, after its end ({ending:?}): {what}"))?;
        }
        let ending = [
            Step::ReadAll,
            Step::Maintain,
            Step::Verify,
            Step::ReadAll,
            Step::Reopen,
            Step::ReadAll,
        ];
        for step in ending {
            guarded(|| self.session.step(&step))
                .map_err(|what| format!("nothing fails any more, {step}: {what}"))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), Wrong> {
        self.change_fault();
        self.look_whether_read_only()?;
        let was_read_only = self.is_read_only;
        match self.session.step(step) {
            Ok(())
                if was_read_only && matches!(step, Step::Write(batch, _) if !batch.is_empty()) =>
            {
                Err(Wrong::Answer("the table is read-only and takes a write".to_owned()))
            }
            Ok(()) => {
                if matches!(step, Step::Write(..)) {
                    self.late_reports = 0;
                }
                Ok(())
            }
            Err(Wrong::Fault(error)) => self.follow(step, was_read_only, error),
            wrong => wrong,
        }
    }

    /// What must follow when `step` has failed with `error`.
    fn follow(&mut self, step: &Step, was_read_only: bool, error: Error) -> Result<(), Wrong> {
        self.counts.refused += 1;
        self.look_whether_read_only()?;
        let is_write = matches!(step, Step::Write(..) | Step::Clear);
        if self.is_read_only && !was_read_only && is_write {
            self.counts.doubtful += 1;
            self.doubtful = Some(step.clone());
        }
        if self.fault.is_none() && !self.is_read_only {
            self.late_reports += 1;
            if self.late_reports > MAX_LATE_REPORTS {
                let what = format!("no fault is left, and it fails again and again: {error}");
                return Err(Wrong::Answer(what));
            }
        }
        match self.session.read_all() {
            Err(Wrong::Fault(_)) if self.fault.is_some() => Ok(()),
            read => read.map_err(|wrong| Wrong::Answer(format!("after {error}: {wrong}"))),
        }
    }

    /// Asks the table whether it takes writes, without one.
    fn look_whether_read_only(&mut self) -> Result<(), Wrong> {
        let asked = self.session.engine().write(&WriteBatch::new(), Durability::Buffered);
        let Err(Error::ReadOnly { cause }) = asked else { return Ok(asked?) };
        if self.is_read_only {
            return Ok(());
        }
        self.is_read_only = true;
        self.counts.read_only += 1;
        match self.fault {
            Some(Fault { may_make_read_only: false, .. }) => {
                Err(Wrong::Answer(format!("read-only by a fault that passes: {cause}")))
            }
            _ if cause.is_empty() => Err(Wrong::Answer("read-only without a cause".to_owned())),
            _ => Ok(()),
        }
    }

    /// A fault ends or goes on; where there is none, one may begin.
    fn change_fault(&mut self) {
        match &mut self.fault {
            Some(Fault { steps_left: 0, .. }) => self.clear_fault(),
            Some(fault) => fault.steps_left -= 1,
            None if self.dice.one_in(6) => self.begin_fault(),
            None => {}
        }
    }

    fn begin_fault(&mut self) {
        let steps_left = self.dice.below(8);
        let may_make_read_only = match self.dice.below(8) {
            0..3 => {
                let room = *self.dice.pick(&[0, 4 << 10, 40 << 10]);
                self.medium.set_capacity(self.medium.space_used() + self.dice.below(room + 1));
                self.medium.set_torn_on_full(self.dice.one_in(2));
                false
            }
            3 => {
                let error = [FaultError::ProcessFiles, FaultError::SystemFiles];
                self.medium.set_error(*self.dice.pick(&error));
                self.medium.fail_next(FaultKind::Descriptors, u64::MAX);
                false
            }
            _ => {
                self.fail_some();
                true
            }
        };
        self.fault = Some(Fault { steps_left, may_make_read_only });
    }

    /// Requests of one kind fail from now on, a few of them or all.
    fn fail_some(&mut self) {
        let kinds = [
            FaultKind::Write,
            FaultKind::Sync,
            FaultKind::Names,
            FaultKind::DirSync,
            FaultKind::Read,
            FaultKind::Any,
        ];
        let errors = [
            FaultError::Io,
            FaultError::DiskFull,
            FaultError::DiskFull,
            FaultError::OutOfMemory,
            FaultError::TryAgain,
        ];
        self.medium.set_error(*self.dice.pick(&errors));
        let count = if self.dice.one_in(3) { u64::MAX } else { 1 + self.dice.below(5) };
        self.medium.fail_next(*self.dice.pick(&kinds), count);
    }

    fn clear_fault(&mut self) {
        self.fault = None;
        self.medium.clear_faults();
        self.medium.set_capacity(u64::MAX);
    }

    /// As a rule the fault ends before the life does, and some more writes are taken.
    fn draw_ending(&mut self) -> Result<Ending, Wrong> {
        if self.fault.is_some() && !self.dice.one_in(4) {
            self.clear_fault();
            let more = Shape { steps: self.dice.index(4), ..SHAPE };
            for mut step in history::draw(self.dice.draw(), &more) {
                end_values_in_zeros(&mut step, &mut self.dice);
                // A history of its own would set the clock back.
                if !matches!(step, Step::Clock(_)) {
                    self.step(&step)?;
                }
            }
        }
        Ok(*self.dice.pick(&[Ending::Close, Ending::Death, Ending::Death, Ending::PowerCut]))
    }

    fn end(&mut self, ending: Ending) -> Result<(), Wrong> {
        self.look_whether_read_only()?;
        let fate = self.dice.draw();
        match ending {
            Ending::Close => {
                self.counts.closes += 1;
                match self.session.engine().close() {
                    Ok(()) if self.is_read_only => {
                        let what = "a read-only table closes as if all was well".to_owned();
                        return Err(Wrong::Answer(what));
                    }
                    Ok(()) => self.session.synced = self.session.oracle.moment(),
                    Err(error) if self.fault.is_none() && !self.is_read_only => {
                        let what = format!("no fault is left, and it cannot be closed: {error}");
                        return Err(Wrong::Answer(what));
                    }
                    Err(_) => {}
                }
                self.session.drop_engine();
            }
            Ending::Death => {
                self.counts.deaths += 1;
                self.move_to(self.medium.after_death(fate));
            }
            Ending::PowerCut => {
                self.counts.cuts += 1;
                self.session.acknowledged = self.session.synced;
                self.move_to(self.medium.survivors(fate));
            }
        }
        self.clear_fault();
        (self.is_read_only, self.late_reports) = (false, 0);
        let floor = self.session.acknowledged;
        let before = self.session.oracle.moment();
        if let Some(step) = self.doubtful.take() {
            self.session.doubt(&step);
        }
        let is_clear = self.open(floor)?;
        self.counts.surfaced += u64::from(self.session.oracle.moment() > before);
        if ending == Ending::PowerCut && is_clear {
            self.session.synced = self.session.oracle.moment();
        }
        Ok(())
    }

    fn move_to(&mut self, medium: Faulty) {
        let vfs = Arc::new(medium.clone());
        self.medium = medium;
        self.session.move_to(vfs);
    }

    /// Opens the table, at first now and then while requests fail; `true`: none did.
    fn open(&mut self, floor: u64) -> Result<bool, Wrong> {
        let mut is_clear = true;
        if self.dice.one_in(4) {
            is_clear = false;
            self.fail_some();
            let opened = self.session.open();
            self.clear_fault();
            if opened.is_err() {
                self.counts.failed_openings += 1;
                self.session.open()?;
            } else {
                self.look_whether_read_only()?;
                if self.is_read_only {
                    self.is_read_only = false;
                    self.session.open()?;
                }
            }
        } else {
            self.session.open()?;
        }
        self.session.settle(floor)?;
        Ok(is_clear)
    }
}

/// Zeros the last part of half of the values.
fn end_values_in_zeros(step: &mut Step, dice: &mut Dice) {
    let Step::Write(batch, _) = step else { return };
    let mut changed = WriteBatch::new();
    for op in batch.iter() {
        match op {
            Op::Put { key, value, expires_at } if dice.one_in(2) => {
                let mut value = value.to_vec();
                let kept = dice.index(value.len() + 1);
                value[kept..].fill(0);
                match expires_at {
                    Some(at) => changed.put_until(key, &value, at),
                    None => changed.put(key, &value),
                }
            }
            op => changed.push(op),
        };
    }
    *batch = changed;
}
