//! The device writes of a synced append: the blocks that it touched, not whole large folios, and
//! sometimes the zeros of one small window.
//!
//! The kernel counts the folios that a process dirties in the page cache (`/proc/self/io`). This
//! file has only one test, because the counter is per process.
//!
//! Source: Linux, `proc(5)`.

#![cfg(all(target_os = "linux", not(siltstone_portable)))]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

use siltstone_engine::Purpose;
use siltstone_vfs::{Disk, Vfs};

const RECORD_BYTES: u64 = 116;
const BLOCK_BYTES: u64 = 4096;
/// The most that one append may add to what the next sync writes: the zeros of a window, and a few
/// blocks of the append.
const MAX_BYTES: u64 = (64 << 10) + 4 * BLOCK_BYTES;

fn process_bytes_written() -> u64 {
    let counters = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = counters.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
    line.parse().unwrap()
}

#[test]
fn synced_append_writes_two_blocks_on_average_and_never_a_large_window() {
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
        let (mut earlier, mut most) = (before, 0);
        for i in 1..=appends {
            log.write_at(i * RECORD_BYTES, &record, Purpose::Log).unwrap();
            log.sync(Purpose::Log).unwrap();
            let now = process_bytes_written();
            most = most.max(now - std::mem::replace(&mut earlier, now));
        }
        let per_append = (process_bytes_written() - before) / appends;
        eprintln!("{name}: {per_append} bytes per synced append of {RECORD_BYTES}, at most {most}");
        assert!(per_append <= 2 * BLOCK_BYTES, "{name}: {per_append} bytes");
        assert!(most <= MAX_BYTES, "{name}: one synced append wrote {most} bytes");
    }
}
