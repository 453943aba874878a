//! BITFIELD: integers of any width at any position of a value's bits.
//!
//! Source: the documentation of Redis's BITFIELD.

use siltstone_engine::Entry;

use super::bitmaps::{BAD_OFFSET, bit_offset};
use super::context::Context;
use super::definition::{FAST, ONE_KEY, READ, WRITE};
use super::elements::{integer, is};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, SYNTAX, reply_error};
use crate::resp::{Args, number};

pub(super) fn commands() -> Vec<Command> {
    let command = |name, flags, handler, summary| {
        entry::command("bitmap", name, -2, flags, ONE_KEY, handler, summary)
    };
    vec![
        command("bitfield", WRITE, bitfield, "Reads and changes integers within a value."),
        command("bitfield_ro", READ | FAST, bitfield_ro, "Reads integers within a value."),
    ]
}

/// Type of an integer: `i1` to `i64`, `u1` to `u63`.
#[derive(Clone, Copy)]
struct Width {
    is_signed: bool,
    bits: u32,
}

impl Width {
    fn parse(word: &[u8]) -> Result<Self, Failure> {
        let (is_signed, digits) = match word {
            [b'i' | b'I', digits @ ..] => (true, digits),
            [b'u' | b'U', digits @ ..] => (false, digits),
            _ => (false, &[][..]),
        };
        let max = if is_signed { 64 } else { 63 };
        let bits = number::parse_u64(digits).filter(|bits| (1..=max).contains(bits));
        let invalid = reply_error(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported \
             but i64 is.",
        );
        let bits = bits.and_then(|bits| u32::try_from(bits).ok()).ok_or(invalid)?;
        Ok(Width { is_signed, bits })
    }

    fn min(self) -> i128 {
        if self.is_signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn max(self) -> i128 {
        let bits = if self.is_signed { self.bits - 1 } else { self.bits };
        (1 << bits) - 1
    }

    /// The integer whose lower bits are those of `raw`.
    fn wrap(self, raw: i128) -> i128 {
        let low = raw & ((1 << self.bits) - 1);
        if self.is_signed && low > self.max() { low - (1 << self.bits) } else { low }
    }

    /// Reads the integer at a bit of a value.
    fn read(self, value: &[u8], at: u64) -> i128 {
        let raw = (at..at + u64::from(self.bits)).fold(0i128, |raw, at| {
            let byte = value.get((at / 8) as usize).copied().unwrap_or(0);
            raw << 1 | i128::from(byte >> (7 - at % 8) & 1)
        });
        self.wrap(raw)
    }

    /// Writes an integer at a bit of a value that is long enough.
    fn write(self, value: &mut [u8], at: u64, number: i128) {
        for bit in 0..self.bits {
            let at = at + u64::from(bit);
            let is_set = number >> (self.bits - 1 - bit) & 1 == 1;
            let mask = 0x80 >> (at % 8);
            let byte = &mut value[(at / 8) as usize];
            *byte = *byte & !mask | if is_set { mask } else { 0 };
        }
    }
}

/// What happens to a result that does not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

impl Overflow {
    /// The integer that is stored; `None` if the operation fails.
    fn apply(self, width: Width, number: i128) -> Option<i128> {
        match self {
            _ if (width.min()..=width.max()).contains(&number) => Some(number),
            Overflow::Wrap => Some(width.wrap(number)),
            Overflow::Saturate => Some(number.clamp(width.min(), width.max())),
            Overflow::Fail => None,
        }
    }
}

/// A step of BITFIELD.
enum Operation {
    Get,
    Set(i64, Overflow),
    Add(i64, Overflow),
}

/// Parses an offset: a bit, or `#n` for the n-th integer of the width. What is written must lie in
/// a value of up to `max_bytes`; what is read may begin at any bit.
fn offset(word: &[u8], width: Width, max_bytes: Option<usize>) -> Result<u64, Failure> {
    let limit = max_bytes.unwrap_or(usize::MAX);
    let at = match word {
        [b'#', index @ ..] => {
            let index = number::parse_u64(index).ok_or(BAD_OFFSET)?;
            let at = index.checked_mul(u64::from(width.bits)).ok_or(BAD_OFFSET)?;
            bit_offset(at.to_string().as_bytes(), limit)?
        }
        word => bit_offset(word, limit)?,
    };
    if max_bytes.is_some() {
        // The last bit, too.
        let last = at + u64::from(width.bits) - 1;
        bit_offset(last.to_string().as_bytes(), limit)?;
    }
    Ok(at)
}

fn parse(
    args: Args<'_>,
    is_read_only: bool,
    max_bytes: usize,
) -> Result<Vec<(Operation, Width, u64)>, Failure> {
    let mut steps = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut words = args.iter();
    while let Some(word) = words.next() {
        if is(word, "overflow") {
            overflow = match words.next().ok_or(SYNTAX)? {
                word if is(word, "wrap") => Overflow::Wrap,
                word if is(word, "sat") => Overflow::Saturate,
                word if is(word, "fail") => Overflow::Fail,
                _ => return Err(reply_error("ERR Invalid OVERFLOW type specified")),
            };
            continue;
        }
        let needed = match word {
            word if is(word, "get") => 2,
            word if is(word, "set") || is(word, "incrby") => 3,
            _ => return Err(SYNTAX),
        };
        if words.len() < needed {
            return Err(SYNTAX);
        }
        let mut next = || words.next().ok_or(SYNTAX);
        let width = Width::parse(next()?)?;
        let at = offset(next()?, width, (needed != 2).then_some(max_bytes))?;
        let step = match needed {
            2 => Operation::Get,
            _ if is(word, "set") => Operation::Set(integer(next()?)?, overflow),
            _ => Operation::Add(integer(next()?)?, overflow),
        };
        if is_read_only && needed != 2 {
            return Err(reply_error("ERR BITFIELD_RO only supports the GET subcommand"));
        }
        steps.push((step, width, at));
    }
    Ok(steps)
}

fn bitfield_ro(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let steps = parse(args.from(2), true, usize::MAX)?;
    let value = context.read(&args[1])?.unwrap_or_default().value;
    context.replies.array(steps.len());
    for (_, width, at) in steps {
        context.replies.int(width.read(&value, at) as i64);
    }
    Ok(())
}

fn bitfield(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let steps = parse(args.from(2), false, context.database().max_value_bytes)?;
    let key = &args[1];
    let _guard = context.lock(key);
    let Entry { mut value, expires_at } = context.get(key)?.unwrap_or_default();
    let end = steps
        .iter()
        .filter(|(step, ..)| !matches!(step, Operation::Get))
        .map(|(_, width, at)| (at + u64::from(width.bits)).div_ceil(8) as usize)
        .max();
    if let Some(end) = end {
        value.resize(value.len().max(end), 0);
    }
    let mut results = Vec::with_capacity(steps.len());
    for (step, width, at) in &steps {
        let old = width.read(&value, *at);
        let (new, is_old_replied) = match step {
            Operation::Get => (Some(old), true),
            // As in Redis, a negative number is a large one for an unsigned integer.
            Operation::Set(number, overflow) => {
                let is_signed = width.is_signed || *number >= 0;
                let number = i128::from(*number) + if is_signed { 0 } else { 1 << 64 };
                (overflow.apply(*width, number), true)
            }
            Operation::Add(number, overflow) => {
                (overflow.apply(*width, old + i128::from(*number)), false)
            }
        };
        if let Some(new) = new
            && !matches!(step, Operation::Get)
        {
            width.write(&mut value, *at, new);
        }
        results.push(new.map(|new| if is_old_replied { old } else { new }));
    }
    if end.is_some() {
        context.put(key, &value, expires_at)?;
    }
    context.replies.array(results.len());
    for result in results {
        match result {
            Some(number) => context.replies.int(number as i64),
            None => context.replies.null(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_round_trip_at_every_position_and_width() {
        for bits in 1..=64 {
            for is_signed in [true, false] {
                let width = Width { is_signed, bits };
                if !is_signed && bits == 64 {
                    continue;
                }
                for at in 0..17 {
                    for number in [width.min(), width.max(), 0, width.max() / 3] {
                        let mut value = vec![0x5a; 11];
                        width.write(&mut value, at, number);
                        assert_eq!(width.read(&value, at), number);
                        width.write(&mut value, at, width.read(&[0x5a; 11], at));
                        assert_eq!(value, [0x5a; 11], "bits beside it changed");
                    }
                }
            }
        }
    }

    #[test]
    fn overflow_wraps_saturates_or_fails() {
        let width = Width { is_signed: true, bits: 8 };
        assert_eq!(Overflow::Wrap.apply(width, 130), Some(-126));
        assert_eq!(Overflow::Saturate.apply(width, 130), Some(127));
        assert_eq!(Overflow::Saturate.apply(width, -1000), Some(-128));
        assert_eq!(Overflow::Fail.apply(width, 128), None);
        assert_eq!(Overflow::Fail.apply(width, 127), Some(127));
    }
}
