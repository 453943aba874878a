//! Edits recovered from a manifest after crashes at any operation, faults and damage.

use std::sync::Arc;

use crate::support::{limit_space, new_vfs, put, remove_limit};
use siltstone_engine::{Error, Purpose};
use siltstone_faults::{FaultKind, FaultyVfs, Survival};
use siltstone_table::{LogWriter, Manifest};
use siltstone_vfs::Vfs;

const ENGINE: &str = "lsm";

fn open(vfs: &Arc<FaultyVfs>) -> Result<(Manifest, Vec<Vec<u8>>), Error> {
    Manifest::open(vfs.clone(), ENGINE)
}

fn edits(vfs: &Arc<FaultyVfs>) -> Vec<String> {
    open(vfs).unwrap().1.into_iter().map(|e| String::from_utf8(e).unwrap()).collect()
}

#[test]
fn edits_survive_reopen_and_rewrite_in_order() {
    let vfs = new_vfs();
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
fn open_writes_nothing() {
    let vfs = new_vfs();
    Manifest::create(vfs.clone(), ENGINE, b"start").unwrap();
    let before = vfs.operations();
    open(&vfs).unwrap();
    assert_eq!(vfs.operations(), before);
}

#[test]
fn grown_manifest_wants_rewrite() {
    let vfs = new_vfs();
    let mut manifest = Manifest::create(vfs, ENGINE, &[1; 1000]).unwrap();
    for _ in 0..20 {
        assert!(!manifest.should_rewrite());
        manifest.append(&[2; 50_000]).unwrap();
    }
    manifest.append(&[2; 50_000]).unwrap();
    assert!(manifest.should_rewrite());
    manifest.rewrite(&[1; 1000]).unwrap();
    assert!(!manifest.should_rewrite());
}

/// Runs a sequence of manifest operations until one fails, and counts acknowledged edits.
fn run_history(
    vfs: &Arc<FaultyVfs>,
    acknowledged: &mut usize,
    begun: &mut usize,
) -> Result<(), Error> {
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

fn history(vfs: &Arc<FaultyVfs>) -> Result<String, Error> {
    let (_, edits) = open(vfs)?;
    Ok(edits.iter().map(|e| String::from_utf8_lossy(e).into_owned()).collect::<Vec<_>>().join(","))
}

#[test]
fn power_cut_at_any_operation_keeps_acknowledged_edits() {
    let full = "0,1,2,3,4,5,6";
    let whole = new_vfs();
    run_history(&whole, &mut 0, &mut 0).unwrap();
    let total = whole.operations();
    assert!(total > 40);
    for operation in 0..=total {
        let vfs = new_vfs();
        vfs.cut_power_at(operation);
        let (mut acknowledged, mut begun) = (0, 0);
        let outcome = run_history(&vfs, &mut acknowledged, &mut begun);
        // The last operation removes the old file, and that may fail.
        assert_eq!(outcome.is_ok(), operation + 1 >= total);
        for seed in 0..32 {
            let after = Arc::new(vfs.survivors(seed));
            if !Manifest::exists(&*after).unwrap() {
                assert_eq!(acknowledged, 0, "operation {operation}");
                // In any state, a new manifest can be created here.
                Manifest::create(after.clone(), ENGINE, b"0").unwrap();
                continue;
            }
            let got = history(&after).unwrap();
            assert!(full.starts_with(&got), "operation {operation}: {got}");
            let count = got.split(',').count();
            assert!(count >= acknowledged, "operation {operation}: {got} of {acknowledged}");
            // And it can be appended to, durably.
            let (mut manifest, _) = open(&after).unwrap();
            manifest.append(b"x").unwrap();
            let again = Arc::new(after.survivors_as(Survival::LoseAll, seed));
            assert_eq!(history(&again).unwrap(), format!("{got},x"));
        }
    }
}

#[test]
fn recovered_edits_are_durable_after_settle() {
    let vfs = new_vfs();
    let mut manifest = Manifest::create(vfs.clone(), ENGINE, b"0").unwrap();
    vfs.fail_next(FaultKind::Sync, 1);
    assert!(manifest.append(b"1").is_err());
    drop(manifest);
    let lost = |vfs: &FaultyVfs| history(&Arc::new(vfs.survivors_as(Survival::LoseAll, 1)));
    let vfs = Arc::new(vfs.after_crash(1));
    let (mut manifest, edits) = open(&vfs).unwrap();
    assert_eq!((edits.len(), lost(&vfs).unwrap()), (2, "0".to_owned()));
    manifest.persist_recovered().unwrap();
    assert_eq!(lost(&vfs).unwrap(), "0,1");
    // A second call writes nothing, nor does the first after a clean close.
    let before = vfs.operations();
    manifest.persist_recovered().unwrap();
    assert_eq!(vfs.operations(), before);
    manifest.append(b"2").unwrap();
    manifest.close().unwrap();
    let (mut manifest, _) = open(&vfs).unwrap();
    let before = vfs.operations();
    manifest.persist_recovered().unwrap();
    assert_eq!((vfs.operations(), lost(&vfs).unwrap()), (before, "0,1,2".to_owned()));
}

#[test]
fn fault_poisons_manifest_until_reopen() {
    let vfs = new_vfs();
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
fn full_disk_fails_edit_and_next_edit_succeeds() {
    let vfs = new_vfs();
    let mut manifest = Manifest::create(vfs.clone(), ENGINE, b"0").unwrap();
    limit_space(&vfs, 0);
    assert!(manifest.append(&[7; 600]).unwrap_err().is_disk_full());
    remove_limit(&vfs);
    manifest.append(b"1").unwrap();
    // Also before the first edit after an open, which only needs the old manifest.
    let (mut manifest, _) = open(&vfs).unwrap();
    limit_space(&vfs, 0);
    assert!(manifest.append(b"refused").unwrap_err().is_disk_full());
    remove_limit(&vfs);
    manifest.append(b"2").unwrap();
    assert_eq!(edits(&vfs), ["0", "1", "2"]);
}

/// Engines remove the files of an edit that failed with a full disk, so it must not be there.
#[test]
fn possibly_durable_edit_never_fails_as_disk_full() {
    for (kind, reopened) in [(FaultKind::Sync, false), (FaultKind::DirSync, true)] {
        let vfs = new_vfs();
        let mut manifest = Manifest::create(vfs.clone(), ENGINE, b"0").unwrap();
        if reopened {
            (manifest, _) = open(&vfs).unwrap();
            // The first directory sync is before the rename.
            vfs.fail_at(vfs.requests() + requests_until_switch(), kind);
        } else {
            vfs.fail_next(kind, 1);
        }
        vfs.set_errors_full(true);
        let error = manifest.append(b"1").unwrap_err();
        assert!(matches!(error, Error::ReadOnly { .. }), "{kind:?}: {error}");
        vfs.clear_faults();
        // And indeed it is there after a restart.
        assert_eq!(edits(&vfs), ["0", "1"]);
    }
}

/// Requests of the first edit after an open, up to the last directory sync.
fn requests_until_switch() -> u64 {
    let vfs = new_vfs();
    Manifest::create(vfs.clone(), ENGINE, b"0").unwrap();
    let (mut manifest, _) = open(&vfs).unwrap();
    let before = vfs.requests();
    manifest.append(b"1").unwrap();
    // After it the old manifest is removed, and others are searched for.
    vfs.requests() - before - 3
}

/// After a failed sync, the edit may be only in the page cache.
#[test]
fn edits_read_from_page_cache_are_durable_after_settle() {
    for kind in [FaultKind::Sync, FaultKind::DirSync] {
        let vfs = new_vfs();
        let mut manifest = Manifest::create(vfs.clone(), ENGINE, b"0").unwrap();
        if kind == FaultKind::DirSync {
            (manifest, _) = open(&vfs).unwrap();
            vfs.fail_at(vfs.requests() + requests_until_switch(), kind);
        } else {
            vfs.fail_next(kind, 1);
        }
        manifest.append(b"1").unwrap_err();
        let (mut manifest, edits) = open(&vfs).unwrap();
        assert_eq!(edits.len(), 2);
        let cut = || Arc::new(vfs.survivors_as(Survival::LoseAll, 1));
        assert_eq!(history(&cut()).unwrap(), "0", "{kind:?}");
        manifest.persist_recovered().unwrap();
        assert_eq!(history(&cut()).unwrap(), "0,1", "{kind:?}");
        // A second call writes nothing, nor does the first after a clean close.
        let before = vfs.operations();
        manifest.persist_recovered().unwrap();
        assert_eq!(vfs.operations(), before);
        manifest.close().unwrap();
        let before = vfs.operations();
        open(&vfs).unwrap().0.persist_recovered().unwrap();
        assert_eq!(vfs.operations(), before);
    }
}

#[test]
fn other_engine_or_newer_version_is_rejected_by_name() {
    let vfs = new_vfs();
    Manifest::create(vfs.clone(), "silt", b"0").unwrap();
    match open(&vfs).map(|_| ()) {
        Err(Error::Refused { reason, .. }) => {
            assert!(reason.contains("silt") && reason.contains("lsm"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let vfs = new_vfs();
    Manifest::create(vfs.clone(), ENGINE, b"0").unwrap();
    vfs.remove("MANIFEST-000001").unwrap();
    let mut log = LogWriter::create(&*vfs, "MANIFEST-000001", 1, Purpose::Manifest).unwrap();
    log.append(&[b"SILTMANI", &9u32.to_le_bytes(), b"lsm"]).unwrap();
    match open(&vfs).map(|_| ()) {
        Err(Error::Refused { reason, .. }) => assert!(reason.contains("format 9"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(open(&new_vfs()), Err(Error::Refused { .. })));
}

/// The bytes of a manifest with a snapshot and two edits, and the offset of the last edit.
fn bytes(sealed: bool) -> (Arc<FaultyVfs>, Vec<u8>, usize) {
    let vfs = new_vfs();
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
fn flipped_byte_of_manifest_is_detected() {
    let (vfs, mut sealed, _) = bytes(true);
    let seal = sealed.len() - 7 - 16;
    for at in 0..sealed.len() {
        sealed[at] ^= 0x20;
        put(&vfs, "MANIFEST-000001", &sealed);
        match open(&vfs) {
            Err(error) => assert!(error.is_corruption(), "byte {at}: {error}"),
            // A damaged seal leaves the manifest as before its close: all edits.
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
fn truncated_manifest_yields_prefix_or_corruption() {
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
