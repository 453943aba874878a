//! Does every medium keep the contract of mappings and pools, and does a power cut leave of a
//! mapping what it says, all of what it allows, and nothing else?

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.
#![allow(clippy::single_range_in_vec_init)] // A list of one range is meant.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_faults::{FaultKind, Faulty, Survival};
use siltstone_vfs::{Disk, Mapping, Metered, Mode, PmemPool, Ram, Vfs};

const WHY: Purpose = Purpose::Flush;
const LINE: usize = 64;

fn on_every_medium(question: impl Fn(&dyn Vfs)) {
    let directory = tempfile::tempdir().unwrap();
    question(&Disk::open(directory.path()).unwrap());
    question(&Ram::new());
    question(&Faulty::new(1));
    question(&Metered::new(Arc::new(Ram::new())));
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Err(Error::Io { kind, .. }) => kind,
        Err(other) => panic!("not an I/O error: {other}"),
        Ok(_) => panic!("no error"),
    }
}

fn read(mapping: &Mapping, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xAA; len];
    mapping.read(offset, &mut bytes, WHY).unwrap();
    bytes
}

fn pool(vfs: &dyn Vfs, pages: u64) -> PmemPool {
    PmemPool::open(vfs.map("pool", pages * 4096).unwrap(), 4096).unwrap().ready()
}

#[test]
fn is_what_was_stored_there_when_it_is_mapped_anew() {
    on_every_medium(|vfs| {
        let mapping = vfs.map("m", 10_000).unwrap();
        assert_eq!(mapping.capacity_bytes(), 10_000);
        assert_eq!(read(&mapping, 0, 10_000), [0; 10_000]);
        mapping.store(9_990, b"to the end", WHY).unwrap();
        mapping.store(3, b"odd", WHY).unwrap();
        mapping.persist(&[9_990..10_000, 0..64], WHY).unwrap();
        drop(mapping);
        let mapping = vfs.map("m", 12_000).unwrap();
        assert_eq!(read(&mapping, 9_988, 14), b"\0\0to the end\0\0");
        assert_eq!(read(&mapping, 2, 5), b"\0odd\0");
        assert!(vfs.exists("m").unwrap());
    });
}

#[test]
fn is_a_range_past_the_end_refused_whole() {
    on_every_medium(|vfs| {
        let mapping = vfs.map("m", 128).unwrap();
        assert_eq!(kind(mapping.store(120, &[1; 9], WHY)), ErrorKind::InvalidInput);
        assert_eq!(kind(mapping.store(u64::MAX, &[1; 9], WHY)), ErrorKind::InvalidInput);
        assert_eq!(kind(mapping.persist(&[0..1, 100..129], WHY)), ErrorKind::InvalidInput);
        assert_eq!(kind(mapping.read(128, &mut [0], WHY)), ErrorKind::UnexpectedEof);
        assert_eq!(read(&mapping, 0, 128), [0; 128]);
    });
}

#[test]
fn has_a_file_one_mapping_and_no_writer_beside_it() {
    on_every_medium(|vfs| {
        let mapping = vfs.map("m", 4096).unwrap();
        assert!(matches!(vfs.map("m", 4096), Err(Error::Locked { .. })));
        mapping.store(0, b"seen", WHY).unwrap();
        let file = vfs.open("m", Mode::ReadWrite).unwrap();
        let mut bytes = [0; 4];
        file.read_at(0, &mut bytes, WHY).unwrap();
        assert_eq!(&bytes, b"seen");
        if vfs.path().is_none() {
            assert_eq!(kind(file.write_at(0, b"x", WHY)), ErrorKind::ResourceBusy);
            assert_eq!(kind(file.set_len(9)), ErrorKind::ResourceBusy);
        }
        drop(mapping);
        file.write_at(0, b"free", WHY).unwrap();
        assert_eq!(read(&vfs.map("m", 4096).unwrap(), 0, 4), b"free");
    });
}

#[test]
fn is_a_longer_file_refused_and_a_directory_and_a_bad_name() {
    on_every_medium(|vfs| {
        drop(vfs.map("m", 4096).unwrap());
        let error = vfs.map("m", 100).err().unwrap();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        vfs.subdirectory("sub").unwrap();
        assert!(vfs.map("sub", 100).is_err());
        assert_eq!(kind(vfs.map("a/b", 100)), ErrorKind::InvalidInput);
    });
}

#[test]
fn does_a_fork_of_ram_copy_what_is_mapped() {
    let ram = Ram::new();
    let mapping = ram.map("m", 100_000).unwrap();
    mapping.store(70_000, b"before", WHY).unwrap();
    let copy = ram.fork();
    mapping.store(70_000, b"AFTER!", WHY).unwrap();
    assert_eq!(read(&copy.map("m", 100_000).unwrap(), 70_000, 6), b"before");
}

#[test]
fn do_pages_come_back_when_their_last_reader_is_gone() {
    on_every_medium(|vfs| {
        let pool = pool(vfs, 3);
        let mut first = pool.allocate().unwrap();
        first.store(10, b"hello", WHY).unwrap();
        assert_eq!(kind(first.store(4092, b"hello", WHY)), ErrorKind::InvalidInput);
        let others = [pool.allocate().unwrap(), pool.allocate().unwrap()];
        let full = pool.allocate().err().unwrap();
        assert!(full.is_disk_full(), "{full}");
        pool.persist([&first].into_iter().chain(&others), WHY).unwrap();
        let page = first.freeze();
        let again = page.clone();
        drop((page, others));
        assert_eq!(pool.free_pages(), 2);
        assert_eq!(&again.bytes()[10..15], b"hello");
        drop(again);
        assert_eq!(pool.free_pages(), 3);
    });
}

#[test]
fn is_a_page_claimed_once_and_never_given_out() {
    on_every_medium(|vfs| {
        let claims = PmemPool::open(vfs.map("pool", 3 * 4096 + 5).unwrap(), 4096).unwrap();
        let page = claims.claim(1).unwrap();
        for (number, words) in [(1, "page 1 is claimed twice"), (3, "page 3 is claimed, of 3")] {
            let error = claims.claim(number).err().unwrap();
            assert!(error.is_corruption() && error.to_string().contains(words), "{error}");
        }
        let pool = claims.ready();
        let given = [pool.allocate().unwrap(), pool.allocate().unwrap()].map(|p| p.number());
        assert_eq!(given, [0, 2]);
        assert_eq!(page.number(), 1);
    });
}

#[test]
fn does_no_page_fit_an_odd_size() {
    let ram = Ram::new();
    for bytes in [0, 1, 63, 100, 4095] {
        let opened = PmemPool::open(ram.map("pool", 1 << 20).unwrap(), bytes);
        assert!(matches!(opened.err(), Some(Error::Invalid(_))), "{bytes}");
    }
}

/// Readers look at frozen pages while writers fill others: each page must stay as it was frozen.
#[test]
fn do_many_threads_share_a_pool() {
    let pool = pool(&Ram::new(), 16);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let pool = pool.clone();
            scope.spawn(move || {
                let mut kept = Vec::new();
                for round in 0..500u32 {
                    let mut page = pool.allocate().unwrap();
                    let mark = [thread.wrapping_mul(61) ^ round as u8; 4096];
                    page.store(0, &mark, WHY).unwrap();
                    kept.push((page.freeze(), mark[0]));
                    if kept.len() == 4 {
                        for (page, mark) in kept.drain(..) {
                            assert!(page.bytes().iter().all(|&byte| byte == mark));
                        }
                    }
                }
            });
        }
    });
    assert_eq!(pool.free_pages(), 16);
}

fn survivors_of(medium: &Faulty) -> impl Iterator<Item = Mapping> {
    (0..1000).map(|seed| medium.survivors(seed).map("m", 256).unwrap())
}

fn durable_mapping(medium: &Faulty) -> Mapping {
    let mapping = medium.map("m", 256).unwrap();
    medium.sync_dir(WHY).unwrap();
    mapping
}

#[test]
fn are_lines_kept_or_lost_one_by_one_and_some_torn_at_words() {
    let medium = Faulty::new(7);
    let mapping = durable_mapping(&medium);
    mapping.store(0, &[1; 256], WHY).unwrap();
    mapping.persist(&[64..65], WHY).unwrap();
    let (mut whole, mut torn) = (BTreeSet::new(), 0);
    for survivor in survivors_of(&medium) {
        let bytes = read(&survivor, 0, 256);
        let lines: Vec<&[u8]> = bytes.chunks(LINE).collect();
        assert_eq!(lines[1], [1; LINE], "persisted");
        let words: Vec<bool> = bytes.chunks(8).map(|word| word[0] == 1).collect();
        assert!(bytes.chunks(8).all(|word| word.iter().all(|&b| b == word[0])), "{bytes:?}");
        let kept: Vec<bool> = words.chunks(8).map(|line| line[0]).collect();
        match words.chunks(8).all(|line| line.iter().all(|&w| w == line[0])) {
            true => drop(whole.insert((kept[0], kept[2], kept[3]))),
            false => torn += 1,
        }
    }
    assert_eq!(whole.len(), 8, "every subset of three lines");
    assert!(torn > 50, "{torn}");
}

#[test]
fn are_the_stores_to_one_line_kept_in_order() {
    let medium = Faulty::new(7);
    let mapping = durable_mapping(&medium);
    for value in 1..=4 {
        mapping.store(value * 8, &[value as u8; 8], WHY).unwrap();
    }
    let mut prefixes = BTreeSet::new();
    let mut others = 0;
    for survivor in survivors_of(&medium) {
        let bytes = read(&survivor, 8, 32);
        let kept: Vec<bool> = bytes.chunks(8).map(|word| word[0] != 0).collect();
        match kept.is_sorted_by(|a, b| a >= b) {
            true => drop(prefixes.insert(kept.iter().filter(|&&k| k).count())),
            false => others += 1,
        }
    }
    assert_eq!(prefixes, (0..=4).collect());
    assert!((1..300).contains(&others), "only torn lines are out of order: {others}");
}

#[test]
fn is_a_failed_persist_not_repaired_by_the_next() {
    let medium = Faulty::new(3);
    let mapping = durable_mapping(&medium);
    mapping.store(0, &[1; 128], WHY).unwrap();
    medium.fail_next(FaultKind::Sync, 1);
    assert!(mapping.persist(&[0..64], WHY).is_err());
    mapping.persist(&[0..256], WHY).unwrap();
    let survivor = medium.survivors_as(Survival::LoseAll, 0).map("m", 256).unwrap();
    assert_eq!(read(&survivor, 0, 64), [0; 64], "in doubt");
    mapping.store(5, &[2], WHY).unwrap();
    mapping.persist(&[0..256], WHY).unwrap();
    let survivor = medium.survivors_as(Survival::LoseAll, 0).map("m", 256).unwrap();
    let mut expected = [1; 64];
    expected[5] = 2;
    assert_eq!(read(&survivor, 0, 64), expected, "stored to anew, so written back whole");
}

#[test]
fn can_power_go_off_at_each_operation_of_a_mapping() {
    let run = |medium: &Faulty| -> Result<()> {
        let mapping = medium.map("m", 256)?;
        medium.sync_dir(WHY)?;
        mapping.store(0, &[1; 100], WHY)?;
        mapping.persist(&[0..100], WHY)?;
        mapping.store(100, &[2; 100], WHY)?;
        mapping.persist(&[100..200], WHY)
    };
    let calm = Faulty::new(1);
    run(&calm).unwrap();
    assert_eq!(calm.operations(), 8, "create, set length, sync, sync_dir, and the four of memory");
    for cut in 0..calm.operations() {
        for seed in 0..50 {
            let medium = Faulty::new(1);
            medium.cut_power_at(cut);
            run(&medium).unwrap_err();
            let survivor = medium.survivors(seed).map("m", 256).unwrap();
            let bytes = read(&survivor, 0, 256);
            assert!(cut < 6 || bytes[..100] == [1; 100], "cut {cut}, seed {seed}");
            assert!(bytes[200..] == [0; 56]);
            assert!(bytes.iter().all(|&byte| byte <= 2));
        }
    }
}

#[test]
fn is_damage_seen_when_the_file_is_mapped_anew() {
    let medium = Faulty::new(3);
    let mapping = durable_mapping(&medium);
    mapping.store(9, &[1], WHY).unwrap();
    medium.flip_bit("m", 9, 7).unwrap();
    assert_eq!(read(&mapping, 9, 1), [1]);
    drop(mapping);
    assert_eq!(read(&medium.map("m", 256).unwrap(), 9, 1), [0x81]);
    medium.set_capacity(1);
    assert_eq!(kind(medium.map("other", 4096)), ErrorKind::StorageFull);
}
