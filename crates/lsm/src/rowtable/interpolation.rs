//! Estimates the position of a key among the keys of a row, by interpolation.
//!
//! A *fragment* is the 8 bytes of a key after the prefix that all keys of the row share (see
//! `element`).
//!
//! ```text
//!   digits at byte 1   0 1 2 … 9      "37…" is 37 % of the way, though as a number in
//!   digits at byte 2   0 1 2 … 9      base 256 it is hardly past the keys with a 3
//! ```
//!
//! Keys are seldom uniform as numbers: decimal digits use ten of the 256 values of a byte, so the
//! gaps between keys vary widely. Therefore each byte of a fragment counts by its rank among the
//! values that occur at its offset in keys of the row: a mixed-radix number. The keys in the
//! directory, one in 64, are a sufficient sample.
//!
//! Invariant: the value is monotonic in the fragment. A bad estimate costs time only.
//!
//! Source: interpolation search (Peterson, 1957; Yao and Yao, 1976: log log n probes for uniform
//! keys).

use super::element::FRAGMENT_BYTES;

/// The byte values that occur at each offset of fragments. 320 bytes.
#[derive(Debug, Clone)]
pub(super) struct InterpolationScale {
    /// By offset: the set of values, as bits.
    values_by_offset: [[u64; 4]; FRAGMENT_BYTES],
    /// By offset: the weight of one step of rank.
    weights: [f64; FRAGMENT_BYTES],
}

impl InterpolationScale {
    /// A scale for a sample of fragments.
    pub(super) fn of(fragments: impl Iterator<Item = u64>) -> Self {
        let mut values_by_offset = [[0u64; 4]; FRAGMENT_BYTES];
        for fragment in fragments {
            for (values, byte) in values_by_offset.iter_mut().zip(fragment.to_be_bytes()) {
                values[usize::from(byte / 64)] |= 1 << (byte % 64);
            }
        }
        let mut weight = 1.0;
        let weights = values_by_offset.map(|values| {
            let count: u32 = values.iter().map(|word| word.count_ones()).sum();
            weight /= f64::from(count.max(1));
            weight
        });
        InterpolationScale { values_by_offset, weights }
    }

    /// The position of a fragment on the scale, from 0 to 1.
    pub(super) fn value(&self, fragment: u64) -> f64 {
        let mut value = 0.0;
        for ((values, weight), byte) in
            self.values_by_offset.iter().zip(self.weights).zip(fragment.to_be_bytes())
        {
            let (word, bit) = (usize::from(byte / 64), byte % 64);
            let below = values[..word].iter().map(|word| word.count_ones()).sum::<u32>()
                + (values[word] & ((1 << bit) - 1)).count_ones();
            value += f64::from(below) * weight;
            if values[word] >> bit & 1 == 0 {
                // The value does not occur in the sample: the following bytes add no information.
                break;
            }
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::element::fragment;
    use super::*;

    fn digits(n: u64) -> u64 {
        fragment(format!("{n:08}").as_bytes())
    }

    #[test]
    fn decimal_digits_are_interpolated_by_value() {
        let scale = InterpolationScale::of((0..1000).map(|i| digits(i * 61_803_399 % 100_000_000)));
        for n in [0, 1, 12_345_678, 49_999_999, 50_000_000, 99_999_999] {
            let value = scale.value(digits(n));
            assert!((value - n as f64 / 1e8).abs() < 1e-6, "{value} for {n}");
        }
    }

    proptest! {
        #[test]
        fn interpolation_is_monotonic(
            sample in prop::collection::vec(any::<u64>(), 0..40),
            a in any::<u64>(),
            b in any::<u64>(),
            shift in 0..64u32,
        ) {
            let scale = InterpolationScale::of(sample.iter().copied());
            let known = sample.iter().map(|s| s ^ (b >> shift));
            let mut all: Vec<u64> = sample.iter().copied().chain(known).chain([a, b]).collect();
            all.sort_unstable();
            for pair in all.windows(2) {
                let [less, more] = [pair[0], pair[1]].map(|fragment| scale.value(fragment));
                prop_assert!((0.0..=1.0 + 1e-9).contains(&less) && less <= more + 1e-12);
            }
        }
    }
}
