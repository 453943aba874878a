//! Writes are refused, the table goes on or is read-only, and it is reopened.
//!
//! ```text
//!   run      steps ──┬─ fault begins ── steps, some refused ── fault ends ──┬─ steps ──▶ ending
//!                    └────────────────────── repeated ─────────────────────┘
//!   fault    a full disk (writes torn or not) · no file descriptors · failing requests of one kind:
//!            writes, syncs, directory changes, directory syncs, reads, or any, a few or all
//!   ending   a clean close · a process crash · a power cut; then the table is reopened, at times
//!            while requests fail
//! ```
//!
//! | what failed | what must follow |
//! | --- | --- |
//! | a write, and the table accepts later writes | nothing of it is ever visible |
//! | a write, and the table is read-only afterwards | it is invisible; after the next open it is wholly there or absent, and stays so |
//! | any other step | everything acknowledged is there |
//!
//! Checked: the above, and: acknowledged writes survive a close and a process crash, synced
//! writes a power cut; a full disk and a lack of descriptors never make a table read-only; after
//! the fault writes work again unless the table is read-only; a read-only table refuses each write
//! and its close reports the error. A refused write is not retried, so that its reappearance is
//! detected.
//!
//! Many values end in zeros: what a failed write did not store reads as zeros, so such a value is
//! then complete.
//!
//! Source: Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020, for the
//! failed syncs.

use std::sync::Arc;

use siltstone_engine::{BatchOp, Durability, Error, Op, WriteBatch};
use siltstone_faults::{FaultError, FaultKind, FaultyVfs};

use crate::histories::catch_panics;
use crate::history::{self, HistoryShape, Step};
use crate::scale::Case;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, Session, TestRng};

/// Runs before the last one, in which nothing fails.
const RUNS: usize = 3;

/// Steps per run.
const STEPS: usize = 30;

/// A table may report a fault this often after its end: from background work, and once more while
/// it catches up.
const MAX_LATE_REPORTS: usize = 3;

const SHAPE: HistoryShape =
    HistoryShape { steps: RUNS * STEPS, reopens: false, ..HistoryShape::WRITES };

/// Refuses writes in many ways.
///
/// # Errors
/// What was lost, reappeared or is wrong, and how to repeat it.
pub fn refused_writes(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    if !tested.capabilities().durable {
        return Ok("not durable: nothing to check".to_owned());
    }
    let mut counts = Counts::default();
    for case in scale.cases(scale.refused_histories, tested.option_set_count()) {
        Run::new(tested, case, &mut counts).run().map_err(|what| {
            let options = tested.describe(case.option_set);
            format!("{} ({options}): {what}\n{case}", tested.name())
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
    uncertain: u64,
    surfaced: u64,
    closes: u64,
    crashes: u64,
    cuts: u64,
    failed_opens: u64,
}

impl Counts {
    fn report(&self) -> String {
        format!(
            "{} histories, {} steps refused; {} tables read-only, {} of {} uncertain writes were there \
             after reopening; {} closes, {} process crashes, {} power cuts, {} opens failed",
            self.histories,
            self.refused,
            self.read_only,
            self.surfaced,
            self.uncertain,
            self.closes,
            self.crashes,
            self.cuts,
            self.failed_opens
        )
    }
}

/// A fault that lasts for some steps.
#[derive(Debug, Clone, Copy)]
struct Fault {
    steps_left: u64,
    may_make_read_only: bool,
}

/// How a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunEnd {
    Close,
    Crash,
    PowerCut,
}

struct Run<'s, 'c> {
    rng: TestRng,
    disk: FaultyVfs,
    session: Session<'s>,
    counts: &'c mut Counts,
    fault: Option<Fault>,
    /// The write whose failure made the table read-only.
    uncertain: Option<Step>,
    is_read_only: bool,
    late_reports: usize,
}

impl<'s, 'c> Run<'s, 'c> {
    fn new(tested: &'s dyn EngineUnderTest, case: Case, counts: &'c mut Counts) -> Self {
        let disk = FaultyVfs::new(case.seed);
        let vfs = Arc::new(disk.clone());
        Run {
            rng: TestRng::of(case.seed, 8),
            disk,
            session: Session::unopened(tested, case.option_set, case.seed, vfs),
            counts,
            fault: None,
            uncertain: None,
            is_read_only: false,
            late_reports: 0,
        }
    }

    fn run(mut self) -> Result<(), String> {
        let mut history = history::draw(self.rng.draw(), &SHAPE);
        history.iter_mut().for_each(|step| end_values_in_zeros(step, &mut self.rng));
        catch_panics(|| self.open(0)).map_err(|what| format!("opening: {what}"))?;
        for (run, steps) in history.chunks(STEPS).enumerate() {
            for (at, step) in steps.iter().enumerate() {
                catch_panics(|| self.step(step))
                    .map_err(|what| format!("run {run}, step {at}, {step}: {what}"))?;
            }
            let mut ending = RunEnd::Close;
            catch_panics(|| {
                ending = self.draw_ending()?;
                self.end(ending)
            })
            .map_err(|what| format!("run {run}, after its end ({ending:?}): {what}"))?;
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
            catch_panics(|| self.session.step(&step))
                .map_err(|what| format!("without a fault, {step}: {what}"))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), CheckError> {
        self.change_fault();
        self.check_read_only()?;
        let was_read_only = self.is_read_only;
        match self.session.step(step) {
            Ok(())
                if was_read_only
                    && (matches!(step, Step::Write(batch, _) if !batch.is_empty())
                        || matches!(step, Step::Ingest(..))) =>
            {
                Err(CheckError::Mismatch("the table is read-only and accepts a write".to_owned()))
            }
            Ok(()) => {
                if matches!(step, Step::Write(..)) {
                    self.late_reports = 0;
                }
                Ok(())
            }
            Err(CheckError::Engine(error)) => self.follow(step, was_read_only, error),
            wrong => wrong,
        }
    }

    /// Checks the table after `step` has failed with `error`.
    fn follow(&mut self, step: &Step, was_read_only: bool, error: Error) -> Result<(), CheckError> {
        self.counts.refused += 1;
        self.check_read_only()?;
        let is_write = matches!(step, Step::Write(..) | Step::Clear | Step::Ingest(..));
        if self.is_read_only && !was_read_only && is_write {
            self.counts.uncertain += 1;
            self.uncertain = Some(step.clone());
        }
        if self.fault.is_none() && !self.is_read_only {
            self.late_reports += 1;
            if self.late_reports > MAX_LATE_REPORTS {
                let what = format!("it keeps failing without a fault: {error}");
                return Err(CheckError::Mismatch(what));
            }
        }
        match self.session.read_all() {
            Err(CheckError::Engine(_)) if self.fault.is_some() => Ok(()),
            read => read.map_err(|wrong| CheckError::Mismatch(format!("after {error}: {wrong}"))),
        }
    }

    /// Finds out whether the table accepts writes, without one.
    fn check_read_only(&mut self) -> Result<(), CheckError> {
        let written = self.session.engine().write(&WriteBatch::new(), Durability::Buffered);
        let Err(Error::ReadOnly { cause }) = written else { return Ok(written?) };
        if self.is_read_only {
            return Ok(());
        }
        self.is_read_only = true;
        self.counts.read_only += 1;
        match self.fault {
            Some(Fault { may_make_read_only: false, .. }) => {
                Err(CheckError::Mismatch(format!("read-only after a transient fault: {cause}")))
            }
            _ if cause.is_empty() => {
                Err(CheckError::Mismatch("read-only without a cause".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Ends a fault or continues it; without one, begins one at times.
    fn change_fault(&mut self) {
        match &mut self.fault {
            Some(Fault { steps_left: 0, .. }) => self.clear_fault(),
            Some(fault) => fault.steps_left -= 1,
            None if self.rng.one_in(6) => self.begin_fault(),
            None => {}
        }
    }

    fn begin_fault(&mut self) {
        let steps_left = self.rng.below(8);
        let may_make_read_only = match self.rng.below(8) {
            0..3 => {
                let space = *self.rng.pick(&[0, 4 << 10, 40 << 10]);
                self.disk.set_capacity(self.disk.space_used() + self.rng.below(space + 1));
                self.disk.set_torn_on_full(self.rng.one_in(2));
                false
            }
            3 => {
                let error = [FaultError::ProcessFiles, FaultError::SystemFiles];
                self.disk.set_error(*self.rng.pick(&error));
                self.disk.fail_next(FaultKind::Descriptors, u64::MAX);
                false
            }
            _ => {
                self.fail_some();
                true
            }
        };
        self.fault = Some(Fault { steps_left, may_make_read_only });
    }

    /// Makes requests of one kind fail from now on, a few of them or all.
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
        self.disk.set_error(*self.rng.pick(&errors));
        let count = if self.rng.one_in(3) { u64::MAX } else { 1 + self.rng.below(5) };
        self.disk.fail_next(*self.rng.pick(&kinds), count);
    }

    fn clear_fault(&mut self) {
        self.fault = None;
        self.disk.clear_faults();
        self.disk.set_capacity(u64::MAX);
    }

    /// Draws the ending of a run. Mostly the fault ends earlier, and some more writes follow.
    fn draw_ending(&mut self) -> Result<RunEnd, CheckError> {
        // What this fault did in the background must not count for the next one.
        self.check_read_only()?;
        if self.fault.is_some() && !self.rng.one_in(4) {
            self.clear_fault();
            let more = HistoryShape { steps: self.rng.index(4), ..SHAPE };
            for mut step in history::draw(self.rng.draw(), &more) {
                end_values_in_zeros(&mut step, &mut self.rng);
                // A new history would set the clock back.
                if !matches!(step, Step::Clock(_)) {
                    self.step(&step)?;
                }
            }
        }
        Ok(*self.rng.pick(&[RunEnd::Close, RunEnd::Crash, RunEnd::Crash, RunEnd::PowerCut]))
    }

    fn end(&mut self, ending: RunEnd) -> Result<(), CheckError> {
        self.check_read_only()?;
        let seed = self.rng.draw();
        match ending {
            RunEnd::Close => {
                self.counts.closes += 1;
                match self.session.engine().close() {
                    Ok(()) if self.is_read_only => {
                        let what = "a read-only table closes without an error".to_owned();
                        return Err(CheckError::Mismatch(what));
                    }
                    Ok(()) => self.session.synced = self.session.oracle.sequence(),
                    Err(error) if self.fault.is_none() && !self.is_read_only => {
                        let what = format!("it cannot be closed without a fault: {error}");
                        return Err(CheckError::Mismatch(what));
                    }
                    Err(_) => {}
                }
                self.session.drop_engine();
            }
            RunEnd::Crash => {
                self.counts.crashes += 1;
                self.set_disk(self.disk.after_crash(seed));
            }
            RunEnd::PowerCut => {
                self.counts.cuts += 1;
                self.session.acknowledged = self.session.synced;
                self.set_disk(self.disk.survivors(seed));
            }
        }
        self.clear_fault();
        (self.is_read_only, self.late_reports) = (false, 0);
        let floor = self.session.acknowledged;
        let before = self.session.oracle.sequence();
        if let Some(step) = self.uncertain.take() {
            self.session.apply_uncertain(&step);
        }
        let is_clear = self.open(floor)?;
        self.counts.surfaced += u64::from(self.session.oracle.sequence() > before);
        if ending == RunEnd::PowerCut && is_clear {
            self.session.synced = self.session.oracle.sequence();
        }
        Ok(())
    }

    fn set_disk(&mut self, disk: FaultyVfs) {
        let vfs = Arc::new(disk.clone());
        self.disk = disk;
        self.session.set_vfs(vfs);
    }

    /// Opens the table, at times after an open among failing requests; `true` if none failed.
    fn open(&mut self, floor: u64) -> Result<bool, CheckError> {
        let mut is_clear = true;
        if self.rng.one_in(4) {
            is_clear = false;
            self.fail_some();
            let opened = self.session.open();
            self.clear_fault();
            if opened.is_err() {
                self.counts.failed_opens += 1;
                self.session.open()?;
            } else {
                self.check_read_only()?;
                if self.is_read_only {
                    self.is_read_only = false;
                    self.session.open()?;
                }
            }
        } else {
            self.session.open()?;
        }
        self.session.align_oracle(floor)?;
        Ok(is_clear)
    }
}

/// Zeros the last part of half of the values.
fn end_values_in_zeros(step: &mut Step, rng: &mut TestRng) {
    let Step::Write(batch, _) = step else { return };
    let mut changed = WriteBatch::new();
    for op in batch.iter_all() {
        match op {
            BatchOp::Point(Op::Put { key, value, expires_at }) if rng.one_in(2) => {
                let mut value = value.to_vec();
                let kept = rng.index(value.len() + 1);
                value[kept..].fill(0);
                match expires_at {
                    Some(at) => changed.put_until(key, &value, at),
                    None => changed.put(key, &value),
                }
            }
            other => changed.push_any(other),
        };
    }
    *batch = changed;
}
