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

/// The unit of CPU time in `/proc`: `USER_HZ`, which is the same on all architectures of Linux that
/// this crate is built for.
const TICKS_PER_SECOND: u64 = 100;

const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);

/// Peak resident memory of this process in bytes.
pub fn peak_rss_bytes() -> Option<u64> {
    peak_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Resident memory of this process in bytes.
pub fn rss_bytes() -> Option<u64> {
    bytes_in(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// CPU time of all threads of this process, the ended ones too, in steps of 10 ms.
pub fn cpu_time() -> Option<Duration> {
    cpu_time_in(&std::fs::read_to_string("/proc/self/stat").ok()?)
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

fn cpu_time_in(stat: &str) -> Option<Duration> {
    // The name of the program is in parentheses, and may have any bytes.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks()? + ticks()?) * (1000 / TICKS_PER_SECOND)))
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
    fn cpu_time_is_that_of_user_and_system() {
        let stat = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 120 30 8 9 20 0\n";
        assert_eq!(cpu_time_in(stat), Some(Duration::from_millis(1500)));
        assert_eq!(cpu_time_in("7 (a) R 1 2"), None);
        assert!(cpu_time().is_some() && rss_bytes().is_some_and(|bytes| bytes > 100_000));
    }

    #[test]
    fn peak_memory_of_a_child_is_sampled() {
        let (output, peak) = run_watched(Command::new("sleep").arg("0.7")).unwrap();
        assert!(output.status.success());
        assert!(peak.is_some_and(|bytes| bytes > 100_000), "{peak:?}");
    }
}
