//! Canonical Huffman codes over a few dozen symbols: built from exact weights, decoded by a table.
//!
//! ```text
//!  symbols by length, then value     code words: numbers that count up, shifted left where longer
//!    length 2:  5 6                    00 01
//!    length 3:  4 7                    100 101
//!    length 4:  3 8                    1100 1101 …
//!
//!  the next 8 bits ─▶ table ─▶ symbol and length       if the word has at most 8 bits
//!        │
//!        └─▶ search by length: the words of a length all lie below a limit, as numbers
//! ```
//!
//! Invariant: the code is prefix-free and complete, so that every bit string decodes to a symbol.
//!
//! Source: Huffman, "A method for the construction of minimum-redundancy codes", Proc. IRE 1952;
//! Moffat and Turpin, "On the implementation of minimum redundancy prefix codes", IEEE Trans. Comm.
//! 1997, for the canonical decoder.

use super::cursor::{Cursor, REFILLED};
use crate::bits::BitWriter;

/// Bits of the first-level table. Less than 1 % of the words of binomial codes up to 64 exceed
/// them, and all tables together have 32 KiB.
pub(super) const TABLE_BITS: u32 = 8;

/// A code word: its bits, right-aligned, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Word {
    bits: u64,
    length: u32,
}

/// The words of one length, for the search.
#[derive(Clone, Copy, Debug)]
struct Length {
    length: u32,
    /// The word after the last of this length, left-aligned in the bits of a refilled cursor.
    limit: u64,
    /// The first word.
    first: u64,
    /// The index of the first word's symbol among the symbols by length.
    place: usize,
}

/// A code over the symbols 0, 1, 2, …
#[derive(Clone, Debug)]
pub(super) struct Huffman {
    words: Vec<Word>,
    /// The symbols by length, then value.
    symbols: Vec<u8>,
    lengths: Vec<Length>,
}

impl Huffman {
    /// A deterministic optimal code for the weights of the symbols.
    ///
    /// # Panics
    ///
    /// If there are fewer than 2 or more than 256 symbols, or a word would exceed what a cursor
    /// peeks, which takes weights that grow as fast as Fibonacci's numbers for 57 symbols.
    pub(super) fn new(weights: &[u128]) -> Self {
        assert!((2..=256).contains(&weights.len()), "{} symbols", weights.len());
        let lengths = lengths(weights);
        let mut symbols: Vec<u8> = (0..weights.len()).map(|symbol| symbol as u8).collect();
        symbols.sort_by_key(|&symbol| (lengths[usize::from(symbol)], symbol));
        let mut code =
            Self { words: vec![Word::default(); weights.len()], symbols, lengths: Vec::new() };
        let mut next = Word::default();
        for (place, &symbol) in code.symbols.iter().enumerate() {
            let length = lengths[usize::from(symbol)];
            assert!(length <= REFILLED, "a code word of {length} bits");
            let word = Word { bits: next.bits << (length - next.length), length };
            next = Word { bits: word.bits + 1, length };
            code.words[usize::from(symbol)] = word;
            if code.lengths.last().is_none_or(|last| last.length < length) {
                code.lengths.push(Length { length, limit: 0, first: word.bits, place });
            }
            if let Some(last) = code.lengths.last_mut() {
                last.limit = next.bits << (REFILLED - length);
            }
        }
        code
    }

    /// Appends the word of a symbol.
    pub(super) fn write(&self, symbol: usize, writer: &mut BitWriter) {
        let word = self.words[symbol];
        writer.write(word.bits, word.length);
    }

    /// The first-level table: symbol and length of the word at the start of the next [`TABLE_BITS`]
    /// bits; length 0 if it is longer.
    pub(super) fn table(&self) -> Vec<(u8, u8)> {
        let mut table = vec![(0, 0); 1 << TABLE_BITS];
        for (word, symbol) in self.words.iter().zip(0..) {
            if word.length <= TABLE_BITS {
                let free = TABLE_BITS - word.length;
                let start = (word.bits << free) as usize;
                table[start..start + (1 << free)].fill((symbol, word.length as u8));
            }
        }
        table
    }

    /// Reads a word by search, without the table; returns its symbol.
    #[cold]
    pub(super) fn read(&self, cursor: &mut Cursor<'_>) -> u32 {
        cursor.refill();
        let window = cursor.peek(REFILLED);
        let after = self.lengths.partition_point(|of| of.limit <= window);
        // The code is complete: the limit of the longest words is above any window.
        let of = self.lengths[after.min(self.lengths.len() - 1)];
        let place = of.place as u64 + (window >> (REFILLED - of.length)) - of.first;
        cursor.consume(of.length);
        self.symbols[place as usize].into()
    }
}

/// The lengths of the words of an optimal code.
fn lengths(weights: &[u128]) -> Vec<u32> {
    // The two lightest trees are merged until one is left; a merge lengthens all its words by one.
    let mut trees: Vec<(u128, Vec<usize>)> =
        weights.iter().enumerate().map(|(symbol, &weight)| (weight, vec![symbol])).collect();
    let mut lengths = vec![0; weights.len()];
    // Heaviest first, and on a tie the lowest symbol, so that results are the same everywhere: they
    // are part of the format.
    let order = |tree: &(u128, Vec<usize>)| (std::cmp::Reverse(tree.0), tree.1[0]);
    trees.sort_by_key(order);
    while let (Some(mut light), Some(heavy)) = (trees.pop(), trees.pop()) {
        light.1.extend(heavy.1);
        light.1.sort_unstable();
        light.1.iter().for_each(|&symbol| lengths[symbol] += 1);
        light.0 += heavy.0;
        if trees.is_empty() {
            break;
        }
        let place = trees.partition_point(|tree| order(tree) < order(&light));
        trees.insert(place, light);
    }
    lengths
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn weights() -> impl Strategy<Value = Vec<u128>> {
        let weight = (0u32..50, 1u128..1000).prop_map(|(shift, weight)| weight << shift);
        prop::collection::vec(weight, 2..50)
    }

    #[test]
    fn code_lengths_match_textbook() {
        assert_eq!(lengths(&[45, 13, 12, 16, 9, 5]), [1, 3, 3, 3, 4, 4]);
        assert_eq!(lengths(&[1, 1]), [1, 1]);
        assert_eq!(lengths(&[1, 1, 1, 1]), [2, 2, 2, 2]);
    }

    proptest! {
        #[test]
        fn symbols_round_trip(
            weights in weights(),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 0..100),
        ) {
            let code = Huffman::new(&weights);
            let picks: Vec<usize> = picks.iter().map(|pick| pick.index(weights.len())).collect();
            let mut writer = BitWriter::new();
            picks.iter().for_each(|&symbol| code.write(symbol, &mut writer));
            let bits = writer.len();
            let bytes = writer.finish();
            let table = code.table();
            let mut cursor = Cursor::new(&bytes, 0);
            for symbol in picks {
                cursor.ensure(TABLE_BITS);
                let (by_table, length) = table[cursor.peek(TABLE_BITS) as usize];
                let before = cursor.position();
                prop_assert_eq!(code.read(&mut cursor), symbol as u32);
                let read = cursor.position() - before;
                if length > 0 {
                    prop_assert_eq!((usize::from(by_table), u64::from(length)), (symbol, read));
                } else {
                    prop_assert!(read > TABLE_BITS.into());
                }
            }
            prop_assert_eq!(cursor.position(), bits);
        }

        #[test]
        fn every_bit_string_decodes(
            weights in weights(),
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(255)], 0..40),
        ) {
            let code = Huffman::new(&weights);
            let mut cursor = Cursor::new(&bytes, 0);
            while !cursor.is_past(bytes.len() as u64 * 8) {
                let position = cursor.position();
                let symbol = code.read(&mut cursor);
                prop_assert!((symbol as usize) < weights.len() && cursor.position() > position);
            }
        }

        #[test]
        fn mean_code_length_is_within_one_bit_of_entropy(weights in weights()) {
            let lengths = lengths(&weights);
            let kraft: f64 = lengths.iter().map(|&length| 0.5f64.powi(length as i32)).sum();
            prop_assert!((kraft - 1.0).abs() < 1e-9);
            let total = weights.iter().sum::<u128>() as f64;
            let shares = weights.iter().map(|&weight| weight as f64 / total);
            let entropy: f64 = shares.clone().map(|p| -p * p.log2()).sum();
            let mean: f64 = shares.zip(&lengths).map(|(p, &length)| p * f64::from(length)).sum();
            prop_assert!(entropy <= mean + 1e-9 && mean < entropy + 1.0);
        }
    }
}
