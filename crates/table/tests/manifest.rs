//! Which edits a manifest gives back, after crashes at any operation, faults and damage.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod support;

use std::sync::Arc;

use siltstone_engine::{Error, Purpose};
use siltstone_faults::{FaultKind, Faulty, Survival};
use siltstone_table::{LogWriter, Manifest};
use siltstone_vfs::Vfs;
use support::{fill_up_after, make_room, medium, put};

const ENGINE: &str = "lsm";

fn open(vfs: &Arc<Faulty>) -> Result<(Manifest, Vec<Vec<u8>>), Error> {
    Manifest::open(vfs.clone(), ENGINE)
}

fn edits(vfs: &Arc<Faulty>) -> Vec<String> {
    open(vfs).unwrap().1.into_iter().map(|e| String::from_utf8(e).unwrap()).collect()
}

#[test]
fn do_edits_come_back_in_order_through_reopening_and_rewriting() {
    let vfs = medium();
    assert!(!Manifest::exists(&*vfs).unwrap());
    let mut manifest = Manifest::create(vfs.clone(), ENGINE, b"start").unwrap();
    assert!(Manifest::exists(&*vfs).unwrap());
    assert!(matches!(Manifest::create(vfs.clone(), ENGINE, b"start"), Err(Error::Refused { .. })));
    manifest.append(b"a").unwrap();
    manifest.append(b"b").unwrap();
    drop(manifest);
    assert_eq!(edits(&vfs), ["start", "a", "b"]);

    let (mut manifest, _) = open(&vfs).unwrap();
    assert_eq!(manifest.last_edit(), 2);
    manifest.append(b"c").unwrap();
    manifest.append(b"d").unwrap();
    assert_eq!(edits(&vfs), ["start", "a", "b", "c", "d"]);
    manifest.rewrite(b"abcd").unwrap();
    manifest.append(b"e").unwrap();
    assert_eq!(manifest.last_edit(), 5);
    let names = vfs.list().unwrap();
    assert_eq!(names, ["CURRENT".to_string(), manifest.file_name()]);
    assert!(names.iter().all(|name| Manifest::owns(name)) && !Manifest::owns("000001.sst"));
    manifest.close().unwrap();
    assert_eq!(edits(&vfs), ["abcd", "e"]);
}

#[test]
fn does_opening_write_nothing() {
    let vfs = medium();
    Manifest::create(vfs.clone(), ENGINE, b"start").unwrap();
    let before = vfs.operations();
    open(&vfs).unwrap();
    assert_eq!(vfs.operations(), before);
}

#[test]
fn does_a_manifest_ask_to_be_rewritten_when_it_has_grown() {
    let vfs = medium();
    let mut manifest = Manifest::create(vfs, ENGINE, &[1; 1000]).unwrap();
    for _ in 0..20 {
        assert!(!manifest.wants_rewrite());
        manifest.append(&[2; 50_000]).unwrap();
    }
    manifest.append(&[2; 50_000]).unwrap();
    assert!(manifest.wants_rewrite());
    manifest.rewrite(&[1; 1000]).unwrap();
    assert!(!manifest.wants_rewrite());
}

/// The life of a manifest: what it was told, as far as each step succeeded.
fn live(vfs: &Arc<Faulty>, acknowledged: &mut usize, begun: &mut usize) -> Result<(), Error> {
    let mut step = |outcome: Result<(), Error>| {
        *begun += 1;
        outcome?;
        *acknowledged += 1;
        Ok::<(), Error>(())
    };
    let mut manifest = Manifest::create(vfs.clone(), ENGINE, b"0")?;
    step(Ok(()))?;
    step(manifest.append(b"1"))?;
    step(manifest.append(b"2"))?;
    drop(manifest);
    let (mut manifest, _) = open(vfs)?;
    step(manifest.append(b"3"))?;
    step(manifest.append(b"4"))?;
    manifest.rewrite(b"0,1,2,3,4")?;
    step(manifest.append(b"5"))?;
    manifest.close()?;
    let (mut manifest, _) = open(vfs)?;
    step(manifest.append(b"6"))
}

fn history(vfs: &Arc<Faulty>) -> Result<String, Error> {
    let (_, edits) = open(vfs)?;
    Ok(edits.iter().map(|e| String::from_utf8_lossy(e).into_owned()).collect::<Vec<_>>().join(","))
}

#[test]
fn does_a_power_cut_at_any_operation_leave_every_acknowledged_edit() {
    let full = "0,1,2,3,4,5,6";
    let whole = medium();
    live(&whole, &mut 0, &mut 0).unwrap();
    let total = whole.operations();
    assert!(total > 40);
    for operation in 0..=total {
        let vfs = medium();
        vfs.cut_power_at(operation);
        let (mut acknowledged, mut begun) = (0, 0);
        let outcome = live(&vfs, &mut acknowledged, &mut begun);
        // The last operation removes the old file, and that may fail.
        assert_eq!(outcome.is_ok(), operation + 1 >= total);
        for seed in 0..32 {
            let after = Arc::new(vfs.survivors(seed));
            if !Manifest::exists(&*after).unwrap() {
                assert_eq!(acknowledged, 0, "operation {operation}");
                // Whatever was left, a new store can begin here.
                Manifest::create(after.clone(), ENGINE, b"0").unwrap();
                continue;
            }
            let got = history(&after).unwrap();
            assert!(full.starts_with(&got), "operation {operation}: {got}");
            let count = got.split(',').count();
            assert!(count >= acknowledged, "operation {operation}: {got} of {acknowledged}");
            // And it can go on, durably.
            let (mut manifest, _) = open(&after).unwrap();
            manifest.append(b"x").unwrap();
            let again = Arc::new(after.survivors_as(Survival::LoseAll, seed));
            assert_eq!(history(&again).unwrap(), format!("{got},x"));
        }
    }
}

#[test]
fn is_what_a_dead_process_wrote_durable_once_it_was_settled_and_not_before() {
    let vfs = medium();
    let mut manifest = Manifest::create(vfs.clone(), ENGINE, b"0").unwrap();
    vfs.fail_next(FaultKind::Sync, 1);
    assert!(manifest.append(b"1").is_err());
    drop(manifest);
    let lost = |vfs: &Faulty| history(&Arc::new(vfs.survivors_as(Survival::LoseAll, 1)));
    let vfs = Arc::new(vfs.after_death(1));
    let (mut manifest, edits) = open(&vfs).unwrap();
    assert_eq!((edits.len(), lost(&vfs).unwrap()), (2, "0".to_owned()));
    manifest.settle().unwrap();
    assert_eq!(lost(&vfs).unwrap(), "0,1");
    // Once is enough, and a closed one needs none.
    let before = vfs.operations();
    manifest.settle().unwrap();
    assert_eq!(vfs.operations(), before);
    manifest.append(b"2").unwrap();
    manifest.close().unwrap();
    let (mut manifest, _) = open(&vfs).unwrap();
    let before = vfs.operations();
    manifest.settle().unwrap();
    assert_eq!((vfs.operations(), lost(&vfs).unwrap()), (before, "0,1,2".to_owned()));
}

#[test]
fn does_a_fault_leave_the_manifest_poisoned_until_it_is_reopened() {
    let vfs = medium();
    let mut manifest = Manifest::create(vfs.clone(), ENGINE, b"0").unwrap();
    vfs.fail_next(FaultKind::Sync, 1);
    assert!(manifest.append(b"1").is_err());
    match manifest.append(b"2") {
        Err(Error::ReadOnly { cause }) => assert!(cause.contains("MANIFEST-000001"), "{cause}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(manifest.rewrite(b"01"), Err(Error::ReadOnly { .. })));
    let (mut manifest, _) = open(&vfs).unwrap();
    manifest.append(b"3").unwrap();
}

#[test]
fn does_a_full_disk_refuse_the_edit_and_let_the_next_one_in() {
    let vfs = medium();
    let mut manifest = Manifest::create(vfs.clone(), ENGINE, b"0").unwrap();
    fill_up_after(&vfs, 0);
    assert!(manifest.append(&[7; 600]).unwrap_err().is_disk_full());
    make_room(&vfs);
    manifest.append(b"1").unwrap();
    // Before the first edit after opening, too: nothing but the old manifest is needed to read.
    let (mut manifest, _) = open(&vfs).unwrap();
    fill_up_after(&vfs, 0);
    assert!(manifest.append(b"refused").unwrap_err().is_disk_full());
    make_room(&vfs);
    manifest.append(b"2").unwrap();
    assert_eq!(edits(&vfs), ["0", "1", "2"]);
}

/// Engines remove the files of an edit that a full disk refused: it must surely not be there.
#[test]
fn does_an_edit_that_may_be_on_the_medium_never_count_as_refused_by_a_full_disk() {
    for (kind, reopened) in [(FaultKind::Sync, false), (FaultKind::DirSync, true)] {
        let vfs = medium();
        let mut manifest = Manifest::create(vfs.clone(), ENGINE, b"0").unwrap();
        if reopened {
            (manifest, _) = open(&vfs).unwrap();
            // The first is before the rename.
            vfs.fail_at(vfs.requests() + sync_dirs_until_the_switch(), kind);
        } else {
            vfs.fail_next(kind, 1);
        }
        vfs.set_errors_full(true);
        let error = manifest.append(b"1").unwrap_err();
        assert!(matches!(error, Error::ReadOnly { .. }), "{kind:?}: {error}");
        vfs.clear_faults();
        // And indeed it is there when the process comes back.
        assert_eq!(edits(&vfs), ["0", "1"]);
    }
}

/// Requests of the first edit after opening, up to the last sync of the directory.
fn sync_dirs_until_the_switch() -> u64 {
    let vfs = medium();
    Manifest::create(vfs.clone(), ENGINE, b"0").unwrap();
    let (mut manifest, _) = open(&vfs).unwrap();
    let before = vfs.requests();
    manifest.append(b"1").unwrap();
    // Behind it the old manifest is removed, and others are looked for.
    vfs.requests() - before - 3
}

/// What is read back after a failed sync may be in memory only; the medium may have the edit before.
#[test]
fn is_what_is_read_back_on_the_medium_once_it_is_settled() {
    for kind in [FaultKind::Sync, FaultKind::DirSync] {
        let vfs = medium();
        let mut manifest = Manifest::create(vfs.clone(), ENGINE, b"0").unwrap();
        if kind == FaultKind::DirSync {
            (manifest, _) = open(&vfs).unwrap();
            vfs.fail_at(vfs.requests() + sync_dirs_until_the_switch(), kind);
        } else {
            vfs.fail_next(kind, 1);
        }
        manifest.append(b"1").unwrap_err();
        let (mut manifest, edits) = open(&vfs).unwrap();
        assert_eq!(edits.len(), 2);
        let cut = || Arc::new(vfs.survivors_as(Survival::LoseAll, 1));
        assert_eq!(history(&cut()).unwrap(), "0", "{kind:?}");
        manifest.settle().unwrap();
        assert_eq!(history(&cut()).unwrap(), "0,1", "{kind:?}");
        // There is nothing more to do, nor for one that was closed.
        let before = vfs.operations();
        manifest.settle().unwrap();
        assert_eq!(vfs.operations(), before);
        manifest.close().unwrap();
        let before = vfs.operations();
        open(&vfs).unwrap().0.settle().unwrap();
        assert_eq!(vfs.operations(), before);
    }
}

#[test]
fn is_another_engine_or_a_newer_version_refused_by_name() {
    let vfs = medium();
    Manifest::create(vfs.clone(), "silt", b"0").unwrap();
    match open(&vfs).map(|_| ()) {
        Err(Error::Refused { reason, .. }) => {
            assert!(reason.contains("silt") && reason.contains("lsm"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let vfs = medium();
    Manifest::create(vfs.clone(), ENGINE, b"0").unwrap();
    vfs.remove("MANIFEST-000001").unwrap();
    let mut log = LogWriter::create(&*vfs, "MANIFEST-000001", 1, Purpose::Manifest).unwrap();
    log.append(&[b"SILTMANI", &9u32.to_le_bytes(), b"lsm"]).unwrap();
    match open(&vfs).map(|_| ()) {
        Err(Error::Refused { reason, .. }) => assert!(reason.contains("format 9"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(open(&medium()), Err(Error::Refused { .. })));
}

/// A manifest of a snapshot and two edits, as bytes, sealed or not; and where the last edit begins.
fn bytes(sealed: bool) -> (Arc<Faulty>, Vec<u8>, usize) {
    let vfs = medium();
    let mut manifest = Manifest::create(vfs.clone(), ENGINE, b"snapshot").unwrap();
    manifest.append(b"first").unwrap();
    let last = manifest.bytes() as usize;
    manifest.append(b"second").unwrap();
    if sealed {
        manifest.close().unwrap();
    }
    let bytes = vfs.read_raw("MANIFEST-000001").unwrap();
    (vfs, bytes, last)
}

#[test]
fn is_every_flipped_byte_of_a_manifest_found() {
    let (vfs, mut sealed, _) = bytes(true);
    let seal = sealed.len() - 7 - 16;
    for at in 0..sealed.len() {
        sealed[at] ^= 0x20;
        put(&vfs, "MANIFEST-000001", &sealed);
        match open(&vfs) {
            Err(error) => assert!(error.is_corruption(), "byte {at}: {error}"),
            // A seal that is damaged leaves a manifest as before it was closed: all edits.
            Ok((_, edits)) => assert!(at >= seal && edits.len() == 3, "byte {at}"),
        }
        sealed[at] ^= 0x20;
    }
    // Unsealed, the damage of the last edit looks like a power cut during its write.
    let (vfs, mut open_one, last) = bytes(false);
    for at in 0..open_one.len() {
        open_one[at] ^= 0x20;
        put(&vfs, "MANIFEST-000001", &open_one);
        match open(&vfs) {
            Err(error) => assert!(error.is_corruption() && at < last, "byte {at}: {error}"),
            Ok((_, edits)) => assert!(at >= last && edits.len() == 2, "byte {at}"),
        }
        open_one[at] ^= 0x20;
    }
}

#[test]
fn does_a_manifest_cut_at_any_length_give_a_prefix_or_corruption() {
    let (vfs, whole, _) = bytes(true);
    for len in 0..whole.len() {
        put(&vfs, "MANIFEST-000001", &whole[..len]);
        match open(&vfs) {
            Err(error) => assert!(error.is_corruption(), "{len}: {error}"),
            Ok((_, edits)) => {
                assert!(
                    [&b"snapshot"[..], b"first", b"second"]
                        .starts_with(&edits.iter().map(|e| &e[..]).collect::<Vec<_>>())
                );
            }
        }
    }
}
