//! Does repair make a damaged table open again, with everything that the damage did not touch?

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, KeyRange, ManualClock, WriteBatch};
use siltstone_faults::{FaultKind, Faulty, Survival};
use siltstone_lsm::{Lsm, Options, inspect, repair, verify_closed};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

const KEYS: usize = 3000;

/// Rows that are sorted tables, compacted whole.
const PLAIN: &str = "container=0 triad_log=off";
/// Rows that are logs with an index, most of them still in level 0 and some in part.
const TRIANGLE: &str = "container=128KiB triad_log=on memtable=16KiB";

fn open_with(vfs: &Arc<dyn Vfs>, more: &str) -> Result<Lsm, Error> {
    let all = format!("memtable=32KiB table=16KiB levels=64KiB:256KiB {more}");
    let pairs = all.split(' ').filter_map(|pair| pair.split_once('='));
    let options = Options::from_map(&pairs.map(|(k, v)| (k.into(), v.into())).collect()).unwrap();
    Lsm::open(vfs.clone(), Env::replayable(Arc::new(ManualClock::at(1)), 1), options)
}

fn open(vfs: &Arc<dyn Vfs>) -> Result<Lsm, Error> {
    open_with(vfs, PLAIN)
}

fn key(i: usize) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

/// A store with tables on several levels and some writes only in its log, closed cleanly.
fn filled() -> (Faulty, Arc<dyn Vfs>) {
    filled_with(PLAIN)
}

fn filled_with(options: &str) -> (Faulty, Arc<dyn Vfs>) {
    let faulty = Faulty::new(1);
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let lsm = open_with(&vfs, options).unwrap();
    for i in 0..KEYS {
        let mut batch = WriteBatch::new();
        batch.put(&key(i * 7 % KEYS), format!("value {}", i * 7 % KEYS).as_bytes());
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
    lsm.maintain().unwrap();
    lsm.close().unwrap();
    (faulty, vfs)
}

/// How many keys have their right value; no key may have a wrong one.
fn right(vfs: &Arc<dyn Vfs>) -> usize {
    let lsm = open(vfs).unwrap();
    assert!(lsm.verify(&mut |_, _| ()).unwrap().is_sound());
    let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
    let (mut count, mut there) = (0, cursor.first().unwrap());
    while there {
        let i: usize = std::str::from_utf8(&cursor.key()[3..]).unwrap().parse().unwrap();
        assert_eq!(cursor.value(), format!("value {i}").as_bytes());
        count += 1;
        there = cursor.next().unwrap();
    }
    lsm.close().unwrap();
    count
}

fn files(faulty: &Faulty, ending: &str) -> Vec<(String, u64)> {
    let all = faulty.files().into_iter().map(|file| (file.path, file.len));
    all.filter(|(path, len)| path.contains(ending) && *len > 0).collect()
}

#[test]
fn a_sound_store_stays_as_it_is() {
    for options in [PLAIN, TRIANGLE, "nvm=1MiB container=0 triad_log=off"] {
        let (faulty, vfs) = filled_with(options);
        let before = files(&faulty, "");
        assert!(verify_closed(&vfs).unwrap().is_sound());
        let story = repair(&vfs).unwrap().lines;
        assert!(story.len() == 1 && story[0].contains("nothing to repair"), "{story:?}");
        assert_eq!(files(&faulty, ""), before);
    }
    let (_, vfs) = filled();
    repair(&vfs).unwrap();
    assert_eq!(right(&vfs), KEYS);
}

#[test]
fn a_lost_manifest_costs_nothing() {
    for name in ["CURRENT", "MANIFEST"] {
        let (faulty, vfs) = filled();
        for (path, _) in files(&faulty, name) {
            vfs.remove(&path).unwrap();
        }
        let story = repair(&vfs).unwrap().lines;
        assert!(story[0].contains("manifest"), "{story:?}");
        assert_eq!(right(&vfs), KEYS);
    }
}

#[test]
fn a_damaged_block_costs_its_own_entries() {
    let (faulty, vfs) = filled();
    let (path, _) = files(&faulty, ".sst").pop().unwrap();
    faulty.flip_bit(&path, 100, 3).unwrap();
    let inspection = inspect(&vfs, &path, 3).unwrap().unwrap();
    assert!(inspection.damage.is_some());
    let damage = open(&vfs).unwrap().verify(&mut |_, _| ()).unwrap().damage;
    assert_eq!((damage.len(), &damage[0].file), (1, &path));

    let story = repair(&vfs).unwrap().lines;
    assert!(story.iter().any(|line| line.contains(&path)), "{story:?}");
    let saved = right(&vfs);
    assert!((KEYS - 400..KEYS).contains(&saved), "{saved} of {KEYS}");
    assert!(vfs.exists(&format!("{path}.damaged")).unwrap());
}

#[test]
fn a_damaged_footer_filter_or_index_costs_nothing() {
    for behind in [1, 20, 43, 300, 1000] {
        let (faulty, vfs) = filled();
        for (path, len) in files(&faulty, ".sst") {
            faulty.flip_bit(&path, len - behind, 3).unwrap();
        }
        assert!(open(&vfs).is_err() || behind > 43);
        let report = repair(&vfs).unwrap();
        assert!(report.is_lossless(), "{behind}: {:?}", report.lines);
        assert_eq!(right(&vfs), KEYS, "{behind}: {:?}", report.lines);
    }
}

#[test]
fn a_damaged_log_costs_the_damaged_record() {
    let (faulty, vfs) = filled();
    let (path, _) = files(&faulty, ".log").pop().unwrap();
    faulty.flip_bit(&path, 300, 3).unwrap();
    assert!(open(&vfs).err().unwrap().is_corruption());
    let report = repair(&vfs).unwrap();
    let lost = report.losses[0].sequences.map(|(first, last)| (last + 1 - first) as usize);
    assert_eq!((report.losses.len(), lost), (1, Some(KEYS - right(&vfs))), "{report:?}");
}

#[test]
fn a_missing_table_is_refused_by_name_and_then_done_without() {
    let (faulty, vfs) = filled();
    let (path, _) = files(&faulty, ".sst").pop().unwrap();
    vfs.remove(&path).unwrap();
    let before = files(&faulty, "");
    let error = open(&vfs).err().unwrap();
    assert!(error.is_corruption() && error.to_string().contains(&path), "{error}");
    assert_eq!(files(&faulty, ""), before, "nothing was touched");
    repair(&vfs).unwrap();
    assert!(right(&vfs) > KEYS / 2);
}

/// The rows of level 0 in a store of CL-SSTables: index and log of each, as the manifest tells.
fn rows(vfs: &Arc<dyn Vfs>) -> Vec<String> {
    let manifest = vfs.list().unwrap().into_iter().find(|name| name.starts_with("MANIFEST"));
    let edits = inspect(vfs, &manifest.unwrap(), 1000).unwrap().unwrap().items;
    edits.into_iter().filter(|edit| edit.contains("L0")).collect()
}

#[test]
fn a_damaged_index_of_a_row_costs_nothing() {
    let (faulty, vfs) = filled_with(TRIANGLE);
    assert!(!rows(&vfs).is_empty());
    let mut damaged = 0;
    for (path, _) in files(&faulty, ".sst") {
        let inspection = inspect(&vfs, &path, 1000).unwrap().unwrap();
        if inspection.items.iter().any(|item| item.contains("Position")) {
            faulty.flip_bit(&path, 100, 3).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 1, "{damaged}");
    let story = repair(&vfs).unwrap().lines;
    assert!(story.iter().any(|line| line.contains("log is read instead")), "{story:?}");
    assert_eq!(right(&vfs), KEYS);
}

#[test]
fn a_damaged_log_of_a_row_costs_what_stood_behind_the_damage() {
    let (faulty, vfs) = filled_with(TRIANGLE);
    let (path, len) = files(&faulty, ".log").remove(0);
    faulty.flip_bit(&path, len / 2, 3).unwrap();
    let damage = open_with(&vfs, TRIANGLE).unwrap().verify(&mut |_, _| ()).unwrap().damage;
    assert_eq!((damage.len(), &damage[0].file), (1, &path));
    let story = repair(&vfs).unwrap().lines;
    assert!(story.iter().any(|line| line.contains(&path)), "{story:?}");
    let saved = right(&vfs);
    assert!((KEYS - 600..KEYS).contains(&saved), "{saved} of {KEYS}: {story:?}");
}

#[test]
fn a_lost_manifest_costs_nothing_where_rows_are_logs() {
    let (faulty, vfs) = filled_with(TRIANGLE);
    for (path, _) in files(&faulty, "MANIFEST") {
        vfs.remove(&path).unwrap();
    }
    repair(&vfs).unwrap();
    assert_eq!(right(&vfs), KEYS);
}

/// Whatever request of it fails, another repair saves as much as the first would have, and the damaged file stays.
#[test]
fn a_repair_that_fails_can_be_run_again() {
    let (faulty, _) = filled();
    let (path, len) = files(&faulty, ".sst").pop().unwrap();
    faulty.flip_bit(&path, len / 2, 3).unwrap();
    let fresh = || {
        let faulty = faulty.survivors_as(Survival::KeepAll, 1);
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        (faulty, vfs)
    };
    let (untroubled, vfs) = fresh();
    repair(&vfs).unwrap();
    let (requests, saved) = (untroubled.requests(), right(&vfs));
    assert!(saved > KEYS / 2);
    // Its end is where names change.
    for request in requests.saturating_sub(60)..requests {
        let (troubled, vfs) = fresh();
        troubled.fail_at(request, FaultKind::Any);
        if repair(&vfs).is_err() {
            repair(&vfs).unwrap();
        }
        assert_eq!(right(&vfs), saved, "request {request} of {requests}");
        let is_kept = vfs.exists(&format!("{path}.damaged")).unwrap();
        assert!(is_kept, "request {request} of {requests}");
    }
}
