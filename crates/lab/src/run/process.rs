//! What the operating system knows about this process.
//!
//! Invariant: a figure that the system does not give is missing, never zero.
//!
//! Source: Linux, `proc(5)`.

/// The most memory this process has had resident, in bytes, if the system says.
pub fn peak_rss_bytes() -> Option<u64> {
    peak_in(&std::fs::read_to_string("/proc/self/status").ok()?)
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
}
