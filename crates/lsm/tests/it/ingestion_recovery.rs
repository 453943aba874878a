//! Ingestions and recovery: power cuts at every operation, lost and damaged manifests.

use std::sync::Arc;

use siltstone_engine::{Engine, IngestMode, ManualClock};
use siltstone_faults::FaultyVfs;
use siltstone_lsm::Lsm;
use siltstone_runtime::Env;
use siltstone_vfs::{Mode, Vfs};

use crate::ingestion::{SMALL, ingest, ingested_files, open, options, put, ram, value, write_file};

/// Cuts power at each operation of an ingestion of two files in turn.
#[test]
fn power_cut_leaves_all_files_or_none_and_loses_no_source() {
    for mode in [IngestMode::Copy, IngestMode::Link, IngestMode::Move] {
        let (mut is_complete, mut cut, mut there) = (false, 0, 0);
        while !is_complete {
            let disk = FaultyVfs::new(cut);
            let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
            let lsm = open(&vfs, &[SMALL]);
            (0..20).for_each(|number| put(&lsm, number, b"old"));
            write_file(&vfs, "one", 0..10, b"new");
            write_file(&vfs, "two", 10..30, b"new");
            disk.cut_power_at(disk.operations() + cut);
            let outcome = ingest(&lsm, &["one", "two"], mode);
            is_complete = !disk.power_is_off();
            disk.cut_power();
            drop(lsm);
            let disk = disk.survivors(cut);
            let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
            let sources = ["one", "two"].map(|name| vfs.exists(name).unwrap());
            let lsm = open(&vfs, &[SMALL]);
            let found: Vec<_> = (0..30).filter_map(|number| value(&lsm, number)).collect();
            let is_ingested = found.len() == 30;
            assert!(found.iter().all(|value| (value == b"new") == is_ingested), "{mode:?} {cut}");
            assert!(is_ingested || outcome.is_err(), "{mode:?} {cut}");
            // Before the ingestion is durable, nothing is moved.
            let are_all_there = sources.iter().all(|is_there| *is_there);
            assert!(are_all_there || (mode == IngestMode::Move && is_ingested), "{mode:?} {cut}");
            assert_eq!(ingested_files(&vfs).len(), if is_ingested { 2 } else { 0 });
            assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
            if !is_ingested {
                ingest(&lsm, &["one", "two"], mode).unwrap();
                assert_eq!(value(&lsm, 29).unwrap(), b"new");
            }
            there += u64::from(is_ingested);
            cut += 1;
        }
        assert!(cut > 10 && there > 1 && there < cut, "{mode:?}: {there} of {cut}");
    }
}

/// Without its manifest a table orders ingested entries among the others by the names of the files.
#[test]
fn repair_without_a_manifest_keeps_ingested_entries_in_their_order() {
    for is_compacted in [false, true] {
        let vfs = ram();
        let lsm = open(&vfs, &[SMALL]);
        (0..30).for_each(|number| put(&lsm, number, b"old"));
        write_file(&vfs, "f", 0..20, b"file");
        ingest(&lsm, &["f"], IngestMode::Move).unwrap();
        (0..10).for_each(|number| put(&lsm, number, b"new"));
        write_file(&vfs, "f", 5..6, b"last");
        ingest(&lsm, &["f"], IngestMode::Move).unwrap();
        put(&lsm, 40, b"new");
        if is_compacted {
            lsm.maintain().unwrap();
        }
        lsm.close().unwrap();
        drop(lsm);
        for name in vfs.list().unwrap() {
            if name == "CURRENT" || name.starts_with("MANIFEST") {
                vfs.remove(&name).unwrap();
            }
        }
        siltstone_lsm::repair(&vfs).unwrap();
        let lsm = open(&vfs, &[SMALL]);
        let found = [2, 5, 15, 25, 40].map(|number| value(&lsm, number).unwrap());
        assert_eq!(found, ["new", "last", "file", "old", "new"].map(|it| it.as_bytes().to_vec()));
        assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
    }
}

/// The state would otherwise lack the files and have the write after them: no power cut leaves it.
#[test]
fn manifest_that_lost_an_ingestion_is_refused_and_repaired() {
    let vfs = ram();
    let lsm = open(&vfs, &[SMALL]);
    let manifest = vfs.list().unwrap().into_iter().find(|it| it.starts_with("MANIFEST")).unwrap();
    let before = vfs.open(&manifest, Mode::Read).unwrap().len().unwrap();
    write_file(&vfs, "f", 0..5, b"file");
    ingest(&lsm, &["f"], IngestMode::Move).unwrap();
    put(&lsm, 9, b"later");
    drop(lsm);
    vfs.open(&manifest, Mode::ReadWrite).unwrap().set_len(before).unwrap();
    let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
    let refused = Lsm::open(vfs.clone(), env, options(&[SMALL])).err().unwrap().to_string();
    assert!(refused.contains("lacks the files that @1 ingested"), "{refused}");
    assert!(!siltstone_lsm::verify_closed(&vfs).unwrap().is_intact());
    let report = siltstone_lsm::repair(&vfs).unwrap();
    assert!(!report.is_lossless(), "the order of writes is in doubt");
    let lsm = open(&vfs, &[SMALL]);
    assert_eq!(value(&lsm, 4).unwrap(), b"file");
    assert_eq!(value(&lsm, 9).unwrap(), b"later");
}
