//! Repair: a damaged table opens again with all undamaged entries.

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, KeyRange, ManualClock, WriteBatch};
use siltstone_faults::{FaultKind, FaultyVfs, Survival};
use siltstone_lsm::{Lsm, Options, inspect, repair, verify_closed};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

const KEYS: usize = 3000;

/// L0 runs are sorted tables, compacted whole.
const PLAIN: &str = "l0_capacity=0 triad.log=off";
/// L0 runs are CL-SSTables, most of them in level 0 and some compacted in part.
const CL_SSTABLES: &str = "l0_capacity=128KiB triad.log=on memtable=16KiB";

fn open_with(vfs: &Arc<dyn Vfs>, more: &str) -> Result<Lsm, Error> {
    let all = format!("memtable=32KiB target_file_size=16KiB levels=64KiB:256KiB {more}");
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
fn filled() -> (FaultyVfs, Arc<dyn Vfs>) {
    filled_with(PLAIN)
}

fn filled_with(options: &str) -> (FaultyVfs, Arc<dyn Vfs>) {
    let faulty = FaultyVfs::new(1);
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

/// The number of keys with the right value; panics if a key has a wrong one.
fn intact_keys(vfs: &Arc<dyn Vfs>) -> usize {
    let lsm = open(vfs).unwrap();
    assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
    let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
    let (mut count, mut is_valid) = (0, cursor.first().unwrap());
    while is_valid {
        let i: usize = std::str::from_utf8(&cursor.key()[3..]).unwrap().parse().unwrap();
        assert_eq!(cursor.value(), format!("value {i}").as_bytes());
        count += 1;
        is_valid = cursor.next().unwrap();
    }
    lsm.close().unwrap();
    count
}

fn files(faulty: &FaultyVfs, ending: &str) -> Vec<(String, u64)> {
    let all = faulty.files().into_iter().map(|file| (file.path, file.len));
    all.filter(|(path, len)| path.contains(ending) && *len > 0).collect()
}

#[test]
fn undamaged_store_is_not_changed() {
    for options in [PLAIN, CL_SSTABLES, "pmem.size=1MiB l0_capacity=0 triad.log=off"] {
        let (faulty, vfs) = filled_with(options);
        let before = files(&faulty, "");
        assert!(verify_closed(&vfs).unwrap().is_intact());
        let report = repair(&vfs).unwrap().lines;
        assert!(report.len() == 1 && report[0].contains("nothing to repair"), "{report:?}");
        assert_eq!(files(&faulty, ""), before);
    }
    let (_, vfs) = filled();
    repair(&vfs).unwrap();
    assert_eq!(intact_keys(&vfs), KEYS);
}

#[test]
fn lost_manifest_loses_no_entries() {
    for name in ["CURRENT", "MANIFEST"] {
        let (faulty, vfs) = filled();
        for (path, _) in files(&faulty, name) {
            vfs.remove(&path).unwrap();
        }
        let report = repair(&vfs).unwrap().lines;
        assert!(report[0].contains("manifest"), "{report:?}");
        assert_eq!(intact_keys(&vfs), KEYS);
    }
}

#[test]
fn damaged_block_loses_only_its_entries() {
    let (faulty, vfs) = filled();
    let (path, _) = files(&faulty, ".sst").pop().unwrap();
    faulty.flip_bit(&path, 100, 3).unwrap();
    let inspection = inspect(&vfs, &path, 3).unwrap().unwrap();
    assert!(inspection.damage.is_some());
    let damage = open(&vfs).unwrap().verify(&mut |_, _| ()).unwrap().damage;
    assert_eq!((damage.len(), &damage[0].file), (1, &path));

    let report = repair(&vfs).unwrap().lines;
    assert!(report.iter().any(|line| line.contains(&path)), "{report:?}");
    let saved = intact_keys(&vfs);
    assert!((KEYS - 400..KEYS).contains(&saved), "{saved} of {KEYS}");
    assert!(vfs.exists(&format!("{path}.damaged")).unwrap());
}

#[test]
fn damaged_footer_filter_or_index_loses_no_entries() {
    for offset_from_end in [1, 20, 43, 300, 1000] {
        let (faulty, vfs) = filled();
        for (path, len) in files(&faulty, ".sst") {
            faulty.flip_bit(&path, len - offset_from_end, 3).unwrap();
        }
        assert!(open(&vfs).is_err() || offset_from_end > 43);
        let report = repair(&vfs).unwrap();
        assert!(report.is_lossless(), "{offset_from_end}: {:?}", report.lines);
        assert_eq!(intact_keys(&vfs), KEYS, "{offset_from_end}: {:?}", report.lines);
    }
}

#[test]
fn damaged_log_loses_only_the_damaged_record() {
    let (faulty, vfs) = filled();
    let (path, _) = files(&faulty, ".log").pop().unwrap();
    faulty.flip_bit(&path, 300, 3).unwrap();
    assert!(open(&vfs).err().unwrap().is_corruption());
    let report = repair(&vfs).unwrap();
    let lost = report.losses[0].sequences.map(|(first, last)| (last + 1 - first) as usize);
    assert_eq!((report.losses.len(), lost), (1, Some(KEYS - intact_keys(&vfs))), "{report:?}");
}

#[test]
fn missing_table_is_reported_at_open_and_dropped_by_repair() {
    let (faulty, vfs) = filled();
    let (path, _) = files(&faulty, ".sst").pop().unwrap();
    vfs.remove(&path).unwrap();
    let before = files(&faulty, "");
    let error = open(&vfs).err().unwrap();
    assert!(error.is_corruption() && error.to_string().contains(&path), "{error}");
    assert_eq!(files(&faulty, ""), before, "nothing was touched");
    repair(&vfs).unwrap();
    assert!(intact_keys(&vfs) > KEYS / 2);
}

/// The L0 runs in the manifest of a store of CL-SSTables.
fn l0_runs(vfs: &Arc<dyn Vfs>) -> Vec<String> {
    let manifest = vfs.list().unwrap().into_iter().find(|name| name.starts_with("MANIFEST"));
    let edits = inspect(vfs, &manifest.unwrap(), 1000).unwrap().unwrap().items;
    edits.into_iter().filter(|edit| edit.contains("L0")).collect()
}

#[test]
fn damaged_index_of_a_cl_sstable_loses_no_entries() {
    let (faulty, vfs) = filled_with(CL_SSTABLES);
    assert!(!l0_runs(&vfs).is_empty());
    let mut damaged = 0;
    for (path, _) in files(&faulty, ".sst") {
        let inspection = inspect(&vfs, &path, 1000).unwrap().unwrap();
        if inspection.items.iter().any(|item| item.contains("Position")) {
            faulty.flip_bit(&path, 100, 3).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 1, "{damaged}");
    let report = repair(&vfs).unwrap().lines;
    assert!(report.iter().any(|line| line.contains("log is read instead")), "{report:?}");
    assert_eq!(intact_keys(&vfs), KEYS);
}

#[test]
fn damaged_log_of_a_cl_sstable_loses_few_entries() {
    let (faulty, vfs) = filled_with(CL_SSTABLES);
    let (path, len) = files(&faulty, ".log").remove(0);
    faulty.flip_bit(&path, len / 2, 3).unwrap();
    let damage = open_with(&vfs, CL_SSTABLES).unwrap().verify(&mut |_, _| ()).unwrap().damage;
    assert_eq!((damage.len(), &damage[0].file), (1, &path));
    let report = repair(&vfs).unwrap().lines;
    assert!(report.iter().any(|line| line.contains(&path)), "{report:?}");
    let saved = intact_keys(&vfs);
    assert!((KEYS - 600..KEYS).contains(&saved), "{saved} of {KEYS}: {report:?}");
}

#[test]
fn lost_manifest_with_cl_sstables_loses_no_entries() {
    let (faulty, vfs) = filled_with(CL_SSTABLES);
    for (path, _) in files(&faulty, "MANIFEST") {
        vfs.remove(&path).unwrap();
    }
    repair(&vfs).unwrap();
    assert_eq!(intact_keys(&vfs), KEYS);
}

/// After a failed request, another repair saves as much as an undisturbed one, and keeps the
/// damaged file.
#[test]
fn failed_repair_can_be_repeated() {
    let (faulty, _) = filled();
    let (path, len) = files(&faulty, ".sst").pop().unwrap();
    faulty.flip_bit(&path, len / 2, 3).unwrap();
    let fresh = || {
        let faulty = faulty.survivors_as(Survival::KeepAll, 1);
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        (faulty, vfs)
    };
    let (undisturbed, vfs) = fresh();
    repair(&vfs).unwrap();
    let (requests, saved) = (undisturbed.requests(), intact_keys(&vfs));
    assert!(saved > KEYS / 2);
    // Names change in the last requests.
    for request in requests.saturating_sub(60)..requests {
        let (faulty, vfs) = fresh();
        faulty.fail_at(request, FaultKind::Any);
        if repair(&vfs).is_err() {
            repair(&vfs).unwrap();
        }
        assert_eq!(intact_keys(&vfs), saved, "request {request} of {requests}");
        let is_kept = vfs.exists(&format!("{path}.damaged")).unwrap();
        assert!(is_kept, "request {request} of {requests}");
    }
}
