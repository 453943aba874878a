//! Entropy-coded tries: ranks, size, and rejection of invalid bytes.

use proptest::prelude::*;
use siltstone_structures::ect::{Ect, EctBuilder, EctError, EctOptions, HashKey};
use siltstone_structures::hash::hash64_seeded;

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

fn build(hashes: &[HashKey], options: EctOptions, expected: u64) -> Result<Ect, EctError> {
    let mut builder = EctBuilder::new(options, expected)?;
    hashes.iter().try_for_each(|hash| builder.push(hash))?;
    builder.finish()
}

fn bits_a_key(hashes: &[HashKey], options: EctOptions) -> f64 {
    let ect = build(hashes, options, hashes.len() as u64);
    ect.map_or(f64::NAN, |ect| ect.size() as f64 * 8.0 / hashes.len() as f64)
}

#[test]
fn lookup_works_at_2_52_bits_per_key() {
    let hashes = hashes(300_000, 1);
    let ect = build(&hashes, EctOptions::default(), 300_000).unwrap();
    assert!((0..).zip(&hashes).all(|(rank, hash)| ect.lookup(hash) == rank));
    let bits = ect.size() as f64 * 8.0 / 300_000.0;
    assert!(bits <= 2.52, "{bits}");
    assert_eq!((ect.len(), ect.buckets(), ect.entries_per_block()), (300_000, 1_172, 1));
}

#[test]
fn sparse_index_takes_less_than_one_bit_per_key() {
    let hashes = hashes(300_000, 2);
    let mut last = f64::INFINITY;
    for entries_per_block in [4, 8, 16, 31, 1_000] {
        let options = EctOptions { entries_per_block, ..EctOptions::default() };
        let ect = build(&hashes, options, 300_000).unwrap();
        let block = u64::from(entries_per_block);
        assert!((0..).zip(&hashes).all(|(rank, hash)| ect.lookup(hash) == rank / block));
        let bits = bits_a_key(&hashes, options);
        assert!(bits < last && (block < 8 || bits < 0.85), "{block} entries a block: {bits}");
        last = bits;
    }
}

#[test]
fn options_trade_bits_as_in_thesis_figures() {
    let hashes = hashes(100_000, 3);
    let bits = |keys_per_bucket, hmax| {
        bits_a_key(&hashes, EctOptions { keys_per_bucket, hmax, entries_per_block: 1 })
    };
    let by_g: Vec<f64> = [16, 64, 256, 1_024].iter().map(|&g| bits(g, 64)).collect();
    assert!(by_g.is_sorted_by(|more, less| more > less), "{by_g:?}");
    let by_hmax: Vec<f64> = [1, 4, 16, 64].iter().map(|&hmax| bits(256, hmax)).collect();
    assert!(by_hmax.is_sorted_by(|more, less| more > less), "{by_hmax:?}");
}

#[test]
fn extreme_options_give_correct_ranks() {
    let hashes = hashes(70_000, 4);
    for keys_per_bucket in [1, 7, 1 << 16] {
        for hmax in [0, 64] {
            for entries_per_block in [1, 3, 1 << 24] {
                let options = EctOptions { keys_per_bucket, hmax, entries_per_block };
                let ect = build(&hashes, options, 70_000).unwrap();
                for rank in (0..70_000).step_by(97) {
                    let block = rank / u64::from(entries_per_block);
                    assert_eq!(ect.lookup(&hashes[rank as usize]), block, "{options:?}");
                }
            }
        }
    }
}

#[test]
fn fewer_keys_are_accepted_and_far_more_are_rejected() {
    let hashes = hashes(50_000, 5);
    for expected in [40_000, 100_000, 10_000_000] {
        let ect = build(&hashes, EctOptions::default(), expected).unwrap();
        assert!((0..).zip(&hashes).all(|(rank, hash)| ect.lookup(hash) == rank));
    }
    let crowded = build(&hashes, EctOptions::default(), 10_000);
    assert!(matches!(crowded, Err(EctError::Crowded { .. })), "{crowded:?}");
}

#[test]
fn invalid_options_and_unsorted_hashes_are_rejected() {
    let default = EctOptions::default();
    for options in [
        EctOptions { keys_per_bucket: 0, ..default },
        EctOptions { keys_per_bucket: (1 << 16) + 1, ..default },
        EctOptions { hmax: 65, ..default },
        EctOptions { entries_per_block: 0, ..default },
        EctOptions { entries_per_block: (1 << 24) + 1, ..default },
    ] {
        assert!(matches!(EctBuilder::new(options, 1), Err(EctError::Option { .. })));
    }
    assert!(matches!(EctBuilder::new(default, u64::MAX), Err(EctError::Option { .. })));
    let mut builder = EctBuilder::new(default, 10).unwrap();
    builder.push(&[5; 20]).unwrap();
    assert_eq!(builder.push(&[5; 20]), Err(EctError::Order { at: 1 }));
    assert_eq!(builder.push(&[4; 20]), Err(EctError::Order { at: 1 }));
    builder.push(&[6; 20]).unwrap();
    assert_eq!(builder.finish().unwrap().lookup(&[6; 20]), 1);
}

#[test]
fn empty_trie_round_trips() {
    for expected in [0, 1_000] {
        let ect = build(&[], EctOptions::default(), expected).unwrap();
        assert_eq!((ect.lookup(&[7; 20]), ect.len(), ect.is_empty()), (0, 0, true));
        let bytes = ect.to_bytes();
        assert_eq!(Ect::from_bytes(&bytes).unwrap().to_bytes(), bytes);
    }
}

#[test]
fn bits_after_last_trie_are_rejected() {
    let hashes = hashes(100, 7);
    let mut bytes = build(&hashes, EctOptions::default(), 100).unwrap().to_bytes();
    let bits = u64::from_le_bytes(*bytes[24..].first_chunk().unwrap());
    assert!(bits % 8 != 0, "another number of hashes leaves bits to fill up");
    *bytes.last_mut().unwrap() |= 1;
    assert_eq!(Ect::from_bytes(&bytes).unwrap_err(), EctError::Trie { bucket: 0 });
}

#[test]
fn flipped_bit_is_rejected_or_valid_trie() {
    let hashes = hashes(700, 6);
    let bytes = build(&hashes, EctOptions::default(), 700).unwrap().to_bytes();
    let mut refused = 0;
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        match Ect::from_bytes(&flipped) {
            Ok(ect) => {
                assert_eq!(ect.to_bytes(), flipped);
                assert!(hashes.iter().all(|hash| ect.lookup(hash) < ect.len()));
                // hmax, the size of the only group, and the block may differ; no other field.
                assert!([5, 6, 8, 9, 10, 11].contains(&(bit / 8)) || bit / 8 >= 32, "bit {bit}");
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > bytes.len() * 4, "{refused} of {}", bytes.len() * 8);
}

/// Hashes, many of which share long prefixes.
fn uneven() -> impl Strategy<Value = Vec<HashKey>> {
    let hash = (any::<HashKey>(), 0usize..20).prop_map(|(mut hash, shared)| {
        hash[..shared].fill(0x5a);
        hash
    });
    prop::collection::btree_set(hash, 0..400).prop_map(|hashes| hashes.into_iter().collect())
}

fn options() -> impl Strategy<Value = EctOptions> {
    (1u32..300, 0u32..=64, prop_oneof![Just(1u32), 1u32..30]).prop_map(
        |(keys_per_bucket, hmax, entries_per_block)| EctOptions {
            keys_per_bucket,
            hmax,
            entries_per_block,
        },
    )
}

proptest! {
    #[test]
    fn every_key_is_found_before_and_after_storing(
        hashes in uneven(),
        options in options(),
        expected in 0u64..1_000,
        other in any::<HashKey>(),
    ) {
        let ect = build(&hashes, options, expected).unwrap();
        let bytes = ect.to_bytes();
        prop_assert_eq!(bytes.len(), ect.size());
        let read = Ect::from_bytes(&bytes).unwrap();
        for (rank, hash) in (0..).zip(&hashes) {
            let block = rank / u64::from(options.entries_per_block);
            prop_assert_eq!(ect.lookup(hash), block);
            prop_assert_eq!(read.lookup(hash), block);
        }
        prop_assert!(read.lookup(&other) <= ect.len() / u64::from(options.entries_per_block));
        prop_assert_eq!(read.to_bytes(), bytes);
    }

    #[test]
    fn changed_or_truncated_bytes_are_rejected_or_valid(
        hashes in uneven(),
        options in options(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop_oneof![3 => Just(0usize), 1 => 0usize..100],
        other in any::<HashKey>(),
    ) {
        let mut bytes = build(&hashes, options, 100).unwrap().to_bytes();
        for (at, by) in changes {
            let at = at.index(bytes.len());
            bytes[at] ^= by;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        if let Ok(read) = Ect::from_bytes(&bytes) {
            prop_assert!(read.lookup(&other) <= read.len());
            prop_assert_eq!(read.to_bytes(), bytes);
        }
    }

    #[test]
    fn arbitrary_bytes_are_rejected(
        header in prop_oneof![Just(&b"sECT\x01\x40\x06\0"[..]), Just(&b""[..])],
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0)], 0..200),
    ) {
        let bytes = [header, &bytes].concat();
        if let Ok(read) = Ect::from_bytes(&bytes) {
            prop_assert_eq!(read.to_bytes(), bytes);
        }
    }
}
