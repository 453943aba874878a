//! String commands on whole values: GET, SET, MGET, MSET and their variants.
//!
//! Source: the documentation of Redis's string commands.

use siltstone_engine::{Entry, Timestamp};

use super::context::Context;
use super::definition::{ALL_KEYS, FAST, ONE_KEY, READ, WRITE};
use super::entry::{self, Command};
use super::expiry::{self, Unit};
use super::failure::{Failure, Outcome, SYNTAX, WRONG_TYPE, wrong_arity};
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, keys, handler, summary| {
        entry::command("string", name, arity, flags, keys, handler, summary)
    };
    vec![
        command("get", 2, READ | FAST, ONE_KEY, get, "Returns the value of a key."),
        command("set", -3, WRITE, ONE_KEY, set, "Sets the value of a key."),
        command("setnx", 3, WRITE | FAST, ONE_KEY, setnx, "Sets a key if it does not exist."),
        command("setex", 4, WRITE, ONE_KEY, setex, "Sets a value that expires after seconds."),
        command(
            "psetex",
            4,
            WRITE,
            ONE_KEY,
            psetex,
            "Sets a value that expires after milliseconds.",
        ),
        command(
            "getset",
            3,
            WRITE | FAST,
            ONE_KEY,
            getset,
            "Sets a value and returns the old one.",
        ),
        command("getdel", 2, WRITE | FAST, ONE_KEY, getdel, "Returns a value and removes the key."),
        command("getex", -2, WRITE | FAST, ONE_KEY, getex, "Returns a value and sets its expiry."),
        command("mget", -2, READ | FAST, ALL_KEYS, mget, "Returns the values of keys."),
        command("mset", -3, WRITE, (1, -1, 2), mset, "Sets keys atomically."),
        command("msetnx", -3, WRITE, (1, -1, 2), msetnx, "Sets keys if none exists."),
    ]
}

fn get(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    context.reply_string(&args[1])
}

fn reply_value(context: &mut Context<'_>, entry: Option<&Entry>) -> Outcome {
    context.replies.bulk_or_null(entry.map(|entry| entry.value.as_slice()));
    Ok(())
}

/// Options of SET.
#[derive(Default)]
struct SetOptions {
    only_if_missing: bool,
    only_if_exists: bool,
    return_old: bool,
    keep_expiry: bool,
    expires_at: Option<Timestamp>,
}

impl SetOptions {
    fn parse(context: &Context<'_>, args: Args<'_>) -> Result<Self, Failure> {
        let (mut options, mut time): (_, Option<(&[u8], Unit)>) = (Self::default(), None);
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            if is("nx") && !options.only_if_exists {
                options.only_if_missing = true;
            } else if is("xx") && !options.only_if_missing {
                options.only_if_exists = true;
            } else if is("get") {
                options.return_old = true;
            } else if is("keepttl") && time.is_none() {
                options.keep_expiry = true;
            } else if let Some(unit) = Unit::parse(word)
                // As in Redis, one unit may be repeated.
                && time.is_none_or(|(_, known)| known == unit)
                && !options.keep_expiry
            {
                time = Some((words.next().ok_or(SYNTAX)?, unit));
            } else {
                return Err(SYNTAX);
            }
        }
        // Syntax errors take precedence over invalid numbers.
        let time_ms = |(time, unit)| expiry::absolute_ms(context.now(), time, unit, "set");
        options.expires_at = time.map(time_ms).transpose()?;
        Ok(options)
    }
}

fn set(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = SetOptions::parse(context, args.from(3))?;
    let (key, value) = (&args[1], &args[2]);
    let _guard = context.lock(key);
    let needs_old = options.only_if_missing
        || options.only_if_exists
        || options.return_old
        || options.keep_expiry;
    // Any type is overwritten; only GET needs a string.
    let old = if needs_old { context.get_any(key)? } else { None };
    if options.return_old && old.as_ref().is_some_and(|old| old.metadata.is_some()) {
        return Err(WRONG_TYPE);
    }
    let old = old.map(|old| old.entry);
    let is_rejected = if old.is_some() { options.only_if_missing } else { options.only_if_exists };
    if !is_rejected {
        let kept = old.as_ref().and_then(|old| old.expires_at).filter(|_| options.keep_expiry);
        context.put(key, value, options.expires_at.or(kept))?;
    }
    match (options.return_old, is_rejected) {
        (true, _) => reply_value(context, old.as_ref())?,
        (false, true) => context.replies.null(),
        (false, false) => context.replies.ok(),
    }
    Ok(())
}

fn setnx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let _guard = context.lock(&args[1]);
    let is_new = !context.exists(&args[1])?;
    if is_new {
        context.put(&args[1], &args[2], None)?;
    }
    context.replies.flag(is_new);
    Ok(())
}

fn setex(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    set_for(context, args, Unit::Seconds, "setex")
}

fn psetex(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    set_for(context, args, Unit::Milliseconds, "psetex")
}

fn set_for(context: &mut Context<'_>, args: Args<'_>, unit: Unit, name: &str) -> Outcome {
    let expires_at = expiry::absolute_ms(context.now(), &args[2], unit, name)?;
    let _guard = context.lock(&args[1]);
    context.put(&args[1], &args[3], Some(expires_at))?;
    context.replies.ok();
    Ok(())
}

fn getset(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let _guard = context.lock(&args[1]);
    let old = context.read(&args[1])?;
    context.put(&args[1], &args[2], None)?;
    reply_value(context, old.as_ref())
}

fn getdel(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let _guard = context.lock(&args[1]);
    let old = context.read(&args[1])?;
    if old.is_some() {
        context.delete(&args[1])?;
    }
    reply_value(context, old.as_ref())
}

fn getex(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = &args[1];
    let mut change: Option<Option<(&[u8], Unit)>> = None;
    let mut words = args.from(2).iter();
    while let Some(word) = words.next() {
        let unit = if word.eq_ignore_ascii_case(b"persist") {
            None
        } else {
            Some(Unit::parse(word).ok_or(SYNTAX)?)
        };
        // As in Redis, one option may be repeated.
        if change.is_some_and(|known| known.map(|(_, unit)| unit) != unit) {
            return Err(SYNTAX);
        }
        change = Some(match unit {
            None => None,
            Some(unit) => Some((words.next().ok_or(SYNTAX)?, unit)),
        });
    }
    let _guard = change.map(|_| context.lock(key));
    let entry = context.read(key)?;
    // As in Redis, the time is not checked if the key does not exist.
    if let (Some(entry), Some(change)) = (&entry, change) {
        let time_ms = |(time, unit)| expiry::absolute_ms(context.now(), time, unit, "getex");
        let expires_at = change.map(time_ms).transpose()?;
        if entry.expires_at != expires_at {
            expiry::set(context, key, entry, expires_at)?;
        }
    }
    reply_value(context, entry.as_ref())
}

fn mget(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    // So that all values are of one moment: never one of an MSET, and not the other.
    let _guard = (args.len() > 2).then(|| context.lock_rows(args.from(1).iter()));
    context.replies.array(args.len() - 1);
    context.reply_strings(args.from(1))
}

/// Key-value pairs of MSET.
fn pairs<'a>(
    args: Args<'a>,
    name: &str,
) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a>, Failure> {
    if args.len().is_multiple_of(2) {
        return Err(wrong_arity(name));
    }
    let (keys, values) = (args.from(1).iter().step_by(2), args.from(2).iter().step_by(2));
    Ok(keys.zip(values))
}

fn mset(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let pairs = pairs(args, "mset")?;
    let _guard = context.lock_many(pairs.clone().map(|(key, _)| key));
    context.write(|batch| {
        for (key, value) in pairs {
            batch.put(key, value);
        }
    })?;
    context.replies.ok();
    Ok(())
}

fn msetnx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let pairs = pairs(args, "msetnx")?;
    let _guard = context.lock_many(pairs.clone().map(|(key, _)| key));
    for (key, _) in pairs.clone() {
        if context.exists(key)? {
            context.replies.flag(false);
            return Ok(());
        }
    }
    context.write(|batch| {
        for (key, value) in pairs {
            batch.put(key, value);
        }
    })?;
    context.replies.flag(true);
    Ok(())
}
