//! Bytes after a power cut: the contract guarantees what was synced, and allows any part of the rest,
//! sector by sector.

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_engine::Error;
use siltstone_faults::{FaultKind, FaultyVfs, Survival};
use siltstone_vfs::File;

use crate::support::{Random, SECTOR, WHY, durable_file, outcomes};

/// A file and all its contents since its last sync.
struct Shadow {
    file: Arc<dyn File>,
    versions: Vec<Vec<u8>>,
}

impl Shadow {
    fn change(&mut self, random: &mut Random) {
        let mut bytes = self.versions.last().unwrap().clone();
        let offset = random.below(6000) as usize;
        let len = random.below(1800) as usize + 1;
        match random.below(8) {
            0 => {
                bytes.resize(offset, 0);
                self.file.set_len(offset as u64).unwrap();
            }
            1 => {
                let end = (offset + len).min(bytes.len());
                bytes[offset.min(end)..end].fill(0);
                self.file.punch_hole(offset as u64, len as u64).unwrap();
            }
            2 => {
                self.file.sync(WHY).unwrap();
                self.versions.clear();
            }
            _ => {
                let value = random.below(255) as u8 + 1;
                bytes.resize(bytes.len().max(offset + len), 0);
                bytes[offset..offset + len].fill(value);
                self.file.write_at(offset as u64, &vec![value; len], WHY).unwrap();
            }
        }
        self.versions.push(bytes);
    }

    fn check(&self, found: &[u8], seed: u64) {
        let lengths = self.versions.iter().map(Vec::len);
        let allowed = lengths.clone().min().unwrap()..=lengths.max().unwrap();
        assert!(allowed.contains(&found.len()), "seed {seed}: length {}", found.len());
        for (i, sector) in found.chunks(SECTOR).enumerate() {
            let had = self.versions.iter().any(|version| {
                let at = |j: usize| version.get(i * SECTOR + j).copied().unwrap_or(0);
                sector.iter().enumerate().all(|(j, &byte)| byte == at(j))
            });
            // A new sector may have any content until it is synced.
            let is_new = i * SECTOR >= self.versions[0].len();
            assert!(had || is_new, "seed {seed}: sector {i} has a value that it never had");
        }
    }
}

#[test]
fn surviving_sector_has_a_value_since_the_last_sync() {
    for history in 0..60 {
        let vfs = FaultyVfs::new(history);
        let mut random = Random(history);
        let file = durable_file(&vfs, "a", b"");
        let mut shadow = Shadow { file, versions: vec![Vec::new()] };
        for _ in 0..25 {
            shadow.change(&mut random);
            for seed in 0..10 {
                let found = vfs.survivors(seed).read_raw("a").unwrap();
                shadow.check(&found, seed);
            }
            let all = vfs.survivors_as(Survival::KeepAll, 0).read_raw("a").unwrap();
            assert_eq!(all, *shadow.versions.last().unwrap());
            let none = vfs.survivors_as(Survival::LoseAll, 0).read_raw("a").unwrap();
            assert_eq!(none, shadow.versions[0]);
        }
    }
}

#[test]
fn unsynced_overwrite_is_kept_lost_or_torn_in_any_order() {
    let vfs = FaultyVfs::new(1);
    let file = durable_file(&vfs, "a", &[b'a'; 3 * SECTOR]);
    file.write_at(0, &[b'b'; 3 * SECTOR], WHY).unwrap();
    file.write_at(0, &[b'c'; SECTOR], WHY).unwrap();
    let found = outcomes(&vfs, |survivor| {
        let bytes = survivor.read_raw("a").unwrap();
        let sectors = bytes.chunks(SECTOR);
        sectors.map(|s| if s.iter().all(|b| *b == s[0]) { s[0] } else { b'?' }).collect::<Vec<_>>()
    });
    let expected = [b'a', b'b', b'c'].iter().flat_map(|first| {
        ["aa", "ab", "ba", "bb"].map(|rest| [&[*first], rest.as_bytes()].concat())
    });
    assert_eq!(found, expected.collect(), "3 values of one sector, 2 of the others, all mixtures");
}

#[test]
fn surviving_prefix_is_in_order_over_all_files() {
    let vfs = FaultyVfs::new(1);
    let files = ["a", "b"].map(|name| durable_file(&vfs, name, &[0]));
    for i in 1..=20u8 {
        files[usize::from(i % 2)].write_at(0, &[i], WHY).unwrap();
    }
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let survivor = vfs.survivors_as(Survival::KeepPrefix, seed);
        let [a, b] = ["a", "b"].map(|name| survivor.read_raw(name).unwrap()[0]);
        assert!(a.abs_diff(b) <= 1 || a.min(b) == 0 && a.max(b) <= 2, "{a} and {b}");
        seen.insert(a.max(b));
    }
    assert_eq!(seen, (0..=20).collect());
}

#[test]
fn unsynced_length_is_old_new_or_between_and_lost_sectors_are_zero_or_garbage() {
    let vfs = FaultyVfs::new(1);
    let file = durable_file(&vfs, "a", &[1; 100]);
    file.write_at(100, &[2; 1948], WHY).unwrap();
    let found = outcomes(&vfs, |survivor| survivor.read_raw("a").unwrap());
    let lengths: BTreeSet<usize> = found.iter().map(Vec::len).collect();
    assert_eq!(lengths, [100, 512, 1024, 1536, 2048].into());
    assert!(found.iter().all(|bytes| bytes[..100] == [1; 100]), "synced bytes were lost");
    let zeros = found.iter().any(|bytes| bytes.len() == 2048 && bytes[100..] == [0; 1948]);
    assert!(zeros, "the length without the bytes");
    let mixed = |bytes: &Vec<u8>| bytes.len() == 2048 && bytes[512..].iter().any(|&b| b > 2);
    assert!(found.iter().any(mixed), "the length, with what was there before");
    assert!(found.iter().all(|bytes| bytes[100..].iter().take(412).all(|&b| b == 0 || b == 2)));
}

#[test]
fn failed_sync_is_not_repaired_by_a_later_one() {
    let vfs = FaultyVfs::new(1);
    let file = durable_file(&vfs, "a", &[b'a'; 2 * SECTOR]);
    file.write_at(0, &[b'b'; 2 * SECTOR], WHY).unwrap();
    vfs.fail_next(FaultKind::Sync, 1);
    assert!(matches!(file.sync(WHY), Err(Error::Io { operation: "sync", .. })));
    file.sync(WHY).unwrap();
    let firsts = |survivor: &FaultyVfs| {
        let bytes = survivor.read_raw("a").unwrap();
        (bytes[0], bytes[SECTOR])
    };
    let any = [(b'a', b'a'), (b'a', b'b'), (b'b', b'a'), (b'b', b'b')];
    assert_eq!(outcomes(&vfs, firsts), any.into());
    // Rewritten sectors are not in doubt any more; the others are.
    file.write_at(0, b"c", WHY).unwrap();
    file.sync(WHY).unwrap();
    assert_eq!(outcomes(&vfs, firsts), [(b'c', b'a'), (b'c', b'b')].into());
    assert_eq!(vfs.read_raw("a").unwrap()[SECTOR], b'b', "reads see the last write");
}

#[test]
fn failed_write_leaves_any_of_its_sectors() {
    let mut found = BTreeSet::new();
    for seed in 0..100 {
        let vfs = FaultyVfs::new(seed);
        let file = durable_file(&vfs, "a", &[b'a'; 2 * SECTOR]);
        vfs.fail_next(FaultKind::Write, 1);
        file.write_at(0, &[b'b'; 2 * SECTOR], WHY).unwrap_err();
        let bytes = vfs.read_raw("a").unwrap();
        found.insert((bytes[0], bytes[SECTOR]));
    }
    assert_eq!(found.len(), 4, "{found:?}");
}
