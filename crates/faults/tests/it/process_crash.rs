//! Checks what a process crash leaves: everything written, none of it more durable than before.

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_engine::Purpose;
use siltstone_faults::{FaultKind, FaultyVfs, Survival};
use siltstone_vfs::{File, Mode, Vfs};

const WHY: Purpose = Purpose::Log;

fn read(vfs: &dyn Vfs, name: &str) -> Vec<u8> {
    let file = vfs.open(name, Mode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes, WHY).unwrap();
    bytes
}

/// A directory with a half-synced file, an unsynced renamed file and an unsynced removal.
fn written() -> FaultyVfs {
    let vfs = FaultyVfs::new(1);
    let file = vfs.create("half").unwrap();
    file.write_at(0, &[1; 1000], WHY).unwrap();
    file.sync(WHY).unwrap();
    vfs.create("gone").unwrap();
    vfs.sync_dir(WHY).unwrap();
    file.write_at(1000, &[2; 1000], WHY).unwrap();
    vfs.create("tmp").unwrap().write_at(0, b"new", WHY).unwrap();
    vfs.rename("tmp", "final").unwrap();
    vfs.remove("gone").unwrap();
    vfs
}

#[test]
fn unsynced_writes_are_visible_after_a_crash_and_may_be_lost_in_a_cut() {
    let vfs = written();
    vfs.cut_power();
    let after = vfs.after_crash(7);
    assert_eq!(after.list().unwrap(), ["final", "half"]);
    assert_eq!(read(&after, "half"), [[1; 1000], [2; 1000]].concat());
    assert_eq!(read(&after, "final"), b"new");
    let lost = after.survivors_as(Survival::LoseAll, 1);
    assert_eq!(lost.list().unwrap(), ["gone", "half"]);
    assert_eq!(read(&lost, "half"), [1; 1000]);
    let shown: BTreeSet<_> = (0..300).map(|seed| after.survivors(seed).list().unwrap()).collect();
    assert_eq!(shown.len(), 6, "removed or not, and no name, the first or the last: {shown:?}");
    // What the next process syncs is durable, and the original is unaffected.
    after.open("half", Mode::ReadWrite).unwrap().sync(WHY).unwrap();
    after.sync_dir(WHY).unwrap();
    let kept = after.survivors_as(Survival::LoseAll, 1);
    assert_eq!(kept.list().unwrap(), ["final", "half"]);
    assert_eq!(read(&kept, "half").len(), 2000);
    assert_eq!(vfs.survivors_as(Survival::LoseAll, 1).list().unwrap(), ["gone", "half"]);
}

#[test]
fn failed_sync_is_not_repaired_after_a_crash() {
    let vfs = FaultyVfs::new(1);
    let file = vfs.create("a").unwrap();
    vfs.sync_dir(WHY).unwrap();
    file.write_at(0, &[1; 10], WHY).unwrap();
    vfs.fail_next(FaultKind::Sync, 1);
    assert!(file.sync(WHY).is_err());
    let after = vfs.after_crash(1);
    after.open("a", Mode::ReadWrite).unwrap().sync(WHY).unwrap();
    assert_eq!(read(&after, "a"), [1; 10]);
    assert_eq!(read(&after.survivors_as(Survival::LoseAll, 1), "a"), [0; 0]);
}

#[test]
fn crash_keeps_links_and_releases_locks_and_mappings() {
    let vfs = FaultyVfs::new(1);
    let sub = vfs.subdirectory("sub").unwrap();
    sub.create("a").unwrap().write_at(0, b"once", WHY).unwrap();
    assert!(sub.link("a", &vfs, "b").unwrap());
    let _lock = vfs.lock("LOCK").unwrap();
    let _mapped = vfs.map("m", 4096).unwrap();
    let after = vfs.after_crash(1);
    after.open("b", Mode::ReadWrite).unwrap().write_at(0, b"ONCE", WHY).unwrap();
    assert_eq!(read(&*after.subdirectory("sub").unwrap(), "a"), b"ONCE");
    assert_eq!(read(&vfs, "b"), b"once");
    let _lock = after.lock("LOCK").unwrap();
    let _mapped = after.map("m", 4096).unwrap();
}

/// As for a file on disk with preallocated space.
#[test]
fn append_file_has_zeros_past_its_end_for_other_handles() {
    let vfs = FaultyVfs::new(1);
    let file: Arc<dyn File> = vfs.create_append("log").unwrap();
    file.write_at(0, &[1; 700], WHY).unwrap();
    let seen = read(&vfs, "log");
    assert_eq!(seen[..700], [1; 700]);
    assert!(seen.len() > 700 && seen[700..].iter().all(|&byte| byte == 0));
    assert_eq!(file.len().unwrap(), 700);
    assert!(file.read_at(600, &mut [0; 101], WHY).is_err());
    let lengths: BTreeSet<_> = (0..50).map(|s| read(&vfs.after_crash(s), "log").len()).collect();
    assert!(lengths.len() > 25 && lengths.iter().all(|&len| len >= 700), "{lengths:?}");
    file.trim_preallocation().unwrap();
    assert_eq!(read(&vfs, "log").len(), 700);
    assert_eq!(read(&vfs.after_crash(3), "log").len(), 700);
}
