//! A walk over keys alone reads no value that lies apart, and shows the same keys and expiries.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Metered, Ram};

const VALUE_BYTES: usize = 16 << 10;

/// Keys, and when their entries expire.
type Walked = Vec<(Vec<u8>, Option<u64>)>;

/// Keys and expiries, there and back, and the bytes that were read for them.
fn walk(lsm: &Lsm, with_values: bool) -> (Walked, u64) {
    let read = || lsm.stats().io.values().map(|io| io.bytes_read).sum::<u64>();
    let before = read();
    let mut cursor = lsm.iter().unwrap();
    if !with_values {
        cursor.skip_values();
    }
    let mut seen = Vec::new();
    let mut is_there = cursor.first().unwrap();
    while is_there {
        seen.push((cursor.key().to_vec(), cursor.expires_at()));
        assert!(!with_values || cursor.value().len() == VALUE_BYTES);
        is_there = cursor.next().unwrap();
    }
    is_there = cursor.last().unwrap();
    while is_there {
        seen.push((cursor.key().to_vec(), cursor.expires_at()));
        is_there = cursor.prev().unwrap();
    }
    (seen, read() - before)
}

#[test]
fn a_walk_without_values_reads_no_log_of_a_row() {
    let pairs = [
        ("memtable", "256KiB"),
        ("triad_log", "on"),
        ("l0_compact", "100"),
        ("l0_slow", "200"),
        ("l0_stop", "300"),
        ("container", "0"),
    ];
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = Options::from_map(&BTreeMap::from(pairs)).unwrap();
    let clock = Arc::new(ManualClock::at(100));
    let vfs = Arc::new(Metered::new(Arc::new(Ram::new())));
    let lsm = Lsm::open(vfs, Env::replayable(clock.clone(), 1), options).unwrap();
    // Each memtable has keys of all others' span, so that rows are logs with tables of positions.
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
    for time in [100, 250, 2000] {
        clock.set(time);
        let (with_values, bytes) = walk(&lsm, true);
        let (without, fewer) = walk(&lsm, false);
        assert_eq!(with_values, without, "at {time}");
        let values = without.len() * VALUE_BYTES;
        assert!(bytes as usize > values / 2, "{bytes} bytes read for {values} of values");
        assert!((fewer as usize) < values / 20, "{fewer} bytes read for keys alone");
    }
}
