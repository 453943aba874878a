//! Background work by priority.
//!
//! Two kinds of scheduler behind one face:
//!
//! * [`Scheduler::threads`]: one thread that takes flushes alone — so that a long compaction never
//!   keeps a flush waiting — and others that take the most urgent job first.
//! * [`Scheduler::manual`]: no threads. Jobs run inside [`Scheduler::help`], which an engine calls
//!   wherever it would wait, so a run is replayed exactly from its seed.
//!
//! A job that panics doesn't kill its thread; the engine that queued it learns of the panic because
//! it drops the job's completion guard unfinished.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::thread_priority::{self, Awaited};

/// How urgent a job is; the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Priority {
    /// Frees write buffers: writers stall without it.
    Flush = 0,
    /// Keeps the newest level short: writers slow down without it.
    Urgent = 1,
    /// Keeps the tree in shape.
    Compaction = 2,
    /// Anything that nobody waits for.
    Idle = 3,
}

const LANES: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// A queue of background jobs and what runs them. Clones share it; the threads end when the last
/// clone is dropped (jobs still queued are dropped unrun).
#[derive(Clone)]
pub struct Scheduler {
    shared: Arc<Shared>,
    // Held by clones only, so that threads don't keep themselves alive.
    _owner: Arc<Owner>,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    manual: bool,
    awaited: Awaited,
}

#[derive(Default)]
struct Queue {
    lanes: [VecDeque<Job>; LANES],
    /// Jobs that are to wait, by when they are due and in which order they came.
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
            // Thread 0 takes flushes only; the others take everything else first-come by urgency.
            let lanes = if i == 0 { 0..1 } else { 1..LANES };
            let name = if i == 0 { "siltstone-flush".into() } else { format!("siltstone-bg{i}") };
            let run = move || {
                // Writers wait for flushes: those are not to wait for compactions.
                if i > 0 {
                    thread_priority::lower_priority();
                    thread_priority::set_batch_policy();
                }
                shared.run_until_stopped(lanes);
            };
            // Without threads there is no store; the operating system refusing one is fatal.
            threads.push(
                std::thread::Builder::new().name(name).spawn(run).expect("spawn background thread"),
            );
        }
        drop(threads);
        scheduler
    }

    /// No threads: jobs run in [`help`](Scheduler::help).
    pub fn manual() -> Self {
        Self::new(true)
    }

    fn new(manual: bool) -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            work: Condvar::new(),
            manual,
            awaited: Awaited::default(),
        });
        let owner = Arc::new(Owner { shared: Arc::downgrade(&shared), threads: Mutex::default() });
        Scheduler { shared, _owner: owner }
    }

    /// Whether jobs run only in [`help`](Scheduler::help).
    pub fn is_manual(&self) -> bool {
        self.shared.manual
    }

    /// Queues a job. Cost: one lock.
    pub fn spawn(&self, priority: Priority, job: impl FnOnce() + Send + 'static) {
        self.shared.queue.lock().lanes[priority as usize].push_back(Box::new(job));
        self.shared.work.notify_all();
    }

    /// Queues a job that is to wait first. A manual scheduler has no time of its own: there it does
    /// not wait.
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

    /// Runs the most urgent queued job on this thread if the scheduler is manual. `false`: there
    /// was none, or threads will see to it.
    ///
    /// Call it without holding locks that a job takes.
    pub fn help(&self) -> bool {
        if !self.shared.manual {
            return false;
        }
        let job = self.shared.queue.lock().take(0..LANES);
        job.map(run_guarded).is_some()
    }

    /// Sleeps, as back-pressure asks of a writer. Jobs let it pass when it is to be back.
    pub(crate) fn sleep(&self, pause: Duration) {
        self.shared.awaited.sleep(pause);
    }

    /// Sleeps while a writer is late to be back from its pause. Cost: a load, nearly always.
    pub(crate) fn let_pass(&self) {
        self.shared.awaited.let_pass();
    }

    /// Jobs queued and not begun.
    pub fn queued(&self) -> usize {
        self.shared.queue.lock().lanes.iter().map(VecDeque::len).sum()
    }
}

impl Shared {
    fn run_until_stopped(&self, lanes: std::ops::Range<usize>) {
        let mut queue = self.queue.lock();
        while !queue.stopping {
            if queue.release_due() {
                self.work.notify_all();
            }
            match queue.take(lanes.clone()) {
                Some(job) => {
                    drop(queue);
                    run_guarded(job);
                    queue = self.queue.lock();
                }
                // The timeout is a belt to the braces: a lost wake-up costs a pause, not a hang.
                None => {
                    let wait = queue.until_due().min(Duration::from_secs(1));
                    self.work.wait_for(&mut queue, wait);
                }
            }
        }
    }
}

impl Queue {
    /// Queues the delayed jobs that are due by now; `true` if there were any.
    fn release_due(&mut self) -> bool {
        let mut has_released = false;
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= Instant::now()
        {
            let (priority, job) = first.remove();
            self.lanes[priority as usize].push_back(job);
            has_released = true;
        }
        has_released
    }

    /// How long until the next delayed job is due.
    fn until_due(&self) -> Duration {
        let first = self.delayed.keys().next();
        first.map_or(Duration::MAX, |(due, _)| due.saturating_duration_since(Instant::now()))
    }

    fn take(&mut self, lanes: std::ops::Range<usize>) -> Option<Job> {
        self.lanes[lanes].iter_mut().find_map(VecDeque::pop_front)
    }
}

/// A panic in a job ends the job, not the thread.
fn run_guarded(job: Job) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let mut queue = shared.queue.lock();
            queue.stopping = true;
            let unrun = (std::mem::take(&mut queue.lanes), std::mem::take(&mut queue.delayed));
            drop(queue);
            shared.work.notify_all();
            drop(unrun);
        }
        let me = std::thread::current().id();
        for thread in self.threads.lock().drain(..) {
            // The last clone may die inside a job: a thread cannot wait for itself.
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
    fn the_most_urgent_job_runs_first() {
        let scheduler = Scheduler::manual();
        let order = Arc::new(Mutex::new(Vec::new()));
        for priority in [Priority::Idle, Priority::Compaction, Priority::Flush, Priority::Urgent] {
            let order = order.clone();
            scheduler.spawn(priority, move || order.lock().push(priority));
        }
        while scheduler.help() {}
        assert!(order.lock().is_sorted());
        assert_eq!(order.lock().len(), 4);
    }

    #[test]
    fn a_flush_does_not_wait_for_a_long_compaction() {
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
    fn delayed_job_runs_when_it_is_due_and_keeps_none_waiting() {
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
    fn a_panicking_job_leaves_the_thread_alive() {
        let scheduler = Scheduler::threads(1);
        let (done, heard) = std::sync::mpsc::channel::<()>();
        std::panic::set_hook(Box::new(|_| {}));
        scheduler.spawn(Priority::Compaction, || panic!("on purpose"));
        scheduler.spawn(Priority::Compaction, move || done.send(()).unwrap());
        let answer = heard.recv_timeout(Duration::from_secs(10));
        let _ = std::panic::take_hook();
        answer.unwrap();
    }

    #[test]
    fn dropping_the_last_clone_ends_the_threads() {
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
