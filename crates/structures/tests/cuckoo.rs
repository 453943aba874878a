//! Cuckoo table and filter: lookups, load factor, false positives, and rejection of invalid bytes.

use proptest::prelude::*;
use siltstone_structures::cuckoo::{CuckooError, CuckooFilter, CuckooTable};
use siltstone_structures::hash::hash64_seeded;
use std::collections::BTreeMap;

fn hash(key: u32, seed: u64) -> u64 {
    hash64_seeded(&key.to_le_bytes(), seed)
}

/// A table of random keys `0..len`, filled until an insertion fails.
fn full<const TAG: u32>(slots: u32, seed: u64) -> CuckooTable<TAG> {
    let mut table = CuckooTable::with_slots(slots);
    let _ = (0..).try_for_each(|key| table.insert(hash(key, seed), key));
    table
}

fn mean_load(slots: u32, seeds: u64) -> f64 {
    (0..seeds).map(|seed| full::<15>(slots, seed).load()).sum::<f64>() / seeds as f64
}

/// The false-positive rate of a full filter, relative to that expected for the tag width.
fn false_positives_over_expected<const TAG: u32>(slots: u32, queries: u32) -> f64 {
    let table = full::<TAG>(slots, 1);
    let filter = CuckooFilter::from_table(&table);
    let absent = (0..queries).map(|key| hash(key, 2));
    let passed = absent.filter(|&hash| filter.contains(hash)).count();
    let expected = 8.0 / f64::from(1 << TAG) * table.load();
    passed as f64 / f64::from(queries) / expected
}

#[test]
fn full_table_finds_every_key() {
    let mut table = full::<15>(1 << 14, 7);
    let before = table.clone();
    // Any failed insert leaves the table unchanged, not only the first.
    let failed = (1 << 20..(1 << 20) + 100).find(|&key| table.insert(hash(key, 7), key).is_err());
    assert!(failed.is_some());
    for key in 0..before.len() {
        assert!(before.candidates(hash(key, 7)).any(|offset| offset == key));
        assert!(table.candidates(hash(key, 7)).any(|offset| offset == key));
    }
    let refused = hash(before.len(), 7);
    let mut again = before.clone();
    assert!(again.insert(refused, before.len()).is_err());
    assert_eq!(again, before);
}

#[test]
fn mean_load_at_first_failure_is_93_percent() {
    let load = mean_load(1 << 13, 20);
    assert!(load >= 0.93, "{load}");
}

#[test]
#[ignore = "prints a figure for the documentation: `cargo test --release -- --ignored --nocapture`"]
fn mean_load_over_thousand_seeds_is_93_percent() {
    let load = mean_load(1 << 17, 1_000);
    println!("mean load at the first failure, 131072 slots, 1000 seeds: {load:.4}");
    assert!(load >= 0.93, "{load}");
}

#[test]
fn false_positive_rate_matches_tag_width() {
    for ratio in [
        false_positives_over_expected::<8>(1 << 12, 1_000_000),
        false_positives_over_expected::<7>(1 << 12, 1_000_000),
    ] {
        assert!((0.95..1.05).contains(&ratio), "{ratio}");
    }
}

#[test]
#[ignore = "prints a figure for the documentation: `cargo test --release -- --ignored --nocapture`"]
fn false_positive_rate_of_15_bit_tags_is_one_in_4096() {
    let ratio = false_positives_over_expected::<15>(1 << 17, 1 << 27);
    println!("false positives with tags of 15 bits, over 8 / 2^15 of the load: {ratio:.4}");
    assert!((0.95..1.05).contains(&ratio), "{ratio}");
}

#[test]
fn filter_and_table_return_same_slots() {
    let table = full::<15>(1 << 10, 3);
    let filter = CuckooFilter::from_table(&table);
    let offsets: BTreeMap<u32, u32> = table.iter().collect();
    assert_eq!((offsets.len(), filter.len()), (table.len() as usize, table.len()));
    for key in 0..100_000 {
        let slots: Vec<_> = filter.candidates(hash(key, 3)).map(|slot| offsets[&slot]).collect();
        assert_eq!(slots, table.candidates(hash(key, 3)).collect::<Vec<_>>());
        assert!(key >= table.len() || slots.contains(&key));
    }
    assert_eq!(filter.memory(), 1024 * 15 / 8 + 7);
}

#[test]
fn small_tables_fill_almost_completely() {
    for slots in [0, 1, 4] {
        assert_eq!(full::<15>(slots, 0).len(), 4);
    }
    assert!(full::<15>(5, 0).len() >= 6);
}

#[test]
fn entry_is_returned_once_if_both_buckets_are_equal() {
    let mut table = CuckooTable::<15>::with_slots(4);
    table.insert(hash(1, 0), 1).unwrap();
    assert_eq!(table.candidates(hash(1, 0)).collect::<Vec<_>>(), [1]);
    assert_eq!(CuckooFilter::from_table(&table).candidates(hash(1, 0)).count(), 1);
}

#[test]
fn nonzero_padding_is_rejected() {
    let bytes = CuckooFilter::from_table(&full::<15>(4, 0)).to_bytes();
    // 60 bits of tags after the header, then 4 and 7 bytes of zeros.
    assert_eq!(bytes.len(), 12 + 8 + 7);
    for bit in (12 + 8) * 8 - 4..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] |= 1 << (bit % 8);
        assert_eq!(CuckooFilter::<15>::from_bytes(&changed), Err(CuckooError::Padding), "{bit}");
    }
}

#[test]
fn flipped_header_bytes_are_rejected() {
    let table = full::<15>(16, 0);
    let filter = CuckooFilter::from_table(&table);
    for at in 0..12 {
        let mut bytes = table.to_bytes();
        bytes[at] ^= 1;
        assert!(CuckooTable::<15>::from_bytes(&bytes).is_err(), "byte {at}");
        let mut bytes = filter.to_bytes();
        bytes[at] ^= 1;
        assert!(CuckooFilter::<15>::from_bytes(&bytes).is_err(), "byte {at}");
    }
    assert!(CuckooTable::<14>::from_bytes(&table.to_bytes()).is_err());
    assert!(CuckooTable::<15>::from_bytes(&filter.to_bytes()).is_err());
}

/// Arbitrary bytes with a valid beginning, or a stored form with a few bytes changed.
fn stored(magic: &'static [u8; 4], tag: u8) -> impl Strategy<Value = Vec<u8>> {
    let body = prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..200);
    (any::<bool>(), 0u8..6, 0u32..20, body).prop_map(move |(whole, log2, entries, body)| {
        if !whole {
            return body;
        }
        let mut bytes = magic.to_vec();
        bytes.extend([1, tag, log2, 0]);
        bytes.extend(entries.to_le_bytes());
        bytes.extend(body);
        bytes
    })
}

/// The stored form of a table of some keys, and changes to it.
fn changed() -> impl Strategy<Value = (Vec<u32>, Vec<(prop::sample::Index, u8)>)> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (prop::collection::vec(any::<u32>(), 0..20), changes)
}

proptest! {
    #[test]
    fn table_behaves_as_multimap(
        slots in 1u32..64,
        actions in prop::collection::vec((0u8..4, 0u32..40, 0u32..3), 0..300),
    ) {
        let mut table = CuckooTable::<15>::with_slots(slots);
        let mut model: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for (action, key, offset) in actions {
            let hash = hash(key, 0);
            let count = model.get(&(key, offset)).copied().unwrap_or(0);
            match action {
                0 | 1 => if table.insert(hash, offset).is_ok() {
                    *model.entry((key, offset)).or_default() += 1;
                },
                // An absent entry is not changed: another key may have the tag and the offset.
                _ if count == 0 => {}
                2 => {
                    prop_assert!(table.remove(hash, offset));
                    model.insert((key, offset), count - 1);
                }
                _ => {
                    prop_assert!(table.update(hash, offset, offset + 1));
                    model.insert((key, offset), count - 1);
                    *model.entry((key, offset + 1)).or_default() += 1;
                }
            }
            model.retain(|_, count| *count > 0);
            prop_assert_eq!(table.len(), model.values().sum::<u32>());
        }
        let filter = CuckooFilter::from_table(&table);
        for (&(key, offset), &count) in &model {
            let found = table.candidates(hash(key, 0)).filter(|&found| found == offset).count();
            prop_assert!(found >= count as usize);
            prop_assert!(filter.contains(hash(key, 0)));
        }
        let mut all: Vec<u32> = table.iter().map(|(_, offset)| offset).collect();
        all.sort_unstable();
        let mut expected: Vec<u32> =
            model.iter().flat_map(|(&(_, offset), &n)| (0..n).map(move |_| offset)).collect();
        expected.sort_unstable();
        prop_assert_eq!(all, expected);
        prop_assert_eq!(CuckooTable::from_bytes(&table.to_bytes()), Ok(table));
        prop_assert_eq!(CuckooFilter::from_bytes(&filter.to_bytes()), Ok(filter));
    }

    #[test]
    fn arbitrary_bytes_are_rejected_or_valid(
        table in stored(b"sCKT", 15),
        filter in stored(b"sCKF", 7),
        hash in any::<u64>(),
    ) {
        if let Ok(read) = CuckooTable::<15>::from_bytes(&table) {
            prop_assert_eq!(read.to_bytes(), table);
            prop_assert!(read.candidates(hash).count() <= 8);
        }
        if let Ok(read) = CuckooFilter::<7>::from_bytes(&filter) {
            prop_assert_eq!(read.to_bytes(), filter);
            prop_assert!(read.candidates(hash).all(|slot| u64::from(slot) < read.slots()));
        }
    }

    #[test]
    fn changed_bytes_are_rejected_or_valid((keys, changes) in changed()) {
        let mut table = CuckooTable::<13>::with_slots(24);
        let _ = keys.iter().try_for_each(|&key| table.insert(hash(key, 0), key));
        let change = |mut bytes: Vec<u8>| {
            changes.iter().for_each(|(at, by)| {
                let at = at.index(bytes.len());
                bytes[at] ^= by;
            });
            bytes
        };
        let bytes = change(table.to_bytes());
        if let Ok(read) = CuckooTable::<13>::from_bytes(&bytes) {
            prop_assert_eq!(read.to_bytes(), bytes);
        }
        let bytes = change(CuckooFilter::from_table(&table).to_bytes());
        if let Ok(read) = CuckooFilter::<13>::from_bytes(&bytes) {
            prop_assert_eq!(read.to_bytes(), bytes);
        }
    }
}

#[test]
fn table_is_rebuilt_from_entries_in_table_order() {
    let mut table = CuckooTable::<15>::with_slots(256);
    let hash = |i: u32| hash64_seeded(&i.to_le_bytes(), 0);
    (0..240).for_each(|i| table.insert(hash(i), i).unwrap());
    let mut again = CuckooTable::<15>::with_slots(256);
    for (slot, offset) in table.iter() {
        let buckets = CuckooTable::<15>::buckets_of(hash(offset), table.slots()).unwrap();
        assert!(buckets.contains(&(slot / 4)));
        let elsewhere = (0..64).find(|bucket| !buckets.contains(bucket)).unwrap();
        assert!(!again.place(hash(offset), 4 * elsewhere, offset));
        assert!(again.place(hash(offset), slot, offset));
        assert!(!again.place(hash(offset), slot, offset), "the slot is taken");
    }
    assert_eq!(again, table);
    assert_eq!(CuckooTable::<15>::buckets_of(1, 255), None);
}
