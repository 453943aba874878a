//! CPU time and memory of this process, from `/proc`, and its log.
//!
//! Source: proc_pid_stat(5): fields 14 (`utime`) and 15 (`stime`), in ticks of 1/100 s on every
//! Linux machine. proc_pid_status(5): `VmRSS`.

use std::time::Duration;

const TICK_MS: u64 = 10;

/// CPU time of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuTimes {
    /// In user mode.
    pub(crate) user: Duration,
    /// In kernel mode.
    pub(crate) system: Duration,
}

impl CpuTimes {
    /// The current CPU time; zero where `/proc` is missing.
    pub(crate) fn of_process() -> Self {
        let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self::parse(&text).unwrap_or_default()
    }

    fn parse(text: &str) -> Option<Self> {
        // The program's name, which may contain anything, is in parentheses before field 3.
        let (_, fields) = text.rsplit_once(") ")?;
        let mut times = fields.split(' ').skip(14 - 3).map(|ticks| {
            let ticks: u64 = ticks.parse().ok()?;
            Some(Duration::from_millis(ticks.saturating_mul(TICK_MS)))
        });
        Some(CpuTimes { user: times.next()??, system: times.next()?? })
    }
}

/// Resident memory in bytes; `None` where `/proc` is missing.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kib << 10)
}

/// Writes a line to standard error, where the server's log is.
pub(crate) fn log(line: &str) {
    use std::io::Write;
    // Whether or not somebody reads the log, the server goes on.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_after_any_program_name() {
        let text = "12 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 150 7 0 0 20 0";
        let times = CpuTimes::parse(text).unwrap();
        assert_eq!((times.user.as_millis(), times.system.as_millis()), (1500, 70));
        assert_eq!(CpuTimes::parse("12 (a) S 1"), None);
        // More than a year of CPU time, as many cores have within days.
        let text = "12 (a) S 1 2 3 4 5 6 7 8 9 10 5000000000 7 0 0 20 0";
        assert_eq!(CpuTimes::parse(text).unwrap().user.as_secs(), 50_000_000);
    }

    #[test]
    fn cpu_time_increases_with_work() {
        let began = std::time::Instant::now();
        let before = CpuTimes::of_process();
        while CpuTimes::of_process() == before {
            assert!(began.elapsed() < Duration::from_secs(60), "no time has passed");
        }
    }

    #[test]
    fn resident_memory_is_available_on_linux() {
        assert!(!cfg!(target_os = "linux") || resident_bytes().unwrap() > 1 << 20);
    }
}
