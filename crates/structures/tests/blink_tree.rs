//! The B-link tree compared with a sorted map of versions, also with concurrent writers.

#![cfg(not(loom))]

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;
use siltstone_structures::blink_tree::{BLinkTree, NewVersion, Version};

/// A count, reduced under Miri.
const fn many(count: u64) -> u64 {
    if cfg!(miri) { count / 100 } else { count }
}

fn new(sequence: u64, value: &[u8]) -> NewVersion<'_> {
    NewVersion { sequence, kind: 1, expires_at: 0, position: sequence * 10, value }
}

/// Keys that share prefixes, end early, and end in zeros, to test comparisons of prefixes.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => Just(0u8), 2 => Just(1), 1 => Just(0xff), 1 => any::<u8>()];
    prop_oneof![
        4 => prop::collection::vec(byte.clone(), 0..12),
        1 => prop::collection::vec(byte, 0..3).prop_map(|mut tail| {
            tail.splice(0..0, *b"prefix__");
            tail
        }),
    ]
}

/// Expected fields of a version: kind, expiry, position, value.
type Fields = (u8, u64, u64, Vec<u8>);
type Model = BTreeMap<Vec<u8>, BTreeMap<Reverse<u64>, Fields>>;

fn fields(version: &Version<'_>) -> Fields {
    (version.kind, version.expires_at, version.position, version.value.to_vec())
}

fn insertion() -> impl Strategy<Value = (Vec<u8>, u64, Fields)> {
    let value = prop::collection::vec(any::<u8>(), 0..40);
    (key(), 0u64..60, (any::<u8>(), any::<u64>(), any::<u64>(), value))
}

fn build(insertions: &[(Vec<u8>, u64, Fields)]) -> (Arc<BLinkTree>, Model) {
    let (tree, mut model) = (Arc::new(BLinkTree::new()), Model::new());
    for (key, sequence, fields) in insertions {
        let (kind, expires_at, position, value) = fields;
        tree.insert(
            key,
            NewVersion {
                sequence: *sequence,
                kind: *kind,
                expires_at: *expires_at,
                position: *position,
                value,
            },
        );
        model.entry(key.clone()).or_default().insert(Reverse(*sequence), fields.clone());
    }
    (tree, model)
}

proptest! {
    #[test]
    fn read_at_any_sequence_matches_model(
        insertions in prop::collection::vec(insertion(), 0..150),
        absent in key(),
        at in 0u64..60,
    ) {
        let (tree, model) = build(&insertions);
        for key in model.keys().chain([&absent]) {
            let expected = model
                .get(key)
                .and_then(|versions| versions.range(Reverse(at)..).next())
                .map(|(Reverse(sequence), fields)| (*sequence, fields.clone()));
            let found = tree.get(key, at).map(|version| (version.sequence, fields(&version)));
            prop_assert_eq!(found, expected);
            prop_assert_eq!(tree.entry(key).is_some(), model.contains_key(key));
        }
    }

    #[test]
    fn keys_versions_and_updates_match_model(
        insertions in prop::collection::vec(insertion(), 0..150),
    ) {
        let (tree, model) = build(&insertions);
        prop_assert_eq!(tree.keys(), model.len());
        prop_assert_eq!(tree.versions(), insertions.len());
        let payload: usize = insertions.iter().map(|(_, _, fields)| fields.3.len()).sum();
        prop_assert!(tree.memory_bytes() >= payload + model.keys().map(Vec::len).sum::<usize>());
        prop_assert!(tree.iter().map(|entry| entry.key()).eq(model.keys()));
        for (entry, (key, versions)) in tree.iter().zip(&model) {
            let updates = insertions.iter().filter(|(inserted, ..)| inserted == key).count();
            prop_assert_eq!(entry.updates() as usize, updates);
            prop_assert_eq!(entry.versions().count(), updates);
            // Of equal sequence numbers, the last inserted comes first and hides the others.
            let mut seen: Vec<_> =
                entry.versions().map(|version| (Reverse(version.sequence), fields(&version))).collect();
            seen.dedup_by_key(|(sequence, _)| *sequence);
            prop_assert_eq!(seen, versions.clone().into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn cursor_moves_match_model(
        insertions in prop::collection::vec(insertion(), 0..100),
        moves in prop::collection::vec((0u8..6, key()), 1..60),
    ) {
        let (tree, model) = build(&insertions);
        let mut cursor = tree.cursor();
        let mut place: Option<&Vec<u8>> = None;
        for (which, key) in &moves {
            match which {
                0 => (cursor.seek_to_first(), place = model.keys().next()),
                1 => (cursor.seek_to_last(), place = model.keys().next_back()),
                2 => (cursor.seek(key), place = model.range(key.clone()..).next().map(|(k, _)| k)),
                3 => (
                    cursor.seek_back(key),
                    place = model.range(..=key.clone()).next_back().map(|(k, _)| k),
                ),
                4 => (
                    cursor.next(),
                    place = place.and_then(|here| model.keys().find(|key| *key > here)),
                ),
                _ => (
                    cursor.prev(),
                    place = place.and_then(|here| model.keys().rfind(|key| *key < here)),
                ),
            };
            prop_assert_eq!(cursor.valid(), place.is_some());
            if let Some(place) = place {
                prop_assert_eq!(cursor.key(), place);
                let (Reverse(newest), expected) = model[place].first_key_value().unwrap();
                prop_assert_eq!(cursor.newest().sequence, *newest);
                prop_assert_eq!(fields(&cursor.version_at(*newest).unwrap()), expected.clone());
            }
        }
    }
}

#[test]
fn empty_tree_has_no_entries() {
    let tree = Arc::new(BLinkTree::new());
    assert!(tree.get(b"", u64::MAX).is_none());
    assert_eq!((tree.keys(), tree.versions(), tree.iter().count()), (0, 0, 0));
    let mut cursor = tree.cursor();
    cursor.seek_to_last();
    assert!(!cursor.valid());
    cursor.seek(b"");
    assert!(!cursor.valid());
    cursor.next();
    cursor.prev();
    assert!(!cursor.valid());
}

#[test]
fn keys_are_sorted_after_any_load_order() {
    const KEYS: u64 = many(5000);
    let orders: [fn(u64) -> u64; 4] = [
        |i| i,
        |i| KEYS - i,
        |i| if i % 2 == 0 { i } else { 2 * KEYS - i },
        |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15),
    ];
    for order in orders {
        let tree = BLinkTree::new();
        (0..KEYS).for_each(|i| tree.insert(&order(i).to_be_bytes(), new(i, b"")));
        let keys: Vec<_> = tree.iter().map(|entry| entry.key()).collect();
        assert_eq!(keys.len() as u64, KEYS);
        assert!(keys.is_sorted());
    }
}

#[test]
fn keys_with_common_prefixes_are_found() {
    const KEYS: u64 = if cfg!(miri) { 101 } else { 1009 };
    // Longer than a prefix, longer than a node can skip, and one key a prefix of the other.
    let longest = if cfg!(miri) { 9 } else { 70_000 };
    for prefix in [0, 7, 8, 9, 500, 65_530, 65_536, 70_000].into_iter().filter(|&at| at <= longest)
    {
        let tree = BLinkTree::new();
        let key = |i: u64| [&vec![b'p'; prefix], &i.to_string().into_bytes()[..]].concat();
        let order = |i: u64| i * 7919 % KEYS;
        for i in 0..KEYS {
            tree.insert(&key(order(i)), new(i, &order(i).to_be_bytes()));
        }
        tree.insert(&key(0)[..prefix], new(2000, b"least"));
        for i in 0..KEYS {
            assert_eq!(tree.get(&key(i), 9999).unwrap().value, i.to_be_bytes(), "{prefix} {i}");
            assert!(tree.get(&key(i + 2000), 9999).is_none());
        }
        assert!(tree.iter().is_sorted_by(|left, right| left.key() < right.key()));
        assert_eq!(tree.keys() as u64, KEYS + 1);
        assert_eq!(tree.iter().next().unwrap().newest().value, b"least");
        assert_eq!(tree.last_entry().unwrap().key(), (0..KEYS).map(key).max().unwrap());
    }
}

#[test]
#[cfg_attr(miri, ignore = "too slow under Miri")]
fn key_takes_at_most_documented_memory() {
    const KEYS: u64 = 100_000;
    let random = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let orders: [fn(u64) -> u64; 2] = [|i| i, |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)];
    for (order, most) in orders.into_iter().zip([38, 46]) {
        let tree = BLinkTree::new();
        for i in 0..KEYS {
            let key = [order(i).to_be_bytes(), random(i).to_be_bytes()].concat();
            tree.insert(&key, new(i, &[0; 96]));
        }
        let about = (tree.memory_bytes() as u64).div_ceil(KEYS) - (16 + 40 + 96);
        assert!(about <= most, "{about}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "too slow under Miri")]
fn value_larger_than_chunk_round_trips() {
    let tree = BLinkTree::new();
    let value: Vec<u8> = (0..40_000_000u32).map(|i| (i * 31) as u8).collect();
    tree.insert(b"large", new(1, &value));
    tree.insert(b"small", new(2, b"x"));
    assert!(tree.get(b"large", 1).unwrap().value == value);
    assert_eq!(tree.get(b"small", 2).unwrap().value, b"x");
    assert!(tree.memory_bytes() >= value.len());
}

#[test]
#[ignore = "takes more than a GiB of memory"]
fn value_of_half_gibibyte_round_trips() {
    let value = vec![0xa5; 512 << 20];
    let tree = BLinkTree::new();
    tree.insert(b"key", new(1, &value));
    assert!(tree.get(b"key", 1).unwrap().value == value);
}

#[test]
fn cursor_outlives_tree_handle_and_sees_later_inserts() {
    let tree = Arc::new(BLinkTree::new());
    tree.insert(b"b", new(1, b"first"));
    let mut cursor = tree.cursor();
    cursor.seek_to_first();
    tree.insert(b"b", new(2, b"second"));
    tree.insert(b"c", new(3, b""));
    tree.insert(b"a", new(4, b""));
    assert_eq!((cursor.newest().value, cursor.updates()), (b"second".as_slice(), 2));
    drop(tree);
    let seen = thread::spawn(move || {
        cursor.next();
        let next = cursor.key().to_vec();
        cursor.prev();
        cursor.prev();
        (cursor.key().to_vec(), next)
    });
    assert_eq!(seen.join().unwrap(), (b"a".to_vec(), b"c".to_vec()));
}

#[test]
fn cursor_continues_after_leaf_splits() {
    const KEYS: u64 = if cfg!(miri) { 150 } else { 3000 };
    for prefix in [0, 3, 8, 11] {
        let tree = Arc::new(BLinkTree::new());
        let key = |i: u64| [&vec![b'p'; prefix][..], format!("{i:06}").as_bytes()].concat();
        let mut keys: Vec<_> = (0..KEYS).map(|i| key(i * 7919 % KEYS)).collect();
        let (first, others) = keys.split_at(50);
        first.iter().for_each(|key| tree.insert(key, new(1, b"")));
        let at = |key: &Vec<u8>| {
            let mut cursor = tree.cursor();
            cursor.seek(key);
            cursor
        };
        let mut cursors: Vec<_> = first.iter().map(|key| (key.clone(), at(key), at(key))).collect();
        others.iter().for_each(|key| tree.insert(key, new(1, b"")));
        keys.sort_unstable();
        for (here, forward, backward) in &mut cursors {
            let place = keys.binary_search(here).unwrap();
            forward.next();
            assert_eq!(
                forward.entry().map(|entry| entry.key()),
                keys.get(place + 1).map(Vec::as_slice)
            );
            backward.prev();
            let before = place.checked_sub(1).map(|before| &keys[before][..]);
            assert_eq!(backward.entry().map(|entry| entry.key()), before);
        }
    }
}

#[test]
fn racing_writers_lose_no_version() {
    const WRITERS: u64 = 4;
    const ROUNDS: u64 = many(20_000);
    const KEYS: u64 = many(700);
    let tree = BLinkTree::new();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let tree = &tree;
            // All writers insert the same keys at the same time, with interleaved sequence numbers.
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let key = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) % KEYS;
                    let sequence = round * WRITERS + writer;
                    tree.insert(&key.to_be_bytes(), new(sequence, &sequence.to_be_bytes()));
                }
            });
        }
    });
    assert_eq!(tree.keys(), KEYS as usize);
    assert_eq!(tree.versions(), (WRITERS * ROUNDS) as usize);
    assert!(tree.iter().is_sorted_by(|left, right| left.key() < right.key()));
    let mut sequences: Vec<u64> = Vec::new();
    for entry in tree.iter() {
        let versions: Vec<_> = entry.versions().collect();
        assert_eq!(versions.len(), entry.updates() as usize);
        assert!(versions.is_sorted_by(|newer, older| newer.sequence > older.sequence));
        assert!(versions.iter().all(|version| version.value == version.sequence.to_be_bytes()));
        sequences.extend(versions.iter().map(|version| version.sequence));
    }
    sequences.sort_unstable();
    assert!(sequences.into_iter().eq(0..WRITERS * ROUNDS));
}

#[test]
fn concurrent_readers_see_complete_sorted_entries() {
    let tree = Arc::new(BLinkTree::new());
    let done = AtomicBool::new(false);
    let expected = |sequence: u64| vec![sequence as u8; (sequence % 300) as usize];
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let tree = &tree;
                scope.spawn(move || {
                    for round in 1..many(30_000) {
                        let sequence = round * 2 + writer;
                        let key = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
                        tree.insert(&key.to_be_bytes(), new(sequence, &expected(sequence)));
                        // Every thread sees its own writes.
                        let seen = tree.get(&key.to_be_bytes(), sequence).unwrap();
                        assert_eq!(seen.sequence, sequence);
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                let mut passes = 0;
                while !done.load(Ordering::Relaxed) || passes == 0 {
                    let (mut cursor, mut last, mut count) = (tree.cursor(), None, 0);
                    let at_least = tree.keys();
                    cursor.seek_to_first();
                    while let Some(entry) = cursor.entry() {
                        assert!(last.as_deref() < Some(entry.key()));
                        let newest = entry.newest();
                        assert_eq!(newest.value, expected(newest.sequence));
                        assert_eq!(newest.position, newest.sequence * 10);
                        last = Some(entry.key().to_vec());
                        count += 1;
                        cursor.next();
                    }
                    assert!(count >= at_least, "{count} of {at_least} keys seen");
                    passes += 1;
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
}
