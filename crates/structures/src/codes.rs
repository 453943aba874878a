//! Integer codes in bit strings: unary, Elias gamma, exponential Golomb.
//!
//! ```text
//!  unary     3 ─▶ 000 1              n zeros and a one                    n + 1 bits
//!  gamma     5 ─▶ 00 101             its length less one in zeros, itself  2 ⌊log₂ n⌋ + 1 bits
//!  golomb₂   9 ─▶ 0 11 01            (n + 2^k) by its quotient in gamma, k low bits as they are
//! ```
//!
//! Gamma suits numbers that are mostly 1 (it is optimal for P(n) ≈ 1 / 2n²), exponential Golomb
//! numbers mostly below `2^k`, which take `k + 1` bits. Entropy-coded tries use them for the counts
//! of subtries and the lengths of distinguishing prefixes.
//!
//! Invariant: decoding is the inverse of encoding and consumes the same bits; decoding anything
//! else gives a number or an error, and an error does not move the reader.
//!
//! Source: Elias, "Universal codeword sets and representations of the integers", IEEE Trans. Inf.
//! Theory 1975; Teuhola, "A compression method for clustered bit-vectors", IPL 1978, for
//! exponential Golomb.

use std::fmt;

use crate::bits::{BitReader, BitWriter, EndOfBits};

/// Invalid code words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// The bits end within the code word.
    End(EndOfBits),
    /// The code word stands for a number of more than 64 bits.
    Overflow {
        /// Start of the code word.
        position: u64,
    },
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodeError::End(end) => end.fmt(f),
            CodeError::Overflow { position } => {
                write!(f, "the code word at bit {position} stands for a number beyond 64 bits")
            }
        }
    }
}

impl std::error::Error for CodeError {}

impl From<EndOfBits> for CodeError {
    fn from(end: EndOfBits) -> Self {
        CodeError::End(end)
    }
}

impl BitWriter {
    /// Appends `n` zeros and a one: `n + 1` bits.
    pub fn write_unary(&mut self, n: u64) {
        for _ in 0..n / 64 {
            self.write(0, 64);
        }
        self.write(1, (n % 64) as u32 + 1);
    }

    /// Appends a positive number in Elias gamma: `2 ⌊log₂ n⌋ + 1` bits.
    ///
    /// # Panics
    ///
    /// If the number is zero, which gamma cannot encode.
    pub fn write_gamma(&mut self, n: u64) {
        assert!(n > 0, "gamma has no word for zero");
        let length = u64::BITS - n.leading_zeros();
        self.write(0, length - 1);
        self.write(n, length);
    }

    /// Appends a number in exponential Golomb of order `k`: `2 ⌊log₂(n / 2^k + 1)⌋ + 1 + k` bits.
    ///
    /// # Panics
    ///
    /// If the order exceeds 63.
    pub fn write_exp_golomb(&mut self, n: u64, k: u32) {
        assert!(k < u64::BITS, "an order of {k}");
        match (n >> k).checked_add(1) {
            Some(quotient) => self.write_gamma(quotient),
            // Order 0 of `u64::MAX`: the quotient is 2^64, a one and 64 zeros.
            None => {
                self.write_unary(64);
                self.write(0, 64);
            }
        }
        self.write(n & ((1 << k) - 1), k);
    }
}

impl BitReader<'_> {
    /// Reads a number in unary.
    ///
    /// # Errors
    ///
    /// If the bits end before a one.
    pub fn read_unary(&mut self) -> Result<u64, CodeError> {
        Ok(self.read_zeros()?)
    }

    /// Reads a number in Elias gamma.
    ///
    /// # Errors
    ///
    /// If the bits end within the word, or the number exceeds 64 bits.
    pub fn read_gamma(&mut self) -> Result<u64, CodeError> {
        let mut ahead = self.clone();
        let zeros = ahead.read_zeros()?;
        if zeros >= u64::from(u64::BITS) {
            return Err(CodeError::Overflow { position: self.position() });
        }
        let low = ahead.read(zeros as u32)?;
        *self = ahead;
        Ok((1 << zeros) | low)
    }

    /// Reads a number in exponential Golomb of order `k`.
    ///
    /// # Errors
    ///
    /// If the bits end within the word, or the number exceeds 64 bits.
    ///
    /// # Panics
    ///
    /// If the order exceeds 63.
    pub fn read_exp_golomb(&mut self, k: u32) -> Result<u64, CodeError> {
        assert!(k < u64::BITS, "an order of {k}");
        let overflow = CodeError::Overflow { position: self.position() };
        let mut ahead = self.clone();
        let zeros = ahead.read_zeros()?;
        if zeros > u64::from(u64::BITS) {
            return Err(overflow);
        }
        let low = ahead.read(zeros as u32)?;
        // The quotient less one, in 128 bits as the quotient may be 2^64.
        let high = ((1u128 << zeros) | u128::from(low)) - 1;
        let high = u64::try_from(high).map_err(|_| overflow)?;
        if high.leading_zeros() < k {
            return Err(overflow);
        }
        let n = (high << k) | ahead.read(k)?;
        *self = ahead;
        Ok(n)
    }
}
