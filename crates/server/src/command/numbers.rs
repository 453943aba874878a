//! Values as numbers: INCR and related commands.
//!
//! A number is stored as decimal text, as in Redis. The key's lock is held from the read to the
//! write, so no increment is lost.
//!
//! Source: the documentation of Redis's INCR commands.

use siltstone_engine::Entry;

use super::context::Context;
use super::decimal::{self, DecimalError};
use super::definition::{FAST, ONE_KEY, WRITE};
use super::entry::{self, Command};
use super::failure::{NOT_AN_INTEGER, Outcome, reply_error};
use crate::resp::Args;
use crate::resp::number::{Digits, parse_i64};

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, handler, summary| {
        entry::command("string", name, arity, WRITE | FAST, ONE_KEY, handler, summary)
    };
    vec![
        command("incr", 2, incr, "Adds one to a number."),
        command("decr", 2, decr, "Subtracts one from a number."),
        command("incrby", 3, incrby, "Adds an integer to a number."),
        command("decrby", 3, decrby, "Subtracts an integer from a number."),
        command("incrbyfloat", 3, incrbyfloat, "Adds a fraction to a number."),
    ]
}

fn incr(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    add(context, &args[1], 1)
}

fn decr(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    add(context, &args[1], -1)
}

fn incrby(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    add(context, &args[1], parse_i64(&args[2]).ok_or(NOT_AN_INTEGER)?)
}

fn decrby(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let step = parse_i64(&args[2]).ok_or(NOT_AN_INTEGER)?;
    let step = step.checked_neg().ok_or(reply_error("ERR decrement would overflow"))?;
    add(context, &args[1], step)
}

fn add(context: &mut Context<'_>, key: &[u8], step: i64) -> Outcome {
    let _guard = context.lock(key);
    let old = context.get(key)?.unwrap_or_else(|| Entry::new(*b"0"));
    let number = parse_i64(&old.value).ok_or(NOT_AN_INTEGER)?;
    let overflow = reply_error("ERR increment or decrement would overflow");
    let sum = number.checked_add(step).ok_or(overflow)?;
    context.put(key, Digits::new(sum).as_bytes(), old.expires_at)?;
    context.replies.int(sum);
    Ok(())
}

fn incrbyfloat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let reject = |error| match error {
        DecimalError::NotANumber => reply_error("ERR value is not a valid float"),
        DecimalError::NotFinite => reply_error("ERR increment would produce NaN or Infinity"),
    };
    let key = &args[1];
    decimal::parse_double(&args[2]).map_err(reject)?;
    let _guard = context.lock(key);
    let old = context.get(key)?.unwrap_or_else(|| Entry::new(*b"0"));
    let sum = decimal::add(&old.value, &args[2]).map_err(reject)?;
    context.put(key, sum.as_bytes(), old.expires_at)?;
    context.replies.bulk(sum.as_bytes());
    Ok(())
}
