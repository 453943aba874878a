//! Keys: removing, renaming, copying, existence.
//!
//! Source: the documentation of Redis's generic commands. TYPE is always string.

use super::failure::{
    NO_SUCH_KEY, NOT_AN_INTEGER, SYNTAX, reply_error, unknown_subcommand, wrong_subcommand_arity,
};
use super::{ALL_KEYS, Command, Context, FAST, ONE_KEY, Outcome, READ, TWO_KEYS, WRITE, help};
use crate::resp::{Args, number};
use crate::store::locks::Guard;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, keys, handler, summary| {
        super::command("generic", name, arity, flags, keys, handler, summary)
    };
    vec![
        command("del", -2, WRITE, ALL_KEYS, del, "Removes keys."),
        command("unlink", -2, WRITE | FAST, ALL_KEYS, del, "Removes keys."),
        command("exists", -2, READ | FAST, ALL_KEYS, exists, "Counts existing keys."),
        command(
            "touch",
            -2,
            READ | FAST,
            ALL_KEYS,
            touch,
            "Counts existing keys and marks them as accessed.",
        ),
        command("type", 2, READ | FAST, ONE_KEY, kind, "Returns the type of a value."),
        command("rename", 3, WRITE, TWO_KEYS, rename, "Renames a key."),
        command(
            "renamenx",
            3,
            WRITE | FAST,
            TWO_KEYS,
            renamenx,
            "Renames a key if the new name does not exist.",
        ),
        command("copy", -3, WRITE, TWO_KEYS, copy, "Copies a value to another key."),
        command("object", -2, READ, (2, 2, 1), object, "Returns how a value is stored."),
        command("memory", -2, READ, (2, 2, 1), memory, "Returns the size of a value."),
    ]
}

fn del(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let keys = args.from(1);
    let _guard = context.lock_many(keys.iter());
    let mut existing = Vec::new();
    for key in keys.iter() {
        if context.exists(key)? {
            existing.push(key);
        }
    }
    // A key named twice is removed once.
    existing.sort_unstable();
    existing.dedup();
    if !existing.is_empty() {
        context.write(|batch| {
            for key in &existing {
                batch.delete(key);
            }
        })?;
    }
    context.replies.count(existing.len());
    Ok(())
}

fn exists(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut count = 0;
    for key in args.from(1).iter() {
        count += usize::from(context.peek(key)?.is_some());
    }
    context.replies.count(count);
    Ok(())
}

/// As EXISTS; records an access of the keys.
fn touch(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut count = 0;
    for key in args.from(1).iter() {
        count += usize::from(context.read(key)?.is_some());
    }
    context.replies.count(count);
    Ok(())
}

fn kind(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let exists = context.peek(&args[1])?.is_some();
    context.replies.simple(if exists { "string" } else { "none" });
    Ok(())
}

fn rename(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    move_key(context, args, true)?;
    context.replies.ok();
    Ok(())
}

fn renamenx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let moved = move_key(context, args, false)?;
    context.replies.flag(moved);
    Ok(())
}

/// Moves an entry with its expiry in one batch. Returns whether it was moved.
fn move_key(
    context: &mut Context<'_>,
    args: Args<'_>,
    may_replace: bool,
) -> Result<bool, super::Failure> {
    let (from, to) = (&args[1], &args[2]);
    let _guard = context.lock_many([from, to].into_iter());
    let entry = context.get(from)?.ok_or(NO_SUCH_KEY)?;
    if from == to {
        return Ok(may_replace);
    }
    if !may_replace && context.exists(to)? {
        return Ok(false);
    }
    context.write(|batch| {
        batch.delete(from).put_entry(to, &entry);
    })?;
    Ok(true)
}

fn copy(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (from, to) = (&args[1], &args[2]);
    let (source_table, mut target_table, mut may_replace) =
        (context.session.table, context.session.table, false);
    let mut options = args.from(3).iter();
    while let Some(word) = options.next() {
        if word.eq_ignore_ascii_case(b"replace") {
            may_replace = true;
        } else if word.eq_ignore_ascii_case(b"db") {
            let index = options.next().ok_or(SYNTAX)?;
            let index = number::parse_i64(index).ok_or(NOT_AN_INTEGER)?;
            target_table = usize::try_from(index)
                .ok()
                .filter(|index| *index < context.shared.databases.len())
                .ok_or(reply_error("ERR DB index is out of range"))?;
        } else {
            return Err(SYNTAX);
        }
    }
    if from == to && source_table == target_table {
        return Err(reply_error("ERR source and destination objects are the same"));
    }
    if context.is_in_transaction() && source_table != target_table {
        return Err(reply_error(
            "ERR COPY to another DB is not allowed in transactions: they write to one table",
        ));
    }
    let _guards = lock_in_two(context, source_table, from, target_table, to);
    let Some(entry) = context.get_in(source_table, from)? else {
        context.replies.flag(false);
        return Ok(());
    };
    let copies = may_replace || context.get_in(target_table, to)?.is_none();
    if copies {
        context.write_in(target_table, |batch| {
            batch.put_entry(to, &entry);
        })?;
    }
    context.replies.flag(copies);
    Ok(())
}

/// Locks one key in each of two tables, in the order of the tables.
fn lock_in_two<'a>(
    context: &Context<'a>,
    source_table: usize,
    from: &[u8],
    target_table: usize,
    to: &[u8],
) -> [Guard<'a>; 2] {
    let databases = &context.shared.databases;
    if source_table == target_table {
        return [context.lock_many([from, to].into_iter()), Guard::AlreadyHeld];
    }
    let mut keys = [(source_table, from), (target_table, to)];
    keys.sort_by_key(|(table, _)| *table);
    keys.map(|(table, key)| databases[table].locks.one(key))
}

fn object(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let word = args[1].to_ascii_lowercase();
    match (word.as_slice(), args.len()) {
        (b"help", 2) => return help::reply(context.replies, "OBJECT", &OBJECT_HELP),
        (b"encoding" | b"refcount" | b"idletime" | b"freq", 3) => {}
        (b"help" | b"encoding" | b"refcount" | b"idletime" | b"freq", _) => {
            return Err(wrong_subcommand_arity("object", &word));
        }
        _ => return Err(unknown_subcommand("OBJECT", &args[1])),
    }
    let key = &args[2];
    let Some(entry) = context.peek(key)? else {
        context.replies.null();
        return Ok(());
    };
    match word.as_slice() {
        b"encoding" => {
            let is_int = number::parse_i64(&entry.value).is_some();
            let is_short = entry.value.len() <= 44;
            let encoding = match (is_int, is_short) {
                (true, _) => "int",
                (false, true) => "embstr",
                (false, false) => "raw",
            };
            context.replies.bulk(encoding.as_bytes());
        }
        b"refcount" => context.replies.int(1),
        b"idletime" => {
            let times = &context.shared.access_times;
            let idle = times.idle_seconds(context.session.table, key);
            context.replies.int(i64::from(idle));
        }
        _ => {
            return Err(reply_error(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
                 note that when switching between policies at runtime LRU and LFU data will take \
                 some time to adjust.",
            ));
        }
    }
    Ok(())
}

const OBJECT_HELP: [&str; 10] = [
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return an error: access frequencies are not tracked.",
    "IDLETIME <key>",
    "    Return the idle time of the <key>, that is the least number of",
    "    seconds elapsed since the last access to the key.",
    "REFCOUNT <key>",
    "    Return the number of references of the value: 1.",
];

fn memory(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let word = args[1].to_ascii_lowercase();
    match (word.as_slice(), args.len()) {
        (b"help", 2) => return help::reply(context.replies, "MEMORY", &MEMORY_HELP),
        (b"usage", 3) => {}
        (b"usage", 5) if args[3].eq_ignore_ascii_case(b"samples") => {
            // A string is a single value, so there is nothing to sample.
            if number::parse_i64(&args[4]).ok_or(NOT_AN_INTEGER)? < 0 {
                return Err(SYNTAX);
            }
        }
        (b"usage", 4..) => return Err(SYNTAX),
        (b"help" | b"usage", _) => return Err(wrong_subcommand_arity("memory", &word)),
        _ => return Err(unknown_subcommand("MEMORY", &args[1])),
    }
    match context.peek(&args[2])? {
        Some(entry) => context.replies.count(args[2].len() + entry.value.len()),
        None => context.replies.null(),
    }
    Ok(())
}

const MEMORY_HELP: [&str; 2] =
    ["USAGE <key> [SAMPLES <count>]", "    Return the bytes of <key> and its value."];
