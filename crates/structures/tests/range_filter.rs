//! Range filters: no false negatives, and few false positives.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use siltstone_structures::hash::hash64;
use siltstone_structures::{RangeFilter, RangeFilterBuilder};

fn stored<'a>(keys: impl IntoIterator<Item = &'a Vec<u8>>) -> Option<Vec<u8>> {
    let mut builder = RangeFilterBuilder::default();
    keys.into_iter().for_each(|key| builder.add(key));
    builder.finish()
}

fn filter<'a>(keys: impl IntoIterator<Item = &'a Vec<u8>>) -> RangeFilter {
    RangeFilter::from_bytes(&stored(keys).unwrap()).unwrap()
}

/// Realistic keys: few letters, so that they share prefixes, and different lengths.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let letter = prop_oneof![Just(0u8), Just(1), Just(b'5'), Just(b'6'), Just(255), any::<u8>()];
    prop::collection::vec(letter, 1..30)
}

/// A number in a key: decimal or binary, with a prefix and a suffix.
fn numbered(number: u64, is_decimal: bool) -> Vec<u8> {
    let digits = if is_decimal {
        format!("{number:012}").into_bytes()
    } else {
        number.to_be_bytes().to_vec()
    };
    [b"table/users/", &digits[..], b"/name"].concat()
}

proptest! {
    #[test]
    fn range_with_key_always_passes(
        keys in prop::collection::btree_set(key(), 1..60),
        prefix in prop::collection::vec(any::<u8>(), 0..40),
        ends in prop::collection::vec((key(), key(), any::<bool>()), 20),
    ) {
        let whole = |key: &Vec<u8>| [prefix.clone(), key.clone()].concat();
        let keys: BTreeSet<_> = keys.iter().map(whole).collect();
        let filter = filter(&keys);
        for key in &keys {
            prop_assert!(filter.may_contain_range(key, key));
        }
        for (a, b, is_behind_prefix) in ends {
            let (a, b) = if is_behind_prefix { (whole(&a), whole(&b)) } else { (a, b) };
            let (from, to) = if a <= b { (a, b) } else { (b, a) };
            if keys.range(from.clone()..=to.clone()).next().is_some() {
                prop_assert!(filter.may_contain_range(&from, &to), "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), a in key(), b in key()) {
        if let Ok(filter) = RangeFilter::from_bytes(&bytes) {
            filter.may_contain_range(&a, &b);
        }
    }

    #[test]
    fn damaged_bytes_do_not_panic(
        keys in prop::collection::btree_set(key(), 1..60), at: prop::sample::Index, flip in 1u8.., a in key(), b in key(),
    ) {
        let mut bytes = stored(&keys).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(filter) = RangeFilter::from_bytes(&bytes) {
            filter.may_contain_range(&a, &b);
            for key in &keys {
                filter.may_contain_range(key, key);
            }
        }
    }
}

#[test]
fn filter_is_exact_for_dense_numbers() {
    // Every third number exists, in an order unknown to the code.
    let is_there = |number: u64| hash64(&number.to_be_bytes()).is_multiple_of(3);
    let keys: Vec<_> =
        (1000..21_000).filter(|&n| is_there(n)).map(|n| numbered(n, false)).collect();
    let filter = filter(&keys);
    for from in 900..21_100 {
        for len in [0, 1, 5] {
            let truth = (from..=from + len).any(|n| (1000..21_000).contains(&n) && is_there(n));
            let passed =
                filter.may_contain_range(&numbered(from, false), &numbered(from + len, false));
            assert_eq!(passed, truth, "{from} and {len} more");
        }
    }
}

#[test]
fn few_empty_ranges_pass() {
    for is_decimal in [false, true] {
        let mut numbers: Vec<u64> =
            (0..50_000u64).map(|i| hash64(&i.to_be_bytes()) % (1 << 36)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let keys: Vec<_> = numbers.iter().map(|&n| numbered(n, is_decimal)).collect();
        let filter = filter(&keys);
        // From a number between two neighbours to one slightly higher, still between them.
        let (mut asked, mut passed) = (0, 0);
        for pair in numbers.windows(2) {
            let gap = pair[1] - pair[0];
            let (from, to) = (pair[0] + gap / 3, pair[0] + gap / 3 + gap / 100);
            if gap > 1000 {
                asked += 1;
                passed += usize::from(
                    filter
                        .may_contain_range(&numbered(from, is_decimal), &numbered(to, is_decimal)),
                );
            }
        }
        assert!(asked > 40_000, "{asked} ranges");
        // A hundred gaps of 256 steps on average: the bounds of a range share a step with a
        // neighbour in one of 128 cases, and more often in short gaps.
        assert!(passed * 40 < asked, "{passed} of {asked}, decimal: {is_decimal}");
    }
}

#[test]
fn filter_takes_at_most_11_bits_per_key() {
    let keys: Vec<_> =
        (0..100_000u64).map(|i| hash64(&i.to_be_bytes()).to_be_bytes().to_vec()).collect();
    let keys: BTreeSet<_> = keys.into_iter().collect();
    let bytes = stored(&keys).unwrap();
    let bits = 8.0 * bytes.len() as f64 / keys.len() as f64;
    assert!(bits < 10.1, "{bits} bits per key stored");
    let bits = 8.0 * filter(&keys).memory_bytes() as f64 / keys.len() as f64;
    assert!(bits < 11.1, "{bits} bits per key in memory");
    assert!(stored([]).is_none());
    assert!(!filter(&keys).may_contain_range(&[2], &[1]));
}
