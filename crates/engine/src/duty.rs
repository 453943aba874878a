//! A thread on duty for a job lets writers pass between two steps, from wherever in the code a step ends.
//!
//! ```text
//!   job ── Background::run: on duty ─▶ merge ─▶ row ─▶ a chunk of its log read ── between_steps()
//!                                            ─▶ table ─▶ a filter built ───────── between_steps()
//!                                                        a megabyte handed over ─ between_steps()
//! ```
//!
//! What takes long lies deep: in a table's writer, in a medium's file. Neither knows of tables' writers or
//! of jobs, and the same code runs where nobody is on duty: there a step's end does nothing.
//!
//! Source: ours.

use std::cell::RefCell;
use std::sync::Arc;

use crate::Scheduler;
use crate::headway::Headway;

thread_local! {
    /// Whom the job of this thread lets pass.
    static DUTY: RefCell<Option<Writers>> = const { RefCell::new(None) };
}

/// The writers of a table, and all that pause.
#[derive(Clone)]
pub(crate) struct Writers {
    pub(crate) scheduler: Scheduler,
    pub(crate) headway: Arc<Headway>,
}

/// The calling thread is on duty until this is dropped.
#[must_use]
pub struct OnDuty {
    before: Option<Writers>,
}

impl OnDuty {
    pub(crate) fn for_writers(writers: Writers) -> Self {
        // Without threads the writer is who runs the job.
        let writers = Some(writers).filter(|writers| !writers.scheduler.is_manual());
        OnDuty { before: DUTY.replace(writers) }
    }
}

impl Drop for OnDuty {
    fn drop(&mut self) {
        DUTY.set(self.before.take());
    }
}

/// Between two steps of a long job: sleeps while a writer is late to be back from its pause, or does not get
/// on. Call it each tenth of a millisecond. Cost: some loads, nearly always.
pub fn between_steps() {
    DUTY.with_borrow(|writers| {
        if let Some(writers) = writers {
            writers.scheduler.let_pass();
            writers.headway.let_pass();
        }
    });
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// How long a step's end takes while a write stands still.
    fn stands_still(scheduler: Scheduler) -> (Duration, Duration) {
        let headway = Arc::new(Headway::default());
        let took = || {
            let began = Instant::now();
            between_steps();
            began.elapsed()
        };
        let on_duty =
            OnDuty::for_writers(Writers { scheduler: scheduler.clone(), headway: headway.clone() });
        let write = headway.begin();
        let during = took();
        drop(write);
        drop(on_duty);
        let _write = headway.begin();
        (during, took())
    }

    #[test]
    fn does_only_who_is_on_duty_for_others_let_them_pass() {
        let waited = Duration::from_millis(5);
        let (on_duty, off_duty) = stands_still(Scheduler::threads(1));
        assert!(on_duty > waited && off_duty < waited, "{on_duty:?}, {off_duty:?}");
        let (on_duty, off_duty) = stands_still(Scheduler::manual());
        assert!(on_duty < waited && off_duty < waited, "{on_duty:?}, {off_duty:?}");
    }

    #[test]
    fn is_a_job_within_a_job_over_before_the_outer_one() {
        let scheduler = Scheduler::threads(1);
        let [outer, inner] = [(); 2].map(|()| Arc::new(Headway::default()));
        let on_duty = |headway: &Arc<Headway>| {
            let (scheduler, headway) = (scheduler.clone(), headway.clone());
            OnDuty::for_writers(Writers { scheduler, headway })
        };
        let is_of = |headway: &Arc<Headway>| {
            DUTY.with_borrow(|duty| {
                duty.as_ref().is_some_and(|writers| Arc::ptr_eq(&writers.headway, headway))
            })
        };
        let first = on_duty(&outer);
        let second = on_duty(&inner);
        assert!(is_of(&inner));
        drop(second);
        assert!(is_of(&outer));
        drop(first);
        assert!(!is_of(&outer) && !is_of(&inner));
    }
}
