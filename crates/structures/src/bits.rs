//! Bit strings, most significant bit first: a writer, and a reader with lookahead.
//!
//! ```text
//!  bit      0 1 2 3 4 5 6 7   8 9 …
//!  byte 0  [7 6 5 4 3 2 1 0] [7 6 5 4 3 2 1 0]  byte 1
//!             └── peek(9) from position 2 ──┘
//! ```
//!
//! With the most significant bit first, a peeked number starts with the next code word: canonical
//! Huffman codes compare as numbers, and `peek(n)` directly indexes a table. A peek is one
//! unaligned load of 8 bytes and two shifts, for up to 57 bits at any position. Past the end it
//! reads zeros, so that a decoder may use a fixed-width table near the end; only consuming missing
//! bits is an error.
//!
//! Invariant: the reader's position never passes the end; a failed read does not move it.
//!
//! Source: the order is that of common Huffman decoders (see Moffat and Turpin, "On the
//! implementation of minimum redundancy prefix codes", IEEE Trans. Comm. 1997).

use std::fmt;

/// Maximum number of bits of one peek: a 64-bit load minus a shift of up to 7.
pub const MAX_PEEK: u32 = 57;

/// The 8 bytes from `start` on, most significant first, with zeros past the end.
#[inline]
pub(crate) fn word_at(bytes: &[u8], start: usize) -> u64 {
    let rest = bytes.get(start..).unwrap_or_default();
    match rest.first_chunk() {
        Some(word) => u64::from_be_bytes(*word),
        None => {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(word)
        }
    }
}

/// A read beyond the end of the bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndOfBits {
    /// Start of the read, in bits.
    pub position: u64,
    /// Number of bits requested.
    pub wanted: u64,
    /// Number of bits in the string.
    pub end: u64,
}

impl fmt::Display for EndOfBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EndOfBits { position, wanted, end } = self;
        write!(f, "the bits end at {end}: cannot read {wanted} bits at {position}")
    }
}

impl std::error::Error for EndOfBits {}

/// Appends bits to bytes.
#[derive(Clone, Debug, Default)]
pub struct BitWriter {
    bytes: Vec<u8>,
    /// The bits not yet in `bytes`, the latest in the lowest position; bits above are undefined.
    pending: u64,
    /// Number of pending bits: fewer than 8 between calls.
    count: u32,
}

impl BitWriter {
    /// An empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the lowest `count` bits of a number, the most significant of them first.
    ///
    /// # Panics
    ///
    /// If `count` exceeds 64, or the number has more bits than that.
    pub fn write(&mut self, bits: u64, count: u32) {
        assert!(count <= 64 && (count == 64 || bits >> count == 0), "{bits} in {count} bits");
        if count > 32 {
            self.push(bits >> 32, count - 32);
            self.push(bits & u64::from(u32::MAX), 32);
        } else {
            self.push(bits, count);
        }
    }

    /// The number of bits written.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64 * 8 + u64::from(self.count)
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes written, the last padded with zeros.
    pub fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.push(0, 8 - self.count);
        }
        self.bytes
    }

    /// Appends up to 32 bits, and moves complete bytes out.
    fn push(&mut self, bits: u64, count: u32) {
        self.pending = (self.pending << count) | bits;
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            self.bytes.push((self.pending >> self.count) as u8);
        }
    }
}

/// Reads bits from bytes.
#[derive(Clone, Debug)]
pub struct BitReader<'a> {
    bytes: &'a [u8],
    position: u64,
    end: u64,
}

impl<'a> BitReader<'a> {
    /// A reader of all bits of the bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, end: bytes.len() as u64 * 8 }
    }

    /// A reader of the first `bits` bits of the bytes.
    ///
    /// # Errors
    ///
    /// If the bytes have fewer.
    pub fn with_len(bytes: &'a [u8], bits: u64) -> Result<Self, EndOfBits> {
        let mut reader = Self::new(bytes);
        if bits > reader.end {
            return Err(reader.ends(bits));
        }
        reader.end = bits;
        Ok(reader)
    }

    /// The next `count` bits as a number, without moving; zeros past the end.
    ///
    /// # Panics
    ///
    /// If `count` exceeds [`MAX_PEEK`].
    #[inline]
    pub fn peek(&self, count: u32) -> u64 {
        assert!(count <= MAX_PEEK, "a peek of {count} bits");
        if count == 0 {
            return 0;
        }
        self.window() >> (64 - count)
    }

    /// Moves past `count` bits.
    ///
    /// # Errors
    ///
    /// If fewer are left.
    #[inline]
    pub fn consume(&mut self, count: u64) -> Result<(), EndOfBits> {
        if count > self.remaining() {
            return Err(self.ends(count));
        }
        self.position += count;
        Ok(())
    }

    /// Reads `count` bits as a number, the most significant first.
    ///
    /// # Errors
    ///
    /// If fewer are left.
    ///
    /// # Panics
    ///
    /// If `count` exceeds 64.
    #[inline]
    pub fn read(&mut self, count: u32) -> Result<u64, EndOfBits> {
        assert!(count <= 64, "a read of {count} bits");
        if u64::from(count) > self.remaining() {
            return Err(self.ends(count.into()));
        }
        let high = count.saturating_sub(32);
        let mut bits = self.peek(high);
        self.position += u64::from(high);
        let low = count - high;
        bits = (bits << low) | self.peek(low);
        self.position += u64::from(low);
        Ok(bits)
    }

    /// Reads zeros up to and including the next one bit; returns the number of zeros.
    ///
    /// # Errors
    ///
    /// If there is no one left. Costs a load for every 57 zeros.
    pub fn read_zeros(&mut self) -> Result<u64, EndOfBits> {
        let mut ahead = self.clone();
        while ahead.position < ahead.end {
            let zeros = ahead.window().leading_zeros();
            if zeros < MAX_PEEK {
                ahead.position += u64::from(zeros) + 1;
                let count = ahead.position - self.position - 1;
                self.position = ahead.position;
                return Ok(count);
            }
            ahead.position += u64::from(MAX_PEEK);
        }
        Err(self.ends(self.remaining() + 1))
    }

    /// The position of the next bit.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Moves to a position.
    ///
    /// # Errors
    ///
    /// If it is past the end.
    pub fn seek(&mut self, position: u64) -> Result<(), EndOfBits> {
        if position > self.end {
            return Err(EndOfBits { position: 0, wanted: position, end: self.end });
        }
        self.position = position;
        Ok(())
    }

    /// Number of bits left.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.end - self.position
    }

    /// The next 57 bits or more from the top, then zeros; zeros also past the end.
    #[inline]
    fn window(&self) -> u64 {
        // The bits are in memory, so their bytes can be indexed.
        let (byte, shift) = ((self.position / 8) as usize, self.position % 8);
        let window = word_at(self.bytes, byte) << shift;
        match self.remaining() {
            left @ 1..64 => window & (u64::MAX << (64 - left)),
            0 => 0,
            _ => window,
        }
    }

    fn ends(&self, wanted: u64) -> EndOfBits {
        EndOfBits { position: self.position, wanted, end: self.end }
    }
}
