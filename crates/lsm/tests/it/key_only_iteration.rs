//! Iteration over keys alone, and lookups of expiries, read no values from logs, and yield the same
//! keys and expiries.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{MeteredVfs, Ram};

const VALUE_BYTES: usize = 16 << 10;

/// Keys with their expiries.
type KeyExpiries = Vec<(Vec<u8>, Option<u64>)>;

/// Iterates forwards and backwards; returns keys and expiries, and the bytes read.
fn iterate(lsm: &Lsm, with_values: bool) -> (KeyExpiries, u64) {
    let read = || lsm.stats().io.values().map(|io| io.bytes_read).sum::<u64>();
    let before = read();
    let mut cursor = lsm.iter().unwrap();
    if !with_values {
        cursor.skip_values();
    }
    let mut entries = Vec::new();
    let mut is_valid = cursor.first().unwrap();
    while is_valid {
        entries.push((cursor.key().to_vec(), cursor.expires_at()));
        assert!(!with_values || cursor.value().len() == VALUE_BYTES);
        is_valid = cursor.next().unwrap();
    }
    is_valid = cursor.last().unwrap();
    while is_valid {
        entries.push((cursor.key().to_vec(), cursor.expires_at()));
        is_valid = cursor.prev().unwrap();
    }
    (entries, read() - before)
}

/// A table with values in the logs of level 0, and the clock by which some expire.
fn table() -> (Lsm, Arc<ManualClock>) {
    let pairs = [
        ("memtable", "256KiB"),
        ("triad.log", "on"),
        ("experimental.l0_compaction_trigger", "100"),
        ("experimental.l0_slowdown_trigger", "200"),
        ("experimental.l0_stop_trigger", "300"),
        ("l0_capacity", "0"),
    ];
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = Options::from_map(&BTreeMap::from(pairs)).unwrap();
    let clock = Arc::new(ManualClock::at(100));
    let vfs = Arc::new(MeteredVfs::new(Arc::new(Ram::new())));
    let lsm = Lsm::open(vfs, Env::replayable(clock.clone(), 1), options).unwrap();
    // The key ranges of memtables overlap, so that runs are CL-SSTables.
    for i in 0..200u32 {
        let key = format!("key:{:04}", i * 37 % 200);
        let mut batch = WriteBatch::new();
        let value = vec![b'v'; VALUE_BYTES];
        match i % 4 {
            0 => batch.put_until(key.as_bytes(), &value, 1000),
            1 => batch.put_until(key.as_bytes(), &value, u64::from(150 + i)),
            2 => batch.put(key.as_bytes(), &value).delete(b"key:gone"),
            _ => batch.put(key.as_bytes(), &value),
        };
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
    lsm.flush().unwrap();
    (lsm, clock)
}

#[test]
fn expiry_lookup_reads_no_log() {
    let (lsm, clock) = table();
    let read = || lsm.stats().io.values().map(|io| io.bytes_read).sum::<u64>();
    for time in [100, 250, 2000] {
        clock.set(time);
        let entries = BTreeMap::from_iter(iterate(&lsm, false).0);
        let before = read();
        for i in 0..200u32 {
            let key = format!("key:{i:04}");
            let expected = entries.get(key.as_bytes()).copied();
            assert_eq!(lsm.expiry(key.as_bytes(), None).unwrap(), expected, "{key} at {time}");
        }
        assert_eq!(lsm.expiry(b"key:gone", None).unwrap(), None);
        let bytes = read() - before;
        assert!(bytes < VALUE_BYTES as u64, "{bytes} bytes read for expiries");
    }
}

#[test]
fn key_only_iteration_reads_no_log() {
    let (lsm, clock) = table();
    for time in [100, 250, 2000] {
        clock.set(time);
        let (with_values, bytes) = iterate(&lsm, true);
        let (without, fewer) = iterate(&lsm, false);
        assert_eq!(with_values, without, "at {time}");
        let values = without.len() * VALUE_BYTES;
        assert!(bytes as usize > values / 2, "{bytes} bytes read for {values} of values");
        assert!((fewer as usize) < values / 20, "{fewer} bytes read for keys alone");
    }
}
