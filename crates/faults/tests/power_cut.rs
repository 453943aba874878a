//! Does a power cut leave what the contract says, all of what it allows, and nothing else?
//!
//! Each question is asked over many seeds. Where the contract leaves a choice, every outcome must
//! show itself in some seed: a medium that is kinder than the contract would hide bugs.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_faults::{FaultKind, Faulty, Survival};
use siltstone_vfs::{File, Mode, Vfs};

const WHY: Purpose = Purpose::Log;
const SECTOR: usize = 512;

fn every_way(medium: &Faulty) -> impl Iterator<Item = (u64, Faulty)> {
    (0..1000).map(|seed| (seed, medium.survivors(seed)))
}

fn durable_file(medium: &dyn Vfs, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = medium.create(name).unwrap();
    file.write_at(0, bytes, WHY).unwrap();
    file.sync(WHY).unwrap();
    medium.sync_dir(WHY).unwrap();
    file
}

/// Everything on the medium.
fn contents(medium: &Faulty) -> Vec<(String, Vec<u8>)> {
    let files = medium.files().into_iter();
    files.map(|file| (file.path.clone(), medium.read_raw(&file.path).unwrap())).collect()
}

/// The outcomes that survivors show.
fn outcomes<T: Ord>(medium: &Faulty, look: impl Fn(&Faulty) -> T) -> BTreeSet<T> {
    every_way(medium).map(|(_, survivor)| look(&survivor)).collect()
}

/// A sequence of numbers for random histories.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// A file and all the contents that it had since its last sync.
struct Shadow {
    file: Arc<dyn File>,
    versions: Vec<Vec<u8>>,
}

impl Shadow {
    fn change(&mut self, numbers: &mut Numbers) {
        let mut bytes = self.versions.last().unwrap().clone();
        let offset = numbers.below(6000) as usize;
        let len = numbers.below(1800) as usize + 1;
        match numbers.below(8) {
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
                let value = numbers.below(255) as u8 + 1;
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
            // A sector that is new is anybody's until it is synced.
            let is_new = i * SECTOR >= self.versions[0].len();
            assert!(had || is_new, "seed {seed}: sector {i} has a value that it never had");
        }
    }
}

#[test]
fn a_sector_has_a_value_that_it_had_since_the_last_sync_and_a_synced_one_its_last() {
    for history in 0..60 {
        let medium = Faulty::new(history);
        let mut numbers = Numbers(history);
        let file = durable_file(&medium, "a", b"");
        let mut shadow = Shadow { file, versions: vec![Vec::new()] };
        for _ in 0..25 {
            shadow.change(&mut numbers);
            for seed in 0..10 {
                let found = medium.survivors(seed).read_raw("a").unwrap();
                shadow.check(&found, seed);
            }
            let all = medium.survivors_as(Survival::KeepAll, 0).read_raw("a").unwrap();
            assert_eq!(all, *shadow.versions.last().unwrap());
            let none = medium.survivors_as(Survival::LoseAll, 0).read_raw("a").unwrap();
            assert_eq!(none, shadow.versions[0]);
        }
    }
}

#[test]
fn an_unsynced_overwrite_is_kept_lost_or_torn_in_any_order() {
    let medium = Faulty::new(1);
    let file = durable_file(&medium, "a", &[b'a'; 3 * SECTOR]);
    file.write_at(0, &[b'b'; 3 * SECTOR], WHY).unwrap();
    file.write_at(0, &[b'c'; SECTOR], WHY).unwrap();
    let found = outcomes(&medium, |survivor| {
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
fn a_prefix_is_in_order_over_all_files() {
    let medium = Faulty::new(1);
    let files = ["a", "b"].map(|name| durable_file(&medium, name, &[0]));
    for i in 1..=20u8 {
        files[usize::from(i % 2)].write_at(0, &[i], WHY).unwrap();
    }
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let survivor = medium.survivors_as(Survival::KeepPrefix, seed);
        let [a, b] = ["a", "b"].map(|name| survivor.read_raw(name).unwrap()[0]);
        assert!(a.abs_diff(b) <= 1 || a.min(b) == 0 && a.max(b) <= 2, "{a} and {b}");
        seen.insert(a.max(b));
    }
    assert_eq!(seen, (0..=20).collect());
}

#[test]
fn an_unsynced_length_is_old_new_or_between_and_what_was_not_kept_is_zero_or_rubbish() {
    let medium = Faulty::new(1);
    let file = durable_file(&medium, "a", &[1; 100]);
    file.write_at(100, &[2; 1948], WHY).unwrap();
    let found = outcomes(&medium, |survivor| survivor.read_raw("a").unwrap());
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
fn a_synced_file_whose_directory_is_not_may_lose_its_name_but_not_its_bytes() {
    let medium = Faulty::new(1);
    let file = medium.create("a").unwrap();
    file.write_at(0, b"synced", WHY).unwrap();
    file.sync(WHY).unwrap();
    let expected = [vec![], vec![("a".to_owned(), b"synced".to_vec())]];
    assert_eq!(outcomes(&medium, contents), expected.clone().into());
    medium.sync_dir(WHY).unwrap();
    assert_eq!(outcomes(&medium, contents), [expected[1].clone()].into());
}

#[test]
fn a_synced_name_does_not_bring_unsynced_bytes() {
    let medium = Faulty::new(1);
    medium.create("a").unwrap().write_at(0, b"unsynced", WHY).unwrap();
    medium.sync_dir(WHY).unwrap();
    let found = outcomes(&medium, |survivor| survivor.read_raw("a").unwrap());
    let known = [vec![], vec![0; 8], b"unsynced".to_vec()];
    assert!(known.iter().all(|bytes| found.contains(bytes)), "{found:?}");
    let (few, rubbish): (Vec<_>, Vec<_>) = found.iter().partition(|bytes| known.contains(bytes));
    assert!(few.len() == 3 && rubbish.iter().all(|bytes| bytes.len() == 8), "{found:?}");
}

#[test]
fn an_unsynced_removal_may_bring_the_file_back_whole() {
    let medium = Faulty::new(1);
    durable_file(&medium, "a", b"bytes");
    medium.remove("a").unwrap();
    let there = vec![("a".to_owned(), b"bytes".to_vec())];
    assert_eq!(outcomes(&medium, contents), [vec![], there].into());
    medium.sync_dir(WHY).unwrap();
    assert_eq!(outcomes(&medium, contents), [vec![]].into());
}

#[test]
fn a_rename_is_old_or_new_never_both_nor_neither() {
    let medium = Faulty::new(1);
    durable_file(&medium, "CURRENT", b"old");
    durable_file(&medium, "tmp", b"new");
    medium.rename("tmp", "CURRENT").unwrap();
    let file = |name: &str, bytes: &[u8]| (name.to_owned(), bytes.to_vec());
    let old = vec![file("CURRENT", b"old"), file("tmp", b"new")];
    let new = vec![file("CURRENT", b"new")];
    assert_eq!(outcomes(&medium, contents), [old, new.clone()].into());
    medium.sync_dir(WHY).unwrap();
    assert_eq!(outcomes(&medium, contents), [new].into());
}

#[test]
fn names_change_independently_of_each_other_and_each_in_its_order() {
    let medium = Faulty::new(1);
    for name in ["1", "2", "3"] {
        medium.create(name).unwrap();
    }
    medium.rename("1", "4").unwrap();
    medium.rename("4", "5").unwrap();
    let found = outcomes(&medium, |survivor| survivor.list().unwrap().concat());
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
fn a_new_subdirectory_is_durable_at_once_and_takes_no_other_name_along() {
    let medium = Faulty::new(1);
    medium.create("beside").unwrap();
    let sub = medium.subdirectory("sub").unwrap();
    let found = outcomes(&medium, |survivor| {
        (survivor.list().unwrap(), survivor.subdirectories().unwrap())
    });
    let sub_there = vec!["sub".to_owned()];
    assert_eq!(found, [(vec![], sub_there.clone()), (vec!["beside".into()], sub_there)].into());

    // Its removal is many operations; what power cuts leave of it is any part.
    durable_file(&*sub, "x", b"");
    durable_file(&*sub, "y", b"");
    medium.remove_subdirectory("sub").unwrap();
    let found = outcomes(&medium, |survivor| {
        let files = survivor.files().into_iter().map(|file| file.path);
        (survivor.subdirectories().unwrap().len(), files.filter(|p| p != "beside").collect())
    });
    let part = |files: &[&str]| (1, files.iter().map(|&f| f.to_owned()).collect::<Vec<_>>());
    let parts = [part(&["sub/x", "sub/y"]), part(&["sub/x"]), part(&["sub/y"]), part(&[])];
    assert_eq!(found, parts.into_iter().chain([(0, vec![])]).collect());
}

#[test]
fn a_file_with_two_names_survives_as_one_file() {
    let medium = Faulty::new(1);
    durable_file(&medium, "a", b"bytes");
    let sub = medium.subdirectory("sub").unwrap();
    assert!(medium.link("a", &*sub, "b").unwrap());
    sub.sync_dir(WHY).unwrap();
    for (_, survivor) in every_way(&medium) {
        survivor.write_raw("a", 0, b"BYTES").unwrap();
        assert_eq!(survivor.read_raw("sub/b").unwrap(), b"BYTES");
    }
}

#[test]
fn no_later_success_repairs_a_failed_sync() {
    let medium = Faulty::new(1);
    let file = durable_file(&medium, "a", &[b'a'; 2 * SECTOR]);
    file.write_at(0, &[b'b'; 2 * SECTOR], WHY).unwrap();
    medium.fail_next(FaultKind::Sync, 1);
    assert!(matches!(file.sync(WHY), Err(Error::Io { operation: "sync", .. })));
    file.sync(WHY).unwrap();
    let firsts = |survivor: &Faulty| {
        let bytes = survivor.read_raw("a").unwrap();
        (bytes[0], bytes[SECTOR])
    };
    let any = [(b'a', b'a'), (b'a', b'b'), (b'b', b'a'), (b'b', b'b')];
    assert_eq!(outcomes(&medium, firsts), any.into());
    // What is written anew is in no doubt any more, what is not stays in it.
    file.write_at(0, b"c", WHY).unwrap();
    file.sync(WHY).unwrap();
    assert_eq!(outcomes(&medium, firsts), [(b'c', b'a'), (b'c', b'b')].into());
    assert_eq!(medium.read_raw("a").unwrap()[SECTOR], b'b', "reads see the last write");
}

#[test]
fn no_later_success_repairs_a_failed_directory_sync() {
    let medium = Faulty::new(1);
    medium.create("a").unwrap();
    medium.fail_next(FaultKind::DirSync, 1);
    medium.sync_dir(WHY).unwrap_err();
    medium.create("b").unwrap();
    medium.sync_dir(WHY).unwrap();
    let found = outcomes(&medium, |survivor| survivor.list().unwrap().concat());
    assert_eq!(found, ["b".to_owned(), "ab".to_owned()].into());
}

/// Replaces `CURRENT` as a manifest is replaced.
fn replace(medium: &dyn Vfs, bytes: &[u8]) -> Result<()> {
    if medium.exists("tmp")? {
        medium.remove("tmp")?;
    }
    let file = medium.create("tmp")?;
    for (i, part) in bytes.chunks(700).enumerate() {
        file.write_at(i as u64 * 700, part, WHY)?;
    }
    file.sync(WHY)?;
    medium.rename("tmp", "CURRENT")?;
    medium.sync_dir(WHY)
}

fn current(medium: &dyn Vfs) -> Option<u8> {
    let file = medium.open("CURRENT", Mode::Read).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes, WHY).unwrap();
    assert_eq!(bytes.len(), 2000, "a torn CURRENT");
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn CURRENT");
    Some(bytes[0])
}

#[test]
fn a_careful_replacement_survives_a_cut_at_every_operation_and_another_while_recovering() {
    let whole = Faulty::new(1);
    replace(&whole, &[1; 2000]).unwrap();
    let after_first = whole.operations();
    replace(&whole, &[2; 2000]).unwrap();
    assert_eq!(whole.operations(), 2 * after_first);

    let mut recovered = BTreeSet::new();
    for cut in 0..whole.operations() {
        let medium = Faulty::new(1);
        medium.cut_power_at(cut);
        let first = replace(&medium, &[1; 2000]);
        let second = first.clone().and_then(|()| replace(&medium, &[2; 2000]));
        assert!(second.is_err() && medium.power_is_off(), "operation {cut}");
        assert_eq!(medium.operations(), cut + 1, "nothing is counted once power is off");
        for (seed, survivor) in every_way(&medium).take(12) {
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
fn a_careless_replacement_is_caught() {
    let medium = Faulty::new(1);
    durable_file(&medium, "CURRENT", &[1; 2000]);
    // No sync before the rename.
    medium.create("tmp").unwrap().write_at(0, &[2; 2000], WHY).unwrap();
    medium.rename("tmp", "CURRENT").unwrap();
    let torn = |survivor: &Faulty| {
        let bytes = survivor.read_raw("CURRENT").unwrap();
        bytes != [1; 2000] && bytes != [2; 2000]
    };
    assert_eq!(outcomes(&medium, torn), [false, true].into());
}

#[test]
fn power_that_is_off_stays_off_for_everything() {
    let medium = Faulty::new(1);
    let file = durable_file(&medium, "a", b"abc");
    medium.cut_power();
    let errors = [
        file.read_at(0, &mut [0], WHY).err(),
        file.write_at(0, b"x", WHY).err(),
        file.sync(WHY).err(),
        file.len().err(),
        file.set_len(1).err(),
        file.reserve(1).err(),
        file.punch_hole(0, 1).err(),
        medium.create("b").err(),
        medium.open("a", Mode::Read).err(),
        medium.exists("a").err(),
        medium.list().err(),
        medium.remove("a").err(),
        medium.rename("a", "b").err(),
        medium.sync_dir(WHY).err(),
        medium.subdirectory("s").err(),
        medium.subdirectories().err(),
        medium.lock("L").err(),
        medium.link("a", &medium, "b").err(),
    ];
    for (i, error) in errors.into_iter().enumerate() {
        let text = error.unwrap_or_else(|| panic!("number {i} worked without power")).to_string();
        assert!(text.ends_with("power is off") && text.contains("faulty:"), "{text}");
    }
    assert_eq!(outcomes(&medium, contents), [vec![("a".into(), b"abc".to_vec())]].into());
}

#[test]
fn the_same_seed_gives_the_same_survivor() {
    let busy = || {
        let medium = Faulty::new(9);
        medium.set_error_rate(0.1);
        let mut numbers = Numbers(4);
        let mut errors = Vec::new();
        for i in 0..40 {
            let Ok(file) = medium.create(&format!("{i}")) else { continue };
            let bytes = vec![i; numbers.below(3000) as usize];
            errors.push(file.write_at(0, &bytes, WHY).is_err());
            errors.push(file.sync(WHY).is_err());
        }
        (medium, errors)
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
fn each_request_can_be_failed_and_no_other_fails() {
    let whole = Faulty::new(1);
    replace(&whole, &[1; 2000]).unwrap();
    for request in 0..whole.requests() {
        let medium = Faulty::new(1);
        medium.fail_at(request, FaultKind::Any);
        let error = replace(&medium, &[1; 2000]).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "request {request}: {error}");
        assert_eq!(medium.requests(), request + 1, "it stopped at the failed one");
        replace(&medium, &[2; 2000]).unwrap();
        assert_eq!(current(&medium), Some(2));
    }
    let spared = Faulty::new(1);
    spared.fail_at(0, FaultKind::Sync);
    replace(&spared, &[1; 2000]).unwrap();
}

#[test]
fn a_failed_write_leaves_any_of_its_sectors() {
    let mut found = BTreeSet::new();
    for seed in 0..100 {
        let medium = Faulty::new(seed);
        let file = durable_file(&medium, "a", &[b'a'; 2 * SECTOR]);
        medium.fail_next(FaultKind::Write, 1);
        file.write_at(0, &[b'b'; 2 * SECTOR], WHY).unwrap_err();
        let bytes = medium.read_raw("a").unwrap();
        found.insert((bytes[0], bytes[SECTOR]));
    }
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn a_full_disk_refuses_to_grow_and_works_again_when_there_is_space() {
    let medium = Faulty::new(1);
    let file = durable_file(&medium, "a", &[1; 1000]);
    assert_eq!(medium.space_used(), 1024);
    medium.set_capacity(2048);
    let error = file.write_at(500, &[2; 2000], WHY).unwrap_err();
    assert!(error.is_disk_full(), "{error}");
    assert_eq!(medium.read_raw("a").unwrap(), [1; 1000], "nothing was written");
    assert!(file.reserve(3000).unwrap_err().is_disk_full());
    file.reserve(2048).unwrap();
    file.write_at(0, &[3; 1024], WHY).unwrap();

    medium.set_torn_on_full(true);
    file.write_at(500, &[2; 2000], WHY).unwrap_err();
    let mut expected = vec![3; 500];
    expected.resize(2048, 2);
    assert_eq!(medium.read_raw("a").unwrap(), expected, "the sectors that fit");
    assert!(medium.create("b").unwrap().write_at(0, b"x", WHY).unwrap_err().is_disk_full());

    file.punch_hole(0, 512).unwrap();
    medium.open("b", Mode::ReadWrite).unwrap().write_at(0, b"x", WHY).unwrap();
    medium.set_capacity(u64::MAX);
    file.write_at(500, &[2; 2000], WHY).unwrap();
    medium.set_capacity(0);
    let survivor = medium.survivors_as(Survival::KeepAll, 0);
    let more = survivor.create("c").unwrap();
    assert!(more.write_at(0, b"x", WHY).unwrap_err().is_disk_full(), "survivors are as small");
}

#[test]
fn damage_hits_the_byte_that_it_names_and_stays() {
    let medium = Faulty::new(1);
    let sub = medium.subdirectory("sub").unwrap();
    durable_file(&*sub, "a", &[7; 1500]);
    let before = medium.operations();
    medium.flip_bit("sub/a", 3, 0).unwrap();
    medium.zero_sector("sub/a", 1).unwrap();
    medium.write_raw("sub/a", 1024, b"raw").unwrap();
    medium.truncate("sub/a", 1100).unwrap();
    assert_eq!(medium.operations(), before, "damage is no operation");
    let mut expected = vec![7; 1100];
    expected[3] = 6;
    expected[512..1024].fill(0);
    expected[1024..1027].copy_from_slice(b"raw");
    assert_eq!(outcomes(&medium, contents), [vec![("sub/a".into(), expected)]].into());

    let past_the_end = [
        medium.flip_bit("sub/a", 1100, 0).unwrap_err(),
        medium.zero_sector("sub/a", 3).unwrap_err(),
        medium.truncate("sub/a", 1101).unwrap_err(),
    ];
    assert!(past_the_end.iter().all(|error| error.to_string().contains("sub/a")));
    assert!(medium.flip_bit("sub/b", 0, 0).unwrap_err().is_not_found());
    assert!(medium.flip_bit("no/b", 0, 0).unwrap_err().is_not_found());
}
