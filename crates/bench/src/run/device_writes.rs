//! Bytes that reached the block layer, as counted by the kernel.
//!
//! An engine counts the bytes of its requests. The kernel counts their cost below the page cache,
//! where the smallest unit is a block of 4 KiB:
//!
//! - `process`: pages that this process dirtied in the page cache, and direct writes, less pages
//!   that were dropped before they were written (deleted files). `/proc/self/io`: `write_bytes` −
//!   `cancelled_write_bytes`.
//! - `device`: bytes that the block device of the store's directory wrote for all processes,
//!   including the file system's journal. `/sys/dev/block/MAJOR:MINOR/stat`, field 7, in sectors of
//!   512 bytes.
//!
//! Invariant: a counter that the kernel does not offer is missing, never zero.
//!
//! Source: Linux, `proc(5)` and `Documentation/block/stat.rst`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SECTOR_BYTES: u64 = 512;

/// The counters at one time, or the difference between two times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceWrites {
    /// Bytes that this process wrote to a device.
    pub process: Option<u64>,
    /// Bytes that the device wrote for all processes.
    pub device: Option<u64>,
}

impl DeviceWrites {
    /// The current counters, for a store in the directory `path`. Reads two small files.
    pub fn now(path: &Path) -> Self {
        DeviceWrites { process: process_bytes(), device: device_bytes(path) }
    }

    /// The difference to `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.combine(earlier, u64::saturating_sub)
    }

    /// The sum with another difference; a counter missing in either is missing.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.combine(other, |a, b| a + b)
    }

    fn combine(self, other: Self, f: fn(u64, u64) -> u64) -> Self {
        let both = |a: Option<u64>, b| a.zip(b).map(|(a, b)| f(a, b));
        DeviceWrites {
            process: both(self.process, other.process),
            device: both(self.device, other.device),
        }
    }
}

fn process_bytes() -> Option<u64> {
    process_bytes_in(&std::fs::read_to_string("/proc/self/io").ok()?)
}

fn process_bytes_in(counters: &str) -> Option<u64> {
    let counter = |name: &str| {
        let line = counters.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    Some(counter("write_bytes:")?.saturating_sub(counter("cancelled_write_bytes:")?))
}

fn device_bytes(path: &Path) -> Option<u64> {
    let device = path.metadata().ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    device_bytes_in(&stat)
}

fn device_bytes_in(stat: &str) -> Option<u64> {
    let sectors: u64 = stat.split_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_counter_excludes_cancelled_writes() {
        let counters = "rchar: 5\nwchar: 6\nwrite_bytes: 12288\ncancelled_write_bytes: 4096\n";
        assert_eq!(process_bytes_in(counters), Some(8192));
        assert_eq!(process_bytes_in("wchar: 6\n"), None);
    }

    #[test]
    fn device_counter_is_the_sectors_written() {
        assert_eq!(device_bytes_in(" 1 2 3 4 5 6 70 8 9 10 11\n"), Some(70 * 512));
        assert_eq!(device_bytes_in(""), None);
    }

    #[test]
    fn difference_is_missing_where_a_counter_is() {
        let now = DeviceWrites { process: Some(30), device: None };
        let earlier = DeviceWrites { process: Some(10), device: Some(5) };
        let expected = DeviceWrites { process: Some(20), device: None };
        assert_eq!(now.since(earlier), expected);
        assert_eq!(expected.plus(now), DeviceWrites { process: Some(50), device: None });
    }
}
