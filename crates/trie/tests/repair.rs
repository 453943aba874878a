//! Repair: a damaged table opens again with all undamaged entries, and its report names every loss.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, ManualClock, WriteBatch};
use siltstone_faults::{FaultKind, FaultyVfs, Survival};
use siltstone_runtime::Env;
use siltstone_trie::{Options, Trie, inspect, repair};
use siltstone_vfs::Vfs;

const KEYS: usize = 3000;

fn open_with(vfs: &Arc<dyn Vfs>, more: &str) -> Result<Trie, Error> {
    let all = format!(
        "htable_size=16KiB bucket_size=512 experimental.segment_buckets=4 fanout_bits=1 levels=3 slowdown_trigger=8 stop_trigger=12 gc_garbage_ratio=1 {more}"
    );
    let pairs = all.split(' ').filter_map(|pair| pair.split_once('='));
    let options = Options::from_map(&pairs.map(|(k, v)| (k.into(), v.into())).collect()).unwrap();
    Trie::open(vfs.clone(), Env::replayable(Arc::new(ManualClock::at(1)), 1), options)
}

fn open(vfs: &Arc<dyn Vfs>) -> Result<Trie, Error> {
    open_with(vfs, "")
}

fn key(i: usize) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

/// Small values, and sometimes large ones; every key is written twice, the second time with this.
fn value(i: usize) -> Vec<u8> {
    format!("value {i} {}", "x".repeat(if i.is_multiple_of(50) { 700 } else { i % 40 }))
        .into_bytes()
}

/// A store with tables on several levels and some writes only in its log, closed cleanly.
fn filled(options: &str) -> (FaultyVfs, Arc<dyn Vfs>) {
    let faulty = FaultyVfs::new(1);
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let trie = open_with(&vfs, options).unwrap();
    for round in 0..2 {
        for i in 0..KEYS {
            let i = i * 7 % KEYS;
            let mut batch = WriteBatch::new();
            batch.put(&key(i), if round == 0 { b"old".to_vec() } else { value(i) }.as_slice());
            trie.write(&batch, Durability::Buffered).unwrap();
        }
        trie.maintain().unwrap();
    }
    trie.close().unwrap();
    (faulty, vfs)
}

/// The number of keys with the right value; others may be missing or old, but not wrong.
fn intact_keys(vfs: &Arc<dyn Vfs>) -> usize {
    let trie = open(vfs).unwrap();
    assert!(trie.verify(&mut |_, _| ()).unwrap().is_intact());
    let intact = (0..KEYS).filter(|&i| match trie.get(&key(i)).unwrap() {
        Some(entry) if entry.value == value(i) => true,
        None => false,
        Some(entry) => {
            assert_eq!(entry.value, b"old", "key {i}");
            false
        }
    });
    let count = intact.count();
    trie.close().unwrap();
    count
}

/// Files by a part of their path, smallest number first, with their length.
fn files(faulty: &FaultyVfs, ending: &str) -> Vec<(String, u64)> {
    let all = faulty.files().into_iter().map(|file| (file.path, file.len));
    let mut files: Vec<_> = all.filter(|(path, _)| path.contains(ending)).collect();
    files.sort();
    files
}

#[test]
fn undamaged_store_is_not_changed() {
    let (_, vfs) = filled("");
    repair(&vfs, &Options::default()).unwrap();
    assert_eq!(intact_keys(&vfs), KEYS);
}

#[test]
fn lost_manifest_loses_no_entries() {
    for name in ["CURRENT", "MANIFEST"] {
        let (faulty, vfs) = filled("");
        for (path, _) in files(&faulty, name) {
            vfs.remove(&path).unwrap();
        }
        assert!(open(&vfs).is_err());
        let report = repair(&vfs, &Options::default()).unwrap().lines;
        assert!(report[0].contains("manifest"), "{report:?}");
        assert_eq!(intact_keys(&vfs), KEYS, "{report:?}");
    }
}

#[test]
fn damaged_bucket_loses_only_its_items_and_is_reported() {
    let (faulty, vfs) = filled("");
    for (path, _) in files(&faulty, ".htable") {
        let intact = inspect(&vfs, &path, 3).unwrap().unwrap();
        assert_eq!((intact.kind, intact.damage), ("HTable", None));
        assert_eq!(intact.items.len(), 3);
    }
    let (path, len) = files(&faulty, ".htable").pop().unwrap();
    faulty.flip_bit(&path, len / 2, 3).unwrap();
    assert!(inspect(&vfs, &path, 3).unwrap().unwrap().damage.is_some());
    let damage = open(&vfs).unwrap().verify(&mut |_, _| ()).unwrap().damage;
    assert_eq!((damage.len(), &damage[0].file), (1, &path));

    let report = repair(&vfs, &Options::default()).unwrap().lines;
    let lost =
        report.iter().find(|line| line.contains("lost what was in")).expect("the loss is reported");
    assert!(lost.contains(&path) && lost.contains(" bytes "), "{report:?}");
    let saved = intact_keys(&vfs);
    assert!((KEYS - 60..KEYS).contains(&saved), "{saved} of {KEYS}: {report:?}");
    assert!(vfs.exists(&format!("{path}.damaged")).unwrap());
}

#[test]
fn damaged_footer_loses_no_entries() {
    let (faulty, vfs) = filled("");
    for (path, len) in files(&faulty, ".htable") {
        faulty.flip_bit(&path, len - 20, 3).unwrap();
    }
    assert!(open(&vfs).err().unwrap().is_corruption());
    let report = repair(&vfs, &Options::default()).unwrap().lines;
    assert_eq!(intact_keys(&vfs), KEYS, "{report:?}");
}

/// Tables in which some segments, or all, have only items that are too large for a bucket.
#[test]
fn damaged_footer_of_a_table_with_large_items_loses_no_entries() {
    for large_of_20 in [20, 17, 12] {
        let faulty = FaultyVfs::new(1);
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        let value = |i: usize| match i * 7 % 20 < large_of_20 {
            true => value(50 * i),
            false => value(i % 40),
        };
        let trie = open(&vfs).unwrap();
        for i in 0..300 {
            let mut batch = WriteBatch::new();
            batch.put(&key(i), value(i).as_slice());
            trie.write(&batch, Durability::Buffered).unwrap();
        }
        trie.maintain().unwrap();
        trie.close().unwrap();
        let tables = files(&faulty, ".htable");
        assert!(tables.len() > 1, "{tables:?}");
        for (path, len) in tables {
            faulty.flip_bit(&path, len - 20, 3).unwrap();
        }
        let report = repair(&vfs, &Options::default()).unwrap();
        assert!(report.is_lossless(), "{:?}", report.lines);
        let trie = open(&vfs).unwrap();
        for i in 0..300 {
            let found = trie.get(&key(i)).unwrap();
            assert_eq!(found.map(|entry| entry.value), Some(value(i)), "key {i}");
        }
        trie.close().unwrap();
    }
}

#[test]
fn damaged_log_loses_only_later_entries() {
    let (faulty, vfs) = filled("");
    let (path, len) = files(&faulty, ".log").pop().unwrap();
    assert!(len > 400, "nothing is only in the log");
    faulty.flip_bit(&path, 300, 3).unwrap();
    assert!(open(&vfs).err().unwrap().is_corruption());
    let report = repair(&vfs, &Options::default()).unwrap().lines;
    assert!(report.iter().any(|line| line.contains(&path) && line.contains("lost")), "{report:?}");
    let saved = intact_keys(&vfs);
    assert!((KEYS - 600..KEYS).contains(&saved), "{saved} of {KEYS}");
}

#[test]
fn missing_table_is_reported_at_open_and_dropped_by_repair() {
    let (faulty, vfs) = filled("");
    let (path, _) = files(&faulty, ".htable").pop().unwrap();
    vfs.remove(&path).unwrap();
    let before = files(&faulty, "");
    let error = open(&vfs).err().unwrap();
    assert!(error.is_corruption() && error.to_string().contains(&path), "{error}");
    assert_eq!(files(&faulty, ""), before, "nothing was touched");
    let report = repair(&vfs, &Options::default()).unwrap().lines;
    assert!(report.iter().any(|line| line.contains(&path)), "{report:?}");
    assert!(intact_keys(&vfs) > KEYS / 4);
}

#[test]
fn damaged_cluster_loses_no_entries() {
    let (faulty, vfs) = filled("filter_memory=0");
    let clusters = files(&faulty, ".bloom");
    assert!(!clusters.is_empty());
    for (path, len) in clusters {
        assert_eq!(inspect(&vfs, &path, 1).unwrap().unwrap().damage, None);
        faulty.flip_bit(&path, len / 2, 1).unwrap();
    }
    repair(&vfs, &Options::default()).unwrap();
    assert_eq!(intact_keys(&vfs), KEYS);
}

#[test]
fn lost_manifest_with_a_fast_tier_loses_no_entries() {
    let scratch = tempfile::tempdir().unwrap();
    let fast = scratch.path().join("fast");
    let more = format!("fast_levels=3 fast_dir={}", fast.display());
    let (faulty, vfs) = filled(&more);
    assert!(std::fs::read_dir(&fast).unwrap().count() > 2, "nothing is there");
    let error = open(&vfs).err().unwrap();
    assert!(error.is_corruption() && error.to_string().contains("missing"), "{error}");
    for (path, _) in files(&faulty, "MANIFEST") {
        vfs.remove(&path).unwrap();
    }
    let options = Options { fast_dir: Some(fast), ..Options::default() };
    repair(&vfs, &options).unwrap();
    let trie = open_with(&vfs, &more).unwrap();
    assert!((0..KEYS).all(|i| trie.get(&key(i)).unwrap().is_some_and(|e| e.value == value(i))));
    // Another table cannot use the tier.
    let other: Arc<dyn Vfs> = Arc::new(FaultyVfs::new(2));
    assert!(matches!(open_with(&other, &more), Err(Error::Locked { .. })));
    drop(trie);
    let env = Env::replayable(Arc::new(ManualClock::at(1)), 2);
    assert!(matches!(Trie::open(other, env, options), Err(Error::Refused { .. })));
}

/// After a failed request, another repair saves as much as an undisturbed one, and keeps the
/// damaged file.
#[test]
fn failed_repair_can_be_repeated() {
    let (faulty, _) = filled("");
    let (path, len) = files(&faulty, ".htable").pop().unwrap();
    faulty.flip_bit(&path, len / 2, 3).unwrap();
    let fresh = || {
        let faulty = faulty.survivors_as(Survival::KeepAll, 1);
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        (faulty, vfs)
    };
    let (undisturbed, vfs) = fresh();
    repair(&vfs, &Options::default()).unwrap();
    let (requests, saved) = (undisturbed.requests(), intact_keys(&vfs));
    assert!(saved > KEYS / 2);
    // Names change in the last requests.
    for request in requests.saturating_sub(60)..requests {
        let (faulty, vfs) = fresh();
        faulty.fail_at(request, FaultKind::Any);
        if repair(&vfs, &Options::default()).is_err() {
            repair(&vfs, &Options::default()).unwrap();
        }
        assert_eq!(intact_keys(&vfs), saved, "request {request} of {requests}");
        let is_kept = vfs.exists(&format!("{path}.damaged")).unwrap();
        assert!(is_kept, "request {request} of {requests}");
    }
}
