//! By how much a sleep was too long, and whether other threads are to blame.
//!
//! ```text
//!   asked ──────────────┤ the clock is late │ ready, others run │ awake
//!                       0                   1                   2
//! ```
//!
//! From 1 to 2 the system counts how long the thread was ready and did not run (`schedstat`; proc(5)): what ran
//! were threads of this process or of others. From 0 to 1 it was not even ready, because the interrupt of the
//! clock came late. No thread can cause that but the kernel's own, for microseconds: it is the machine, as where a
//! host has given the idle processor of a virtual machine to another and brings it back late. Only what is
//! counted by the system is taken for others' doing or not; where it does not count, all is ours.
//!
//! Source: ours.

use std::time::Duration;

/// The lateness of one sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Late {
    /// In all.
    pub(crate) all: Duration,
    /// Of it before the thread was ready to run.
    pub(crate) of_clock: Duration,
}

/// Sleeps by `sleep`, which was asked to take so long, and returns how long it took and how late it was.
pub(crate) fn timed(asked: Duration, sleep: impl FnOnce()) -> (Duration, Late) {
    let ready_before = ready();
    let began = std::time::Instant::now();
    sleep();
    let took = began.elapsed();
    let all = took.saturating_sub(asked);
    let of_clock = match (ready_before, ready()) {
        (Some(before), Some(after)) => all.saturating_sub(after.saturating_sub(before)),
        _ => Duration::ZERO,
    };
    (took, Late { all, of_clock })
}

/// How long this thread has been ready and not running, if the system counts it.
fn ready() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        use std::fs::File;
        use std::os::unix::fs::FileExt;
        // The path names the thread that opens it.
        thread_local!(static COUNTS: Option<File> = File::open("/proc/thread-self/schedstat").ok());
        let mut text = [0; 64];
        let len = COUNTS.try_with(|file| file.as_ref()?.read_at(&mut text, 0).ok()).ok()??;
        of_schedstat(std::str::from_utf8(&text[..len]).ok()?)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Of "time on a processor, time ready, turns", in nanoseconds.
#[cfg(target_os = "linux")]
fn of_schedstat(text: &str) -> Option<Duration> {
    let mut counts = text.split_ascii_whitespace();
    let ready = counts.nth(1)?.parse().ok()?;
    // Whole, and not cut off.
    counts.next()?;
    Some(Duration::from_nanos(ready))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn is_the_time_in_line_read() {
        assert_eq!(of_schedstat("593916 142963 2\n"), Some(Duration::from_nanos(142_963)));
        for text in ["", "593916", "593916 142963", "0 x 0"] {
            assert_eq!(of_schedstat(text), None, "{text}");
        }
        assert!(ready().is_some(), "the system does not count it here");
    }

    #[test]
    fn is_what_others_took_not_the_clocks() {
        let asked = Duration::from_millis(2);
        // More threads that want to run than there are processors.
        let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let before = ready().unwrap();
            let mut sum = Duration::ZERO;
            for _ in 0..20 {
                let (took, late) = timed(asked, || std::thread::sleep(asked));
                assert!(took >= asked && late.all == took - asked && late.of_clock <= late.all);
                sum += late.all - late.of_clock;
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            // All that the system counted is left with the others.
            assert!(sum > Duration::ZERO && sum <= ready().unwrap() - before, "{sum:?}");
        });
    }

    #[test]
    fn is_a_late_clock_told_from_others() {
        // It sleeps for longer than it was asked to, and nobody keeps it from running.
        let (took, late) = timed(Duration::from_millis(1), || {
            std::thread::sleep(Duration::from_millis(30));
        });
        assert!(took >= Duration::from_millis(30));
        assert!(late.of_clock >= Duration::from_millis(5), "{late:?}");
    }
}
