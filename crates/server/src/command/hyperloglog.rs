//! PFADD, PFCOUNT, PFMERGE: estimates of the number of distinct elements, in strings.
//!
//! A value is decoded, changed and written completely: up to 12 KiB ([`super::hll_registers`]).
//!
//! Source: the documentation of Redis's HyperLogLog commands.

use siltstone_engine::{Entry, Timestamp};

use super::context::Context;
use super::definition::{ALL_KEYS, FAST, ONE_KEY, READ, WRITE};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, reply_error};
use super::hll_registers::{FormatError, HyperLogLog};
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, flags, keys, handler, summary| {
        entry::command("hyperloglog", name, -2, flags, keys, handler, summary)
    };
    vec![
        command("pfadd", WRITE | FAST, ONE_KEY, pfadd, "Adds elements to a HyperLogLog."),
        command("pfcount", READ, ALL_KEYS, pfcount, "Estimates the number of distinct elements."),
        command("pfmerge", WRITE, ALL_KEYS, pfmerge, "Merges HyperLogLogs."),
    ]
}

/// Decodes the value of a key; an empty one if the key is missing.
fn decode(entry: Option<Entry>) -> Result<(HyperLogLog, Option<Timestamp>), Failure> {
    let Some(entry) = entry else { return Ok((HyperLogLog::new(), None)) };
    let log = HyperLogLog::decode(&entry.value).map_err(|error| match error {
        FormatError::OtherValue => {
            reply_error("WRONGTYPE Key is not a valid HyperLogLog string value.")
        }
        FormatError::Corrupt => reply_error("INVALIDOBJ Corrupted HLL object detected"),
    })?;
    Ok((log, entry.expires_at))
}

fn pfadd(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = &args[1];
    let _guard = context.lock(key);
    let entry = context.get(key)?;
    let is_new = entry.is_none();
    let (mut log, expires_at) = decode(entry)?;
    let mut is_changed = is_new;
    for element in args.from(2).iter() {
        is_changed |= log.add(element);
    }
    if is_changed {
        context.put(
            key,
            &log.encode(context.shared.settings.encodings.sparse_bytes()),
            expires_at,
        )?;
    }
    context.replies.flag(is_changed);
    Ok(())
}

fn pfcount(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut union = HyperLogLog::new();
    // All are of one moment.
    let _guard = (args.len() > 2).then(|| context.lock_rows(args.from(1).iter()));
    for key in args.from(1).iter() {
        let entry = context.read(key)?;
        union.merge(&decode(entry)?.0);
    }
    context.replies.count(union.count() as usize);
    Ok(())
}

fn pfmerge(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let target = &args[1];
    let _guard = context.lock_many(args.from(1).iter());
    let (mut union, expires_at) = decode(context.get(target)?)?;
    for key in args.from(2).iter() {
        union.merge(&decode(context.get(key)?)?.0);
    }
    context.put(
        target,
        &union.encode(context.shared.settings.encodings.sparse_bytes()),
        expires_at,
    )?;
    context.replies.ok();
    Ok(())
}
