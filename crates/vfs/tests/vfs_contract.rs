//! The contract of `Vfs` and `File`, checked for every backend.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // Helpers of tests are tests.

use std::io::ErrorKind;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose};
use siltstone_faults::FaultyVfs;
use siltstone_vfs::{Disk, DiskOptions, File, MeteredVfs, Mode, Overlay, Ram, Vfs};

const WHY: Purpose = Purpose::Maintenance;

/// Runs the check on every backend, each with an empty root, and prints its name.
fn for_each_backend(check: impl Fn(&dyn Vfs)) {
    let directories = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let disk = |i: usize| Disk::open(directories[i].path()).unwrap();
    let mut vfs: Vec<(&str, Arc<dyn Vfs>)> = vec![
        ("Disk", Arc::new(disk(0))),
        ("Ram", Arc::new(Ram::new())),
        ("FaultyVfs", Arc::new(FaultyVfs::new(1))),
        ("MeteredVfs Ram", Arc::new(MeteredVfs::new(Arc::new(Ram::new())))),
        ("Overlay", Arc::new(Overlay::new(Arc::new(Ram::new())))),
        ("MeteredVfs Disk", Arc::new(MeteredVfs::new(Arc::new(disk(1))))),
    ];
    let few_files = DiskOptions { max_open_files: 1, ..DiskOptions::default() };
    vfs.push(("Disk, one open file", Arc::new(disk(3).with_options(few_files))));
    let direct = disk(2).with_options(DiskOptions { direct: true, ..DiskOptions::default() });
    // Some file systems do not support direct reads; the probe must not be counted as a file.
    let probe = direct.create("probe").is_ok();
    direct.remove("probe").unwrap();
    if probe {
        vfs.push(("Disk, direct", Arc::new(direct)));
    }
    for (name, backend) in vfs {
        println!("checking {name}");
        check(&*backend);
    }
}

fn kind<T>(result: Result<T, Error>) -> ErrorKind {
    match result {
        Err(Error::Io { kind, operation, file, .. }) => {
            assert!(!operation.is_empty() && !file.is_empty());
            kind
        }
        Err(other) => panic!("not an I/O error: {other}"),
        Ok(_) => panic!("no error"),
    }
}

fn read(file: &dyn File, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xAA; len];
    file.read_at(offset, &mut buf, WHY).unwrap();
    buf
}

fn write(vfs: &dyn Vfs, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = vfs.create(name).unwrap();
    file.write_at(0, bytes, WHY).unwrap();
    file
}

/// A disk splits the writes of background jobs into steps.
#[test]
fn long_write_is_complete_for_every_purpose() {
    let bytes: Vec<u8> = (0..900_001).map(|i| (i % 251) as u8).collect();
    for_each_backend(|vfs| {
        for purpose in Purpose::ALL {
            let file = vfs.create(purpose.name()).unwrap();
            file.write_at(7, &bytes, purpose).unwrap();
            file.begin_sync();
            file.sync(purpose).unwrap();
            assert_eq!(file.len().unwrap(), 7 + bytes.len() as u64);
            assert!(read(&*file, 7, bytes.len()) == bytes, "{purpose:?}");
        }
    });
}

#[test]
fn files_are_created_listed_in_order_and_removed() {
    for_each_backend(|vfs| {
        for name in ["b", "a", "c"] {
            vfs.create(name).unwrap();
        }
        assert_eq!(kind(vfs.create("a")), ErrorKind::AlreadyExists);
        assert_eq!(vfs.list().unwrap(), ["a", "b", "c"]);
        vfs.remove("b").unwrap();
        assert_eq!(kind(vfs.remove("b")), ErrorKind::NotFound);
        assert_eq!(kind(vfs.open("b", Mode::Read)), ErrorKind::NotFound);
        assert!(!vfs.exists("b").unwrap() && vfs.exists("c").unwrap());
        assert_eq!(vfs.list().unwrap(), ["a", "c"]);
        vfs.sync_dir(WHY).unwrap();
    });
}

#[test]
fn invalid_name_is_rejected_by_every_operation() {
    for_each_backend(|vfs| {
        vfs.create("there").unwrap();
        for bad in ["", ".", "..", "a/b", "/etc", "a\0"] {
            let refused = [
                kind(vfs.create(bad)),
                kind(vfs.open(bad, Mode::Read)),
                kind(vfs.exists(bad)),
                kind(vfs.remove(bad)),
                kind(vfs.rename(bad, "x")),
                kind(vfs.rename("there", bad)),
                kind(vfs.subdirectory(bad)),
                kind(vfs.remove_subdirectory(bad)),
                kind(vfs.lock(bad)),
                kind(vfs.link(bad, vfs, "x")),
                kind(vfs.link("there", vfs, bad)),
            ];
            assert_eq!(refused, [ErrorKind::InvalidInput; 11], "{bad:?}");
        }
        assert_eq!(vfs.list().unwrap(), ["there"]);
    });
}

#[test]
fn reads_and_writes_use_their_offsets() {
    for_each_backend(|vfs| {
        let file = vfs.create("a").unwrap();
        assert!(file.is_empty().unwrap());
        let bytes: Vec<u8> = (0..40_000u32).map(|i| (i * 7 % 251) as u8).collect();
        file.write_at(0, &bytes, WHY).unwrap();
        file.write_at(10_000, b"patched", WHY).unwrap();
        let mut expected = bytes;
        expected[10_000..10_007].copy_from_slice(b"patched");
        assert_eq!(file.len().unwrap(), 40_000);
        file.sync(WHY).unwrap();
        let reader = vfs.open("a", Mode::Read).unwrap();
        // Around the boundaries of sectors, blocks and chunks.
        for offset in [0, 1, 511, 512, 4095, 4096, 9_999, 16_383, 39_999] {
            for len in [0, 1, 512, 4096, 20_000] {
                let len = len.min(40_000 - offset);
                let found = read(&*reader, offset as u64, len);
                assert_eq!(found, expected[offset..offset + len], "{len} bytes at {offset}");
            }
        }
        assert_eq!(read(&*reader, 0, 40_000), expected);
        assert!(reader.write_at(0, b"x", WHY).is_err(), "opened for reading");
    });
}

#[test]
fn read_past_the_end_is_unexpected_eof() {
    for_each_backend(|vfs| {
        let file = write(vfs, "a", &[1; 5000]);
        for (offset, len) in [(0, 5001), (4999, 2), (5000, 1), (4096, 4096), (1 << 40, 1)] {
            let end = kind(file.read_at(offset, &mut vec![0; len], WHY));
            assert_eq!(end, ErrorKind::UnexpectedEof, "{len} bytes at {offset}");
        }
        assert_eq!(read(&*file, 4999, 1), [1]);
    });
}

#[test]
fn gaps_and_extended_parts_read_as_zeros() {
    for_each_backend(|vfs| {
        let file = write(vfs, "a", &[1; 100]);
        file.write_at(70_000, &[2; 10], WHY).unwrap();
        assert_eq!(file.len().unwrap(), 70_010);
        assert_eq!(read(&*file, 100, 69_900), [0; 69_900]);
        file.set_len(50).unwrap();
        assert_eq!(file.len().unwrap(), 50);
        file.set_len(200).unwrap();
        assert_eq!(read(&*file, 0, 50), [1; 50]);
        assert_eq!(read(&*file, 50, 150), [0; 150]);
    });
}

#[test]
fn hole_reads_as_zeros_and_changes_nothing_else() {
    for_each_backend(|vfs| {
        let file = write(vfs, "a", &[3; 50_000]);
        match file.punch_hole(1000, 40_000) {
            Err(Error::Io { kind: ErrorKind::Unsupported, .. }) => return,
            done => done.unwrap(),
        }
        let mut expected = vec![3; 50_000];
        expected[1000..41_000].fill(0);
        assert_eq!(read(&*file, 0, 50_000), expected);
        // Across and past the end: the length is unchanged.
        file.punch_hole(49_000, 10_000).unwrap();
        file.punch_hole(90_000, 10).unwrap();
        file.punch_hole(0, 0).unwrap();
        expected[49_000..].fill(0);
        assert_eq!(file.len().unwrap(), 50_000);
        assert_eq!(read(&*file, 0, 50_000), expected);
    });
}

#[test]
fn reserve_changes_neither_bytes_nor_length() {
    for_each_backend(|vfs| {
        let file = write(vfs, "a", b"abc");
        file.reserve(1 << 20).unwrap();
        file.reserve(0).unwrap();
        assert_eq!(file.len().unwrap(), 3);
        assert_eq!(read(&*file, 0, 3), b"abc");
    });
}

#[test]
fn rename_replaces_the_target_and_open_handles_stay_valid() {
    for_each_backend(|vfs| {
        write(vfs, "new", b"new");
        let old = write(vfs, "current", b"old");
        vfs.rename("new", "current").unwrap();
        assert_eq!(vfs.list().unwrap(), ["current"]);
        assert_eq!(read(&*vfs.open("current", Mode::Read).unwrap(), 0, 3), b"new");
        assert_eq!(read(&*old, 0, 3), b"old");
        vfs.rename("current", "current").unwrap();
        assert!(vfs.exists("current").unwrap());
        assert_eq!(kind(vfs.rename("missing", "x")), ErrorKind::NotFound);
    });
}

#[test]
fn removed_file_stays_usable_through_open_handles() {
    for_each_backend(|vfs| {
        let file = write(vfs, "a", b"still here");
        vfs.remove("a").unwrap();
        write(vfs, "a", b"another");
        file.write_at(0, b"STILL", WHY).unwrap();
        file.sync(WHY).unwrap();
        assert_eq!(read(&*file, 0, 10), b"STILL here");
        assert_eq!(read(&*vfs.open("a", Mode::Read).unwrap(), 0, 7), b"another");
    });
}

#[test]
fn subdirectories_are_separate_and_removed_with_their_contents() {
    for_each_backend(|vfs| {
        let sub = vfs.subdirectory("sub").unwrap();
        write(&*sub, "a", b"in sub");
        write(&*sub.subdirectory("deeper").unwrap(), "b", b"deep");
        write(vfs, "a", b"in root");
        assert_eq!(vfs.list().unwrap(), ["a"]);
        assert_eq!(vfs.subdirectories().unwrap(), ["sub"]);
        assert!(vfs.has_subdirectory("sub").unwrap());
        vfs.create("no-sub").unwrap();
        assert!(!vfs.has_subdirectory("no-sub").unwrap() && !vfs.has_subdirectory("x").unwrap());
        vfs.remove("no-sub").unwrap();
        let again = vfs.subdirectory("sub").unwrap();
        assert_eq!(read(&*again.open("a", Mode::Read).unwrap(), 0, 6), b"in sub");
        assert!(again.name().starts_with(&vfs.name()));

        // Files and directories share one name space.
        assert!(vfs.create("sub").is_err());
        assert!(vfs.open("sub", Mode::Read).is_err());
        assert!(vfs.remove("sub").is_err());
        assert!(vfs.subdirectory("a").is_err());
        assert!(vfs.rename("a", "sub").is_err());
        assert!(vfs.remove_subdirectory("a").is_err());
        assert!(!vfs.exists("sub").unwrap());

        vfs.remove_subdirectory("sub").unwrap();
        assert!(vfs.subdirectories().unwrap().is_empty());
        assert!(!vfs.has_subdirectory("sub").unwrap());
        assert_eq!(kind(vfs.remove_subdirectory("sub")), ErrorKind::NotFound);
        assert_eq!(kind(sub.create("late")), ErrorKind::NotFound);
        assert!(vfs.subdirectory("sub").unwrap().list().unwrap().is_empty());
    });
}

#[test]
fn lock_is_exclusive_until_it_is_dropped() {
    for_each_backend(|vfs| {
        let guard = vfs.lock("LOCK").unwrap();
        match vfs.lock("LOCK").map(drop) {
            Err(Error::Locked { path, holder }) => {
                assert!(path.ends_with("LOCK"));
                assert_eq!(holder, Some(std::process::id()));
            }
            other => panic!("taken twice: {other:?}"),
        }
        let other = vfs.lock("OTHER").unwrap();
        drop(guard);
        drop(vfs.lock("LOCK").unwrap());
        drop(other);
        assert_eq!(vfs.list().unwrap(), ["LOCK", "OTHER"], "lock files stay");
    });
}

#[test]
fn link_is_the_same_file_under_a_second_name() {
    for_each_backend(|vfs| {
        let sub = vfs.subdirectory("sub").unwrap();
        write(vfs, "a", b"shared");
        assert!(vfs.link("a", &*sub, "b").unwrap());
        assert!(vfs.link("a", vfs, "c").unwrap());
        vfs.remove("a").unwrap();
        assert_eq!(read(&*sub.open("b", Mode::Read).unwrap(), 0, 6), b"shared");
        assert_eq!(kind(vfs.link("c", &*sub, "b")), ErrorKind::AlreadyExists);
        assert_eq!(kind(vfs.link("a", &*sub, "x")), ErrorKind::NotFound);
    });
}

#[test]
fn link_to_another_backend_returns_false() {
    for_each_backend(|vfs| {
        write(vfs, "a", b"bytes");
        let other = FaultyVfs::new(2);
        assert!(!vfs.link("a", &other, "a").unwrap());
        assert!(other.list().unwrap().is_empty());
    });
}

#[test]
fn writes_of_concurrent_threads_are_atomic() {
    for_each_backend(|vfs| {
        let file = vfs.create("a").unwrap();
        file.set_len(4 * 4096).unwrap();
        std::thread::scope(|scope| {
            for i in 0..4u8 {
                let file = &file;
                scope.spawn(move || {
                    let offset = u64::from(i) * 4096;
                    for round in 0..50 {
                        file.write_at(offset, &[i * 50 + round; 4096], WHY).unwrap();
                        assert_eq!(read(&**file, offset, 4096), [i * 50 + round; 4096]);
                    }
                });
            }
        });
    });
}

#[test]
fn disk_opens_or_creates_a_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("a/b/c");
    assert_eq!(kind(Disk::open(&path)), ErrorKind::NotFound);
    let disk = Disk::create(&path).unwrap();
    assert_eq!(disk.path(), Some(path.as_path()));
    disk.create("file").unwrap();
    assert_eq!(Disk::create(&path).unwrap().list().unwrap(), ["file"]);
    assert_eq!(kind(Disk::open(path.join("file"))), ErrorKind::NotADirectory);
    assert!(Disk::create(path.join("file")).is_err());
}

/// Two handles that reach a directory by different paths are two opens of the same directory.
#[test]
fn disk_lock_does_not_depend_on_the_path() {
    let temporary = tempfile::tempdir().unwrap();
    std::fs::create_dir(temporary.path().join("sub")).unwrap();
    let disk = Disk::open(temporary.path()).unwrap();
    let _guard = disk.lock("LOCK").unwrap();
    let other = Disk::open(temporary.path().join("sub/..")).unwrap();
    assert!(matches!(other.lock("LOCK"), Err(Error::Locked { .. })));
}

/// Other systems do not report it.
#[test]
#[cfg(unix)]
fn file_on_disk_reports_that_it_was_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let vfs = Disk::open(scratch.path()).unwrap();
    for file in [vfs.create("a").unwrap(), vfs.create_append("b").unwrap()] {
        file.write_at(0, b"x", Purpose::Log).unwrap();
        assert!(!file.is_removed().unwrap());
    }
    let log = vfs.create_append("c").unwrap();
    vfs.rename("c", "d").unwrap();
    assert!(!log.is_removed().unwrap(), "it has another name");
    std::fs::remove_file(scratch.path().join("d")).unwrap();
    assert!(log.is_removed().unwrap());
}
