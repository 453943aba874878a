//! Rank indexes: every key has the position at which its entry was written.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use siltstone_structures::ect::{Ect, EctOptions};
use siltstone_structures::hash::hash64_seeded;
use siltstone_structures::rank::{HashKey, RankIndex, RankIndexBuilder};
use siltstone_structures::recsplit::{RecSplit, RecSplitBuilder, RecSplitError, RecSplitOptions};

/// Distinct uniform hashes, in order.
fn hashes(count: u64, seed: u64) -> Vec<HashKey> {
    let word = |key: u64, part: u64| hash64_seeded(&key.to_le_bytes(), seed * 3 + part);
    let mut hashes: Vec<HashKey> = (0..count)
        .map(|key| {
            let mut hash = [0; 20];
            hash[..8].copy_from_slice(&word(key, 0).to_be_bytes());
            hash[8..16].copy_from_slice(&word(key, 1).to_be_bytes());
            hash[16..].copy_from_slice(&word(key, 2).to_be_bytes()[..4]);
            hash
        })
        .collect();
    hashes.sort_unstable();
    hashes
}

/// Builds an index and writes the hashes as entries, in the index's order.
fn write<I: RankIndex>(
    hashes: &[HashKey],
    options: &I::Options,
    expected: u64,
) -> Result<(I, Vec<HashKey>), I::Error> {
    let mut builder = I::builder(options, expected)?;
    let (mut waiting, mut written) = (Vec::new(), Vec::new());
    let follow = |order: &[u32], waiting: &mut Vec<HashKey>, written: &mut Vec<HashKey>| {
        written.extend(order.iter().map(|&at| waiting[at as usize]));
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        assert!((0..order.len() as u32).eq(sorted), "an order is not of all the oldest entries");
        waiting.drain(..order.len());
    };
    for hash in hashes {
        waiting.push(*hash);
        follow(builder.push(hash)?, &mut waiting, &mut written);
    }
    let (index, order) = builder.finish()?;
    follow(&order, &mut waiting, &mut written);
    assert!(waiting.is_empty(), "{} entries were never written", waiting.len());
    Ok((index, written))
}

fn is_every_key_where_it_was_written<I: RankIndex>(index: &I, written: &[HashKey]) -> bool {
    (0..).zip(written).all(|(position, hash)| index.lookup(hash) == position)
}

/// Builds, looks up, stores and decodes.
fn check_index<I: RankIndex>(hashes: &[HashKey], options: &I::Options, expected: u64) -> I {
    let (index, written) = write::<I>(hashes, options, expected).unwrap();
    assert!(is_every_key_where_it_was_written(&index, &written));
    assert_eq!(index.len(), hashes.len() as u64);
    let bytes = index.to_bytes();
    assert_eq!(bytes.len(), index.size());
    let read = I::from_bytes(&bytes).unwrap();
    assert!(is_every_key_where_it_was_written(&read, &written));
    assert_eq!(read.to_bytes(), bytes);
    index
}

#[test]
fn both_indexes_are_correct_and_recsplit_is_smaller() {
    let hashes = hashes(100_000, 1);
    let ect = check_index::<Ect>(&hashes, &EctOptions::default(), 100_000);
    let split = check_index::<RecSplit>(&hashes, &RecSplitOptions::default(), 100_000);
    let bits = |size: usize| size as f64 * 8.0 / 100_000.0;
    assert!(bits(split.size()) <= 1.65, "{}", bits(split.size()));
    assert!(bits(ect.size()) > 2.4);
}

#[test]
fn extreme_options_give_correct_positions() {
    let hashes = hashes(5_000, 2);
    for keys_per_bucket in [1, 2, 7, 64, 1_000, 4_096] {
        for leaf in [2, 3, 5, 7] {
            let options = RecSplitOptions { keys_per_bucket, leaf };
            let split = check_index::<RecSplit>(&hashes, &options, 5_000);
            assert_eq!(split.options(), options);
        }
    }
}

#[test]
fn fewer_or_slightly_more_keys_are_accepted_and_far_more_are_rejected() {
    let hashes = hashes(20_000, 3);
    for expected in [14_000, 20_000, 40_000, 1_000_000] {
        check_index::<RecSplit>(&hashes, &RecSplitOptions::default(), expected);
    }
    let crowded = write::<RecSplit>(&hashes, &RecSplitOptions::default(), 2_000);
    assert!(matches!(crowded, Err(RecSplitError::Crowded { .. })));
}

#[test]
fn invalid_options_and_unsorted_or_equal_hashes_are_rejected() {
    let default = RecSplitOptions::default();
    for options in [
        RecSplitOptions { keys_per_bucket: 0, ..default },
        RecSplitOptions { keys_per_bucket: 4_097, ..default },
        RecSplitOptions { leaf: 1, ..default },
        RecSplitOptions { leaf: 9, ..default },
    ] {
        assert!(matches!(RecSplitBuilder::new(options, 1), Err(RecSplitError::Option { .. })));
    }
    assert!(matches!(RecSplitBuilder::new(default, u64::MAX), Err(RecSplitError::Option { .. })));
    let mut builder = RecSplitBuilder::new(default, 10).unwrap();
    builder.push(&[5; 20]).unwrap();
    assert_eq!(builder.push(&[5; 20]), Err(RecSplitError::Order { at: 1 }));
    assert_eq!(builder.push(&[4; 20]), Err(RecSplitError::Order { at: 1 }));
    builder.push(&[6; 20]).unwrap();
    assert_eq!(builder.finish().unwrap().0.len(), 2);
}

#[test]
fn empty_index_round_trips() {
    for expected in [0, 1_000] {
        let split = check_index::<RecSplit>(&[], &RecSplitOptions::default(), expected);
        assert_eq!((split.lookup(&[7; 20]), split.is_empty()), (0, true));
    }
}

#[test]
fn flipped_bit_is_rejected_or_valid_index() {
    let hashes = hashes(700, 4);
    let bytes = check_index::<RecSplit>(&hashes, &RecSplitOptions::default(), 700).to_bytes();
    let mut refused = 0;
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        match RecSplit::from_bytes(&flipped) {
            Ok(split) => {
                assert_eq!(split.to_bytes(), flipped);
                assert!(hashes.iter().all(|hash| split.lookup(hash) < split.len()));
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 32 * 8, "{refused} of {}", bytes.len() * 8);
}

/// Hashes, many of which share long prefixes.
fn uneven() -> impl Strategy<Value = Vec<HashKey>> {
    let hash = (any::<HashKey>(), 0usize..20).prop_map(|(mut hash, shared)| {
        hash[..shared].fill(0x5a);
        hash
    });
    prop::collection::btree_set(hash, 0..400).prop_map(|hashes| hashes.into_iter().collect())
}

fn options() -> impl Strategy<Value = RecSplitOptions> {
    (prop_oneof![1u32..300, 1u32..=4_096], 2u32..=5)
        .prop_map(|(keys_per_bucket, leaf)| RecSplitOptions { keys_per_bucket, leaf })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_key_is_found_before_and_after_storing(
        hashes in uneven(),
        options in options(),
        expected in 0u64..1_000,
        other in any::<HashKey>(),
    ) {
        let split = check_index::<RecSplit>(&hashes, &options, expected);
        prop_assert!(split.lookup(&other) < split.len().max(1));
        check_index::<Ect>(&hashes, &EctOptions::default(), expected);
    }

    #[test]
    fn changed_or_truncated_bytes_are_rejected_or_valid(
        hashes in uneven(),
        options in options(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop_oneof![3 => Just(0usize), 1 => 0usize..100],
        other in any::<HashKey>(),
    ) {
        let (split, _) = write::<RecSplit>(&hashes, &options, 100).unwrap();
        let mut bytes = split.to_bytes();
        for (at, by) in changes {
            let at = at.index(bytes.len());
            bytes[at] ^= by;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        if let Ok(read) = RecSplit::from_bytes(&bytes) {
            prop_assert!(read.lookup(&other) < read.len().max(1));
            prop_assert_eq!(read.to_bytes(), bytes);
        }
    }

    #[test]
    fn arbitrary_bytes_are_rejected(
        header in prop_oneof![Just(&b"sRSP\x01\x04\0\0\0\x01\0\0"[..]), Just(&b""[..])],
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0)], 0..200),
    ) {
        let bytes = [header, &bytes].concat();
        if let Ok(read) = RecSplit::from_bytes(&bytes) {
            prop_assert_eq!(read.to_bytes(), bytes);
        }
    }
}
