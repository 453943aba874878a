//! Strings as arrays of bits: SETBIT, BITCOUNT, BITPOS, BITOP. BITFIELD is in [`super::bitfield`].
//!
//! Bit 0 is the highest bit of the first byte. Bits beyond the end are 0. The engine stores
//! complete values, so a change of a bit reads and writes the complete value.
//!
//! Source: the documentation of Redis's bitmap commands.

use siltstone_engine::Entry;

use super::context::Context;
use super::definition::{FAST, ONE_KEY, READ, WRITE};
use super::elements::{integer, is, resolve_range};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, SYNTAX, reply_error};
use crate::resp::{Args, number};

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, keys, handler, summary| {
        entry::command("bitmap", name, arity, flags, keys, handler, summary)
    };
    vec![
        command("setbit", 4, WRITE, ONE_KEY, setbit, "Sets a bit of a value."),
        command("getbit", 3, READ | FAST, ONE_KEY, getbit, "Returns a bit of a value."),
        command("bitcount", -2, READ, ONE_KEY, bitcount, "Counts the set bits of a value."),
        command("bitpos", -3, READ, ONE_KEY, bitpos, "Finds the first set or clear bit."),
        command("bitop", -4, WRITE, (2, -1, 1), bitop, "Combines the bits of values."),
    ]
}

pub(super) const BAD_OFFSET: Failure =
    reply_error("ERR bit offset is not an integer or out of range");

/// Bits of the largest value that Redis has.
const MAX_BITS: u64 = 1 << 32;

/// Parses the position of a bit that a value of up to `max_bytes` can have.
pub(super) fn bit_offset(word: &[u8], max_bytes: usize) -> Result<u64, Failure> {
    let offset = number::parse_i64(word).and_then(|offset| u64::try_from(offset).ok());
    offset.filter(|at| *at < MAX_BITS && at / 8 < max_bytes as u64).ok_or(BAD_OFFSET)
}

/// A bit of a value.
fn bit(value: &[u8], at: u64) -> bool {
    value.get((at / 8) as usize).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1)
}

fn setbit(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let at = bit_offset(&args[2], context.database().max_value_bytes)?;
    let is_set = match &args[3] {
        b"0" => false,
        b"1" => true,
        _ => return Err(reply_error("ERR bit is not an integer or out of range")),
    };
    let key = &args[1];
    let _guard = context.lock(key);
    let Entry { mut value, expires_at } = context.get(key)?.unwrap_or_default();
    let (byte, mask) = ((at / 8) as usize, 0x80 >> (at % 8));
    let was_set = bit(&value, at);
    let is_longer = value.len() <= byte;
    if is_longer {
        value.resize(byte + 1, 0);
    }
    if is_set != was_set || is_longer {
        value[byte] = value[byte] & !mask | if is_set { mask } else { 0 };
        context.put(key, &value, expires_at)?;
    }
    context.replies.flag(was_set);
    Ok(())
}

fn getbit(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let at = bit_offset(&args[2], usize::MAX)?;
    let entry = context.read(&args[1])?.unwrap_or_default();
    context.replies.flag(bit(&entry.value, at));
    Ok(())
}

/// A range of bits, from arguments `start end [BYTE|BIT]`.
struct BitRange {
    start: i64,
    end: i64,
    is_in_bits: bool,
}

impl BitRange {
    fn parse(
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        unit: Option<&[u8]>,
    ) -> Result<Self, Failure> {
        let is_in_bits = match unit {
            None => false,
            Some(word) if is(word, "byte") => false,
            Some(word) if is(word, "bit") => true,
            Some(_) => return Err(SYNTAX),
        };
        let start = start.map_or(Ok(0), integer)?;
        let end = end.map_or(Ok(-1), integer)?;
        Ok(BitRange { start, end, is_in_bits })
    }

    /// Whether it ends before it begins, both counted from the end of the value.
    fn is_reversed(&self) -> bool {
        self.start < 0 && self.end < 0 && self.start > self.end
    }

    /// Positions of the bits in a value.
    fn resolve(&self, value: &[u8]) -> std::ops::Range<u64> {
        let bytes = value.len() as u64;
        // An end before the beginning is the beginning, unlike in lists.
        let len = if self.is_in_bits { bytes * 8 } else { bytes };
        let end = if self.end < 0 { self.end.max(-(len as i64)) } else { self.end };
        let range = resolve_range(self.start, end, len);
        if self.is_in_bits { range } else { range.start * 8..range.end * 8 }
    }
}

fn bitcount(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() == 3 || args.len() > 5 {
        return Err(SYNTAX);
    }
    let range = BitRange::parse(args.get(2), args.get(3), args.get(4))?;
    let value = context.read(&args[1])?.unwrap_or_default().value;
    // BITPOS, on the other hand, looks at the first byte if both ends are before it.
    let bits = if range.is_reversed() { 0..0 } else { range.resolve(&value) };
    context.replies.count(count_ones(&value, bits) as usize);
    Ok(())
}

/// Number of set bits in a range within a value.
fn count_ones(value: &[u8], range: std::ops::Range<u64>) -> u64 {
    let (first, end) = ((range.start / 8) as usize, range.end.div_ceil(8) as usize);
    let ones = value[first..end.max(first)].iter().map(|byte| u64::from(byte.count_ones()));
    let before = (range.start / 8 * 8..range.start).filter(|at| bit(value, *at));
    let after = (range.end..range.end.div_ceil(8) * 8).filter(|at| bit(value, *at));
    if range.is_empty() { 0 } else { ones.sum::<u64>() - before.chain(after).count() as u64 }
}

fn bitpos(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 6 {
        return Err(SYNTAX);
    }
    let wanted = match integer(&args[2])? {
        0 => false,
        1 => true,
        _ => return Err(reply_error("ERR The bit argument must be 1 or 0.")),
    };
    let range = BitRange::parse(args.get(3), args.get(4), args.get(5))?;
    let Some(entry) = context.read(&args[1])? else {
        context.replies.int(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let value = entry.value;
    let range = range.resolve(&value);
    // Whole bytes without the wanted bit are skipped.
    let boring = if wanted { 0 } else { 0xff };
    let (mut at, mut found) = (range.start, None);
    while at < range.end && found.is_none() {
        if at % 8 == 0 && at + 8 <= range.end && value[(at / 8) as usize] == boring {
            at += 8;
        } else {
            found = (bit(&value, at) == wanted).then_some(at);
            at += 1;
        }
    }
    let reply = match found {
        Some(at) => at as i64,
        // Without an end the value goes on with clear bits.
        None if !wanted && args.len() < 5 && !range.is_empty() => value.len() as i64 * 8,
        None => -1,
    };
    context.replies.int(reply);
    Ok(())
}

fn bitop(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let combine: fn(u8, u8) -> u8 = match &args[1] {
        word if is(word, "and") => |a, b| a & b,
        word if is(word, "or") => |a, b| a | b,
        word if is(word, "xor") => |a, b| a ^ b,
        word if is(word, "not") => |a, _| a,
        _ => return Err(SYNTAX),
    };
    let is_not = is(&args[1], "not");
    if is_not && args.len() != 4 {
        return Err(reply_error("ERR BITOP NOT must be called with a single source key."));
    }
    let target = &args[2];
    let _guard = context.lock_many(args.from(2).iter());
    let mut result = context.get(&args[3])?.unwrap_or_default().value;
    // One value at a time: a key may be named many times.
    for key in args.from(4).iter() {
        let value = context.get(key)?.unwrap_or_default().value;
        result.resize(result.len().max(value.len()), 0);
        let padded = value.into_iter().chain(std::iter::repeat(0));
        result.iter_mut().zip(padded).for_each(|(a, b)| *a = combine(*a, b));
    }
    if is_not {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    match result.is_empty() {
        // Any type is overwritten.
        true if context.exists(target)? => context.delete(target)?,
        true => {}
        false => context.put(target, &result, None)?,
    }
    context.replies.count(result.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_in_any_range() {
        let value = b"\xff\x0f\xa5";
        for start in 0..24 {
            for end in start..=24 {
                let expected = (start..end).filter(|at| bit(value, *at)).count() as u64;
                assert_eq!(count_ones(value, start..end), expected, "{start}..{end}");
            }
        }
        assert_eq!(count_ones(b"", 0..0), 0);
    }

    #[test]
    fn ends_before_the_value_are_its_beginning() {
        let range = |start, end, is_in_bits| BitRange { start, end, is_in_bits }.resolve(b"abc");
        assert_eq!(range(0, -1, false), 0..24);
        assert_eq!(range(1, 1, false), 8..16);
        assert_eq!(range(0, -100, false), 0..8);
        assert_eq!(range(-1, -2, false), 0..0);
        assert_eq!(range(5, 30, true), 5..24);
    }
}
