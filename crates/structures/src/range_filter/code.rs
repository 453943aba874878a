//! An order-preserving code: from a key of any length to a number.
//!
//! ```text
//!  keys      user0173x  user0958y  user4711x      the prefix that all share is left out
//!                └┴┴┴┴─ a position's digit: the byte less the least there, of as many as are in use
//!  code      ((((0·10 + 1)·10 + 7)·10 + 3)·2 + 0   the digits' number, of mixed radix
//! ```
//!
//! So digits in decimal take a factor of ten and not of 256, and a position where all keys agree takes
//! nothing: keys that are evenly spread over what they are made of have codes that are evenly spread.
//! A key's end counts as a byte less than any.
//!
//! Invariant: the code ascends with *every* pair of keys, also such as were not there when it was made:
//! `a <= b` gives `code(a) <= code(b)`. A key that leaves what the others are made of at some position has the
//! least or the greatest code of those that begin as it does before it.
//!
//! Source: ours; the mixed radix is common knowledge (Knuth, volume 2, section 4.1).

use super::common_prefix;

/// The positions that a code looks at, at most.
pub(super) const MOST_DIGITS: usize = 16;

/// How many bytes there are, and the end of a key.
const BYTES: u16 = 257;

/// A code for the keys of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyCode {
    prefix: Box<[u8]>,
    digits: Box<[Digit]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Digit {
    /// The least byte in use, one more than itself; 0: a key's end.
    least: u16,
    /// How many are in use from there on.
    radix: u16,
    /// What one step of it is worth: the product of the radices behind it.
    worth: u64,
}

impl KeyCode {
    /// A code for keys that begin with `prefix` and have at each position behind it bytes from the first
    /// to the second of a pair of `spans` (one more than the byte; 0: the key's end).
    pub(super) fn new(prefix: &[u8], spans: &[(u16, u16)]) -> Self {
        let mut digits: Vec<Digit> = Vec::new();
        let mut codes = 1u64;
        for &(least, greatest) in spans.iter().take(MOST_DIGITS) {
            let radix = greatest - least + 1;
            let Some(more) = codes.checked_mul(radix.into()).filter(|&more| more <= 1 << 63) else {
                break;
            };
            codes = more;
            digits.push(Digit { least, radix, worth: 1 });
        }
        // Behind the last position at which keys differ no digit changes a code.
        let used = digits.iter().rposition(|digit| digit.radix > 1).map_or(0, |last| last + 1);
        digits.truncate(used);
        weigh(&mut digits);
        KeyCode { prefix: prefix.into(), digits: digits.into() }
    }

    /// How many codes there are: all are less.
    pub(super) fn codes(&self) -> u64 {
        self.digits.first().map_or(1, |first| first.worth * u64::from(first.radix))
    }

    /// The code of any key. Cost: a look at each position.
    #[inline]
    pub(super) fn of(&self, key: &[u8]) -> u64 {
        let Some(rest) = key.strip_prefix(&*self.prefix) else {
            return if key < &*self.prefix { 0 } else { self.codes() - 1 };
        };
        let mut code = 0;
        for (i, digit) in self.digits.iter().enumerate() {
            let byte = rest.get(i).map_or(0, |&byte| u16::from(byte) + 1);
            if byte < digit.least {
                return code;
            }
            let above = byte - digit.least;
            if above >= digit.radix {
                return code + (digit.worth * u64::from(digit.radix) - 1);
            }
            code += digit.worth * u64::from(above);
        }
        code
    }

    /// The stored form, appended: `prefix_len:u32 prefix digits:u8 {least:u16 radix:u16}*`, little endian.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        // Keys are far shorter than 2^32 bytes, and there are few digits.
        out.extend_from_slice(&(self.prefix.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.prefix);
        out.push(self.digits.len() as u8);
        for digit in &self.digits {
            out.extend_from_slice(&digit.least.to_le_bytes());
            out.extend_from_slice(&digit.radix.to_le_bytes());
        }
    }

    /// Takes the stored form from the front of `bytes`; `None` if that is no code.
    pub(super) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let prefix_len = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
        let prefix = bytes.split_off(..prefix_len as usize)?;
        let mut spans = Vec::new();
        for _ in 0..*bytes.split_off_first()? {
            let (least, radix) = (u16_from(bytes)?, u16_from(bytes)?);
            let is_span = radix > 0 && u32::from(least) + u32::from(radix) <= u32::from(BYTES);
            spans.push(is_span.then(|| (least, least + radix - 1))?);
        }
        let code = KeyCode::new(prefix, &spans);
        (code.digits.len() == spans.len()).then_some(code)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.prefix.len() + self.digits.len() * size_of::<Digit>()
    }
}

fn weigh(digits: &mut [Digit]) {
    let mut worth = 1;
    for digit in digits.iter_mut().rev() {
        digit.worth = worth;
        worth *= u64::from(digit.radix);
    }
}

fn u16_from(bytes: &mut &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.split_off(..2)?.first_chunk()?))
}

/// What bytes are in use at each position behind the prefix.
#[derive(Debug)]
pub(super) struct Spans(Vec<(u16, u16)>);

impl Spans {
    pub(super) fn new() -> Self {
        Spans(vec![(u16::MAX, 0); MOST_DIGITS])
    }

    /// Counts the bytes of `rest`, a key behind the prefix.
    pub(super) fn note(&mut self, rest: &[u8]) {
        for (i, (least, greatest)) in self.0.iter_mut().enumerate() {
            let byte = rest.get(i).map_or(0, |&byte| u16::from(byte) + 1);
            *least = (*least).min(byte);
            *greatest = (*greatest).max(byte);
        }
    }

    /// The code for keys that begin with `prefix`; at least one was noted.
    pub(super) fn code(&self, prefix: &[u8]) -> KeyCode {
        KeyCode::new(prefix, &self.0)
    }
}

/// The prefix that two keys share, as both ends of a sorted run do: then all between them share it.
pub(super) fn shared<'a>(first: &'a [u8], last: &[u8]) -> &'a [u8] {
    &first[..common_prefix(first, last)]
}
