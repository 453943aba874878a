//! Bytes in atomic words: copied in, copied out, compared.
//!
//! Bytes begin at a word; the last word is filled up with zeros.
//!
//! Invariant: never a byte beyond the words given; never more than was asked for.
//!
//! Source: ours.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::lines;
use crate::mapping::WORD;

/// Words that so many bytes take.
#[inline(always)]
#[expect(
    clippy::manual_div_ceil,
    reason = "no length is near the largest number: half the instructions"
)]
pub(crate) fn words_for(bytes: usize) -> usize {
    (bytes + (WORD - 1)) / WORD
}

/// The bytes of a last word, zeros behind.
#[inline(always)]
fn padded(tail: &[u8]) -> u64 {
    let mut last = [0; WORD];
    last[..tail.len()].copy_from_slice(tail);
    u64::from_le_bytes(last)
}

/// Copies bytes in. There must be room.
#[inline(always)]
pub(crate) fn store(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, tail) = bytes.as_chunks::<WORD>();
    let words = &words[..words_for(bytes.len())];
    lines::touch(words);
    for (at, chunk) in whole.iter().enumerate() {
        words[at].store(u64::from_le_bytes(*chunk), Relaxed);
    }
    if !tail.is_empty() {
        words[whole.len()].store(padded(tail), Relaxed);
    }
}

/// Copies bytes out, as many as the buffer takes.
#[inline(always)]
pub(crate) fn load(words: &[AtomicU64], buffer: &mut [u8]) {
    let words = &words[..words_for(buffer.len())];
    lines::touch(words);
    let (whole, tail) = buffer.as_chunks_mut::<WORD>();
    for (at, chunk) in whole.iter_mut().enumerate() {
        *chunk = words[at].load(Relaxed).to_le_bytes();
    }
    if !tail.is_empty() {
        let last = words[whole.len()].load(Relaxed).to_le_bytes();
        tail.copy_from_slice(&last[..tail.len()]);
    }
}

/// Whether these are the bytes, which were copied in by [`store`] with the same length.
#[inline(always)]
pub(crate) fn equal(words: &[AtomicU64], bytes: &[u8]) -> bool {
    let (whole, tail) = bytes.as_chunks::<WORD>();
    let words = &words[..words_for(bytes.len())];
    lines::touch(words);
    let is_same =
        |(at, chunk): (usize, &[u8; WORD])| words[at].load(Relaxed) == u64::from_le_bytes(*chunk);
    whole.iter().enumerate().all(is_same)
        && (tail.is_empty() || words[whole.len()].load(Relaxed) == padded(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn do_bytes_come_back_and_leave_their_neighbours_alone() {
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
