//! The tree of n keys: the split of each set, and the width of its seed.
//!
//! ```text
//!  n ≤ leaf    placed by one seed                 n^n / n! trials on average
//!  n > leaf    left = ⌊⌈n / leaf⌉ / 2⌋ leaves  1 / (C(n, left) p^left (1-p)^(n-left)),  p = left/n
//!
//!  width = log₂(trials) + slack, slack = 0.1 for a leaf, 0.2 else       in 1/65536 of a bit
//!
//!  bucket of n keys and j buckets, r keys before   begins at ⌊per_key · r⌋ + 4 j
//! ```
//!
//! All leaves but the last of a bucket are full, so that few sizes occur. A node has a whole number
//! of bits: those between two rounded-down positions, on average its width.
//!
//! Slack is a trade against building time. There is more of it above the leaves, because larger
//! sets cost more to retry when a node below them fails, and are fewer.
//!
//! The tables are computed in integers, because they are part of the format.
//!
//! Invariant: a bucket of any size up to the limit has all the bits of its tree, and the root some
//! more than its width.
//!
//! Source: the papers named in [`super`]; the widths were determined by experiment (`--bench
//! rank`).

use super::{RecSplitError, RecSplitOptions};

/// Fractional bits of widths and positions.
const FRACTION_BITS: u32 = 16;
const ONE: u64 = 1 << FRACTION_BITS;
/// Slack of a leaf, in 1/65536 of a bit.
const LEAF_SLACK: u64 = ONE / 10;
/// Slack of a set that is split.
const SPLIT_SLACK: u64 = ONE / 5;
/// Bits of a bucket in addition to those per key.
const EXTRA_BITS_PER_BUCKET: u64 = 4;
/// Extra bits of the root of a bucket of at least half the average size: with s bits more there are
/// 2^s roots to start from on average, and a share of them leads to a solution.
const ROOT_SLACK: u64 = 9;
/// A bucket may have four times the average number of keys, and always at least this many.
const MIN_MAX_KEYS: u32 = 1_024;
/// Fractional bits of logarithms.
const LOG_FRACTION: u32 = 32;

/// A set of some number of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Keys of the left part; 0 for a leaf.
    pub(super) left: u32,
    /// Bits of the seed.
    width: u32,
    /// Bits of the seed and of all below.
    total: u32,
}

/// The sizes of all possible sets, and the positions of buckets in the bits.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) options: RecSplitOptions,
    sizes: Vec<Size>,
    /// Bits per key of a bucket.
    per_key: u64,
}

/// The end of a node's number in the bits, in 1/65536 of a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End(u64);

impl End {
    /// The bit after the last.
    #[inline]
    pub(super) fn bit(self) -> u64 {
        self.0 >> FRACTION_BITS
    }
}

impl Shape {
    /// The tables for the options; takes 50 microseconds by default, and 12 KiB.
    ///
    /// # Errors
    ///
    /// If an option is out of range.
    pub(super) fn new(options: RecSplitOptions) -> Result<Self, RecSplitError> {
        let RecSplitOptions { keys_per_bucket, leaf } = options;
        for (what, value, range) in [
            ("keys a bucket of", keys_per_bucket, 1..=super::MAX_KEYS_PER_BUCKET),
            ("a leaf of", leaf, 2..=super::MAX_LEAF),
        ] {
            if !range.contains(&value) {
                return Err(RecSplitError::Option { what, value: value.into() });
            }
        }
        let limit = (4 * keys_per_bucket).max(MIN_MAX_KEYS);
        let mut sizes = sizes(limit, leaf);
        sizes.shrink_to_fit();
        let half = (keys_per_bucket / 2).max(1);
        let per_key = (half..=limit).map(|n| {
            let bits =
                u64::from(sizes[n as usize].total) + (ROOT_SLACK - EXTRA_BITS_PER_BUCKET) * ONE;
            bits.div_ceil(n.into())
        });
        let per_key = per_key.max().unwrap_or(0);
        Ok(Self { options, sizes, per_key })
    }

    /// Maximum number of keys of a bucket.
    pub(super) fn limit(&self) -> u32 {
        self.sizes.len() as u32 - 1
    }

    /// A set of n keys, up to the limit.
    #[inline]
    pub(super) fn size(&self, n: u32) -> Size {
        self.sizes[n as usize]
    }

    /// The first bit of a bucket, with fewer than 2^44 keys before it.
    #[inline]
    pub(super) fn start(&self, bucket: u32, rank: u64) -> u64 {
        ((self.per_key * rank) >> FRACTION_BITS) + EXTRA_BITS_PER_BUCKET * u64::from(bucket)
    }

    /// The end of the root's number in a bucket of n keys that ends at a bit.
    #[inline]
    pub(super) fn root(&self, n: u32, bucket_end: u64) -> End {
        let Size { width, total, .. } = self.size(n);
        End((bucket_end << FRACTION_BITS).saturating_sub(u64::from(total - width)))
    }

    /// The end of the number of a node's left child, of n keys.
    #[inline]
    pub(super) fn left_end(&self, parent: End, n: u32) -> End {
        End(parent.0 + u64::from(self.size(n).width))
    }

    /// The end of the number of a node's right child, of n keys, beside `left` keys.
    #[inline]
    pub(super) fn right_end(&self, parent: End, left: u32, n: u32) -> End {
        End(parent.0 + u64::from(self.size(left).total) + u64::from(self.size(n).width))
    }
}

/// The sizes of sets up to a limit.
fn sizes(limit: u32, leaf: u32) -> Vec<Size> {
    let logs: Vec<u64> = (0..=u64::from(limit)).map(log2).collect();
    let factorials: Vec<u64> = logs
        .iter()
        .scan(0, |sum, log| {
            *sum += log;
            Some(*sum)
        })
        .collect();
    let mut sizes = vec![Size::default(); 2];
    for n in 2..=limit {
        let of = |n: u32| (u64::from(n) * logs[n as usize]) - factorials[n as usize];
        let left = if n <= leaf { 0 } else { n.div_ceil(leaf) / 2 * leaf };
        // log₂(n^n / n!) bits distinguish all keys: a node takes what its parts do not.
        let trials = if left == 0 { of(n) } else { of(n) - of(left) - of(n - left) };
        let slack = if left == 0 { LEAF_SLACK } else { SPLIT_SLACK };
        // A node has less than 20 bits, and all nodes together less than 2 for each of 2^14 keys.
        let width = ((trials >> (LOG_FRACTION - FRACTION_BITS)) + slack) as u32;
        let below = if left == 0 {
            0
        } else {
            sizes[left as usize].total + sizes[(n - left) as usize].total
        };
        sizes.push(Size { left, width, total: width + below });
    }
    sizes
}

/// The binary logarithm, in 2^-32; 0 for 0.
fn log2(x: u64) -> u64 {
    if x == 0 {
        return 0;
    }
    let whole = x.ilog2();
    // The number over its power of two, from 1 to 2, as 2^-63: squaring yields a bit per step.
    let mut mantissa = x << (63 - whole);
    let mut log = u64::from(whole);
    for _ in 0..LOG_FRACTION {
        let square = u128::from(mantissa) * u128::from(mantissa);
        let is_two = square >> 127 == 1;
        log = (log << 1) | u64::from(is_two);
        mantissa = (square >> if is_two { 64 } else { 63 }) as u64;
    }
    log
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn integer_logarithms_match_floats() {
        assert_eq!((log2(0), log2(1), log2(1_024)), (0, 0, 10 << 32));
        for x in [3u64, 7, 1_000, 16_383] {
            let error = log2(x) as f64 / 2f64.powi(32) - (x as f64).log2();
            assert!((-1e-9..=1e-12).contains(&error), "{x}: {error}");
        }
    }

    #[test]
    fn every_bucket_has_bits_for_its_tree_and_root_slack() {
        for keys_per_bucket in [1, 2, 7, 64, 256, 1_000, 4_096] {
            for leaf in 2..=8 {
                let shape = Shape::new(RecSplitOptions { keys_per_bucket, leaf }).unwrap();
                for n in 2..=shape.limit() {
                    let (start, end) =
                        (shape.start(5, 1_000), shape.start(6, 1_000 + u64::from(n)));
                    let bits = shape.root(n, end).bit().saturating_sub(start);
                    let width = u64::from(shape.size(n).width) / ONE;
                    let spare = if n >= keys_per_bucket / 2 { 7 } else { 1 };
                    assert!(bits >= width + spare, "{n} of {keys_per_bucket}, {leaf}: {bits}");
                }
            }
        }
    }

    #[test]
    fn sizes_are_unchanged() {
        // Pinned: a failure here means that stored indexes can no longer be read.
        let shape = Shape::new(RecSplitOptions::default()).unwrap();
        assert_eq!(shape.limit(), 1_024);
        assert_eq!((shape.size(11).left, shape.size(256).left), (5, 130));
        let sum = shape.sizes.iter().map(|size| u64::from(size.width)).sum::<u64>();
        assert_eq!((sum, shape.per_key), (323_042_037, 98_546));
    }
}
