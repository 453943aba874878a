//! Does the death of a process leave what it wrote, none of it more durable than it was?

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_engine::Purpose;
use siltstone_faults::{FaultKind, Faulty, Survival};
use siltstone_vfs::{File, Mode, Vfs};

const WHY: Purpose = Purpose::Log;

fn read(vfs: &dyn Vfs, name: &str) -> Vec<u8> {
    let file = vfs.open(name, Mode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes, WHY).unwrap();
    bytes
}

/// A directory with a file of which one half is synced, a second one under way to its name, a removed one.
fn written() -> Faulty {
    let medium = Faulty::new(1);
    let file = medium.create("half").unwrap();
    file.write_at(0, &[1; 1000], WHY).unwrap();
    file.sync(WHY).unwrap();
    medium.create("gone").unwrap();
    medium.sync_dir(WHY).unwrap();
    file.write_at(1000, &[2; 1000], WHY).unwrap();
    medium.create("tmp").unwrap().write_at(0, b"new", WHY).unwrap();
    medium.rename("tmp", "final").unwrap();
    medium.remove("gone").unwrap();
    medium
}

#[test]
fn what_was_written_is_read_and_a_cut_may_still_take_it() {
    let medium = written();
    medium.cut_power();
    let after = medium.after_death(7);
    assert_eq!(after.list().unwrap(), ["final", "half"]);
    assert_eq!(read(&after, "half"), [[1; 1000], [2; 1000]].concat());
    assert_eq!(read(&after, "final"), b"new");
    let lost = after.survivors_as(Survival::LoseAll, 1);
    assert_eq!(lost.list().unwrap(), ["gone", "half"]);
    assert_eq!(read(&lost, "half"), [1; 1000]);
    let shown: BTreeSet<_> = (0..300).map(|seed| after.survivors(seed).list().unwrap()).collect();
    assert_eq!(shown.len(), 6, "removed or not, and no name, the first or the last: {shown:?}");
    // What the heir syncs is durable, and the dead one's medium knows nothing of it.
    after.open("half", Mode::ReadWrite).unwrap().sync(WHY).unwrap();
    after.sync_dir(WHY).unwrap();
    let kept = after.survivors_as(Survival::LoseAll, 1);
    assert_eq!(kept.list().unwrap(), ["final", "half"]);
    assert_eq!(read(&kept, "half").len(), 2000);
    assert_eq!(medium.survivors_as(Survival::LoseAll, 1).list().unwrap(), ["gone", "half"]);
}

#[test]
fn no_heir_repairs_a_failed_sync() {
    let medium = Faulty::new(1);
    let file = medium.create("a").unwrap();
    medium.sync_dir(WHY).unwrap();
    file.write_at(0, &[1; 10], WHY).unwrap();
    medium.fail_next(FaultKind::Sync, 1);
    assert!(file.sync(WHY).is_err());
    let after = medium.after_death(1);
    after.open("a", Mode::ReadWrite).unwrap().sync(WHY).unwrap();
    assert_eq!(read(&after, "a"), [1; 10]);
    assert_eq!(read(&after.survivors_as(Survival::LoseAll, 1), "a"), [0; 0]);
}

#[test]
fn a_file_of_two_names_is_one_and_what_was_mapped_or_locked_is_free() {
    let medium = Faulty::new(1);
    let sub = medium.subdirectory("sub").unwrap();
    sub.create("a").unwrap().write_at(0, b"once", WHY).unwrap();
    assert!(sub.link("a", &medium, "b").unwrap());
    let _held = medium.lock("LOCK").unwrap();
    let _mapped = medium.map("m", 4096).unwrap();
    let after = medium.after_death(1);
    after.open("b", Mode::ReadWrite).unwrap().write_at(0, b"ONCE", WHY).unwrap();
    assert_eq!(read(&*after.subdirectory("sub").unwrap(), "a"), b"ONCE");
    assert_eq!(read(&medium, "b"), b"once");
    let _held = after.lock("LOCK").unwrap();
    let _mapped = after.map("m", 4096).unwrap();
}

/// As of a file on disk, which has more ready than was written.
#[test]
fn a_file_that_grows_has_zeros_behind_it_for_all_but_who_writes_it() {
    let medium = Faulty::new(1);
    let file: Arc<dyn File> = medium.create_append("log").unwrap();
    file.write_at(0, &[1; 700], WHY).unwrap();
    let seen = read(&medium, "log");
    assert_eq!(seen[..700], [1; 700]);
    assert!(seen.len() > 700 && seen[700..].iter().all(|&byte| byte == 0));
    assert_eq!(file.len().unwrap(), 700);
    assert!(file.read_at(600, &mut [0; 101], WHY).is_err());
    let lengths: BTreeSet<_> = (0..50).map(|s| read(&medium.after_death(s), "log").len()).collect();
    assert!(lengths.len() > 25 && lengths.iter().all(|&len| len >= 700), "{lengths:?}");
    file.trim_preallocation().unwrap();
    assert_eq!(read(&medium, "log").len(), 700);
    assert_eq!(read(&medium.after_death(3), "log").len(), 700);
}
