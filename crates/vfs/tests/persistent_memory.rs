//! The contract of mappings and page pools, checked for every backend.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.
#![allow(clippy::single_range_in_vec_init)] // A list of one range is meant.

use std::io::ErrorKind;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_faults::FaultyVfs;
use siltstone_vfs::{Disk, Mapping, MeteredVfs, Mode, PmemPool, Ram, Vfs};

const WHY: Purpose = Purpose::Flush;

fn for_each_backend(check: impl Fn(&dyn Vfs)) {
    let directory = tempfile::tempdir().unwrap();
    check(&Disk::open(directory.path()).unwrap());
    check(&Ram::new());
    check(&FaultyVfs::new(1));
    check(&MeteredVfs::new(Arc::new(Ram::new())));
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
fn stored_bytes_are_there_when_the_file_is_mapped_again() {
    for_each_backend(|vfs| {
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
fn range_past_the_end_is_rejected_without_effect() {
    for_each_backend(|vfs| {
        let mapping = vfs.map("m", 128).unwrap();
        assert_eq!(kind(mapping.store(120, &[1; 9], WHY)), ErrorKind::InvalidInput);
        assert_eq!(kind(mapping.store(u64::MAX, &[1; 9], WHY)), ErrorKind::InvalidInput);
        assert_eq!(kind(mapping.persist(&[0..1, 100..129], WHY)), ErrorKind::InvalidInput);
        assert_eq!(kind(mapping.read(128, &mut [0], WHY)), ErrorKind::UnexpectedEof);
        assert_eq!(read(&mapping, 0, 128), [0; 128]);
    });
}

#[test]
fn mapped_file_rejects_a_second_mapping_and_writes() {
    for_each_backend(|vfs| {
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
fn map_rejects_longer_files_directories_and_invalid_names() {
    for_each_backend(|vfs| {
        drop(vfs.map("m", 4096).unwrap());
        let error = vfs.map("m", 100).err().unwrap();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        vfs.subdirectory("sub").unwrap();
        assert!(vfs.map("sub", 100).is_err());
        assert_eq!(kind(vfs.map("a/b", 100)), ErrorKind::InvalidInput);
    });
}

#[test]
fn fork_of_ram_copies_mapped_files() {
    let ram = Ram::new();
    let mapping = ram.map("m", 100_000).unwrap();
    mapping.store(70_000, b"before", WHY).unwrap();
    let copy = ram.fork();
    mapping.store(70_000, b"AFTER!", WHY).unwrap();
    assert_eq!(read(&copy.map("m", 100_000).unwrap(), 70_000, 6), b"before");
}

#[test]
fn pages_are_freed_with_their_last_reader() {
    for_each_backend(|vfs| {
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
fn page_is_claimed_once_and_not_allocated() {
    for_each_backend(|vfs| {
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
fn pool_rejects_invalid_page_sizes() {
    let ram = Ram::new();
    for bytes in [0, 1, 63, 100, 4095] {
        let opened = PmemPool::open(ram.map("pool", 1 << 20).unwrap(), bytes);
        assert!(matches!(opened.err(), Some(Error::Invalid(_))), "{bytes}");
    }
}

/// Threads read frozen pages while others are written: a frozen page must not change.
#[test]
fn frozen_pages_do_not_change_under_concurrent_writers() {
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
