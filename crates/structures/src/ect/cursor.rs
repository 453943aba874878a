//! Bit cursor for lookups: a window of bits in a register, refilled at intervals.
//!
//! ```text
//!  bytes    … │ b₀ b₁ b₂ b₃ b₄ b₅ b₆ │ b₇ …         next: the first byte not in the window
//!  window   [ the bits ahead, from the top ─────│ zeros ]
//!             └──────── available, at least 56 after a refill
//! ```
//!
//! A [`BitReader`](crate::bits::BitReader) loads memory and checks the end for every word, on the
//! critical path of a lookup. Here a load serves about six words, and reading continues past the
//! end, in zeros: the caller checks [`Cursor::is_past`] before it uses the results.
//!
//! Invariant: `available` bits of the window are those before byte `next`; the others are zero, or
//! the bits that follow.
//!
//! Source: for the refill without a loop, Giesen, "Reading bits in far too many ways", 2018.

use crate::bits::word_at;

/// Number of bits available at least after [`Cursor::refill`].
pub(super) const REFILLED: u32 = 56;

/// A position in bits.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    next: usize,
    window: u64,
    available: u32,
}

impl<'a> Cursor<'a> {
    /// A cursor at a bit of the bytes.
    #[inline]
    pub(super) fn new(bytes: &'a [u8], position: u64) -> Self {
        // A position beyond what can be indexed is past the end, as the last byte's is.
        let next = usize::try_from(position / 8).unwrap_or(usize::MAX).min(bytes.len());
        let mut cursor = Self { bytes, next, window: 0, available: 0 };
        cursor.refill();
        cursor.consume((position % 8) as u32);
        cursor
    }

    /// Makes at least 56 bits available, zeros past the end.
    #[inline]
    pub(super) fn refill(&mut self) {
        let word = word_at(self.bytes, self.next);
        self.window |= word >> self.available;
        let whole = (63 - self.available) / 8;
        self.next = self.next.saturating_add(whole as usize);
        self.available += whole * 8;
    }

    /// Makes up to 56 bits available.
    #[inline]
    pub(super) fn ensure(&mut self, count: u32) {
        if self.available < count {
            self.refill();
        }
    }

    /// The next bits as a number, at least 1 and at most those available.
    #[inline]
    pub(super) fn peek(&self, count: u32) -> u64 {
        debug_assert!((1..=self.available).contains(&count));
        self.window >> (64 - count)
    }

    /// The zeros ahead of the next one, in a window refilled.
    #[inline]
    pub(super) fn zeros(&self) -> u32 {
        self.window.leading_zeros()
    }

    /// Moves past available bits, fewer than 64.
    #[inline]
    pub(super) fn consume(&mut self, count: u32) {
        debug_assert!(count <= self.available);
        self.window <<= count;
        self.available -= count;
    }

    /// The position of the next bit.
    #[inline]
    pub(super) fn position(&self) -> u64 {
        (self.next as u64).saturating_mul(8) - u64::from(self.available)
    }

    /// Whether bits from a position on were read.
    #[inline]
    pub(super) fn is_past(&self, end: u64) -> bool {
        self.position() > end
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::bits::BitReader;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cursor_matches_reader_and_reads_zeros_past_end(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            from in any::<prop::sample::Index>(),
            counts in prop::collection::vec(1u32..=REFILLED, 0..30),
        ) {
            let mut reader = BitReader::new(&bytes);
            reader.seek(from.index(bytes.len() * 8 + 1) as u64).unwrap();
            let mut cursor = Cursor::new(&bytes, reader.position());
            let mut position = reader.position();
            for count in counts {
                cursor.ensure(count);
                prop_assert_eq!(cursor.peek(count), reader.peek(count));
                prop_assert_eq!(cursor.position(), position);
                cursor.consume(count);
                position += u64::from(count);
                prop_assert_eq!(cursor.is_past(bytes.len() as u64 * 8), reader.consume(count.into()).is_err());
                if cursor.is_past(bytes.len() as u64 * 8) {
                    reader.seek(bytes.len() as u64 * 8).unwrap();
                }
            }
        }
    }
}
