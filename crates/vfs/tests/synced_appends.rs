//! The device writes of a synced append: the blocks that it touched, not whole large folios.
//!
//! The kernel counts the folios that a process dirties in the page cache (`/proc/self/io`). This
//! file has only one test, because the counter is per process.
//!
//! Source: Linux, `proc(5)`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

use siltstone_engine::Purpose;
use siltstone_vfs::{Disk, Vfs};

const RECORD_BYTES: u64 = 116;
const BLOCK_BYTES: u64 = 4096;

fn process_bytes_written() -> u64 {
    let counters = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = counters.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
    line.parse().unwrap()
}

#[test]
fn synced_append_writes_two_blocks_at_most() {
    // In the build directory, since files in memory are never written to a device.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    let before = process_bytes_written();
    let probe = disk.create("probe").unwrap();
    probe.write_at(0, &[1; 1 << 16], Purpose::Log).unwrap();
    probe.sync(Purpose::Log).unwrap();
    if process_bytes_written() == before {
        eprintln!("skipped: the kernel does not count writes to {}", directory.path().display());
        return;
    }
    let record = [7; RECORD_BYTES as usize];
    // The second file starts with the folio size that the first one chose.
    for name in ["1.log", "2.log"] {
        let log = disk.create_append(name).unwrap();
        log.preallocate(8 << 20, 1 << 20);
        // A record before the first sync.
        log.write_at(0, &record, Purpose::Log).unwrap();
        log.sync(Purpose::Log).unwrap();
        let before = process_bytes_written();
        let appends = 3_000;
        for i in 1..=appends {
            log.write_at(i * RECORD_BYTES, &record, Purpose::Log).unwrap();
            log.sync(Purpose::Log).unwrap();
        }
        let per_append = (process_bytes_written() - before) / appends;
        eprintln!("{name}: {per_append} bytes per synced append of {RECORD_BYTES}");
        assert!(per_append <= 2 * BLOCK_BYTES, "{name}: {per_append} bytes");
    }
}
