//! Block separators: map a hash to its block in a bucket, without a rank.
//!
//! ```text
//!  cells of the bucket, one a key     │ 0 │ 1 │ 2 │ 3 │ 4 │ 5 │ 6 │ 7 │ 8 │ 9 │ …
//!  keys, 4 per block                      a   ab  b       b   c c  cd      d
//!                                           ▲     └───┘          ▲
//!                                         inside    between    inside
//!
//!  separator   the distance of its cell from the last one's, and whether it is
//!                between   before the cell: some cell border lies between the blocks
//!                inside    in the cell: the bits of the position in it, up to the first where the
//!                          keys on both sides differ; in unary how many, then all but the last
//! ```
//!
//! A trie pruned at blocks would still count, at each node, all keys on the left, where only block
//! borders matter: 1.13 bits per key at 8 entries per block. A separator may be anywhere in the gap
//! between two keys, which saves one of its 5.6 bits: 0.70 bits per key.
//!
//! The distance after B keys is about B cells, since keys are a Poisson process of rate 1. Of the
//! cell borders between two blocks, the one nearest to B cells from the last separator is taken.
//! Then
//!
//! ```text
//!  P(t, between) = P(N(t) = B) · { 1 - 1/e              t < B   the next key is in the cell t
//!                                { 1                    t = B
//!                                { 1 - (1 - 1/t)^B      t > B   the last is in the cell t - 1
//!  P(t, inside)  = ∫ P(N(x) = B) dx over the cell - P(N(t) = B) · (1 - 1/e)
//! ```
//!
//! and the Huffman code is built from these. Distances beyond its symbols start with an escape.
//!
//! Invariant: separators do not decrease. The first hash of a block is at or above its separator,
//! the last of the previous block is below it.
//!
//! Source: Lim, thesis, section 3.1.6, for sparse indexing; separators instead of a trie are an
//! addition.

use super::cursor::{Cursor, REFILLED};
use super::huffman::{Huffman, TABLE_BITS};
use super::key::{PATH_BITS, Path};
use super::trie::MalformedTrie;
use crate::bits::BitWriter;

/// Maximum number of distances with symbols: two symbols each, plus the escape, make 255.
const MAX_DISTANCES: u32 = 127;

/// The encoding of separators for a block size.
#[derive(Clone, Debug)]
pub(super) struct Separators {
    /// Entries in a block.
    block: u32,
    /// The low bits of a distance, which follow its symbol unencoded.
    low_bits: u32,
    /// Distances with symbols, without their low bits.
    distances: u32,
    /// Symbols: twice the distance, plus one for a separator inside its cell; then the escape.
    code: Huffman,
    /// The code's table: symbol and length.
    table: Vec<(u8, u8)>,
}

impl Separators {
    /// Separators of blocks of at least 1 entry; computing the code takes about 50 microseconds.
    pub(super) fn new(block: u32) -> Self {
        // Beyond six deviations: about one in ten thousand blocks is escaped.
        let most = u64::from(block) + 6 * u64::from(block).isqrt() + 8;
        let low_bits = (most / u64::from(MAX_DISTANCES)).checked_ilog2().map_or(0, |bits| bits + 1);
        let distances = (most >> low_bits) as u32 + 1;
        let code = Huffman::new(&weights(block, low_bits, distances));
        let table = code.table();
        Self { block, low_bits, distances, code, table }
    }

    /// Entries in a block.
    pub(super) fn block(&self) -> u32 {
        self.block
    }

    /// Appends the separators of a bucket's sorted, distinct paths, the first at index `place` of
    /// its block.
    pub(super) fn encode(&self, paths: &[Path], place: u32, writer: &mut BitWriter) {
        let cells = paths.len() as u64;
        // As if the block had started `place` cells before the bucket.
        let mut last = -i64::from(place);
        let mut first = (self.block - place) as usize;
        while first < paths.len() {
            let (below, left) = paths[first - 1].scale(cells);
            let (above, right) = paths[first].scale(cells);
            if below < above {
                let wanted = last.saturating_add(self.block.into());
                let cell = wanted.clamp(below as i64 + 1, above as i64);
                self.write_distance((cell - last) as u64, false, writer);
                last = cell;
            } else {
                self.write_distance((below as i64 - last) as u64, true, writer);
                // Different paths differ in the cell or in the rest.
                let same = (0..PATH_BITS).take_while(|&i| left.bit(i) == right.bit(i)).count();
                writer.write_unary(same as u64);
                (0..same as u32).for_each(|i| writer.write(left.bit(i).into(), 1));
                last = below as i64;
            }
            first += self.block as usize;
        }
    }

    fn write_distance(&self, mut distance: u64, is_inside: bool, writer: &mut BitWriter) {
        while distance >> self.low_bits >= self.distances.into() {
            self.code.write(2 * self.distances as usize, writer);
            distance -= u64::from(self.distances) << self.low_bits;
        }
        let symbol = 2 * (distance >> self.low_bits) + u64::from(is_inside);
        self.code.write(symbol as usize, writer);
        writer.write(distance & ((1 << self.low_bits) - 1), self.low_bits);
    }

    /// The number of separators at or below a path, in a bucket of n keys that ends before a
    /// position; the bits were checked before.
    #[inline]
    pub(super) fn count(
        &self,
        path: &Path,
        n: u32,
        place: u32,
        end: u64,
        cursor: &mut Cursor<'_>,
    ) -> Result<u32, MalformedTrie> {
        let (cell, rest) = path.scale(n.into());
        let mut at = -i64::from(place);
        for count in 0..self.separators(n, place) {
            let is_inside = self.read_distance(&mut at, n, end, cursor)?;
            if at > cell as i64 {
                return Ok(count);
            }
            if is_inside {
                let same = read_same(end, cursor)?;
                let is_above = if at < cell as i64 {
                    skip_bits(same, cursor);
                    true
                } else {
                    is_at_or_above(&rest, same, cursor)
                };
                if !is_above {
                    return Ok(count);
                }
            }
        }
        Ok(self.separators(n, place))
    }

    /// Validates and skips the separators of n keys, which end before a position.
    pub(super) fn skip(
        &self,
        n: u32,
        place: u32,
        end: u64,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), MalformedTrie> {
        let mut at = -i64::from(place);
        for _ in 0..self.separators(n, place) {
            if self.read_distance(&mut at, n, end, cursor)? {
                let same = read_same(end, cursor)?;
                skip_bits(same, cursor);
            }
            if cursor.is_past(end) {
                return Err(MalformedTrie);
            }
        }
        Ok(())
    }

    /// Number of blocks that start after the first of n keys.
    #[inline]
    fn separators(&self, n: u32, place: u32) -> u32 {
        if n == 0 {
            return 0;
        }
        ((u64::from(place) + u64::from(n) - 1) / u64::from(self.block)) as u32
    }

    /// Moves to the next separator's cell, of n; returns whether the separator is inside it.
    #[inline]
    fn read_distance(
        &self,
        at: &mut i64,
        n: u32,
        end: u64,
        cursor: &mut Cursor<'_>,
    ) -> Result<bool, MalformedTrie> {
        let escape = 2 * self.distances;
        loop {
            cursor.ensure(TABLE_BITS);
            let symbol = match self.table.get(cursor.peek(TABLE_BITS) as usize) {
                Some(&(symbol, length @ 1..)) => {
                    cursor.consume(length.into());
                    symbol.into()
                }
                _ => self.code.read(cursor),
            };
            let mut cells = u64::from(symbol / 2) << self.low_bits;
            if symbol < escape && self.low_bits > 0 {
                cursor.ensure(self.low_bits);
                cells |= cursor.peek(self.low_bits);
                cursor.consume(self.low_bits);
            }
            *at += cells as i64;
            if *at >= n.into() || cursor.is_past(end) {
                return Err(MalformedTrie);
            }
            if symbol < escape {
                // Before the first cell there is nothing to separate.
                let is_inside = symbol % 2 == 1;
                let is_possible = *at >= i64::from(!is_inside);
                return is_possible.then_some(is_inside).ok_or(MalformedTrie);
            }
        }
    }
}

/// Reads the number of bits that are equal on both sides of a separator inside its cell.
#[inline]
fn read_same(end: u64, cursor: &mut Cursor<'_>) -> Result<u32, MalformedTrie> {
    let mut same = 0;
    loop {
        cursor.refill();
        let zeros = cursor.zeros();
        if zeros < REFILLED {
            cursor.consume(zeros + 1);
            same += zeros;
            // The last bit differs.
            return if same < PATH_BITS && !cursor.is_past(end) {
                Ok(same)
            } else {
                Err(MalformedTrie)
            };
        }
        cursor.consume(REFILLED);
        same += REFILLED;
        if same >= PATH_BITS {
            return Err(MalformedTrie);
        }
    }
}

fn skip_bits(mut count: u32, cursor: &mut Cursor<'_>) {
    while count > 0 {
        let some = count.min(REFILLED);
        cursor.ensure(some);
        cursor.consume(some);
        count -= some;
    }
}

/// Whether the position in a cell is at or above the next bits with a one appended.
fn is_at_or_above(rest: &Path, same: u32, cursor: &mut Cursor<'_>) -> bool {
    for depth in 0..same {
        cursor.ensure(1);
        let bit = cursor.peek(1) == 1;
        cursor.consume(1);
        if rest.bit(depth) != bit {
            // Later bits are not read: a lookup that continues needs them, one that ends does not.
            skip_bits(same - depth - 1, cursor);
            return rest.bit(depth);
        }
    }
    rest.bit(same)
}

/// The weights of all symbols. They are part of the format: computed by operations with the same
/// result on every machine, so without the library's exponential.
fn weights(block: u32, low_bits: u32, distances: u32) -> Vec<u128> {
    let inverse_e = exp(-1.0);
    let b = f64::from(block);
    let middle = ((1u64 << low_bits) - 1) as f64 / 2.0;
    let mut weights = Vec::with_capacity(2 * distances as usize + 1);
    for symbol in 0..distances {
        let t = (u64::from(symbol) << low_bits) as f64 + middle;
        let here = poisson(t, block);
        let between = if t < b {
            here * (1.0 - inverse_e)
        } else if t > b {
            here * (1.0 - power(1.0 - 1.0 / t, block))
        } else {
            here
        };
        // The integral by Simpson's rule.
        let mass = (here + 4.0 * poisson(t + 0.5, block) + poisson(t + 1.0, block)) / 6.0;
        let inside = mass - here * (1.0 - inverse_e);
        for share in [between, inside] {
            // Every distance must have a word; a factor of 2^32 keeps the words within a peek.
            weights.push(((share * 2f64.powi(32)) as u128).max(1));
        }
    }
    weights.push(1 << 16);
    weights
}

/// The probability of b keys in t cells, relative to b keys in b cells.
fn poisson(t: f64, b: u32) -> f64 {
    let share = t / f64::from(b);
    power(share * exp(1.0 - share), b)
}

/// The exponential of x ≤ 1, accurate to 10⁻⁶, by multiplications and additions.
fn exp(x: f64) -> f64 {
    if x < -700.0 {
        return 0.0;
    }
    let part = x / 1_024.0;
    let mut sum = 1.0 + part * (1.0 + part / 2.0 * (1.0 + part / 3.0 * (1.0 + part / 4.0)));
    (0..10).for_each(|_| sum *= sum);
    sum
}

/// A power by squaring.
fn power(mut base: f64, mut exponent: u32) -> f64 {
    let mut product = 1.0;
    while exponent > 0 {
        if exponent % 2 == 1 {
            product *= base;
        }
        base *= base;
        exponent /= 2;
    }
    product
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ect::key::place;
    use crate::ect::key::tests::paths;
    use proptest::prelude::*;

    #[test]
    fn weights_are_those_of_a_poisson_process() {
        for block in [1, 2, 8, 30] {
            let separators = Separators::new(block);
            assert_eq!(separators.low_bits, 0);
            let weights = weights(block, 0, separators.distances);
            let sum = weights.iter().sum::<u128>() as f64;
            let mean = weights
                .chunks(2)
                .zip(0..)
                .map(|(pair, distance)| {
                    pair.iter().sum::<u128>() as f64 / sum * f64::from(distance)
                })
                .sum::<f64>();
            assert!((mean - f64::from(block)).abs() < 0.5, "{block}: {mean}");
            // Between two keys: 1 - 1/e of all gaps have a border, slightly fewer by Simpson's
            // rule.
            let between = weights.iter().step_by(2).sum::<u128>() as f64 / sum;
            assert!((between - 0.632).abs() < 0.06, "{block}: {between}");
        }
    }

    #[test]
    fn separator_weights_are_unchanged() {
        // Pinned: a failure here means that stored indexes can no longer be read.
        let checksum = |block| {
            let separators = Separators::new(block);
            let weights = weights(block, separators.low_bits, separators.distances);
            weights
                .iter()
                .fold(0u64, |sum, &weight| sum.wrapping_mul(31).wrapping_add(weight as u64))
        };
        assert_eq!(
            [8, 16, 100, 1 << 24].map(checksum),
            [
                13_021_625_267_619_962_550,
                12_946_133_876_556_887_910,
                7_745_764_592_371_234_109,
                11_814_167_722_371_251_168,
            ]
        );
    }

    proptest! {
        #[test]
        fn path_counts_blocks_that_start_before_it(
            paths in paths(),
            block in prop_oneof![1u32..20, 1u32..200, Just(1 << 24)],
            before in 0u32..200,
        ) {
            let separators = Separators::new(block);
            let at = before % block;
            let mut writer = BitWriter::new();
            separators.encode(&paths, at, &mut writer);
            let end = writer.len();
            let bytes = writer.finish();
            let cursor = Cursor::new(&bytes, 0);
            let n = paths.len() as u32;
            for (rank, path) in (0..).zip(&paths) {
                let count = separators.count(path, n, at, end, &mut cursor.clone());
                prop_assert_eq!(count, Ok((at + rank) / block));
            }
            let mut skipped = cursor.clone();
            prop_assert_eq!(separators.skip(n, at, end, &mut skipped), Ok(()));
            prop_assert_eq!(skipped.position(), end);
        }

        #[test]
        fn skipping_arbitrary_bits_terminates(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(255)], 0..100),
            hash in any::<[u8; 20]>(),
            n in prop_oneof![0u32..300, any::<u32>()],
            block in prop_oneof![1u32..20, 1u32..=1 << 24],
            before in any::<u32>(),
        ) {
            let separators = Separators::new(block);
            let (at, end) = (before % block, bytes.len() as u64 * 8);
            let skipped = separators.skip(n, at, end, &mut Cursor::new(&bytes, 0));
            let path = place(&hash, 1).1;
            let count = separators.count(&path, n, at, end, &mut Cursor::new(&bytes, 0));
            if skipped.is_ok() {
                prop_assert!(count.is_ok());
            }
            prop_assert!(count.unwrap_or(0) <= n / block + 1);
        }
    }
}
