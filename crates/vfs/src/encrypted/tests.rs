//! Whole files over a directory in memory.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_structures::SplitMix64;

use super::frame::BLOCK_BYTES;
use super::header::HEADER_BYTES;
use super::{EncryptedVfs, KeyRing, MasterKey};
use crate::{FILLER, File, Mode, Ram, Vfs};

const P: Purpose = Purpose::Log;

fn ring(keys: &[u8]) -> KeyRing {
    let mut keys = keys.iter().map(|&byte| MasterKey::new(&[byte; 32]));
    KeyRing::new(keys.next().unwrap(), keys.collect())
}

fn over(ram: &Arc<Ram>, keys: &[u8]) -> EncryptedVfs {
    EncryptedVfs::new(ram.clone(), Arc::new(ring(keys)))
}

fn content(file: &dyn File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(0, &mut bytes, P)?;
    Ok(bytes)
}

fn raw(ram: &Ram, name: &str) -> Vec<u8> {
    content(ram.open(name, Mode::Read).unwrap().as_ref()).unwrap()
}

/// Appends of random sizes; returns the plaintext.
fn fill(file: &dyn File, random: &mut SplitMix64, appends: usize) -> Vec<u8> {
    let mut plain = Vec::new();
    for _ in 0..appends {
        let most = if random.below(8) == 0 { 20_000 } else { 300 };
        let piece: Vec<u8> =
            (0..1 + random.below(most)).map(|_| b'a' + random.below(26) as u8).collect();
        file.write_at(plain.len() as u64, &piece, P).unwrap();
        plain.extend_from_slice(&piece);
    }
    plain
}

#[test]
fn random_reads_return_what_was_appended() {
    let mut random = SplitMix64::new(5);
    for is_append in [false, true] {
        let ram = Arc::new(Ram::new());
        let vfs = over(&ram, &[1]);
        let file = if is_append { vfs.create_append("f") } else { vfs.create("f") }.unwrap();
        let plain = fill(file.as_ref(), &mut random, 400);
        // By the handle that wrote it, and by one that has to find the blocks.
        let again = over(&ram, &[1]).open("f", Mode::Read).unwrap();
        for handle in [&file, &again] {
            assert_eq!(handle.len().unwrap(), plain.len() as u64);
            assert!(content(handle.as_ref()).unwrap() == plain);
            for _ in 0..500 {
                let from = random.below(plain.len() as u64);
                let len = random.below((plain.len() as u64 - from).min(9000) + 1);
                let mut bytes = vec![0; len as usize];
                handle.read_at(from, &mut bytes, P).unwrap();
                assert!(bytes == plain[from as usize..(from + len) as usize]);
            }
            assert!(handle.read_at(plain.len() as u64, &mut [0], P).is_err());
        }
    }
}

#[test]
fn every_changed_byte_of_a_file_is_detected() {
    let (ram, mut random) = (Arc::new(Ram::new()), SplitMix64::new(6));
    let vfs = over(&ram, &[1]);
    let file = vfs.create("f").unwrap();
    let plain = fill(file.as_ref(), &mut random, 8);
    let good = raw(&ram, "f");
    let damaged = ram.open("f", Mode::ReadWrite).unwrap();
    let mut undetected = Vec::new();
    for at in 0..good.len() {
        damaged.write_at(at as u64, &[good[at] ^ 1 << random.below(8)], P).unwrap();
        let vfs = over(&ram, &[1]);
        let read = vfs.open("f", Mode::Read).and_then(|file| content(file.as_ref()));
        // The padding of a block is not part of the content: it may differ, and changes nothing.
        let is_found = read.as_ref().is_err_and(Error::is_corruption)
            || (at as u64) < HEADER_BYTES && vfs.check_header("f").is_err();
        if let Ok(read) = &read {
            assert!(*read == plain, "byte {at}");
        }
        if !is_found {
            undetected.push(at);
        }
        damaged.write_at(at as u64, &good[at..=at], P).unwrap();
    }
    // At most what is too short for a frame, at the end of a block.
    assert!(undetected.iter().all(|at| at % BLOCK_BYTES as usize >= 4096 - 30), "{undetected:?}");
}

#[test]
fn torn_tail_and_damaged_frame_hide_no_later_frame() {
    let ram = Arc::new(Ram::new());
    let file = over(&ram, &[1]).create("f").unwrap();
    for at in 0..100_u64 {
        file.write_at(at * 100, &[at as u8 + 1; 100], P).unwrap();
    }
    let inner = ram.open("f", Mode::ReadWrite).unwrap();
    // The length of frame 3, and 40 bytes of garbage at the end.
    inner.write_at(HEADER_BYTES + 3 * 130 + 12, &[9], P).unwrap();
    inner.write_at(inner.len().unwrap(), &[7; 40], P).unwrap();
    let again = over(&ram, &[1]).open("f", Mode::Read).unwrap();
    assert_eq!(again.len().unwrap(), 100 * 100 + 40);
    let mut bytes = vec![0; 100 * 100 + 40];
    again.read_lossy_at(0, &mut bytes, P).unwrap();
    for (at, piece) in bytes.chunks(100).enumerate() {
        let expected = if at == 3 || at == 100 { FILLER } else { at as u8 + 1 };
        assert!(piece.iter().all(|&byte| byte == expected), "piece {at}");
    }
    assert!(again.read_at(300, &mut [0; 1], P).unwrap_err().is_corruption());
    again.read_at(400, &mut [0; 9600], P).unwrap();
}

#[test]
fn swapped_files_and_moved_blocks_are_detected() {
    let (ram, mut random) = (Arc::new(Ram::new()), SplitMix64::new(7));
    let vfs = over(&ram, &[1]);
    for name in ["a", "b"] {
        fill(vfs.create(name).unwrap().as_ref(), &mut random, 60);
        fill(vfs.subdirectory("t").unwrap().create(name).unwrap().as_ref(), &mut random, 60);
    }
    let is_damaged = |vfs: &dyn Vfs, name: &str| {
        let read = vfs.open(name, Mode::Read).and_then(|file| content(file.as_ref()));
        read.is_err_and(|error| error.is_corruption())
    };
    let fork = Arc::new(ram.fork());
    fork.rename("a", "c").unwrap();
    fork.rename("b", "a").unwrap();
    fork.rename("c", "b").unwrap();
    let swapped = over(&fork, &[1]);
    assert!(is_damaged(&swapped, "a") && is_damaged(&swapped, "b"));
    // The file of the same name of another directory.
    let fork = Arc::new(ram.fork());
    fork.remove("a").unwrap();
    assert!(fork.subdirectory("t").unwrap().link("a", fork.as_ref(), "a").unwrap());
    assert!(is_damaged(&over(&fork, &[1]), "a"));
    // Two blocks of one file, and a block of another file.
    for (from, block) in [("a", 2), ("b", 1)] {
        let fork = Arc::new(ram.fork());
        let bytes = raw(&fork, from);
        let file = fork.open("a", Mode::ReadWrite).unwrap();
        file.write_at(BLOCK_BYTES, &bytes[block * 4096..][..4096], P).unwrap();
        assert!(is_damaged(&over(&fork, &[1]), "a"), "{from}");
    }
}

#[test]
fn renamed_file_opens_under_its_new_name_alone() {
    let (ram, mut random) = (Arc::new(Ram::new()), SplitMix64::new(8));
    let vfs = over(&ram, &[1]);
    let plain = fill(vfs.create("draft").unwrap().as_ref(), &mut random, 10);
    vfs.rename("draft", "final").unwrap();
    vfs.sync_dir(P).unwrap();
    let read = |vfs: &dyn Vfs, name: &str| content(vfs.open(name, Mode::Read)?.as_ref());
    assert!(read(&over(&ram, &[1]), "final").unwrap() == plain);
    vfs.check_header("final").unwrap();
    ram.rename("final", "draft").unwrap();
    assert!(read(&over(&ram, &[1]), "draft").unwrap_err().is_corruption());
}

#[test]
fn rewrapped_file_opens_with_the_new_key_alone() {
    let (ram, mut random) = (Arc::new(Ram::new()), SplitMix64::new(8));
    let plain = fill(over(&ram, &[1]).create("f").unwrap().as_ref(), &mut random, 10);
    let read = |keys: &[u8]| content(over(&ram, keys).open("f", Mode::Read)?.as_ref());
    assert!(matches!(read(&[2]), Err(Error::Refused { .. })));
    assert!(over(&ram, &[2, 1]).rewrap("f").unwrap());
    assert!(!over(&ram, &[2, 1]).rewrap("f").unwrap());
    assert!(read(&[2]).unwrap() == plain);
    assert!(matches!(read(&[1]), Err(Error::Refused { .. })));
}

#[test]
fn overwrites_holes_and_mappings_are_refused() {
    let ram = Arc::new(Ram::new());
    let vfs = over(&ram, &[1]);
    let file = vfs.create("f").unwrap();
    file.write_at(100, b"gap", P).unwrap();
    assert!(content(file.as_ref()).unwrap() == [&[0; 100][..], b"gap"].concat());
    assert!(file.write_at(0, b"x", P).is_err());
    assert!(file.punch_hole(0, 50).is_err());
    assert!(file.set_len(50).is_err());
    assert!(vfs.map("m", 4096).is_err());
    let again = over(&ram, &[1]).open("f", Mode::ReadWrite).unwrap();
    assert!(again.write_at(103, b"x", P).is_err());
}
