//! Does repair make a damaged table open again, with everything that the damage did not touch, and
//! does its report name every loss?

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, ManualClock, WriteBatch};
use siltstone_faults::{FaultKind, Faulty, Survival};
use siltstone_runtime::Env;
use siltstone_trie::{Options, Trie, inspect, repair};
use siltstone_vfs::Vfs;

const KEYS: usize = 3000;

fn open_with(vfs: &Arc<dyn Vfs>, more: &str) -> Result<Trie, Error> {
    let all = format!(
        "table=16KiB bucket=512 segment=4 fanout_bits=1 levels=3 slow=8 stop=12 garbage=1 {more}"
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

/// Small values, and large ones now and then; every key is written twice, the second time right.
fn value(i: usize) -> Vec<u8> {
    format!("value {i} {}", "x".repeat(if i.is_multiple_of(50) { 700 } else { i % 40 }))
        .into_bytes()
}

/// A store with tables on several levels and some writes only in its log, closed cleanly.
fn filled(options: &str) -> (Faulty, Arc<dyn Vfs>) {
    let faulty = Faulty::new(1);
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

/// How many keys have their right value; others may be missing or old, never wrong.
fn right(vfs: &Arc<dyn Vfs>) -> usize {
    let trie = open(vfs).unwrap();
    assert!(trie.verify(&mut |_, _| ()).unwrap().is_sound());
    let right = (0..KEYS).filter(|&i| match trie.get(&key(i)).unwrap() {
        Some(entry) if entry.value == value(i) => true,
        None => false,
        Some(entry) => {
            assert_eq!(entry.value, b"old", "key {i}");
            false
        }
    });
    let count = right.count();
    trie.close().unwrap();
    count
}

/// Files by their ending, smallest number first, with their length.
fn files(faulty: &Faulty, ending: &str) -> Vec<(String, u64)> {
    let all = faulty.files().into_iter().map(|file| (file.path, file.len));
    let mut files: Vec<_> = all.filter(|(path, _)| path.contains(ending)).collect();
    files.sort();
    files
}

#[test]
fn a_sound_store_stays_as_it_is() {
    let (_, vfs) = filled("");
    repair(&vfs, &Options::default()).unwrap();
    assert_eq!(right(&vfs), KEYS);
}

#[test]
fn a_lost_manifest_costs_nothing() {
    for name in ["CURRENT", "MANIFEST"] {
        let (faulty, vfs) = filled("");
        for (path, _) in files(&faulty, name) {
            vfs.remove(&path).unwrap();
        }
        assert!(open(&vfs).is_err());
        let story = repair(&vfs, &Options::default()).unwrap().lines;
        assert!(story[0].contains("manifest"), "{story:?}");
        assert_eq!(right(&vfs), KEYS, "{story:?}");
    }
}

#[test]
fn a_damaged_bucket_costs_its_own_items_and_is_named() {
    let (faulty, vfs) = filled("");
    for (path, _) in files(&faulty, ".htable") {
        let sound = inspect(&vfs, &path, 3).unwrap().unwrap();
        assert_eq!((sound.kind, sound.damage), ("HTable", None));
        assert_eq!(sound.items.len(), 3);
    }
    let (path, len) = files(&faulty, ".htable").pop().unwrap();
    faulty.flip_bit(&path, len / 2, 3).unwrap();
    assert!(inspect(&vfs, &path, 3).unwrap().unwrap().damage.is_some());
    let damage = open(&vfs).unwrap().verify(&mut |_, _| ()).unwrap().damage;
    assert_eq!((damage.len(), &damage[0].file), (1, &path));

    let story = repair(&vfs, &Options::default()).unwrap().lines;
    let lost =
        story.iter().find(|line| line.contains("lost what was in")).expect("the loss is told");
    assert!(lost.contains(&path) && lost.contains(" bytes "), "{story:?}");
    let saved = right(&vfs);
    assert!((KEYS - 60..KEYS).contains(&saved), "{saved} of {KEYS}: {story:?}");
    assert!(vfs.exists(&format!("{path}.damaged")).unwrap());
}

#[test]
fn a_damaged_footer_costs_nothing() {
    let (faulty, vfs) = filled("");
    for (path, len) in files(&faulty, ".htable") {
        faulty.flip_bit(&path, len - 20, 3).unwrap();
    }
    assert!(open(&vfs).err().unwrap().is_corruption());
    let story = repair(&vfs, &Options::default()).unwrap().lines;
    assert_eq!(right(&vfs), KEYS, "{story:?}");
}

#[test]
fn a_damaged_log_costs_what_stood_behind_the_damage() {
    let (faulty, vfs) = filled("");
    let (path, len) = files(&faulty, ".log").pop().unwrap();
    assert!(len > 400, "nothing is only in the log");
    faulty.flip_bit(&path, 300, 3).unwrap();
    assert!(open(&vfs).err().unwrap().is_corruption());
    let story = repair(&vfs, &Options::default()).unwrap().lines;
    assert!(story.iter().any(|line| line.contains(&path) && line.contains("lost")), "{story:?}");
    let saved = right(&vfs);
    assert!((KEYS - 600..KEYS).contains(&saved), "{saved} of {KEYS}");
}

#[test]
fn a_missing_table_is_refused_by_name_and_then_done_without() {
    let (faulty, vfs) = filled("");
    let (path, _) = files(&faulty, ".htable").pop().unwrap();
    vfs.remove(&path).unwrap();
    let before = files(&faulty, "");
    let error = open(&vfs).err().unwrap();
    assert!(error.is_corruption() && error.to_string().contains(&path), "{error}");
    assert_eq!(files(&faulty, ""), before, "nothing was touched");
    let story = repair(&vfs, &Options::default()).unwrap().lines;
    assert!(story.iter().any(|line| line.contains(&path)), "{story:?}");
    assert!(right(&vfs) > KEYS / 4);
}

#[test]
fn a_damaged_cluster_costs_nothing() {
    let (faulty, vfs) = filled("filter_memory=0");
    let clusters = files(&faulty, ".bloom");
    assert!(!clusters.is_empty());
    for (path, len) in clusters {
        assert_eq!(inspect(&vfs, &path, 1).unwrap().unwrap().damage, None);
        faulty.flip_bit(&path, len / 2, 1).unwrap();
    }
    repair(&vfs, &Options::default()).unwrap();
    assert_eq!(right(&vfs), KEYS);
}

#[test]
fn a_lost_manifest_costs_nothing_with_upper_levels_elsewhere() {
    let scratch = tempfile::tempdir().unwrap();
    let upper = scratch.path().join("upper");
    let more = format!("upper_levels=3 upper={}", upper.display());
    let (faulty, vfs) = filled(&more);
    assert!(std::fs::read_dir(&upper).unwrap().count() > 2, "nothing is there");
    let error = open(&vfs).err().unwrap();
    assert!(error.is_corruption() && error.to_string().contains("missing"), "{error}");
    for (path, _) in files(&faulty, "MANIFEST") {
        vfs.remove(&path).unwrap();
    }
    let options = Options { upper: Some(upper), ..Options::default() };
    repair(&vfs, &options).unwrap();
    let trie = open_with(&vfs, &more).unwrap();
    assert!((0..KEYS).all(|i| trie.get(&key(i)).unwrap().is_some_and(|e| e.value == value(i))));
    // A second table may not have it.
    let other: Arc<dyn Vfs> = Arc::new(Faulty::new(2));
    assert!(matches!(open_with(&other, &more), Err(Error::Locked { .. })));
    drop(trie);
    let env = Env::replayable(Arc::new(ManualClock::at(1)), 2);
    assert!(matches!(Trie::open(other, env, options), Err(Error::Refused { .. })));
}

/// Whatever request of it fails, another repair saves as much as the first would have, and the damaged file stays.
#[test]
fn a_repair_that_fails_can_be_run_again() {
    let (faulty, _) = filled("");
    let (path, len) = files(&faulty, ".htable").pop().unwrap();
    faulty.flip_bit(&path, len / 2, 3).unwrap();
    let fresh = || {
        let faulty = faulty.survivors_as(Survival::KeepAll, 1);
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        (faulty, vfs)
    };
    let (untroubled, vfs) = fresh();
    repair(&vfs, &Options::default()).unwrap();
    let (requests, saved) = (untroubled.requests(), right(&vfs));
    assert!(saved > KEYS / 2);
    // Its end is where names change.
    for request in requests.saturating_sub(60)..requests {
        let (troubled, vfs) = fresh();
        troubled.fail_at(request, FaultKind::Any);
        if repair(&vfs, &Options::default()).is_err() {
            repair(&vfs, &Options::default()).unwrap();
        }
        assert_eq!(right(&vfs), saved, "request {request} of {requests}");
        let is_kept = vfs.exists(&format!("{path}.damaged")).unwrap();
        assert!(is_kept, "request {request} of {requests}");
    }
}
