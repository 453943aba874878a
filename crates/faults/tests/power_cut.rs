//! Checks what a power cut leaves: what the contract guarantees, and every outcome that it allows.
//!
//! Each test runs over many seeds. Where the contract allows several outcomes, each must occur for
//! some seed: a file system that is kinder than the contract would hide bugs.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_faults::{FaultKind, FaultyVfs, Survival};
use siltstone_vfs::{File, Mode, Vfs};

const WHY: Purpose = Purpose::Log;
const SECTOR: usize = 512;

fn every_way(vfs: &FaultyVfs) -> impl Iterator<Item = (u64, FaultyVfs)> {
    (0..1000).map(|seed| (seed, vfs.survivors(seed)))
}

fn durable_file(vfs: &dyn Vfs, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = vfs.create(name).unwrap();
    file.write_at(0, bytes, WHY).unwrap();
    file.sync(WHY).unwrap();
    vfs.sync_dir(WHY).unwrap();
    file
}

/// All files with their bytes.
fn contents(vfs: &FaultyVfs) -> Vec<(String, Vec<u8>)> {
    let files = vfs.files().into_iter();
    files.map(|file| (file.path.clone(), vfs.read_raw(&file.path).unwrap())).collect()
}

/// The set of outcomes over all survivors.
fn outcomes<T: Ord>(vfs: &FaultyVfs, look: impl Fn(&FaultyVfs) -> T) -> BTreeSet<T> {
    every_way(vfs).map(|(_, survivor)| look(&survivor)).collect()
}

/// A random generator for histories of changes.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

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
fn synced_file_in_unsynced_directory_may_lose_its_name_but_not_its_bytes() {
    let vfs = FaultyVfs::new(1);
    let file = vfs.create("a").unwrap();
    file.write_at(0, b"synced", WHY).unwrap();
    file.sync(WHY).unwrap();
    let expected = [vec![], vec![("a".to_owned(), b"synced".to_vec())]];
    assert_eq!(outcomes(&vfs, contents), expected.clone().into());
    vfs.sync_dir(WHY).unwrap();
    assert_eq!(outcomes(&vfs, contents), [expected[1].clone()].into());
}

#[test]
fn synced_name_does_not_make_bytes_durable() {
    let vfs = FaultyVfs::new(1);
    vfs.create("a").unwrap().write_at(0, b"unsynced", WHY).unwrap();
    vfs.sync_dir(WHY).unwrap();
    let found = outcomes(&vfs, |survivor| survivor.read_raw("a").unwrap());
    let known = [vec![], vec![0; 8], b"unsynced".to_vec()];
    assert!(known.iter().all(|bytes| found.contains(bytes)), "{found:?}");
    let (few, rubbish): (Vec<_>, Vec<_>) = found.iter().partition(|bytes| known.contains(bytes));
    assert!(few.len() == 3 && rubbish.iter().all(|bytes| bytes.len() == 8), "{found:?}");
}

#[test]
fn unsynced_removal_may_be_undone_completely() {
    let vfs = FaultyVfs::new(1);
    durable_file(&vfs, "a", b"bytes");
    vfs.remove("a").unwrap();
    let there = vec![("a".to_owned(), b"bytes".to_vec())];
    assert_eq!(outcomes(&vfs, contents), [vec![], there].into());
    vfs.sync_dir(WHY).unwrap();
    assert_eq!(outcomes(&vfs, contents), [vec![]].into());
}

#[test]
fn rename_is_atomic() {
    let vfs = FaultyVfs::new(1);
    durable_file(&vfs, "CURRENT", b"old");
    durable_file(&vfs, "tmp", b"new");
    vfs.rename("tmp", "CURRENT").unwrap();
    let file = |name: &str, bytes: &[u8]| (name.to_owned(), bytes.to_vec());
    let old = vec![file("CURRENT", b"old"), file("tmp", b"new")];
    let new = vec![file("CURRENT", b"new")];
    assert_eq!(outcomes(&vfs, contents), [old, new.clone()].into());
    vfs.sync_dir(WHY).unwrap();
    assert_eq!(outcomes(&vfs, contents), [new].into());
}

#[test]
fn names_survive_independently_and_each_in_order() {
    let vfs = FaultyVfs::new(1);
    for name in ["1", "2", "3"] {
        vfs.create(name).unwrap();
    }
    vfs.rename("1", "4").unwrap();
    vfs.rename("4", "5").unwrap();
    let found = outcomes(&vfs, |survivor| survivor.list().unwrap().concat());
    let chain = ["1", "4", "5", ""];
    for lost_or_kept in ["", "2", "3", "23"] {
        for state in chain {
            let mut names: Vec<char> = format!("{state}{lost_or_kept}").chars().collect();
            names.sort_unstable();
            let names: String = names.into_iter().collect();
            assert!(found.contains(&names), "{names:?} never came out of {found:?}");
        }
    }
    assert_eq!(found.len(), 16, "{found:?}");
}

#[test]
fn new_subdirectory_is_durable_at_once_without_other_names() {
    let vfs = FaultyVfs::new(1);
    vfs.create("beside").unwrap();
    let sub = vfs.subdirectory("sub").unwrap();
    let found =
        outcomes(&vfs, |survivor| (survivor.list().unwrap(), survivor.subdirectories().unwrap()));
    let sub_there = vec!["sub".to_owned()];
    assert_eq!(found, [(vec![], sub_there.clone()), (vec!["beside".into()], sub_there)].into());

    // Its removal is many operations, of which a power cut leaves any part.
    durable_file(&*sub, "x", b"");
    durable_file(&*sub, "y", b"");
    vfs.remove_subdirectory("sub").unwrap();
    let found = outcomes(&vfs, |survivor| {
        let files = survivor.files().into_iter().map(|file| file.path);
        (survivor.subdirectories().unwrap().len(), files.filter(|p| p != "beside").collect())
    });
    let part = |files: &[&str]| (1, files.iter().map(|&f| f.to_owned()).collect::<Vec<_>>());
    let parts = [part(&["sub/x", "sub/y"]), part(&["sub/x"]), part(&["sub/y"]), part(&[])];
    assert_eq!(found, parts.into_iter().chain([(0, vec![])]).collect());
}

#[test]
fn file_with_two_names_survives_as_one_file() {
    let vfs = FaultyVfs::new(1);
    durable_file(&vfs, "a", b"bytes");
    let sub = vfs.subdirectory("sub").unwrap();
    assert!(vfs.link("a", &*sub, "b").unwrap());
    sub.sync_dir(WHY).unwrap();
    for (_, survivor) in every_way(&vfs) {
        survivor.write_raw("a", 0, b"BYTES").unwrap();
        assert_eq!(survivor.read_raw("sub/b").unwrap(), b"BYTES");
    }
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
fn failed_directory_sync_is_not_repaired_by_a_later_one() {
    let vfs = FaultyVfs::new(1);
    vfs.create("a").unwrap();
    vfs.fail_next(FaultKind::DirSync, 1);
    vfs.sync_dir(WHY).unwrap_err();
    vfs.create("b").unwrap();
    vfs.sync_dir(WHY).unwrap();
    let found = outcomes(&vfs, |survivor| survivor.list().unwrap().concat());
    assert_eq!(found, ["b".to_owned(), "ab".to_owned()].into());
}

/// Replaces `CURRENT` as for a new manifest.
fn replace(vfs: &dyn Vfs, bytes: &[u8]) -> Result<()> {
    if vfs.exists("tmp")? {
        vfs.remove("tmp")?;
    }
    let file = vfs.create("tmp")?;
    for (i, part) in bytes.chunks(700).enumerate() {
        file.write_at(i as u64 * 700, part, WHY)?;
    }
    file.sync(WHY)?;
    vfs.rename("tmp", "CURRENT")?;
    vfs.sync_dir(WHY)
}

fn current(vfs: &dyn Vfs) -> Option<u8> {
    let file = vfs.open("CURRENT", Mode::Read).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes, WHY).unwrap();
    assert_eq!(bytes.len(), 2000, "a torn CURRENT");
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn CURRENT");
    Some(bytes[0])
}

#[test]
fn atomic_replacement_survives_a_cut_at_every_operation_and_during_recovery() {
    let whole = FaultyVfs::new(1);
    replace(&whole, &[1; 2000]).unwrap();
    let after_first = whole.operations();
    replace(&whole, &[2; 2000]).unwrap();
    assert_eq!(whole.operations(), 2 * after_first);

    let mut recovered = BTreeSet::new();
    for cut in 0..whole.operations() {
        let vfs = FaultyVfs::new(1);
        vfs.cut_power_at(cut);
        let first = replace(&vfs, &[1; 2000]);
        let second = first.clone().and_then(|()| replace(&vfs, &[2; 2000]));
        assert!(second.is_err() && vfs.power_is_off(), "operation {cut}");
        assert_eq!(vfs.operations(), cut + 1, "nothing is counted once power is off");
        for (seed, survivor) in every_way(&vfs).take(12) {
            let now = current(&survivor);
            let allowed = if first.is_err() { [None, Some(1)] } else { [Some(1), Some(2)] };
            assert!(allowed.contains(&now), "operation {cut}, seed {seed}: {now:?}");
            assert!(!survivor.power_is_off());
            assert_eq!(survivor.operations(), 0);

            survivor.cut_power_at(seed % 7);
            replace(&survivor, &[3; 2000]).unwrap_err();
            for (_, again) in every_way(&survivor).take(5) {
                let found = current(&again);
                assert!(found == now || found == Some(3), "{now:?} became {found:?}");
                recovered.insert(found);
            }
        }
    }
    assert_eq!(recovered, [None, Some(1), Some(2), Some(3)].into());
}

#[test]
fn replacement_without_a_sync_is_detected() {
    let vfs = FaultyVfs::new(1);
    durable_file(&vfs, "CURRENT", &[1; 2000]);
    // There is no sync before the rename.
    vfs.create("tmp").unwrap().write_at(0, &[2; 2000], WHY).unwrap();
    vfs.rename("tmp", "CURRENT").unwrap();
    let torn = |survivor: &FaultyVfs| {
        let bytes = survivor.read_raw("CURRENT").unwrap();
        bytes != [1; 2000] && bytes != [2; 2000]
    };
    assert_eq!(outcomes(&vfs, torn), [false, true].into());
}

#[test]
fn every_request_fails_while_power_is_off() {
    let vfs = FaultyVfs::new(1);
    let file = durable_file(&vfs, "a", b"abc");
    vfs.cut_power();
    let errors = [
        file.read_at(0, &mut [0], WHY).err(),
        file.write_at(0, b"x", WHY).err(),
        file.sync(WHY).err(),
        file.len().err(),
        file.set_len(1).err(),
        file.reserve(1).err(),
        file.punch_hole(0, 1).err(),
        vfs.create("b").err(),
        vfs.open("a", Mode::Read).err(),
        vfs.exists("a").err(),
        vfs.list().err(),
        vfs.remove("a").err(),
        vfs.rename("a", "b").err(),
        vfs.sync_dir(WHY).err(),
        vfs.subdirectory("s").err(),
        vfs.subdirectories().err(),
        vfs.lock("L").err(),
        vfs.link("a", &vfs, "b").err(),
    ];
    for (i, error) in errors.into_iter().enumerate() {
        let text = error.unwrap_or_else(|| panic!("number {i} worked without power")).to_string();
        assert!(text.ends_with("power is off") && text.contains("faulty:"), "{text}");
    }
    assert_eq!(outcomes(&vfs, contents), [vec![("a".into(), b"abc".to_vec())]].into());
}

#[test]
fn same_seed_gives_the_same_survivor() {
    let busy = || {
        let vfs = FaultyVfs::new(9);
        vfs.set_error_rate(0.1);
        let mut random = Random(4);
        let mut errors = Vec::new();
        for i in 0..40 {
            let Ok(file) = vfs.create(&format!("{i}")) else { continue };
            let bytes = vec![i; random.below(3000) as usize];
            errors.push(file.write_at(0, &bytes, WHY).is_err());
            errors.push(file.sync(WHY).is_err());
        }
        (vfs, errors)
    };
    let ((first, first_errors), (second, second_errors)) = (busy(), busy());
    assert_eq!(first_errors, second_errors);
    assert!(first_errors.contains(&true) && first_errors.contains(&false));
    let mut different = BTreeSet::new();
    for seed in 0..30 {
        let survivor = contents(&first.survivors(seed));
        assert_eq!(survivor, contents(&second.survivors(seed)), "seed {seed}");
        different.insert(survivor);
    }
    assert!(different.len() > 15, "only {} different survivors", different.len());
}

#[test]
fn each_request_can_be_failed_alone() {
    let whole = FaultyVfs::new(1);
    replace(&whole, &[1; 2000]).unwrap();
    for request in 0..whole.requests() {
        let vfs = FaultyVfs::new(1);
        vfs.fail_at(request, FaultKind::Any);
        let error = replace(&vfs, &[1; 2000]).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "request {request}: {error}");
        assert_eq!(vfs.requests(), request + 1, "it stopped at the failed one");
        replace(&vfs, &[2; 2000]).unwrap();
        assert_eq!(current(&vfs), Some(2));
    }
    let spared = FaultyVfs::new(1);
    spared.fail_at(0, FaultKind::Sync);
    replace(&spared, &[1; 2000]).unwrap();
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

#[test]
fn full_disk_rejects_growth_until_there_is_space() {
    let vfs = FaultyVfs::new(1);
    let file = durable_file(&vfs, "a", &[1; 1000]);
    assert_eq!(vfs.space_used(), 1024);
    vfs.set_capacity(2048);
    let error = file.write_at(500, &[2; 2000], WHY).unwrap_err();
    assert!(error.is_disk_full(), "{error}");
    assert_eq!(vfs.read_raw("a").unwrap(), [1; 1000], "nothing was written");
    assert!(file.reserve(3000).unwrap_err().is_disk_full());
    file.reserve(2048).unwrap();
    file.write_at(0, &[3; 1024], WHY).unwrap();

    vfs.set_torn_on_full(true);
    file.write_at(500, &[2; 2000], WHY).unwrap_err();
    let mut expected = vec![3; 500];
    expected.resize(2048, 2);
    assert_eq!(vfs.read_raw("a").unwrap(), expected, "the sectors that fit");
    assert!(vfs.create("b").unwrap().write_at(0, b"x", WHY).unwrap_err().is_disk_full());

    file.punch_hole(0, 512).unwrap();
    vfs.open("b", Mode::ReadWrite).unwrap().write_at(0, b"x", WHY).unwrap();
    vfs.set_capacity(u64::MAX);
    file.write_at(500, &[2; 2000], WHY).unwrap();
    vfs.set_capacity(0);
    let survivor = vfs.survivors_as(Survival::KeepAll, 0);
    let more = survivor.create("c").unwrap();
    assert!(more.write_at(0, b"x", WHY).unwrap_err().is_disk_full(), "survivors are as small");
}

#[test]
fn damage_changes_the_given_byte_durably() {
    let vfs = FaultyVfs::new(1);
    let sub = vfs.subdirectory("sub").unwrap();
    durable_file(&*sub, "a", &[7; 1500]);
    let before = vfs.operations();
    vfs.flip_bit("sub/a", 3, 0).unwrap();
    vfs.zero_sector("sub/a", 1).unwrap();
    vfs.write_raw("sub/a", 1024, b"raw").unwrap();
    vfs.truncate("sub/a", 1100).unwrap();
    assert_eq!(vfs.operations(), before, "damage is no operation");
    let mut expected = vec![7; 1100];
    expected[3] = 6;
    expected[512..1024].fill(0);
    expected[1024..1027].copy_from_slice(b"raw");
    assert_eq!(outcomes(&vfs, contents), [vec![("sub/a".into(), expected)]].into());

    let past_the_end = [
        vfs.flip_bit("sub/a", 1100, 0).unwrap_err(),
        vfs.zero_sector("sub/a", 3).unwrap_err(),
        vfs.truncate("sub/a", 1101).unwrap_err(),
    ];
    assert!(past_the_end.iter().all(|error| error.to_string().contains("sub/a")));
    assert!(vfs.flip_bit("sub/b", 0, 0).unwrap_err().is_not_found());
    assert!(vfs.flip_bit("no/b", 0, 0).unwrap_err().is_not_found());
}
