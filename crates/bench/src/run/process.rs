//! CPU time and memory of this process, and memory of child processes, from the operating system.
//!
//! Invariant: a value that the system does not offer is missing, never zero.
//!
//! Source: Linux, `proc(5)`.

use std::io;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Name of the counter by which a peer reports its read system calls.
pub const READS: &str = "process_reads";
/// Bytes of these reads.
pub const BYTES_READ: &str = "process_bytes_read";
/// Name of the counter of write system calls.
pub const WRITES: &str = "process_writes";
/// Bytes of these writes.
pub const BYTES_WRITTEN: &str = "process_bytes_written";

const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);

/// Peak resident memory of this process in bytes.
pub fn peak_rss_bytes() -> Option<u64> {
    peak_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Resident memory of this process in bytes.
pub fn rss_bytes() -> Option<u64> {
    bytes_in(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// CPU time of all threads of this process.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Runs a program to its end; returns its output and its peak resident memory in bytes, sampled
/// five times per second.
///
/// # Errors
/// If the program cannot be started.
pub fn run_watched(program: &mut Command) -> io::Result<(Output, Option<u64>)> {
    let child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let (ended, has_ended) = mpsc::channel::<()>();
    let watcher = thread::spawn(move || {
        let mut peak = None;
        // Until the sender is dropped.
        while has_ended.recv_timeout(SAMPLE_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
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
    bytes_in(status, "VmHWM:")
}

fn bytes_in(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_memory_is_converted_to_bytes() {
        assert_eq!(peak_in("Name:\tx\nVmHWM:\t    1234 kB\nVmRSS:\t 1 kB\n"), Some(1_263_616));
        assert_eq!(peak_in("Name:\tx\n"), None);
        assert_eq!(peak_in("VmHWM:\tmany kB\n"), None);
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let before = cpu_time();
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        assert!(cpu_time() > before && rss_bytes().is_some_and(|bytes| bytes > 100_000));
    }

    #[test]
    fn peak_memory_of_a_child_is_sampled() {
        let (output, peak) = run_watched(Command::new("sleep").arg("0.7")).unwrap();
        assert!(output.status.success());
        assert!(peak.is_some_and(|bytes| bytes > 100_000), "{peak:?}");
    }
}
