//! What a background thread does so that the threads of the user's need not wait for it.
//!
//! * It takes less of a processor that both want (niceness).
//! * It does not push a running thread aside when it wakes (`SCHED_BATCH`). A background thread wakes often,
//!   for each answer of the medium and for each piece of work, and then does what the kernel will not
//!   interrupt for a while, so that who waited for 60 µs of I/O waited for a millisecond of that. In
//!   `siltstone repro run trie-latency` the 99th percentile is 149 to 180 µs with it, 182 to 187 without.
//!
//! Both are each thread's own on Linux, need no rights, and do nothing elsewhere: slower tails, nothing worse.
//!
//! Source: ours; sched(7).

/// In the system's steps of niceness: about a third of what a thread of the user's gets. Less would starve
/// compactions where every processor is taken, and writers would wait for them after all.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// The calling thread takes less of a processor that others want.
pub fn take_less() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICENESS);
}

/// The calling thread waits, when it wakes, until what runs has had its turn.
pub fn let_wake_first() {
    #[cfg(target_os = "linux")]
    {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call reads the parameters, which live until it returns, and changes this thread's
        // order among others only.
        let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn is_it_the_thread_alone_that_is_patient() {
        // SAFETY: the call takes no pointer.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        std::thread::spawn(move || {
            let_wake_first();
            assert_eq!(policy(), libc::SCHED_BATCH);
        })
        .join()
        .unwrap();
        assert_eq!(policy(), before);
    }
}
