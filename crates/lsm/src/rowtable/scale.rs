//! Where a fragment stands among others: the arithmetic of interpolation.
//!
//! ```text
//!   digits seen at place 1   0 1 2 … 9      "37…" is 3.7 tenths of the way, though as a number in
//!   digits seen at place 2   0 1 2 … 9      base 256 it is hardly past the keys with a 3
//! ```
//!
//! Keys are seldom uniform as numbers: decimal digits use ten of the 256 values of a byte, and all
//! gaps between keys are wide or narrow by that. So each of a fragment's bytes counts by its rank
//! among the values seen at its place in keys of the row: a number whose digits have as many values
//! as the place has. The directory's keys, one in 64, are sample enough.
//!
//! Invariant: a greater fragment has no smaller value. Whoever guesses by it guesses wrong at worst.
//!
//! Source: interpolation search (Peterson, 1957; Yao and Yao, 1976: log log n probes for uniform
//! keys); the mixed radix is ours.

use super::element::FRAGMENT;

/// The values of bytes seen at each place of fragments. 320 bytes.
#[derive(Debug, Clone)]
pub(super) struct Scale {
    /// By place: the set of values, as bits.
    seen: [[u64; 4]; FRAGMENT],
    /// By place: what one step of rank is worth.
    weights: [f64; FRAGMENT],
}

impl Scale {
    /// A scale for fragments like these.
    pub(super) fn of(fragments: impl Iterator<Item = u64>) -> Self {
        let mut seen = [[0u64; 4]; FRAGMENT];
        for fragment in fragments {
            for (values, byte) in seen.iter_mut().zip(fragment.to_be_bytes()) {
                values[usize::from(byte / 64)] |= 1 << (byte % 64);
            }
        }
        let mut weight = 1.0;
        let weights = seen.map(|values| {
            let count: u32 = values.iter().map(|word| word.count_ones()).sum();
            weight /= f64::from(count.max(1));
            weight
        });
        Scale { seen, weights }
    }

    /// From 0 to 1, how far along the scale a fragment stands.
    pub(super) fn value(&self, fragment: u64) -> f64 {
        let mut value = 0.0;
        for ((values, weight), byte) in
            self.seen.iter().zip(self.weights).zip(fragment.to_be_bytes())
        {
            let (word, bit) = (usize::from(byte / 64), byte % 64);
            let below = values[..word].iter().map(|word| word.count_ones()).sum::<u32>()
                + (values[word] & ((1 << bit) - 1)).count_ones();
            value += f64::from(below) * weight;
            if values[word] >> bit & 1 == 0 {
                // Between two values that were seen: what follows says no more.
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
    fn are_digits_worth_what_they_say() {
        let scale = Scale::of((0..1000).map(|i| digits(i * 61_803_399 % 100_000_000)));
        for n in [0, 1, 12_345_678, 49_999_999, 50_000_000, 99_999_999] {
            let value = scale.value(digits(n));
            assert!((value - n as f64 / 1e8).abs() < 1e-6, "{value} for {n}");
        }
    }

    proptest! {
        #[test]
        fn is_no_greater_fragment_of_less_value(
            sample in prop::collection::vec(any::<u64>(), 0..40),
            a in any::<u64>(),
            b in any::<u64>(),
            shift in 0..64u32,
        ) {
            let scale = Scale::of(sample.iter().copied());
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
