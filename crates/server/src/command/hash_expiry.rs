//! Expiry of a hash's fields.
//!
//! As for keys, an expiry is a time in milliseconds since 1970: a relative time is made absolute
//! before anything is written. A reply has a number per field.
//!
//! | reply | HEXPIRE and its variants | HPERSIST | HTTL and its variants |
//! | --- | --- | --- | --- |
//! | -2 | no such field | no such field | no such field |
//! | -1 | | no expiry | no expiry |
//! | 0 | the condition is not met | | |
//! | 1 | set | removed | |
//! | 2 | the time has passed: the field was removed | | |
//!
//! Source: the documentation of the commands on fields of Redis 7.4.

use siltstone_collections::{ExpiryChange, Hash};
use siltstone_engine::Timestamp;

use super::context::Context;
use super::definition::{FAST, ONE_KEY, READ, WRITE};
use super::elements::{integer, is};
use super::entry::{self, Command};
use super::events::name_event;
use super::expiry::{Conditions, Unit, invalid_time};
use super::failure::{Failure, Outcome, reply_error};
use crate::keyspace_events::EventClass;
use crate::resp::Args;
use crate::resp::number::parse_i64;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, handler, summary| {
        entry::command("hash", name, arity, flags | FAST, ONE_KEY, handler, summary)
    };
    vec![
        command("hexpire", -6, WRITE, hexpire, "Sets the time to live of fields in seconds."),
        command("hpexpire", -6, WRITE, hpexpire, "Sets the time to live of fields in ms."),
        command("hexpireat", -6, WRITE, hexpireat, "Sets the expiry of fields as a Unix time."),
        command(
            "hpexpireat",
            -6,
            WRITE,
            hpexpireat,
            "Sets the expiry of fields as a Unix time in ms.",
        ),
        command("httl", -5, READ, httl, "Returns the time to live of fields in seconds."),
        command("hpttl", -5, READ, hpttl, "Returns the time to live of fields in ms."),
        command(
            "hexpiretime",
            -5,
            READ,
            hexpiretime,
            "Returns the expiry of fields as a Unix time.",
        ),
        command(
            "hpexpiretime",
            -5,
            READ,
            hpexpiretime,
            "Returns the expiry of fields as a Unix time in ms.",
        ),
        command("hpersist", -5, WRITE, hpersist, "Removes the expiry of fields."),
    ]
}

/// The latest expiry of a field, in milliseconds since 1970, as in Redis.
const MAX_TIME_MS: i64 = (1 << 46) - 1;

const NO_FIELD: i64 = -2;
const NO_EXPIRY: i64 = -1;

/// `FIELDS n f…` at a position. `bad_number` is the error for a number below 1.
fn fields<'a>(args: Args<'a>, at: usize, bad_number: &'static str) -> Result<Args<'a>, Failure> {
    if !args.get(at).is_some_and(|word| is(word, "fields")) {
        return Err(reply_error(
            "ERR Mandatory argument FIELDS is missing or not at the right position",
        ));
    }
    let number = args.get(at + 1).and_then(parse_i64).filter(|number| *number > 0);
    let number = number.ok_or(reply_error(bad_number))?;
    let fields = args.from(at + 2);
    match usize::try_from(number) == Ok(fields.len()) {
        true => Ok(fields),
        false => {
            Err(reply_error("ERR The `numfields` parameter must match the number of arguments"))
        }
    }
}

/// Parses a time, and makes it absolute.
fn time_ms(word: &[u8], unit: Unit, now: Timestamp, name: &str) -> Result<i64, Failure> {
    let time = integer(word)?;
    if time < 0 {
        return Err(reply_error("ERR invalid expire time, must be >= 0"));
    }
    let time_ms = unit.absolute_ms(now, time);
    time_ms.filter(|time_ms| (0..=MAX_TIME_MS).contains(time_ms)).ok_or_else(|| invalid_time(name))
}

fn hexpire(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire_with(context, args, Unit::Seconds, "hexpire")
}

fn hpexpire(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire_with(context, args, Unit::Milliseconds, "hpexpire")
}

fn hexpireat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire_with(context, args, Unit::UnixSeconds, "hexpireat")
}

fn hpexpireat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire_with(context, args, Unit::UnixMilliseconds, "hpexpireat")
}

fn expire_with(context: &mut Context<'_>, args: Args<'_>, unit: Unit, name: &str) -> Outcome {
    let now = context.now();
    let changes = context.change(&args[1], |writes| {
        // As in Redis, a key of another type is reported before a wrong argument.
        let mut hash = Hash::open(writes, &args[1])?;
        let time_ms = time_ms(&args[2], unit, now, name)?;
        let mut conditions = Conditions::default();
        let at = if conditions.add(&args[3]) { 4 } else { 3 };
        let fields = fields(args, at, "ERR Parameter `numFields` should be greater than 0")?;
        let mut changes = Vec::with_capacity(fields.len());
        for field in fields.iter() {
            let allows = |old| conditions.allow(old, time_ms);
            changes.push(hash.set_expiry(field, Some(time_ms as u64), allows)?);
        }
        Ok(changes)
    })?;
    // As in Redis, one event: that of the removal if there was one.
    if changes.contains(&ExpiryChange::Removed) {
        name_event(context, &args[1], EventClass::HASH, "hdel");
    } else if changes.contains(&ExpiryChange::Changed) {
        name_event(context, &args[1], EventClass::HASH, "hexpire");
    }
    reply(
        context,
        changes.into_iter().map(|change| match change {
            ExpiryChange::NoField => NO_FIELD,
            ExpiryChange::Refused => 0,
            ExpiryChange::Changed => 1,
            ExpiryChange::Removed => 2,
        }),
    )
}

fn hpersist(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let changes = context.change(&args[1], |writes| {
        let mut hash = Hash::open(writes, &args[1])?;
        let fields = fields(args, 2, BAD_NUMBER)?;
        let mut changes = Vec::with_capacity(fields.len());
        for field in fields.iter() {
            changes.push(hash.set_expiry(field, None, |old| old.is_some())?);
        }
        Ok(changes)
    })?;
    if changes.contains(&ExpiryChange::Changed) {
        name_event(context, &args[1], EventClass::HASH, "hpersist");
    }
    reply(
        context,
        changes.into_iter().map(|change| match change {
            ExpiryChange::NoField => NO_FIELD,
            ExpiryChange::Refused => NO_EXPIRY,
            ExpiryChange::Changed | ExpiryChange::Removed => 1,
        }),
    )
}

const BAD_NUMBER: &str = "ERR Number of fields must be a positive integer";

fn httl(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_expiries(context, args, |at, now| at.saturating_sub(now).div_ceil(1000))
}

fn hpttl(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_expiries(context, args, |at, now| at.saturating_sub(now))
}

fn hexpiretime(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_expiries(context, args, |at, _| at.div_ceil(1000))
}

fn hpexpiretime(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_expiries(context, args, |at, _| at)
}

/// Replies with `show` of each field's expiry and of now.
fn reply_expiries(
    context: &mut Context<'_>,
    args: Args<'_>,
    show: impl Fn(Timestamp, Timestamp) -> u64,
) -> Outcome {
    let expiries = context.view(&args[1], |writes| {
        let hash = Hash::open(writes, &args[1])?;
        let fields = fields(args, 2, BAD_NUMBER)?;
        fields.iter().map(|field| Ok(hash.expiry(field)?)).collect::<Result<Vec<_>, Failure>>()
    })?;
    let now = context.now();
    reply(
        context,
        expiries.into_iter().map(|expiry| match expiry {
            None => NO_FIELD,
            Some(None) => NO_EXPIRY,
            Some(Some(at)) => i64::try_from(show(at, now)).unwrap_or(i64::MAX),
        }),
    )
}

fn reply(context: &mut Context<'_>, numbers: impl ExactSizeIterator<Item = i64>) -> Outcome {
    context.replies.array(numbers.len());
    numbers.for_each(|number| context.replies.int(number));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_beyond_those_of_redis_are_refused() {
        let now = 1_800_000_000_000;
        let parse = |word: &str, unit| time_ms(word.as_bytes(), unit, now, "hexpire");
        assert_eq!(parse("1", Unit::Seconds).unwrap(), now as i64 + 1000);
        assert_eq!(parse("0", Unit::UnixSeconds).unwrap(), 0);
        let max = MAX_TIME_MS.to_string();
        assert_eq!(parse(&max, Unit::UnixMilliseconds).unwrap(), MAX_TIME_MS);
        assert!(parse(&max, Unit::Milliseconds).is_err());
        assert!(parse("9223372036854775807", Unit::Seconds).is_err());
        assert!(parse("-1", Unit::Seconds).is_err());
        assert!(parse("x", Unit::Seconds).is_err());
    }
}
