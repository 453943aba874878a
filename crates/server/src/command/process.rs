//! What the system says of this process: memory and processor time.
//!
//! Both are read from `/proc`; where there is none, nothing is known and nothing is reported.
//!
//! Source: proc(5).

/// A tick of the times in `/proc/self/stat`: USER_HZ is 100 on every architecture that Linux has
/// today.
const SECONDS_PER_TICK: f64 = 0.01;

/// Seconds of processor time since the process began.
pub(super) struct CpuTimes {
    pub(super) user: f64,
    pub(super) system: f64,
}

/// The processor time of all threads.
pub(super) fn cpu_times() -> Option<CpuTimes> {
    parse_cpu_times(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

fn parse_cpu_times(stat: &str) -> Option<CpuTimes> {
    // The name of the program, in parentheses, may hold anything.
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_ascii_whitespace();
    let ticks = |field: &str| Some(field.parse::<u64>().ok()? as f64 * SECONDS_PER_TICK);
    // The first field behind the name is the third; times are the 14th and the 15th.
    let user = ticks(fields.nth(11)?)?;
    Some(CpuTimes { user, system: ticks(fields.next()?)? })
}

/// Bytes of memory that are resident.
pub(super) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0";
        let times = parse_cpu_times(stat).unwrap();
        assert_eq!((times.user, times.system), (2.5, 0.5));
        assert!(parse_cpu_times("").is_none());
        assert!(!cfg!(target_os = "linux") || resident_bytes().unwrap() > 1 << 20);
    }
}
