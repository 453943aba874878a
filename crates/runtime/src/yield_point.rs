//! A thread on duty for a job lets writers pass between two steps, from wherever in the code a step ends.
//!
//! ```text
//!   job ── Background::run: on duty ─▶ merge ─▶ row ─▶ a chunk of its log read ── yield_point()
//!                                            ─▶ table ─▶ a filter built ───────── yield_point()
//!                                                        a megabyte handed over ─ yield_point()
//! ```
//!
//! What takes long lies deep: in a table's writer, in a medium's file. Neither knows of tables' writers or
//! of jobs, and the same code runs where nobody is on duty: there a step's end does nothing.
//!
//! Source: ours.

use std::cell::RefCell;

use crate::{Scheduler, write_activity};

thread_local! {
    /// Whom the job of this thread lets pass, beside writes that are under way.
    static DUTY: RefCell<Option<Duty>> = const { RefCell::new(None) };
}

struct Duty {
    /// The one whose awaited writers are let pass, too.
    scheduler: Option<Scheduler>,
}

/// The calling thread is on duty until this is dropped.
#[must_use]
pub struct BackgroundScope {
    before: Option<Duty>,
}

impl BackgroundScope {
    /// For the jobs of `scheduler`: writers that pause are let pass when they are late.
    pub(crate) fn enter(scheduler: Scheduler) -> Self {
        // Without threads the writer is who runs the job.
        let is_manual = scheduler.is_manual();
        Self::begin((!is_manual).then(|| Duty { scheduler: Some(scheduler) }))
    }

    /// For a thread that works for all tables.
    pub fn enter_shared() -> Self {
        Self::begin(Some(Duty { scheduler: None }))
    }

    fn begin(duty: Option<Duty>) -> Self {
        BackgroundScope { before: DUTY.replace(duty) }
    }
}

impl Drop for BackgroundScope {
    fn drop(&mut self) {
        DUTY.set(self.before.take());
    }
}

/// Between two steps of a long job: sleeps while a writer is late to be back from its pause, or cannot run because the
/// job does. Call it each tenth of a millisecond, with no lock held that writers take. Cost: some loads, nearly always.
pub fn yield_point() {
    DUTY.with_borrow(|duty| {
        if let Some(duty) = duty {
            duty.scheduler.iter().for_each(Scheduler::let_pass);
            write_activity::let_pass();
        }
    });
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::write_activity::tests::stay_on_one_processor;

    /// How long a step's end takes while a write stands still.
    fn stands_still(on_duty: BackgroundScope) -> (Duration, Duration) {
        stay_on_one_processor();
        let took = || {
            let began = Instant::now();
            yield_point();
            began.elapsed()
        };
        let write = write_activity::begin();
        let during = took();
        drop((write, on_duty));
        let _write = write_activity::begin();
        (during, took())
    }

    #[test]
    fn does_only_who_is_on_duty_for_others_let_them_pass() {
        let waited = Duration::from_millis(5);
        let of_a_job = || BackgroundScope::enter(Scheduler::threads(1));
        for on_duty in [of_a_job, BackgroundScope::enter_shared] {
            let (on_duty, off_duty) = stands_still(on_duty());
            assert!(on_duty > waited && off_duty < waited, "{on_duty:?}, {off_duty:?}");
        }
        let (on_duty, off_duty) = stands_still(BackgroundScope::enter(Scheduler::manual()));
        assert!(on_duty < waited && off_duty < waited, "{on_duty:?}, {off_duty:?}");
    }

    #[test]
    fn is_a_job_within_a_job_over_before_the_outer_one() {
        let depth = || DUTY.with_borrow(|duty| duty.as_ref().map(|duty| duty.scheduler.is_some()));
        let first = BackgroundScope::enter(Scheduler::threads(1));
        let second = BackgroundScope::enter_shared();
        assert_eq!(depth(), Some(false));
        drop(second);
        assert_eq!(depth(), Some(true));
        drop(first);
        assert_eq!(depth(), None);
    }
}
