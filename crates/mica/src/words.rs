//! Byte strings in atomic words: store, load, compare.
//!
//! A string starts at a word boundary; its last word is padded with zeros.
//!
//! Invariant: no access beyond the given words or the requested length.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::lines;
use crate::mapping::WORD_BYTES;

/// Number of words for this many bytes.
#[inline(always)]
#[expect(
    clippy::manual_div_ceil,
    reason = "no length is near the largest number: half the instructions"
)]
pub(crate) fn words_for(bytes: usize) -> usize {
    (bytes + (WORD_BYTES - 1)) / WORD_BYTES
}

/// The last word, padded with zeros.
#[inline(always)]
fn padded(tail: &[u8]) -> u64 {
    let mut last = [0; WORD_BYTES];
    last[..tail.len()].copy_from_slice(tail);
    u64::from_le_bytes(last)
}

/// Stores bytes. There must be enough words.
#[inline(always)]
pub(crate) fn store(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, tail) = bytes.as_chunks::<WORD_BYTES>();
    let words = &words[..words_for(bytes.len())];
    lines::touch(words);
    for (at, chunk) in whole.iter().enumerate() {
        words[at].store(u64::from_le_bytes(*chunk), Relaxed);
    }
    if !tail.is_empty() {
        words[whole.len()].store(padded(tail), Relaxed);
    }
}

/// Loads bytes to fill the buffer.
#[inline(always)]
pub(crate) fn load(words: &[AtomicU64], buffer: &mut [u8]) {
    let words = &words[..words_for(buffer.len())];
    lines::touch(words);
    let (whole, tail) = buffer.as_chunks_mut::<WORD_BYTES>();
    for (at, chunk) in whole.iter_mut().enumerate() {
        *chunk = words[at].load(Relaxed).to_le_bytes();
    }
    if !tail.is_empty() {
        let last = words[whole.len()].load(Relaxed).to_le_bytes();
        tail.copy_from_slice(&last[..tail.len()]);
    }
}

/// Whether the words contain these bytes, as stored by [`store`] with the same length.
#[inline(always)]
pub(crate) fn equal(words: &[AtomicU64], bytes: &[u8]) -> bool {
    let (whole, tail) = bytes.as_chunks::<WORD_BYTES>();
    let words = &words[..words_for(bytes.len())];
    lines::touch(words);
    let is_same = |(at, chunk): (usize, &[u8; WORD_BYTES])| {
        words[at].load(Relaxed) == u64::from_le_bytes(*chunk)
    };
    whole.iter().enumerate().all(is_same)
        && (tail.is_empty() || words[whole.len()].load(Relaxed) == padded(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_without_touching_neighbours() {
        for len in 0..40 {
            let words: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(u64::MAX)).collect();
            let bytes: Vec<u8> = (1..=len as u8).collect();
            store(&words, &bytes);
            let mut back = vec![0; len];
            load(&words, &mut back);
            assert_eq!(back, bytes);
            assert!(equal(&words, &bytes));
            assert!(words[words_for(len)..].iter().all(|word| word.load(Relaxed) == u64::MAX));
            for at in 0..len {
                let mut other = bytes.clone();
                other[at] ^= 1;
                assert!(!equal(&words, &other));
            }
        }
    }
}
