//! Expiry of keys.
//!
//! An expiry is a time in milliseconds since 1970, stored by the engine with the entry; from then
//! on the key reads as missing. Setting an expiry in the past removes the key at once.
//!
//! Source: the documentation of Redis's EXPIRE and TTL commands.

use siltstone_collections::StoredValue;
use siltstone_engine::{Entry, Result, Timestamp, clock};

use super::context::Context;
use super::definition::{FAST, ONE_KEY, READ, WRITE};
use super::entry::{self, Command};
use super::failure::{Failure, NOT_AN_INTEGER, Outcome, reply_error};
use crate::resp::{Args, number};

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, handler, summary| {
        entry::command("generic", name, arity, flags | FAST, ONE_KEY, handler, summary)
    };
    vec![
        command("expire", -3, WRITE, expire, "Sets the time to live of a key in seconds."),
        command("pexpire", -3, WRITE, pexpire, "Sets the time to live of a key in milliseconds."),
        command("expireat", -3, WRITE, expireat, "Sets the expiry of a key as a Unix time."),
        command(
            "pexpireat",
            -3,
            WRITE,
            pexpireat,
            "Sets the expiry of a key as a Unix time in ms.",
        ),
        command("ttl", 2, READ, ttl, "Returns the time to live of a key in seconds."),
        command("pttl", 2, READ, pttl, "Returns the time to live of a key in milliseconds."),
        command("expiretime", 2, READ, expiretime, "Returns the expiry of a key as a Unix time."),
        command(
            "pexpiretime",
            2,
            READ,
            pexpiretime,
            "Returns the expiry of a key as a Unix time in ms.",
        ),
        command("persist", 2, WRITE, persist, "Removes the expiry of a key."),
    ]
}

/// Unit of a time argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

impl Unit {
    /// Parses an option of SET and GETEX.
    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        match word.to_ascii_lowercase().as_slice() {
            b"ex" => Some(Unit::Seconds),
            b"px" => Some(Unit::Milliseconds),
            b"exat" => Some(Unit::UnixSeconds),
            b"pxat" => Some(Unit::UnixMilliseconds),
            _ => None,
        }
    }

    /// Converts to an absolute time; `None` if it exceeds 63 bits.
    pub(super) fn absolute_ms(self, now: Timestamp, time: i64) -> Option<i64> {
        let millis = match self {
            Unit::Seconds | Unit::UnixSeconds => time.checked_mul(1000)?,
            Unit::Milliseconds | Unit::UnixMilliseconds => time,
        };
        match self {
            Unit::Seconds | Unit::Milliseconds => millis.checked_add(i64::try_from(now).ok()?),
            Unit::UnixSeconds | Unit::UnixMilliseconds => Some(millis),
        }
    }
}

pub(super) fn invalid_time(command: &str) -> Failure {
    format!("ERR invalid expire time in '{command}' command").into()
}

/// Absolute time of an option such as `EX 10`; it must be after 1970.
pub(super) fn absolute_ms(
    now: Timestamp,
    time: &[u8],
    unit: Unit,
    command: &str,
) -> Result<Timestamp, Failure> {
    let time = number::parse_i64(time).ok_or(NOT_AN_INTEGER)?;
    if time <= 0 {
        return Err(invalid_time(command));
    }
    let time_ms = unit.absolute_ms(now, time).and_then(|time_ms| u64::try_from(time_ms).ok());
    time_ms.ok_or_else(|| invalid_time(command))
}

/// Sets the expiry of a value of any type, and returns whether it still exists. The caller holds
/// the key's lock.
fn set_any(
    context: &mut Context<'_>,
    key: &[u8],
    stored: &StoredValue,
    expires_at: Option<Timestamp>,
) -> Result<bool, Failure> {
    if stored.metadata.is_none() {
        set(context, key, &stored.entry, expires_at)?;
        return Ok(true);
    }
    // Background work keeps the elements until the write.
    let _stopped = clock::stop();
    context.collections(|writes| Ok(writes.set_expiry(key, expires_at)?))
}

/// Sets the expiry of a string; one in the past removes the key. The caller holds the key's lock.
pub(super) fn set(
    context: &mut Context<'_>,
    key: &[u8],
    entry: &Entry,
    expires_at: Option<Timestamp>,
) -> Result<()> {
    match expires_at {
        Some(at) if at <= context.now() => context.delete(key),
        _ => context.put(key, &entry.value, expires_at),
    }
}

fn expire(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire_with(context, args, Unit::Seconds, "expire")
}

fn pexpire(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire_with(context, args, Unit::Milliseconds, "pexpire")
}

fn expireat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire_with(context, args, Unit::UnixSeconds, "expireat")
}

fn pexpireat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire_with(context, args, Unit::UnixMilliseconds, "pexpireat")
}

/// When a new expiry may replace the old one: always by default.
#[derive(Default)]
pub(super) struct Conditions {
    without_expiry: bool,
    with_expiry: bool,
    later: bool,
    earlier: bool,
}

impl Conditions {
    fn parse(args: Args<'_>) -> Result<Self, Failure> {
        let mut conditions = Self::default();
        for word in args.iter() {
            if !conditions.add(word) {
                let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
                return Err(format!("ERR Unsupported option {word}").into());
            }
        }
        let Conditions { without_expiry, with_expiry, later, earlier } = conditions;
        if without_expiry && (with_expiry || later || earlier) {
            return Err(reply_error(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if later && earlier {
            return Err(reply_error("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    /// Adds the condition of a word; `false` if it names none.
    pub(super) fn add(&mut self, word: &[u8]) -> bool {
        match word.to_ascii_lowercase().as_slice() {
            b"nx" => self.without_expiry = true,
            b"xx" => self.with_expiry = true,
            b"gt" => self.later = true,
            b"lt" => self.earlier = true,
            _ => return false,
        }
        true
    }

    /// Whether a new expiry may replace the old; no expiry counts as the latest.
    pub(super) fn allow(&self, old: Option<Timestamp>, new: i64) -> bool {
        let has_expiry = old.is_some();
        let old = old.map_or(i64::MAX, |at| i64::try_from(at).unwrap_or(i64::MAX));
        !(self.without_expiry && has_expiry
            || self.with_expiry && !has_expiry
            || self.later && new <= old
            || self.earlier && new >= old)
    }
}

fn expire_with(context: &mut Context<'_>, args: Args<'_>, unit: Unit, name: &str) -> Outcome {
    let conditions = Conditions::parse(args.from(3))?;
    let time = number::parse_i64(&args[2]).ok_or(NOT_AN_INTEGER)?;
    let time_ms = unit.absolute_ms(context.now(), time).ok_or_else(|| invalid_time(name))?;
    let _guard = context.lock(&args[1]);
    let stored = context.get_any(&args[1])?;
    let stored = stored.filter(|stored| conditions.allow(stored.entry.expires_at, time_ms));
    let is_set = match &stored {
        None => false,
        // A time before 1970 is in the past like any other.
        Some(stored) => {
            set_any(context, &args[1], stored, Some(u64::try_from(time_ms).unwrap_or(0)))?
        }
    };
    context.replies.flag(is_set);
    Ok(())
}

/// Replies with `show` of the expiry: -2 without the key, -1 without an expiry.
fn reply_expiry(
    context: &mut Context<'_>,
    args: Args<'_>,
    show: impl FnOnce(Timestamp, Timestamp) -> u64,
) -> Outcome {
    let reply = match context.peek_any(&args[1])?.map(|stored| stored.entry) {
        None => -2,
        Some(Entry { expires_at: None, .. }) => -1,
        Some(Entry { expires_at: Some(at), .. }) => {
            i64::try_from(show(at, context.now())).unwrap_or(i64::MAX)
        }
    };
    context.replies.int(reply);
    Ok(())
}

fn ttl(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_expiry(context, args, |at, now| (at.saturating_sub(now) + 500) / 1000)
}

fn pttl(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_expiry(context, args, |at, now| at.saturating_sub(now))
}

fn expiretime(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_expiry(context, args, |at, _| at.saturating_add(500) / 1000)
}

fn pexpiretime(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_expiry(context, args, |at, _| at)
}

fn persist(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let _guard = context.lock(&args[1]);
    let stored = context.get_any(&args[1])?.filter(|stored| stored.entry.expires_at.is_some());
    let is_set = match &stored {
        None => false,
        Some(stored) => set_any(context, &args[1], stored, None)?,
    };
    context.replies.flag(is_set);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_near_the_maximum_are_rejected() {
        let now = 1_800_000_000_000;
        assert_eq!(Unit::Seconds.absolute_ms(now, 1), Some(now as i64 + 1000));
        assert_eq!(Unit::Seconds.absolute_ms(now, i64::MAX / 1000 + 1), None);
        assert_eq!(Unit::Milliseconds.absolute_ms(now, i64::MAX), None);
        assert_eq!(Unit::UnixMilliseconds.absolute_ms(now, i64::MAX), Some(i64::MAX));
        assert!(absolute_ms(now, b"9223372036854775807", Unit::Milliseconds, "set").is_err());
        assert!(absolute_ms(now, b"0", Unit::Seconds, "set").is_err());
    }

    #[test]
    fn conditions_compare_with_no_expiry_as_the_latest() {
        let parse = |words: &str| {
            let spans = [crate::resp::Span { start: 0, end: words.len() }];
            Conditions::parse(Args::new(words.as_bytes(), &spans))
        };
        assert!(!parse("gt").unwrap().allow(None, 5));
        assert!(parse("lt").unwrap().allow(None, 5));
        assert!(parse("GT").unwrap().allow(Some(4), 5));
        assert!(!parse("xx").unwrap().allow(None, 5));
        assert!(!parse("nx").unwrap().allow(Some(4), 5));
        assert!(parse("nx").unwrap().allow(None, 5));
        assert!(parse("xx").unwrap().allow(Some(4), 5));
        // A time that stays as it is.
        assert!(!parse("gt").unwrap().allow(Some(5), 5));
        assert!(!parse("lt").unwrap().allow(Some(5), 5));
        // The maximum time is a time, not "no expiry".
        assert!(!parse("nx").unwrap().allow(Some(i64::MAX as u64), 5));
        assert!(parse("xx").unwrap().allow(Some(i64::MAX as u64), 5));
        assert!(parse("zz").is_err());
    }
}
