//! Order-preserving code: maps a key of any length to a number.
//!
//! ```text
//!  keys      user0173x  user0958y  user4711x      the common prefix is omitted
//!                └┴┴┴┴─ digit of a position: the byte minus the least byte used there
//!  code      ((((0·10 + 1)·10 + 7)·10 + 3)·2 + 0   the digits as a number of mixed radix
//! ```
//!
//! A decimal digit thus takes a factor of 10 and not of 256, and a position where all keys agree
//! takes nothing: keys that are evenly distributed over their alphabet have evenly distributed
//! codes. The end of a key counts as a byte less than any other.
//!
//! Invariant: the code is monotonic for *every* pair of keys, also those not used to build it: `a
//! <= b` implies `code(a) <= code(b)`. A key with an unused byte at some position has the least or
//! the greatest code of the keys with the same beginning.
//!
//! Source: mixed radix: Knuth, volume 2, section 4.1.

use crate::common_prefix_len;

/// Maximum number of positions in a code.
pub(super) const MAX_DIGITS: usize = 16;

/// Number of byte values, including the end of a key.
const BYTES: u16 = 257;

/// A code for the keys of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyCode {
    prefix: Box<[u8]>,
    digits: Box<[Digit]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Digit {
    /// The least byte in use, plus one; 0 is a key's end.
    min: u16,
    /// Number of byte values from there to the greatest in use.
    radix: u16,
    /// The weight: the product of the radices of later digits.
    weight: u64,
}

impl KeyCode {
    /// A code for keys that start with `prefix` and have, at each position after it, bytes within
    /// one of `spans` (each byte plus one; 0 is the key's end).
    pub(super) fn new(prefix: &[u8], spans: &[(u16, u16)]) -> Self {
        let mut digits: Vec<Digit> = Vec::new();
        let mut codes = 1u64;
        for &(min, max) in spans.iter().take(MAX_DIGITS) {
            let radix = max - min + 1;
            let Some(more) = codes.checked_mul(radix.into()).filter(|&more| more <= 1 << 63) else {
                break;
            };
            codes = more;
            digits.push(Digit { min, radix, weight: 1 });
        }
        // Digits after the last position at which keys differ are always zero.
        let used = digits.iter().rposition(|digit| digit.radix > 1).map_or(0, |last| last + 1);
        digits.truncate(used);
        set_weights(&mut digits);
        KeyCode { prefix: prefix.into(), digits: digits.into() }
    }

    /// Number of codes; each is less.
    pub(super) fn codes(&self) -> u64 {
        self.digits.first().map_or(1, |first| first.weight * u64::from(first.radix))
    }

    /// The code of any key. Cost: one step per position.
    #[inline]
    pub(super) fn of(&self, key: &[u8]) -> u64 {
        let Some(rest) = key.strip_prefix(&*self.prefix) else {
            return if key < &*self.prefix { 0 } else { self.codes() - 1 };
        };
        let mut code = 0;
        for (i, digit) in self.digits.iter().enumerate() {
            let byte = rest.get(i).map_or(0, |&byte| u16::from(byte) + 1);
            if byte < digit.min {
                return code;
            }
            let above = byte - digit.min;
            if above >= digit.radix {
                return code + (digit.weight * u64::from(digit.radix) - 1);
            }
            code += digit.weight * u64::from(above);
        }
        code
    }

    /// Appends the stored form: `prefix_len:u32 prefix digits:u8 {least:u16 radix:u16}*`, little
    /// endian.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        // Keys are far shorter than 2^32 bytes, and there are few digits.
        out.extend_from_slice(&(self.prefix.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.prefix);
        out.push(self.digits.len() as u8);
        for digit in &self.digits {
            out.extend_from_slice(&digit.min.to_le_bytes());
            out.extend_from_slice(&digit.radix.to_le_bytes());
        }
    }

    /// Decodes the stored form from the front of `bytes`; `None` if it is invalid.
    pub(super) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let prefix_len = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
        let prefix = bytes.split_off(..prefix_len as usize)?;
        let mut spans = Vec::new();
        for _ in 0..*bytes.split_off_first()? {
            let (min, radix) = (u16_from(bytes)?, u16_from(bytes)?);
            let is_span = radix > 0 && u32::from(min) + u32::from(radix) <= u32::from(BYTES);
            spans.push(is_span.then(|| (min, min + radix - 1))?);
        }
        let code = KeyCode::new(prefix, &spans);
        (code.digits.len() == spans.len()).then_some(code)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.prefix.len() + self.digits.len() * size_of::<Digit>()
    }
}

fn set_weights(digits: &mut [Digit]) {
    let mut weight = 1;
    for digit in digits.iter_mut().rev() {
        digit.weight = weight;
        weight *= u64::from(digit.radix);
    }
}

fn u16_from(bytes: &mut &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.split_off(..2)?.first_chunk()?))
}

/// The range of bytes used at each position after the prefix.
#[derive(Debug)]
pub(super) struct Spans(Vec<(u16, u16)>);

impl Spans {
    pub(super) fn new() -> Self {
        Spans(vec![(u16::MAX, 0); MAX_DIGITS])
    }

    /// Adds the bytes of `rest`, a key without the prefix.
    pub(super) fn add(&mut self, rest: &[u8]) {
        for (i, (min, max)) in self.0.iter_mut().enumerate() {
            let byte = rest.get(i).map_or(0, |&byte| u16::from(byte) + 1);
            *min = (*min).min(byte);
            *max = (*max).max(byte);
        }
    }

    /// The code for keys that start with `prefix`; at least one was added.
    pub(super) fn code(&self, prefix: &[u8]) -> KeyCode {
        KeyCode::new(prefix, &self.0)
    }
}

/// The common prefix of all keys of a sorted run, from its first and last key.
pub(super) fn common_prefix_of<'a>(first: &'a [u8], last: &[u8]) -> &'a [u8] {
    &first[..common_prefix_len(first, last)]
}
