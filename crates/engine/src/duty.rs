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
use crate::headway::{Headway, Sight};

thread_local! {
    /// Whom the job of this thread lets pass.
    static DUTY: RefCell<Option<Duty>> = const { RefCell::new(None) };
}

struct Duty {
    scheduler: Scheduler,
    headway: Arc<Headway>,
    last: Sight,
}

/// The calling thread is on duty until this is dropped.
#[must_use]
pub struct OnDuty {
    before: Option<Duty>,
}

impl OnDuty {
    /// Lets the table's writers pass, and all that pause.
    pub(crate) fn new(scheduler: Scheduler, headway: Arc<Headway>) -> Self {
        // Without threads the writer is who runs the job.
        let is_manual = scheduler.is_manual();
        let duty = (!is_manual).then(|| Duty { scheduler, headway, last: Sight::default() });
        OnDuty { before: DUTY.replace(duty) }
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
    DUTY.with_borrow_mut(|duty| {
        if let Some(Duty { scheduler, headway, last }) = duty {
            scheduler.let_pass();
            headway.let_pass(last);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// How long two steps' ends take while a write stands still.
    fn stands_still(scheduler: Scheduler) -> (Duration, Duration) {
        let headway = Arc::new(Headway::default());
        let took = || {
            let began = Instant::now();
            between_steps();
            std::thread::sleep(Duration::from_micros(200));
            between_steps();
            began.elapsed()
        };
        let on_duty = OnDuty::new(scheduler, headway.clone());
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
        let on_duty = |headway: &Arc<Headway>| OnDuty::new(scheduler.clone(), headway.clone());
        let is_of = |headway: &Arc<Headway>| {
            DUTY.with_borrow(|duty| {
                duty.as_ref().is_some_and(|duty| Arc::ptr_eq(&duty.headway, headway))
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
