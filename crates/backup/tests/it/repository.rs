//! Backups of real stores: incremental, checked, restored, removed, and refused when damaged. Most
//! tests run in a directory, and in an object store.

use std::sync::Arc;

use siltstone::Error;
use siltstone_backup::Repository;
use siltstone_faults::FaultyVfs;
use siltstone_vfs::Vfs;

use crate::fixture::{Fixture, assert_has, fixtures};

#[test]
fn each_backup_is_restored_as_the_store_was_then() {
    for fixture in fixtures() {
        let mut ids = Vec::new();
        for generation in 0..3 {
            fixture.write(generation * 1000, 1000);
            ids.push(fixture.back_up().id);
        }
        // The store goes on; its backups stay.
        fixture.write(3000, 500);
        let repository = fixture.repository();
        assert_eq!(repository.ids().unwrap(), ids);
        for (generation, id) in ids.iter().enumerate() {
            let target = fixture.path(&format!("restored{generation}"));
            let (mut last, mut all) = (0, 0);
            let mut progress = |done, total| (last, all) = (done, total);
            repository.restore(id, &target, &mut progress).unwrap();
            assert!(last == all && all > 0);
            assert_has(&target, 1000 * (generation as u32 + 1));
        }
        assert!(!fixture.path(".store.siltstone-backup").exists(), "a checkpoint is left");
    }
}

#[test]
fn next_backup_reads_and_writes_what_is_new() {
    for fixture in fixtures() {
        fixture.write(0, 5000);
        let first = fixture.back_up();
        assert!(
            first.new_blobs > fixture.tables.len() as u64 && first.read_files == first.files,
            "{first:?}"
        );
        let unchanged = fixture.back_up();
        assert!(unchanged.id > first.id);
        assert!(unchanged.read_files < unchanged.files, "{unchanged:?}");
        assert!(unchanged.new_bytes < first.new_bytes / 2, "{unchanged:?} after {first:?}");
        fixture.write(5000, 100);
        let grown = fixture.back_up();
        assert!(grown.new_blobs > 0 && grown.read_files < grown.files, "{grown:?}");
    }
}

/// Both would read the files of a checkpoint of the same name.
#[test]
fn backup_into_another_repository_meanwhile_is_refused() {
    let fixture = Fixture::in_directory(&["lsm"]);
    fixture.write(0, 1000);
    let other = Repository::open_or_create(fixture.path("other")).unwrap();
    let mut refusals = Vec::new();
    let mut progress = |_, _| {
        fixture.tables[0].put(b"later", b"").unwrap();
        refusals.push(other.back_up(&fixture.db, &mut |_, _| {}).unwrap_err());
    };
    let report = fixture.repository().back_up(&fixture.db, &mut progress).unwrap();
    assert!(!refusals.is_empty());
    let is_locked = |error: &Error| matches!(error, Error::Locked { .. });
    assert!(refusals.iter().all(is_locked), "{refusals:?}");
    fixture.repository().restore(&report.id, fixture.path("restored"), &mut |_, _| {}).unwrap();
    assert_has(&fixture.path("restored"), 1000);
    other.back_up(&fixture.db, &mut |_, _| {}).unwrap();
}

#[test]
fn damage_is_reported_by_name_and_never_restored() {
    for fixture in fixtures() {
        fixture.write(0, 1000);
        let id = fixture.back_up().id;
        let repository = fixture.repository();
        let intact = repository.check(&mut |_| {}).unwrap();
        assert_eq!((&intact.intact, intact.damaged.len()), (&vec![id.clone()], 0));
        // The largest file of the table on lsm, which is not written any more.
        let files = repository.backup(&id).unwrap().manifest.files.into_iter();
        let files = files.filter(|file| file.path.starts_with("table-lsm/"));
        let hash = files.max_by_key(|file| file.bytes).unwrap().blobs[0].clone();
        let blob = format!("blobs/{}/{hash}", &hash[..2]);
        fixture.place.change(&blob, |content| {
            let middle = content.len() / 2;
            content[middle] ^= 1;
        });
        let damaged = repository.check(&mut |_| {}).unwrap();
        assert!(damaged.intact.is_empty());
        assert!(damaged.damaged[0].reasons[0].contains(&blob), "{damaged:?}");
        let target = fixture.path("restored");
        let error = repository.restore(&id, &target, &mut |_, _| {}).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("blobs"), "{error}");
        assert!(!target.exists() && !fixture.path("restored.partial").exists());
        // The blob is quarantined, so the next backup stores its content again.
        repository.set_aside(&damaged).unwrap();
        let missing = repository.check(&mut |_| {}).unwrap();
        assert!(missing.damaged[0].reasons[0].ends_with("is missing"), "{missing:?}");
        let next = fixture.back_up().id;
        assert_eq!(repository.check(&mut |_| {}).unwrap().intact, [id, next.clone()]);
        repository.restore(&next, &target, &mut |_, _| {}).unwrap();
        assert_has(&target, 1000);
    }
}

#[test]
fn damaged_manifest_is_reported_and_the_next_backup_is_whole() {
    for fixture in fixtures() {
        fixture.write(0, 100);
        let id = fixture.back_up().id;
        fixture.place.change(&format!("backups/{id}"), |manifest| manifest[40] ^= 1);
        let repository = fixture.repository();
        assert!(repository.backups().unwrap_err().is_corruption());
        let next = fixture.back_up().id;
        let report = repository.check(&mut |_| {}).unwrap();
        assert_eq!((report.intact, report.damaged.len()), (vec![next.clone()], 1));
        // What the damaged one needs is unknown, so that it can be removed and not kept.
        assert!(repository.keep_newest(2).unwrap_err().is_corruption());
        assert_eq!(repository.keep_newest(1).unwrap().backups, [id]);
        repository.restore(&next, fixture.path("restored"), &mut |_, _| {}).unwrap();
        assert_has(&fixture.path("restored"), 100);
    }
}

#[test]
fn old_backups_are_removed_with_the_blobs_that_only_they_need() {
    for fixture in fixtures() {
        for generation in 0..4 {
            fixture.write(generation * 500, 500);
            fixture.back_up();
        }
        let repository = fixture.repository();
        let ids = repository.ids().unwrap();
        assert!(matches!(repository.keep_newest(0), Err(Error::Invalid(_))));
        let removal = repository.keep_newest(2).unwrap();
        assert_eq!(removal.backups, ids[..2]);
        assert!(removal.blobs > 0 && removal.bytes > 0);
        let report = repository.check(&mut |_| {}).unwrap();
        assert_eq!((&report.intact[..], report.damaged.len()), (&ids[2..], 0));
        assert_eq!(repository.keep_newest(2).unwrap().blobs, 0);
        repository.restore(&ids[2], fixture.path("restored"), &mut |_, _| {}).unwrap();
        assert_has(&fixture.path("restored"), 1500);
    }
}

#[test]
fn backups_are_not_removed_while_one_is_restored() {
    for fixture in fixtures() {
        fixture.write(0, 500);
        let first = fixture.back_up().id;
        fixture.write(500, 500);
        fixture.back_up();
        let (one, another) = (fixture.repository(), fixture.repository());
        let mut steps = 0;
        let mut meanwhile = |_, _| {
            if steps == 0 {
                assert!(matches!(another.keep_newest(1), Err(Error::Locked { .. })));
            }
            steps += 1;
        };
        one.restore(&first, fixture.path("restored"), &mut meanwhile).unwrap();
        assert!(steps > 0);
        assert_has(&fixture.path("restored"), 500);
        another.keep_newest(1).unwrap();
        assert!(matches!(
            one.restore(&first, fixture.path("late"), &mut |_, _| {}),
            Err(Error::Invalid(_))
        ));
    }
}

#[test]
fn wrong_directories_and_names_are_refused() {
    let fixture = Fixture::in_directory(&["lsm"]);
    let other = fixture.path("other");
    std::fs::create_dir(&other).unwrap();
    assert!(matches!(Repository::open(&other), Err(Error::Refused { .. })));
    std::fs::write(other.join("notes.txt"), "mine").unwrap();
    let error = Repository::open_or_create(&other).unwrap_err();
    assert!(error.to_string().contains("notes.txt"), "{error}");
    // A store is no place for backups.
    assert!(matches!(
        Repository::open_or_create(fixture.path("store")),
        Err(Error::Refused { .. })
    ));
    let repository = fixture.repository();
    let error = repository.restore("20000101T000000Z", fixture.path("r"), &mut |_, _| {});
    assert!(error.unwrap_err().to_string().contains("there is none"));
    let id = fixture.back_up().id;
    let error = repository.restore(&id, fixture.path("store"), &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    std::fs::write(fixture.path("backups/FORMAT"), "siltstone backups 2\n").unwrap();
    let error = Repository::open(fixture.path("backups")).unwrap_err();
    assert!(error.to_string().contains("backups 2"), "{error}");
}

#[test]
fn backup_cut_off_by_a_power_cut_or_an_error_leaves_the_earlier_ones_whole() {
    let fixture = Fixture::in_directory(&["lsm"]);
    fixture.write(0, 300);
    // One backup is in the repository, and the second is interrupted at every 3rd operation.
    let mut interrupted = 0;
    for seed in 0.. {
        let vfs = Arc::new(FaultyVfs::new(seed));
        let open = || Repository::open_or_create_vfs(vfs.clone() as Arc<dyn Vfs>).unwrap();
        let first = open().back_up(&fixture.db, &mut |_, _| {}).unwrap();
        fixture.tables[0].put(format!("k{seed}").as_bytes(), b"new").unwrap();
        vfs.cut_power_at(vfs.operations() + 3 * seed);
        let second = open().back_up(&fixture.db, &mut |_, _| {});
        let is_cut = vfs.power_is_off();
        vfs.cut_power();
        let vfs: Arc<dyn Vfs> = Arc::new(vfs.survivors(seed));
        let after = Repository::open_vfs(vfs).unwrap();
        let report = after.check(&mut |_| {}).unwrap();
        assert!(report.damaged.is_empty(), "seed {seed}: {report:?}");
        assert_eq!(report.intact[0], first.id);
        if let Ok(second) = second {
            assert!(
                report.intact.contains(&second.id),
                "seed {seed}: a backup that returned is lost"
            );
        }
        let target = fixture.path(&format!("restored{seed}"));
        after.restore(report.intact.last().unwrap(), &target, &mut |_, _| {}).unwrap();
        assert_has(&target, 300);
        std::fs::remove_dir_all(target).unwrap();
        after.back_up(&fixture.db, &mut |_, _| {}).unwrap();
        if !is_cut {
            break;
        }
        interrupted += 1;
    }
    assert!(interrupted > 3, "{interrupted}");
}
