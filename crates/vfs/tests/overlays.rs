//! An overlay shows changes over the lower directory, which stays unchanged.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

use std::sync::Arc;

use siltstone_engine::{Error, Purpose};
use siltstone_vfs::{Disk, Mode, Overlay, Ram, Vfs};

const WHY: Purpose = Purpose::Maintenance;

/// A deterministic random generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// Every file under a directory with its bytes.
fn tree(vfs: &dyn Vfs) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for name in vfs.list().unwrap() {
        let file = vfs.open(&name, Mode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes, WHY).unwrap();
        all.push((name, bytes));
    }
    for name in vfs.subdirectories().unwrap() {
        let inner = tree(&*vfs.subdirectory(&name).unwrap());
        all.push((format!("{name}/"), Vec::new()));
        all.extend(inner.into_iter().map(|(file, bytes)| (format!("{name}/{file}"), bytes)));
    }
    all
}

fn outcome<T>(result: Result<T, Error>) -> Result<(), std::io::ErrorKind> {
    match result {
        Ok(_) => Ok(()),
        Err(Error::Io { kind, .. }) => Err(kind),
        Err(other) => panic!("{other}"),
    }
}

/// A random change, whose result is the same on every backend.
fn change(vfs: &dyn Vfs, random: &mut Random) -> Result<(), std::io::ErrorKind> {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "sub", "none"];
    let mut name = || NAMES[random.below(6) as usize];
    let (name, other) = (name(), name());
    let (offset, len) = (random.below(20_000), random.below(9_000));
    let in_sub = random.below(4) == 0;
    let inner;
    let vfs = match in_sub {
        true => match vfs.subdirectory("sub") {
            Ok(sub) => {
                inner = sub;
                &*inner
            }
            Err(error) => return outcome::<()>(Err(error)),
        },
        false => vfs,
    };
    match random.below(12) {
        0 => outcome(vfs.create(name)),
        1 => outcome(vfs.remove(name)),
        2 => outcome(vfs.rename(name, other)),
        3 => outcome(vfs.link(name, vfs, other)),
        4 if name == "sub" => outcome(vfs.remove_subdirectory(name)),
        5 | 6 => match vfs.open(name, Mode::ReadWrite) {
            Ok(file) => outcome(file.set_len(offset)),
            Err(error) => outcome::<()>(Err(error)),
        },
        _ => match vfs.open(name, Mode::ReadWrite) {
            Ok(file) => {
                outcome(file.write_at(offset, &vec![random.below(256) as u8; len as usize], WHY))
            }
            Err(error) => outcome::<()>(Err(error)),
        },
    }
}

fn filled() -> Ram {
    let ram = Ram::new();
    for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..5_000 * number + 77).map(|at| (at * 31 % 253) as u8).collect();
        ram.create(name).unwrap().write_at(0, &bytes, WHY).unwrap();
        ram.subdirectory("sub").unwrap().create(name).unwrap().write_at(0, &bytes, WHY).unwrap();
    }
    ram
}

#[test]
fn changes_are_visible_and_the_lower_directory_is_unchanged() {
    let before = tree(&filled());
    for seed in 0..300 {
        let (plain, below) = (filled(), Arc::new(filled()));
        let overlay = Overlay::new(below.clone());
        let (mut random, mut again) = (Random(seed), Random(seed));
        for step in 0..40 {
            let expected = change(&plain, &mut random);
            assert_eq!(change(&overlay, &mut again), expected, "seed {seed}, step {step}");
            assert!(tree(&overlay) == tree(&plain), "seed {seed}, step {step}");
        }
        assert!(tree(&*below) == before, "seed {seed}: what is below was changed");
    }
}

#[test]
fn holes_of_the_lower_file_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    let file = disk.create("sparse").unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_at(900 << 10, &[1; 100], WHY).unwrap();
    let lower = disk.open("sparse", Mode::Read).unwrap();
    let data = lower.next_data(0).unwrap();
    if data == 0 {
        eprintln!("not checked: the system does not report holes");
        return;
    }
    let seen = Overlay::new(Arc::new(disk)).open("sparse", Mode::ReadWrite).unwrap();
    assert_eq!(seen.next_data(0).unwrap(), data);
    seen.write_at(100 << 10, &[2; 10], WHY).unwrap();
    assert_eq!(seen.next_data(0).unwrap(), 100 << 10);
    assert_eq!(seen.next_data(200 << 10).unwrap(), data.max(200 << 10));
    seen.set_len(300 << 10).unwrap();
    assert_eq!(seen.next_data(200 << 10).unwrap(), 300 << 10);
}

#[test]
fn mapped_file_has_the_lower_bytes_and_keeps_its_stores() {
    let below = Arc::new(filled());
    let before = tree(&*below);
    let overlay = Overlay::new(below.clone());
    let mapping = overlay.map("b", 8192).unwrap();
    assert!(matches!(overlay.map("b", 8192), Err(Error::Locked { .. })));
    let mut bytes = [0; 3];
    mapping.read(1, &mut bytes, WHY).unwrap();
    assert_eq!(bytes, [31, 62, 93]);
    mapping.store(1, &[9; 3], WHY).unwrap();
    overlay.open("b", Mode::Read).unwrap().read_at(1, &mut bytes, WHY).unwrap();
    assert_eq!(bytes, [9; 3]);
    drop(mapping);
    overlay.map("b", 8192).unwrap().read(1, &mut bytes, WHY).unwrap();
    assert_eq!(bytes, [9; 3]);
    assert!(tree(&*below) == before);
}

#[test]
fn lock_excludes_writers_but_not_readers() {
    let directory = tempfile::tempdir().unwrap();
    let disk = || Disk::open(directory.path()).unwrap();
    // Without a lock file there is nothing to lock, and none is created.
    drop(Overlay::new(Arc::new(disk())).lock("LOCK").unwrap());
    assert!(disk().list().unwrap().is_empty());

    let writer = disk().lock("LOCK").unwrap();
    let reader = || Overlay::new(Arc::new(disk())).lock("LOCK");
    assert!(matches!(reader(), Err(Error::Locked { .. })));
    drop(writer);
    let held = reader().unwrap();
    assert!(matches!(disk().lock("LOCK"), Err(Error::Locked { .. })));
    // For `flock`, another open file is like another process.
    let file = std::fs::File::open(directory.path().join("LOCK")).unwrap();
    file.try_lock_shared().unwrap();
    assert!(file.try_lock().is_err());
    drop(held);
    drop(file);
    disk().lock("LOCK").unwrap();
}

/// Bytes of private memory of this process.
#[cfg(all(target_os = "linux", not(siltstone_portable)))]
fn private_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[cfg(all(target_os = "linux", not(siltstone_portable)))]
#[test]
fn file_on_disk_is_mapped_privately_without_a_copy() {
    const BYTES: u64 = 96 << 20;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    std::fs::write(&path, vec![7; BYTES as usize]).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
    let disk = || Disk::open(directory.path()).unwrap();
    let overlay = Overlay::new(Arc::new(disk()));
    let before = private_memory_bytes();
    let mapping = overlay.map("pool", BYTES).unwrap();
    let mut byte = [0];
    for at in (0..BYTES).step_by(4096) {
        mapping.read(at, &mut byte, WHY).unwrap();
        assert_eq!(byte, [7]);
    }
    mapping.store(BYTES - 1, &[9], WHY).unwrap();
    let taken = private_memory_bytes().saturating_sub(before);
    assert!(taken < BYTES / 2, "{taken} bytes for a page that was stored to");
    // No other process may write to it, but others may map it, too.
    assert!(matches!(disk().map("pool", BYTES), Err(Error::Locked { .. })));
    std::fs::File::open(&path).unwrap().try_lock_shared().unwrap();
    overlay.open("pool", Mode::Read).unwrap().read_at(BYTES - 1, &mut byte, WHY).unwrap();
    assert_eq!(byte, [9]);
    drop(mapping);
    // If it is longer it is a copy, including stored bytes.
    let mapping = overlay.map("pool", BYTES + 1).unwrap();
    mapping.read(BYTES - 1, &mut byte, WHY).unwrap();
    assert_eq!(byte, [9]);
    assert!(matches!(overlay.map("pool", BYTES), Err(Error::Locked { .. })));
    drop(mapping);
    assert!(matches!(overlay.map("pool", BYTES), Err(Error::Refused { .. })));
    // Bytes written between two mappings are in the second one.
    let file = overlay.open("pool", Mode::ReadWrite).unwrap();
    file.write_at(5, &[1], WHY).unwrap();
    overlay.map("pool", BYTES + 1).unwrap().read(5, &mut byte, WHY).unwrap();
    assert_eq!(byte, [1]);
    assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 7));
}

/// A mapping past the end of a file would kill a process that reads there.
#[test]
fn file_shorter_than_its_mapping_is_extended_with_zeros() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("pool"), [7; 100]).unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    assert!(disk.map_private("pool", 16_384).unwrap().is_none());
    assert!(disk.map_private("none", 16_384).unwrap().is_none());
    let mapping = Overlay::new(Arc::new(disk)).map("pool", 16_384).unwrap();
    let mut bytes = [1; 2];
    mapping.read(99, &mut bytes, WHY).unwrap();
    assert_eq!(bytes, [7, 0]);
    mapping.read(16_382, &mut bytes, WHY).unwrap();
    assert_eq!(bytes, [0, 0]);
}
