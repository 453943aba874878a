//! The next log is created in advance: it is used by the next rotation, ignored by recovery, and
//! removed at close.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Disk, Ram, Vfs};

const KEYS: u32 = 300;

fn open(vfs: &Arc<dyn Vfs>) -> Lsm {
    let options = [("memtable", "64KiB"), ("l0_capacity", "1MiB"), ("target_file_size", "64KiB")];
    let options: BTreeMap<_, _> =
        options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    Lsm::open(vfs.clone(), env, Options::from_map(&options).unwrap()).unwrap()
}

/// Shuffled, because runs of ordered keys are sorted tables, whose logs are removed.
fn key_of(number: u32) -> [u8; 4] {
    number.wrapping_mul(2_654_435_761).to_be_bytes()
}

fn write(lsm: &Lsm, from: u32) {
    for key in from..from + KEYS {
        let mut batch = WriteBatch::new();
        batch.put(&key_of(key), &[key as u8; 1000]);
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
    // Finishes background work without a forced flush.
    lsm.maintain().unwrap();
}

fn check(lsm: &Lsm, keys: u32) {
    for key in 0..keys {
        let found = lsm.get(&key_of(key)).unwrap().map(|entry| entry.value);
        assert_eq!(found, Some(vec![key as u8; 1000]), "{key}");
    }
}

/// The names of all logs, ascending.
fn logs(vfs: &Arc<dyn Vfs>) -> Vec<String> {
    vfs.list().unwrap().into_iter().filter(|name| name.ends_with(".log")).collect()
}

fn last_log(vfs: &Arc<dyn Vfs>) -> (String, u64) {
    let name = logs(vfs).pop().unwrap();
    let len = vfs.open(&name, siltstone_vfs::Mode::Read).unwrap().len().unwrap();
    (name, len)
}

#[test]
fn next_log_is_created_in_advance_and_removed_at_close() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let lsm = open(&vfs);
    let active = last_log(&vfs).0;
    write(&lsm, 0);
    let (next, len) = last_log(&vfs);
    assert!(next > active && len == 0, "{next} has {len} bytes");
    write(&lsm, KEYS);
    let in_use = vfs.open(&next, siltstone_vfs::Mode::Read).unwrap();
    assert!(in_use.len().unwrap() > 0, "writers did not go on in {next}");
    check(&lsm, 2 * KEYS);
    lsm.close().unwrap();
    assert!(last_log(&vfs).1 > 0, "the log that nobody went on in stayed");
    drop(lsm);
    check(&open(&vfs), 2 * KEYS);
}

#[test]
fn next_log_does_not_disturb_recovery() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let lsm = open(&vfs);
    write(&lsm, 0);
    let (next, _) = last_log(&vfs);
    // Simulates a process crash: nothing is closed.
    std::mem::forget(lsm);
    let lsm = open(&vfs);
    check(&lsm, KEYS);
    assert!(last_log(&vfs).0 > next && !vfs.exists(&next).unwrap());
    write(&lsm, KEYS);
    drop(lsm);
    check(&open(&vfs), 2 * KEYS);
}

/// On a disk the pages of logs are preallocated; full logs are trimmed.
#[test]
fn full_logs_have_no_preallocated_tail() {
    let directory = tempfile::tempdir().unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(Disk::open(directory.path()).unwrap());
    let lsm = open(&vfs);
    write(&lsm, 0);
    let names = logs(&vfs);
    // Except for the active log and the next.
    for name in &names[..names.len() - 2] {
        let len = vfs.open(name, siltstone_vfs::Mode::Read).unwrap().len().unwrap();
        assert!((64 << 10..68 << 10).contains(&len), "{name} has {len} bytes");
    }
    assert!(names.len() > 3, "{names:?}");
    lsm.close().unwrap();
    drop(lsm);
    check(&open(&vfs), KEYS);
}
