//! Entropy coding of the nodes of a trie: the number of keys in the left subtrie of a node, given
//! the number of keys n below the node.
//!
//! ```text
//!  n ≤ hmax   Huffman code of the binomial of n, 0 and n being one symbol:
//!             n = 4:  C(4,0) + C(4,4) = 2,  C(4,1) = 4,  C(4,2) = 6,  C(4,3) = 4
//!  n > hmax   left - n/2, folded 0 -1 1 -2 … ─▶ 0 1 2 3 …, exponential Golomb, order log₂ √n - 1
//!
//!  whole subtries of up to 8 keys: the next 12 bits ─▶ how many of them the subtrie takes
//! ```
//!
//! A lookup mostly skips the subtries on the left of its path, and most of these are small. For a
//! small subtrie, a table indexed by the next 12 bits has its length, so one table access replaces
//! about ten code words.
//!
//! Lim's thesis (see the parent module) codes large numbers in Elias gamma, which is exponential
//! Golomb of order 0; an order near the deviation of the binomial saves one or two bits per number,
//! and is what the authors' code does.
//!
//! Invariant: a decoded number is less than n, and encoding it gives the bits that were read.
//!
//! Source: Lim, thesis, sections 2.2.3 and 3.1.4; the tables of whole subtries are an addition.

use super::cursor::Cursor;
use super::huffman::{Huffman, TABLE_BITS};
use super::trie::{MalformedTrie, Tries};
use crate::bits::BitWriter;
use std::sync::OnceLock;

/// Maximum `hmax`: up to it the binomial coefficients and the code words fit in 64 bits.
pub const MAX_HMAX: u32 = 64;
/// Maximum size of subtries skipped by table.
pub(super) const MAX_SMALL: u32 = 8;
/// Bits that index the tables of small subtries: 4 KiB per size, 28 KiB in total.
pub(super) const SMALL_BITS: u32 = 12;

/// The codes for one `hmax`, shared by all its tries.
#[derive(Debug)]
pub(super) struct Coder {
    /// The code for n keys, at n - 2.
    codes: Vec<Huffman>,
    /// The concatenated first-level tables, so that one load decodes a number.
    tables: Vec<(u8, u8)>,
    /// Concatenated from n = 2: the bits that a trie of n keys takes, indexed by its first 12 bits;
    /// 0 if it takes more.
    small: Vec<u8>,
}

impl Coder {
    /// The codes for `hmax`, built at the first use in about a millisecond.
    ///
    /// # Panics
    ///
    /// If `hmax` exceeds [`MAX_HMAX`].
    pub(super) fn shared(hmax: u32) -> &'static Self {
        static CODERS: [OnceLock<Coder>; MAX_HMAX as usize + 1] =
            [const { OnceLock::new() }; MAX_HMAX as usize + 1];
        CODERS[hmax as usize].get_or_init(|| Self::new(hmax))
    }

    fn new(hmax: u32) -> Self {
        let codes: Vec<_> = (2..=hmax).map(|n| Huffman::new(&weights(n))).collect();
        let tables = codes.iter().flat_map(Huffman::table).collect();
        let mut coder = Self { codes, tables, small: Vec::new() };
        coder.small = (2..=MAX_SMALL).flat_map(|n| small(&coder, n)).collect();
        coder
    }

    /// Appends the number of keys on the left, of n; `left = n` as `left = 0`.
    pub(super) fn write(&self, n: u32, left: u32, writer: &mut BitWriter) {
        let left = if left == n { 0 } else { left };
        match self.codes.get(n as usize - 2) {
            Some(code) => code.write(left as usize, writer),
            None => {
                let difference = i64::from(left) - i64::from(n / 2);
                let folded = (difference << 1) ^ (difference >> 63);
                writer.write_exp_golomb(folded as u64, order(n));
            }
        }
    }

    /// Reads the number of keys on the left, of n ≥ 2. 0 means that all n keys are on one side.
    ///
    /// Past the end it reads zeros, as the cursor does.
    #[inline]
    pub(super) fn read(&self, n: u32, cursor: &mut Cursor<'_>) -> Result<u32, MalformedTrie> {
        cursor.ensure(TABLE_BITS);
        let at = (n as usize - 2) << TABLE_BITS | cursor.peek(TABLE_BITS) as usize;
        match self.tables.get(at) {
            Some(&(left, length @ 1..)) => {
                cursor.consume(length.into());
                Ok(left.into())
            }
            Some(_) => Ok(self.codes[n as usize - 2].read(cursor)),
            None => read_large(n, cursor),
        }
    }

    /// Skips a trie of n ≥ 2 keys if a table has it; returns whether it did.
    #[inline]
    pub(super) fn skip_small(&self, n: u32, cursor: &mut Cursor<'_>) -> bool {
        cursor.ensure(SMALL_BITS);
        let at = (n as usize - 2) << SMALL_BITS | cursor.peek(SMALL_BITS) as usize;
        let bits = self.small.get(at).copied().unwrap_or(0);
        cursor.consume(bits.into());
        bits > 0
    }
}

/// Reads a number without a Huffman code.
fn read_large(n: u32, cursor: &mut Cursor<'_>) -> Result<u32, MalformedTrie> {
    cursor.refill();
    let zeros = cursor.zeros();
    // A folded difference has at most 33 bits.
    if zeros > 33 {
        return Err(MalformedTrie);
    }
    cursor.consume(zeros);
    cursor.refill();
    let bits = zeros + 1 + order(n);
    let folded = cursor.peek(bits) - (1 << order(n));
    cursor.consume(bits);
    let difference = (folded >> 1) as i64 ^ -((folded & 1) as i64);
    u32::try_from(i64::from(n / 2) + difference).ok().filter(|&left| left < n).ok_or(MalformedTrie)
}

/// The weight of each number of keys on the left, of 2^n in total; all keys on one side counts as
/// 0.
fn weights(n: u32) -> Vec<u128> {
    let mut coefficient = 1u128;
    let mut weights = vec![2];
    for left in 1..u128::from(n) {
        coefficient = coefficient * (u128::from(n) + 1 - left) / left;
        weights.push(coefficient);
    }
    weights
}

/// The order of exponential Golomb for n keys: a half of the deviation, √n / 2, that folding
/// doubles.
fn order(n: u32) -> u32 {
    (n.ilog2() / 2).saturating_sub(1)
}

/// The table of tries of n keys.
fn small(coder: &Coder, n: u32) -> [u8; 1 << SMALL_BITS] {
    let tries = Tries::new(coder);
    std::array::from_fn(|window| {
        let bytes = ((window as u16) << (u16::BITS - SMALL_BITS)).to_be_bytes();
        let mut cursor = Cursor::new(&bytes, 0);
        // If the window ends within the trie, the trie is longer than the window. The coder has no
        // tables of small tries yet, so the numbers are read one by one.
        tries.skip(n, SMALL_BITS.into(), &mut cursor).map_or(0, |()| cursor.position() as u8)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn weights_are_binomial_coefficients_with_merged_ends() {
        assert_eq!(weights(2), [2, 2]);
        assert_eq!(weights(5), [2, 5, 10, 10, 5]);
        assert_eq!(weights(64)[32], 1_832_624_140_942_590_534);
        for n in 2..=MAX_HMAX {
            assert_eq!(weights(n).iter().sum::<u128>(), 1 << n);
        }
    }

    #[test]
    fn every_number_round_trips() {
        for (hmax, n) in [(64, 2..300), (0, 2..100), (7, 2..20), (64, 65_530..65_533)]
            .into_iter()
            .flat_map(|(hmax, range)| range.map(move |n| (hmax, n)))
        {
            let coder = Coder::shared(hmax);
            let mut writer = BitWriter::new();
            (0..=n).for_each(|left| coder.write(n, left, &mut writer));
            let bits = writer.len();
            let bytes = writer.finish();
            let mut cursor = Cursor::new(&bytes, 0);
            for left in 0..=n {
                assert_eq!(coder.read(n, &mut cursor), Ok(left % n), "hmax {hmax}, n {n}");
            }
            assert_eq!(cursor.position(), bits);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bits_decode_to_valid_numbers(
            hmax in 0u32..=MAX_HMAX,
            n in prop_oneof![2u32..100, 2u32..],
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0)], 0..20),
        ) {
            let coder = Coder::shared(hmax);
            let mut cursor = Cursor::new(&bytes, 0);
            let read = coder.read(n, &mut cursor);
            if let Some(left) = read.ok().filter(|_| !cursor.is_past(bytes.len() as u64 * 8)) {
                prop_assert!(left < n);
                let mut writer = BitWriter::new();
                coder.write(n, left, &mut writer);
                prop_assert_eq!(writer.len(), cursor.position());
                let written = writer.finish();
                let whole = written.len() - 1;
                prop_assert_eq!(&written[..whole], &bytes[..whole]);
            }
        }
    }
}
