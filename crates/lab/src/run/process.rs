//! What the operating system knows about this process, and about one that it runs.
//!
//! Invariant: a figure that the system does not give is missing, never zero.
//!
//! Source: Linux, `proc(5)`.

use std::io;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The counters by which a peer tells what its process has asked of the kernel.
pub(crate) const READS: &str = "process_reads";
/// Bytes of these reads.
pub(crate) const BYTES_READ: &str = "process_bytes_read";
/// Calls that write.
pub(crate) const WRITES: &str = "process_writes";
/// Bytes of these writes.
pub(crate) const BYTES_WRITTEN: &str = "process_bytes_written";

const WATCH_EVERY: Duration = Duration::from_millis(200);

/// The most memory this process has had resident, in bytes, if the system says.
pub fn peak_rss_bytes() -> Option<u64> {
    peak_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Runs a program to its end; what it printed, and the most memory that it had resident as far as the
/// system was asked in time: five times a second.
///
/// # Errors
/// The program cannot be started.
pub fn run_watched(program: &mut Command) -> io::Result<(Output, Option<u64>)> {
    let child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let (ended, has_ended) = mpsc::channel::<()>();
    let watcher = thread::spawn(move || {
        let mut peak = None;
        // Until the sender is gone.
        while has_ended.recv_timeout(WATCH_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
            let now = std::fs::read_to_string(&status).ok().and_then(|status| peak_in(&status));
            peak = peak.max(now);
        }
        peak
    });
    let output = child.wait_with_output();
    drop(ended);
    Ok((output?, watcher.join().ok().flatten()))
}

fn peak_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_read_in_bytes() {
        assert_eq!(peak_in("Name:\tx\nVmHWM:\t    1234 kB\nVmRSS:\t 1 kB\n"), Some(1_263_616));
        assert_eq!(peak_in("Name:\tx\n"), None);
        assert_eq!(peak_in("VmHWM:\tmany kB\n"), None);
    }

    #[test]
    fn a_program_s_memory_is_seen_while_it_runs() {
        let (output, peak) = run_watched(Command::new("sleep").arg("0.7")).unwrap();
        assert!(output.status.success());
        assert!(peak.is_some_and(|bytes| bytes > 100_000), "{peak:?}");
    }
}
