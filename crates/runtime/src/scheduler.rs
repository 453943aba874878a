//! A queue of background jobs by priority.
//!
//! There are two kinds of scheduler:
//!
//! * [`Scheduler::threads`]: one thread runs only flushes, so that a flush never waits for a long
//!   compaction; the other threads run the other jobs by priority.
//! * [`Scheduler::manual`]: no threads. Jobs run inside [`Scheduler::run_one`], which an engine
//!   calls wherever it would wait, so that a run with a given seed is deterministic.
//!
//! A panic in a job does not end the thread. The engine that queued the job detects it, because the
//! closure is dropped together with its completion guard.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::thread_priority;

/// The priority of a job, highest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Priority {
    /// Flushes: they free memtables, without which writers stall.
    Flush = 0,
    /// Level-0 compactions: they keep level 0 small, without which writers are delayed.
    L0Compaction = 1,
    /// Other compactions.
    Compaction = 2,
    /// Jobs that nobody waits for.
    Idle = 3,
}

const PRIORITIES: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// A job queue and the threads that run it. Clones share it. When the last clone is dropped, the
/// threads end and queued jobs are dropped.
#[derive(Clone)]
pub struct Scheduler {
    shared: Arc<Shared>,
    // Only clones of the handle have this, so that the worker threads do not keep the scheduler
    // alive.
    _owner: Arc<Owner>,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    manual: bool,
}

#[derive(Default)]
struct Queue {
    queues: [VecDeque<Job>; PRIORITIES],
    /// Delayed jobs by due time and order of submission.
    delayed: BTreeMap<(Instant, u64), (Priority, Job)>,
    next_delayed: u64,
    stopping: bool,
}

struct Owner {
    shared: Weak<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Scheduler {
    /// One thread for flushes and `compaction_threads` (at least one) for the rest.
    pub fn threads(compaction_threads: usize) -> Self {
        let scheduler = Self::new(false);
        let mut threads = scheduler._owner.threads.lock();
        for i in 0..=compaction_threads.max(1) {
            let shared = scheduler.shared.clone();
            // Thread 0 runs flushes only.
            let queues = if i == 0 { 0..1 } else { 1..PRIORITIES };
            let name = if i == 0 { "siltstone-flush".into() } else { format!("siltstone-bg{i}") };
            let run = move || {
                // Writers wait for flushes, so the flush thread keeps the normal priority.
                if i > 0 {
                    thread_priority::lower_priority();
                    thread_priority::set_batch_policy();
                }
                shared.run_until_stopped(queues);
            };
            // A store cannot work without threads, so a failure to spawn one is fatal.
            threads.push(
                std::thread::Builder::new().name(name).spawn(run).expect("spawn background thread"),
            );
        }
        drop(threads);
        scheduler
    }

    /// No threads: jobs run in [`run_one`](Scheduler::run_one).
    pub fn manual() -> Self {
        Self::new(true)
    }

    fn new(manual: bool) -> Self {
        let shared = Arc::new(Shared { queue: Mutex::default(), work: Condvar::new(), manual });
        let owner = Arc::new(Owner { shared: Arc::downgrade(&shared), threads: Mutex::default() });
        Scheduler { shared, _owner: owner }
    }

    /// Whether jobs run only in [`run_one`](Scheduler::run_one).
    pub fn is_manual(&self) -> bool {
        self.shared.manual
    }

    /// Queues a job. Cost: one lock acquisition.
    pub fn spawn(&self, priority: Priority, job: impl FnOnce() + Send + 'static) {
        self.shared.queue.lock().queues[priority as usize].push_back(Box::new(job));
        self.shared.work.notify_all();
    }

    /// Queues a job that becomes due after `delay`. A manual scheduler ignores the delay.
    pub fn spawn_after(
        &self,
        delay: Duration,
        priority: Priority,
        job: impl FnOnce() + Send + 'static,
    ) {
        if self.shared.manual {
            return self.spawn(priority, job);
        }
        let mut queue = self.shared.queue.lock();
        let number = queue.next_delayed;
        queue.next_delayed += 1;
        queue.delayed.insert((Instant::now() + delay, number), (priority, Box::new(job)));
        drop(queue);
        self.shared.work.notify_all();
    }

    /// With a manual scheduler: runs the queued job of the highest priority on this thread.
    /// `false`: there was none, or the scheduler has threads.
    ///
    /// The caller must not hold locks that a job takes.
    pub fn run_one(&self) -> bool {
        if !self.shared.manual {
            return false;
        }
        let job = self.shared.queue.lock().take(0..PRIORITIES);
        job.map(run_guarded).is_some()
    }

    /// The number of queued jobs.
    pub fn queued(&self) -> usize {
        self.shared.queue.lock().queues.iter().map(VecDeque::len).sum()
    }
}

impl Shared {
    fn run_until_stopped(&self, queues: std::ops::Range<usize>) {
        let mut queue = self.queue.lock();
        while !queue.stopping {
            if queue.release_due() {
                self.work.notify_all();
            }
            match queue.take(queues.clone()) {
                Some(job) => {
                    drop(queue);
                    run_guarded(job);
                    queue = self.queue.lock();
                }
                // The timeout limits the cost of a lost wake-up.
                None => {
                    let wait = queue.until_due().min(Duration::from_secs(1));
                    self.work.wait_for(&mut queue, wait);
                }
            }
        }
    }
}

impl Queue {
    /// Queues the delayed jobs that are due. `true` if there were any.
    fn release_due(&mut self) -> bool {
        let mut has_released = false;
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= Instant::now()
        {
            let (priority, job) = first.remove();
            self.queues[priority as usize].push_back(job);
            has_released = true;
        }
        has_released
    }

    /// The time until the next delayed job is due.
    fn until_due(&self) -> Duration {
        let first = self.delayed.keys().next();
        first.map_or(Duration::MAX, |(due, _)| due.saturating_duration_since(Instant::now()))
    }

    fn take(&mut self, queues: std::ops::Range<usize>) -> Option<Job> {
        self.queues[queues].iter_mut().find_map(VecDeque::pop_front)
    }
}

/// Runs a job; a panic does not propagate.
fn run_guarded(job: Job) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let mut queue = shared.queue.lock();
            queue.stopping = true;
            let dropped = (std::mem::take(&mut queue.queues), std::mem::take(&mut queue.delayed));
            drop(queue);
            shared.work.notify_all();
            drop(dropped);
        }
        let me = std::thread::current().id();
        for thread in self.threads.lock().drain(..) {
            // The last clone may be dropped inside a job: a thread cannot join itself.
            if thread.thread().id() != me {
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn jobs_run_by_priority() {
        let scheduler = Scheduler::manual();
        let order = Arc::new(Mutex::new(Vec::new()));
        for priority in
            [Priority::Idle, Priority::Compaction, Priority::Flush, Priority::L0Compaction]
        {
            let order = order.clone();
            scheduler.spawn(priority, move || order.lock().push(priority));
        }
        while scheduler.run_one() {}
        assert!(order.lock().is_sorted());
        assert_eq!(order.lock().len(), 4);
    }

    #[test]
    fn flush_does_not_wait_for_a_long_compaction() {
        let scheduler = Scheduler::threads(1);
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        let (done, flushed) = std::sync::mpsc::channel::<()>();
        scheduler.spawn(Priority::Compaction, move || {
            let _ = blocked.recv();
        });
        scheduler.spawn(Priority::Flush, move || done.send(()).unwrap());
        flushed.recv_timeout(Duration::from_secs(10)).unwrap();
        release.send(()).unwrap();
    }

    #[test]
    fn delayed_job_runs_when_due_and_blocks_no_other() {
        let scheduler = Scheduler::threads(1);
        let (done, ran) = std::sync::mpsc::channel();
        let began = Instant::now();
        for (name, delay) in [("late", 120), ("soon", 40)] {
            let done = done.clone();
            scheduler.spawn_after(Duration::from_millis(delay), Priority::Idle, move || {
                done.send((name, began.elapsed())).unwrap();
            });
        }
        scheduler.spawn(Priority::Idle, move || done.send(("now", began.elapsed())).unwrap());
        let names: Vec<_> = ran.iter().take(3).collect();
        assert_eq!(names.iter().map(|it| it.0).collect::<Vec<_>>(), ["now", "soon", "late"]);
        assert!(
            names[1].1 >= Duration::from_millis(40) && names[2].1 >= Duration::from_millis(120)
        );
    }

    #[test]
    fn panic_in_a_job_does_not_end_the_thread() {
        let scheduler = Scheduler::threads(1);
        let (done, received) = std::sync::mpsc::channel::<()>();
        std::panic::set_hook(Box::new(|_| {}));
        scheduler.spawn(Priority::Compaction, || panic!("on purpose"));
        scheduler.spawn(Priority::Compaction, move || done.send(()).unwrap());
        let answer = received.recv_timeout(Duration::from_secs(10));
        let _ = std::panic::take_hook();
        answer.unwrap();
    }

    #[test]
    fn threads_end_when_the_last_clone_is_dropped() {
        let runs = Arc::new(AtomicUsize::new(0));
        let scheduler = Scheduler::threads(2);
        let inner = (scheduler.clone(), runs.clone());
        scheduler.spawn(Priority::Idle, move || {
            inner.1.fetch_add(1, SeqCst);
        });
        while runs.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(scheduler);
    }
}
