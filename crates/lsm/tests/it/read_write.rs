//! Reads, snapshots and expiry, through flushes, compactions and reopening.

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, KeyRange, ManualClock, ReadPoint, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{MeteredVfs, Ram, Vfs};

fn options() -> Options {
    let pairs = [
        ("memtable", "8KiB"),
        ("target_file_size", "8KiB"),
        ("levels", "32KiB:128KiB:512KiB"),
        ("block_size", "512B"),
        ("l0_capacity", "64KiB"),
    ];
    Options::from_map(&pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into()).unwrap()
}

fn open(vfs: &Arc<dyn Vfs>, clock: &Arc<ManualClock>) -> Lsm {
    Lsm::open(vfs.clone(), Env::replayable(clock.clone(), 1), options()).unwrap()
}

fn fixture() -> (Arc<dyn Vfs>, Arc<ManualClock>) {
    (Arc::new(MeteredVfs::new(Arc::new(Ram::new()))), Arc::new(ManualClock::at(1_000)))
}

fn put(lsm: &Lsm, key: &str, value: &str) {
    let mut batch = WriteBatch::new();
    batch.put(key.as_bytes(), value.as_bytes());
    lsm.write(&batch, Durability::Buffered).unwrap();
}

fn get(lsm: &Lsm, key: &str) -> Option<String> {
    lsm.get(key.as_bytes()).unwrap().map(|entry| String::from_utf8(entry.value).unwrap())
}

fn all(lsm: &Lsm, at: Option<&ReadPoint>, forward: bool) -> Vec<(String, String)> {
    let mut cursor = lsm.range(KeyRange::all(), at).unwrap();
    let mut is_valid = if forward { cursor.first() } else { cursor.last() }.unwrap();
    let mut entries = Vec::new();
    while is_valid {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        entries.push((text(cursor.key()), text(cursor.value())));
        is_valid = if forward { cursor.next() } else { cursor.prev() }.unwrap();
    }
    entries
}

#[test]
fn entries_are_read_from_every_level() {
    let (vfs, clock) = fixture();
    let lsm = open(&vfs, &clock);
    for round in 0..5 {
        for i in 0..2000 {
            put(&lsm, &format!("key{:05}", i * 7919 % 2000), &format!("value-{round}-{i}"));
        }
    }
    lsm.maintain().unwrap();
    let stats = lsm.stats();
    let deep: u64 = stats.levels.iter().skip(1).map(|level| level.files).sum();
    assert!(deep > 5, "{stats:#?}");
    for i in 0..2000 {
        let key = format!("key{:05}", i * 7919 % 2000);
        assert_eq!(get(&lsm, &key), Some(format!("value-4-{i}")), "{key}");
    }
    assert_eq!(get(&lsm, "key99999"), None);
    let forward = all(&lsm, None, true);
    assert_eq!(forward.len(), 2000);
    assert!(forward.is_sorted());
    let mut backward = all(&lsm, None, false);
    backward.reverse();
    assert_eq!(forward, backward);
    assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
    lsm.close().unwrap();
    assert!(matches!(lsm.get(b"k"), Err(Error::Closed)));

    let lsm = open(&vfs, &clock);
    assert_eq!(all(&lsm, None, true), forward);
}

#[test]
fn unclosed_store_recovers_all_buffered_writes() {
    let (vfs, clock) = fixture();
    for round in 0..20 {
        let lsm = open(&vfs, &clock);
        for i in 0..100 {
            put(&lsm, &format!("{round}-{i}"), "x");
        }
        drop(lsm);
    }
    let lsm = open(&vfs, &clock);
    assert_eq!(all(&lsm, None, true).len(), 2000);
}

#[test]
fn repeated_open_and_close_leaves_few_logs() {
    let (vfs, clock) = fixture();
    for round in 0..50 {
        let lsm = open(&vfs, &clock);
        put(&lsm, &format!("{round:02}"), "x");
        assert_eq!(all(&lsm, None, true).len(), round + 1);
        lsm.close().unwrap();
        let logs = vfs.list().unwrap().into_iter().filter(|name| name.ends_with(".log"));
        assert!(logs.count() <= 9, "round {round}");
    }
}

#[test]
fn snapshot_is_unaffected_by_later_writes_and_compactions() {
    let (vfs, clock) = fixture();
    let lsm = open(&vfs, &clock);
    for i in 0..500 {
        put(&lsm, &format!("{i:04}"), "old");
    }
    let snapshot = lsm.snapshot().unwrap();
    let before = all(&lsm, Some(&snapshot), true);
    for i in 0..500 {
        put(&lsm, &format!("{i:04}"), "new");
        let mut batch = WriteBatch::new();
        batch.delete(format!("{:04}", i / 2).as_bytes());
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
    lsm.flush().unwrap();
    lsm.maintain().unwrap();
    assert_eq!(all(&lsm, Some(&snapshot), true), before);
    let mut backward = all(&lsm, Some(&snapshot), false);
    backward.reverse();
    assert_eq!(backward, before);
    assert_eq!(lsm.get_at(b"0001", &snapshot).unwrap().unwrap().value, b"old");
    let other = open(&fixture().0, &clock);
    assert!(matches!(other.get_at(b"0001", &snapshot), Err(Error::Invalid(_))));
}

#[test]
fn expired_entries_vanish_with_their_older_versions() {
    let (vfs, clock) = fixture();
    let lsm = open(&vfs, &clock);
    put(&lsm, "k", "old");
    lsm.flush().unwrap();
    let mut batch = WriteBatch::new();
    batch.put_until(b"k", b"young", 2_000);
    lsm.write(&batch, Durability::Buffered).unwrap();
    assert_eq!(get(&lsm, "k").as_deref(), Some("young"));
    lsm.flush().unwrap();
    assert_eq!(all(&lsm, None, true), [("k".to_owned(), "young".to_owned())]);
    clock.set(2_000);
    assert_eq!(get(&lsm, "k"), None);
    assert_eq!(all(&lsm, None, true), []);
    assert_eq!(all(&lsm, None, false), []);
    for i in 0..4 {
        put(&lsm, &format!("other{i}"), "x");
        lsm.flush().unwrap();
    }
    lsm.maintain().unwrap();
    assert_eq!(get(&lsm, "k"), None);
    let entries: u64 = lsm.stats().levels.iter().map(|level| level.entries).sum();
    assert_eq!(entries, 4, "the expired entry and what it hid are gone");
}

#[test]
fn invalid_batch_is_rejected_without_effect() {
    let (vfs, clock) = fixture();
    let lsm = open(&vfs, &clock);
    let mut batch = WriteBatch::new();
    batch.put(b"fine", b"x").put(&vec![7; (64 << 10) + 1], b"x");
    assert!(matches!(lsm.write(&batch, Durability::Synced), Err(Error::TooLarge { .. })));
    assert_eq!(all(&lsm, None, true), []);
    assert_eq!(lsm.stats().counters["sequence"], 0);
}

#[test]
fn logs_are_removed_once_their_entries_are_in_tables() {
    for (options, max_logs) in [("l0_capacity=0 triad.log=off", 3), ("l0_capacity=64KiB", 40)] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let pairs =
            format!("memtable=8KiB target_file_size=8KiB levels=32KiB:128KiB:512KiB {options}");
        let pairs = pairs.split(' ').filter_map(|pair| pair.split_once('='));
        let options = Options::from_map(&pairs.map(|(k, v)| (k.into(), v.into())).collect());
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        let lsm = Lsm::open(vfs.clone(), env, options.unwrap()).unwrap();
        for i in 0..20_000u32 {
            let mut batch = WriteBatch::new();
            batch.put(&i.wrapping_mul(0x9e37_79b9).to_be_bytes(), &[7; 100]);
            lsm.write(&batch, Durability::Buffered).unwrap();
        }
        lsm.maintain().unwrap();
        let logs = vfs.list().unwrap().iter().filter(|name| name.ends_with(".log")).count();
        assert!((1..=max_logs).contains(&logs), "{logs} logs");
    }
}

#[test]
fn options_under_old_names_open_an_existing_store() {
    let old = "memtable=8KiB table=8KiB levels=32KiB:128KiB:512KiB block=512B level0=rows \
               l0_compact=2 l0_slow=20 l0_stop=36 select=round-robin filter_bits=8 restart=4 \
               jobs=1 subcompactions=1 triad_log=off triad_mem=on hot=0.5 flush_threshold=0.25";
    let new = "memtable=8KiB target_file_size=8KiB levels=32KiB:128KiB:512KiB block_size=512B \
               l0_policy=whole experimental.l0_compaction_trigger=2 \
               experimental.l0_slowdown_trigger=20 experimental.l0_stop_trigger=36 \
               experimental.compaction_pri=round_robin filter_bits_per_key=8 \
               experimental.block_restart_interval=4 max_compactions=1 max_subcompactions=1 \
               triad.log=off triad.mem=on triad.hot_keys=0.5 triad.flush_threshold=0.25";
    let [old, new] = [old, new].map(|text| {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
        Options::from_map(&pairs.map(|(k, v)| (k.into(), v.into())).collect()).unwrap()
    });
    assert_eq!(old, new);
    let (vfs, clock) = fixture();
    for (round, options) in [new.clone(), old, new].into_iter().enumerate() {
        let env = Env::replayable(clock.clone(), 1);
        let lsm = Lsm::open(vfs.clone(), env, options).unwrap();
        assert_eq!(all(&lsm, None, true).len(), round * 200);
        for i in 0..200 {
            put(&lsm, &format!("{round}-{i}"), "x");
        }
        lsm.close().unwrap();
    }
}
