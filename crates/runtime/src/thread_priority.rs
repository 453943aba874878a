//! The priority of background threads, so that foreground threads do not wait for them.
//!
//! * [`lower_priority`]: a background thread gets a smaller share of a contended CPU (niceness).
//! * [`set_batch_policy`]: a background thread does not preempt a running thread when it wakes up
//!   (`SCHED_BATCH`). It wakes up after each I/O request and for each job, and then often runs
//!   kernel code that is not preempted, so that a thread that waits for 60 µs of I/O would wait for
//!   a millisecond. Compare `siltstone-experiments repro run trie-latency`.
//!
//! Both are per thread on Linux and need no privileges. In the portable form (on other systems, and
//! with `--cfg siltstone_portable`) they do nothing, and tail latencies are higher.
//!
//! Source: sched(7).

/// About a third of the CPU share of a foreground thread. A smaller share would starve compactions
/// while every CPU is busy, and writers would wait for them.
#[cfg(all(target_os = "linux", not(siltstone_portable)))]
const NICENESS: i32 = 5;

/// Lowers the priority of the calling thread.
pub fn lower_priority() {
    #[cfg(all(target_os = "linux", not(siltstone_portable)))]
    let _ = rustix::process::nice(NICENESS);
}

/// Gives the calling thread the batch scheduling policy: no preemption of other threads on wake-up.
pub fn set_batch_policy() {
    #[cfg(all(target_os = "linux", not(siltstone_portable)))]
    {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call reads the parameters, which live until it returns, and changes only the
        // scheduling of the calling thread.
        let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    }
}

#[cfg(all(test, target_os = "linux", not(siltstone_portable)))]
mod tests {
    use super::*;

    #[test]
    fn batch_policy_applies_to_the_calling_thread_only() {
        // SAFETY: the call takes no pointer.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        std::thread::spawn(move || {
            set_batch_policy();
            assert_eq!(policy(), libc::SCHED_BATCH);
        })
        .join()
        .unwrap();
        assert_eq!(policy(), before);
    }
}
