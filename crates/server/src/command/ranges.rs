//! Parts of values: length, ranges, appending and overwriting.
//!
//! The engine stores complete values, so changing a part reads and writes the complete value. The
//! result is limited to the size that a reply can carry; otherwise a small request could make the
//! server store hundreds of megabytes that no GET could return.
//!
//! Source: the documentation of Redis's APPEND, GETRANGE, SETRANGE and STRLEN.

use siltstone_engine::Entry;

use super::context::Context;
use super::definition::{FAST, ONE_KEY, READ, WRITE};
use super::entry::{self, Command};
use super::failure::{Failure, NOT_AN_INTEGER, Outcome, reply_error};
use crate::resp::{Args, number};

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, handler, summary| {
        entry::command("string", name, arity, flags, ONE_KEY, handler, summary)
    };
    vec![
        command("append", 3, WRITE | FAST, append, "Appends to a value."),
        command("strlen", 2, READ | FAST, strlen, "Returns the length of a value."),
        command("getrange", 4, READ, getrange, "Returns a part of a value."),
        command("substr", 4, READ, getrange, "Returns a part of a value."),
        command("setrange", 4, WRITE, setrange, "Overwrites a part of a value."),
    ]
}

const TOO_LONG: Failure =
    reply_error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

fn append(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, tail) = (&args[1], &args[2]);
    let _guard = context.lock(key);
    let Entry { mut value, expires_at } = context.get(key)?.unwrap_or_default();
    if value.len() + tail.len() > context.database().max_value_bytes {
        return Err(TOO_LONG);
    }
    value.extend_from_slice(tail);
    context.put(key, &value, expires_at)?;
    context.replies.count(value.len());
    Ok(())
}

fn strlen(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let entry = context.read(&args[1])?;
    context.replies.count(entry.map_or(0, |entry| entry.value.len()));
    Ok(())
}

fn getrange(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let start = number::parse_i64(&args[2]).ok_or(NOT_AN_INTEGER)?;
    let end = number::parse_i64(&args[3]).ok_or(NOT_AN_INTEGER)?;
    let entry = context.read(&args[1])?.unwrap_or_default();
    context.replies.bulk(part(&entry.value, start, end));
    Ok(())
}

/// Bytes from `start` to `end`, both inclusive and counted from the end if negative.
fn part(value: &[u8], start: i64, end: i64) -> &[u8] {
    let len = value.len() as i64;
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let from_end = |index: i64| if index < 0 { index.saturating_add(len).max(0) } else { index };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    if start > end { &[] } else { &value[start as usize..=end as usize] }
}

fn setrange(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, piece) = (&args[1], &args[3]);
    let offset = number::parse_i64(&args[2]).ok_or(NOT_AN_INTEGER)?;
    let offset = usize::try_from(offset).map_err(|_| reply_error("ERR offset is out of range"))?;
    let _guard = context.lock(key);
    let Entry { mut value, expires_at } = context.get(key)?.unwrap_or_default();
    // An empty piece creates no key and pads nothing.
    if !piece.is_empty() {
        let end = offset.saturating_add(piece.len());
        if end > context.database().max_value_bytes {
            return Err(TOO_LONG);
        }
        if value.len() < end {
            value.resize(end, 0);
        }
        value[offset..end].copy_from_slice(piece);
        context.put(key, &value, expires_at)?;
    }
    context.replies.count(value.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_clamped_to_the_value() {
        let value = b"This is a string";
        assert_eq!(part(value, 0, 3), b"This");
        assert_eq!(part(value, -3, -1), b"ing");
        assert_eq!(part(value, 0, -1), value);
        assert_eq!(part(value, 10, 100), b"string");
        assert_eq!(part(value, 5, 3), b"");
        assert_eq!(part(value, -1, -3), b"");
        assert_eq!(part(value, -100, 3), b"This");
        assert_eq!(part(value, 100, 200), b"");
        assert_eq!(part(value, i64::MIN, i64::MAX), value);
        assert_eq!(part(b"", 0, -1), b"");
    }
}
