//! Records read from a log: of all sizes, from the cache, after I/O errors, and after random steps.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{limit_space, new_vfs, remove_limit};
use proptest::prelude::*;
use siltstone_engine::{Error, Purpose};
use siltstone_faults::{FaultKind, FaultyVfs};
use siltstone_table::log::parse_log;
use siltstone_table::{BatchReader, BlockCache, BytesFile, LogAccess, LogEnd, LogMode, LogWriter};
use siltstone_vfs::{Mode, Vfs};

pub(crate) const NUMBER: u64 = 7;
pub(crate) const BLOCK: usize = 32 << 10;

pub(crate) fn writer(vfs: &FaultyVfs) -> LogWriter {
    LogWriter::create(vfs, "log", NUMBER, Purpose::Log).unwrap()
}

/// A record whose bytes depend on its number and length.
pub(crate) fn record(i: usize, len: usize) -> Vec<u8> {
    (0..len).map(|k| (i * 31 + k * 7 + 1) as u8).collect()
}

pub(crate) fn contents(records: Vec<(u64, Vec<u8>)>) -> Vec<Vec<u8>> {
    records.into_iter().map(|(_, bytes)| bytes).collect()
}

/// Three records in one block, with or without a sync after each.
pub(crate) fn three(sync: bool) -> (Vec<u64>, Vec<u8>) {
    let vfs = new_vfs();
    let mut log = writer(&vfs);
    let mut positions = Vec::new();
    for i in 0..3 {
        positions.push(log.append(&[&record(i, 600)]).unwrap());
        if sync {
            log.sync().unwrap();
        }
    }
    (positions, vfs.read_raw("log").unwrap())
}

const SIZES: [usize; 12] = [0, 1, 100, 32_700, 32_737, 32_738, 0, 65_536, 5, 3 << 20, 32_729, 40];

#[test]
fn records_of_all_sizes_are_read_in_order_and_by_position() {
    let vfs = new_vfs();
    let mut log = writer(&vfs);
    let mut positions = Vec::new();
    let records: Vec<_> = SIZES.iter().enumerate().map(|(i, &len)| record(i, len)).collect();
    for (i, bytes) in records.iter().enumerate() {
        if i % 3 == 0 {
            log.append_group([[&bytes[..], b""]], &mut positions).unwrap();
        } else {
            let (a, b) = bytes.split_at(bytes.len() / 3);
            positions.push(log.append(&[a, b"", b]).unwrap());
        }
        if i % 4 == 1 {
            log.sync().unwrap();
        }
    }
    assert_eq!(log.len(), vfs.read_raw("log").unwrap().len() as u64);
    let (read, end) = parse_log(&vfs.read_raw("log").unwrap(), NUMBER, LogMode::Recover).unwrap();
    assert_eq!(end, LogEnd::Clean);
    assert_eq!(read.iter().map(|r| r.0).collect::<Vec<_>>(), positions);
    log.seal().unwrap();
    let (read, end) = parse_log(&vfs.read_raw("log").unwrap(), NUMBER, LogMode::Sealed).unwrap();
    assert_eq!(end, LogEnd::Sealed);
    assert!(contents(read) == records);

    let access = LogAccess::open(&*vfs, "log", NUMBER).unwrap();
    let mut out = Vec::new();
    for (position, bytes) in positions.iter().zip(&records) {
        access.read(*position, bytes.len() as u64, &mut out, Purpose::Get).unwrap();
        assert!(out == *bytes);
        assert!(access.read(position + 1, 0, &mut out, Purpose::Get).unwrap_err().is_corruption());
    }
    for position in [0, 3, BLOCK as u64 - 3, 1 << 40, u64::MAX] {
        assert!(access.read(position, 100, &mut out, Purpose::Get).is_err(), "{position}");
    }
}

#[test]
fn small_record_takes_one_write_and_one_read() {
    let vfs = new_vfs();
    let mut log = writer(&vfs);
    let before = vfs.operations();
    let position = log.append(&[b"kind", b"value"]).unwrap();
    let mut positions = Vec::new();
    log.append_group((0..100).map(|_| [&b"x"[..]]), &mut positions).unwrap();
    assert_eq!(vfs.operations() - before, 2);
    let access = LogAccess::open(&*vfs, "log", NUMBER).unwrap();
    let reads = vfs.requests();
    access.read(position, 100, &mut Vec::new(), Purpose::Get).unwrap();
    assert_eq!(vfs.requests() - reads, 1);
}

#[test]
fn cached_log_gives_the_same_records_without_reads() {
    let vfs = new_vfs();
    let mut log = writer(&vfs);
    let records: Vec<_> = (0..3000).map(|i| record(i, i * i % 300)).collect();
    let large = records.iter().chain(&[record(1, 70_000)]).cloned().collect::<Vec<_>>();
    let positions: Vec<_> =
        large.iter().map(|record| log.append(&[&record[..]]).unwrap()).collect();
    let cache = Arc::new(BlockCache::new(64 << 20));
    let access = LogAccess::open(&*vfs, "log", NUMBER).unwrap().with_cache(&cache);
    let visit_all = |purpose| {
        for (&position, record) in positions.iter().zip(&large) {
            let expected = record.len() as u64;
            assert!(access.visit(position, expected, purpose, |bytes| bytes == record).unwrap());
            let absent = access.visit(position + 1, expected, purpose, |_| ());
            assert!(absent.unwrap_err().is_corruption());
        }
    };
    visit_all(Purpose::Compaction);
    assert_eq!(cache.resident_bytes(), 0, "a compaction does not fill the cache");
    visit_all(Purpose::Get);
    assert!(cache.resident_bytes() > log.len() * 3 / 4);
    visit_all(Purpose::Get);
    let mut uncached = 0;
    for (&position, record) in positions.iter().zip(&records) {
        let before = vfs.requests();
        let expected = record.len() as u64;
        assert!(access.visit(position, expected, Purpose::Get, |bytes| bytes == record).unwrap());
        uncached += usize::from(vfs.requests() > before);
    }
    // Those that cross the end of a block, and those in the last chunk.
    assert!(uncached < records.len() / 50, "{uncached} records");
    drop(access);
    assert_eq!(cache.resident_bytes(), 0, "a closed log leaves nothing in the cache");
}

#[test]
fn prefix_is_read_while_the_writer_trims_its_preallocation() {
    let vfs = new_vfs();
    let mut log = writer(&vfs);
    let record = record(1, 100);
    let position = log.append(&[&record[..]]).unwrap();
    let too_long = LogAccess::open_prefix(&*vfs, "log", NUMBER, log.len() + 1);
    assert!(too_long.err().unwrap().is_corruption());
    // A preallocated tail of zeros, as the writer leaves it while it appends.
    vfs.write_raw("log", log.len(), &[0; 4096]).unwrap();
    let access = LogAccess::open_prefix(&*vfs, "log", NUMBER, log.len()).unwrap();
    vfs.open("log", Mode::ReadWrite).unwrap().set_len(log.len()).unwrap();
    let mut out = Vec::new();
    access.read(position, 1000, &mut out, Purpose::Get).unwrap();
    assert!(out == record);
    let mut batched = Vec::new();
    BatchReader::new(&access, Purpose::Flush).read(position, &mut batched).unwrap();
    assert!(batched == record);
}

#[test]
fn damage_in_a_cached_log_is_detected_and_read_again() {
    let vfs = new_vfs();
    let mut log = writer(&vfs);
    let record = record(1, 100);
    let positions: Vec<_> = (0..100).map(|_| log.append(&[&record[..]]).unwrap()).collect();
    let damaged_at = positions[3] + 20;
    let intact = vfs.read_raw("log").unwrap()[damaged_at as usize];
    vfs.write_raw("log", damaged_at, &[!intact]).unwrap();
    let cache = Arc::new(BlockCache::new(1 << 20));
    let access = LogAccess::open(&*vfs, "log", NUMBER).unwrap().with_cache(&cache);
    let visit = |i: usize| access.visit(positions[i], 100, Purpose::Get, |bytes| bytes == record);
    assert!(visit(3).unwrap_err().is_corruption());
    assert!(visit(4).unwrap());
    vfs.write_raw("log", damaged_at, &[intact]).unwrap();
    assert!(visit(3).unwrap());
}

#[test]
fn empty_log_is_clean_and_sealed_empty_log_is_sealed() {
    let vfs = new_vfs();
    let log = writer(&vfs);
    assert_eq!(parse_log(&[], NUMBER, LogMode::Recover).unwrap(), (vec![], LogEnd::Clean));
    assert!(parse_log(&[], NUMBER, LogMode::Sealed).unwrap_err().is_corruption());
    log.seal().unwrap();
    let bytes = vfs.read_raw("log").unwrap();
    assert_eq!(parse_log(&bytes, NUMBER, LogMode::Sealed).unwrap(), (vec![], LogEnd::Sealed));
    assert!(!matches!(parse_log(&bytes, NUMBER + 1, LogMode::Recover), Ok((_, LogEnd::Sealed))));
}

#[test]
fn preallocated_zeros_are_clean_end() {
    let vfs = new_vfs();
    let mut log = writer(&vfs);
    log.append(&[b"one"]).unwrap();
    log.sync().unwrap();
    let mut bytes = vfs.read_raw("log").unwrap();
    bytes.resize(3 * BLOCK + 17, 0);
    let (read, end) = parse_log(&bytes, NUMBER, LogMode::Recover).unwrap();
    assert_eq!((read.len(), end), (1, LogEnd::Clean));
}

#[test]
fn full_disk_leaves_log_unchanged_and_usable() {
    for budget in [0, 1, 512, 3000, 1 << 20] {
        let vfs = new_vfs();
        let mut log = writer(&vfs);
        log.append(&[b"before"]).unwrap();
        let len = log.len();
        limit_space(&vfs, budget);
        let mut positions = vec![1];
        let error = log.append_group([[&record(1, 2 << 20)[..]]], &mut positions).unwrap_err();
        assert!(error.is_disk_full());
        assert_eq!((positions.len(), log.len(), log.records()), (1, len, 1));
        assert_eq!(vfs.read_raw("log").unwrap().len() as u64, len);
        remove_limit(&vfs);
        log.append(&[b"after"]).unwrap();
        log.seal().unwrap();
        let (read, _) = parse_log(&vfs.read_raw("log").unwrap(), NUMBER, LogMode::Sealed).unwrap();
        assert_eq!(contents(read), [b"before".to_vec(), b"after".to_vec()]);
    }
}

#[test]
fn log_is_read_only_after_failed_sync_or_failed_undo() {
    let vfs = new_vfs();
    let mut log = writer(&vfs);
    log.append(&[b"one"]).unwrap();
    vfs.fail_next(FaultKind::Sync, 1);
    assert!(log.sync().is_err());
    assert!(matches!(log.append(&[b"two"]), Err(Error::ReadOnly { .. })));
    assert!(matches!(log.sync_handle().sync(), Err(Error::ReadOnly { .. })));
    assert_eq!(log.sync_handle().synced_to(), 0);

    let vfs = new_vfs();
    let mut log = writer(&vfs);
    log.append(&[b"one"]).unwrap();
    limit_space(&vfs, 512);
    vfs.fail_next(FaultKind::Sync, 1);
    // The failed record may exist after a reopen, so this append reports it, not the next
    // one.
    let refused = log.append(&[&record(2, 2000)]).unwrap_err();
    let Error::ReadOnly { cause } = refused else { panic!("{refused}") };
    assert!(cause.contains("no storage space") && cause.contains("could not be undone"), "{cause}");
    assert!(matches!(log.append(&[b"three"]), Err(Error::ReadOnly { .. })));
}

#[test]
fn sync_does_not_succeed_while_that_of_another_thread_fails() {
    let vfs = new_vfs();
    let mut log = writer(&vfs);
    log.append(&[&[1; 2000]]).unwrap();
    let (failed, failures) = sync_channel(1);
    let (resume, resumed) = sync_channel::<()>(1);
    let resumed = Mutex::new(resumed);
    vfs.before_sync_error(move || {
        failed.send(()).unwrap();
        // The other sync may wait for this one.
        let _ = resumed.lock().unwrap().recv_timeout(Duration::from_millis(100));
    });
    vfs.fail_next(FaultKind::Sync, 1);
    let handle = log.sync_handle();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| handle.sync());
        failures.recv().unwrap();
        let second = log.sync();
        resume.send(()).unwrap();
        assert!(first.join().unwrap().is_err());
        assert!(matches!(second, Err(Error::ReadOnly { .. })), "{second:?}");
    });
}

#[test]
fn concurrent_sync_and_append_succeed() {
    let vfs = new_vfs();
    let mut log = writer(&vfs);
    let handle = log.sync_handle();
    let leader = std::thread::spawn(move || {
        let mut last = 0;
        while last < 1000 {
            let synced = handle.sync().unwrap();
            assert!(synced >= last && handle.synced_to() >= synced);
            last = synced;
            std::thread::yield_now();
        }
    });
    while !leader.is_finished() {
        log.append(&[b"record"]).unwrap();
    }
    leader.join().unwrap();
    let (_, end) = parse_log(&vfs.read_raw("log").unwrap(), NUMBER, LogMode::Recover).unwrap();
    assert_eq!(end, LogEnd::Clean);
}

#[derive(Debug, Clone)]
enum Step {
    Append(usize),
    Group(Vec<usize>),
    Sync,
    DiskFull(usize, usize),
    /// An append that fails in the middle with an unspecific error.
    Fault(usize),
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0usize..300, 2 => 300usize..6000, 1 => 30_000usize..70_000]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => size().prop_map(Step::Append),
        2 => prop::collection::vec(size(), 0..5).prop_map(Step::Group),
        2 => Just(Step::Sync),
        1 => size().prop_map(Step::Fault),
        1 => (size(), 0usize..2000).prop_map(|(size, budget)| Step::DiskFull(size, budget)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn power_cut_leaves_prefix_with_all_synced_records(
        steps in prop::collection::vec(step(), 1..25),
        seal: bool,
        seeds in prop::collection::vec(any::<u64>(), 4),
        sealing_cut in 0u64..6,
    ) {
        let vfs = new_vfs();
        let mut log = writer(&vfs);
        vfs.sync_dir(Purpose::Log).unwrap();
        let (mut appended, mut synced) = (Vec::<Vec<u8>>::new(), 0);
        for step in &steps {
            match step {
                Step::Append(size) => {
                    let bytes = record(appended.len(), *size);
                    log.append(&[&bytes]).unwrap();
                    appended.push(bytes);
                }
                Step::Group(sizes) => {
                    let group: Vec<_> = sizes.iter().enumerate()
                        .map(|(i, &size)| record(appended.len() + i, size)).collect();
                    log.append_group(group.iter().map(|r| [&r[..]]), &mut Vec::new()).unwrap();
                    appended.extend(group);
                }
                Step::Sync => {
                    log.sync().unwrap();
                    synced = appended.len();
                }
                Step::Fault(size) => {
                    vfs.fail_next(FaultKind::Write, 1);
                    prop_assert!(log.append(&[&record(appended.len(), *size)]).is_err());
                    synced = appended.len();
                }
                Step::DiskFull(size, budget) => {
                    limit_space(&vfs, *budget as u64);
                    match log.append(&[&record(appended.len(), *size)]) {
                        Ok(_) => appended.push(record(appended.len(), *size)),
                        // Undone, with a sync.
                        Err(_) => synced = appended.len(),
                    }
                    remove_limit(&vfs);
                }
            }
        }
        if seal {
            // Power failure at any operation of sealing.
            vfs.cut_power_at(vfs.operations() + sealing_cut);
            let _ = log.seal();
        }
        for seed in seeds {
            let bytes = vfs.survivors(seed).read_raw("log").unwrap();
            let (read, end) = match parse_log(&bytes, NUMBER, LogMode::Recover) {
                Ok(read) => read,
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            };
            let read = contents(read);
            prop_assert!(appended.starts_with(&read), "not a prefix");
            prop_assert!(read.len() >= synced, "{} of {} synced records", read.len(), synced);
            prop_assert!(end != LogEnd::Sealed || read.len() == appended.len());
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        sync: bool,
        position: u64,
    ) {
        let _ = parse_log(&bytes, NUMBER, LogMode::Recover);
        let mut log = three(sync).1;
        for (at, byte) in flips {
            let at = at.index(log.len());
            log[at] = byte;
        }
        let _ = parse_log(&log, NUMBER, LogMode::Recover);
        let access = LogAccess::from_file(Arc::new(BytesFile::new(log)), "log", NUMBER).unwrap();
        let _ = access.read(position % 4000, position % 77, &mut Vec::new(), Purpose::Get);
    }
}
