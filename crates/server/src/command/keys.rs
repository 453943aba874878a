//! Keys: removing, renaming, copying, existence.
//!
//! Removing and renaming a collection changes its metadata alone, so the cost does not depend on
//! its size. COPY of a collection copies its elements in one batch.
//!
//! Source: the documentation of Redis's generic commands.

use siltstone_collections::{Encoding, Kind, List, Rows, StoredValue, WriteSet};

use super::context::Context;
use super::definition::{ALL_KEYS, FAST, ONE_KEY, READ, TWO_KEYS, WRITE};
use super::entry::{self, Command};
use super::failure::{
    Failure, NO_SUCH_KEY, NOT_AN_INTEGER, Outcome, SYNTAX, reply_error, unknown_subcommand,
    wrong_subcommand_arity,
};
use super::help;
use crate::resp::{Args, number};
use crate::store::locks::Guard;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, keys, handler, summary| {
        entry::command("generic", name, arity, flags, keys, handler, summary)
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
    ]
}

fn del(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let keys = args.from(1);
    let _guard = context.lock_many(keys.iter());
    if context.database().keyspace.is_some() {
        let removed = context.collections(|writes| {
            let mut removed = 0;
            for key in keys.iter() {
                removed += usize::from(writes.remove(key)?);
            }
            Ok(removed)
        })?;
        context.replies.count(removed);
        return Ok(());
    }
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
    // So that a key that is being renamed is counted once.
    let _guard = (args.len() > 2).then(|| context.lock_rows(args.from(1).iter()));
    let mut count = 0;
    for key in args.from(1).iter() {
        count += usize::from(context.peek_any(key)?.is_some());
    }
    context.replies.count(count);
    Ok(())
}

/// As EXISTS; records an access of the keys, also after CLIENT NO-TOUCH.
fn touch(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut count = 0;
    for key in args.from(1).iter() {
        if context.peek_any(key)?.is_some() {
            context.record_access(context.session.table, key);
            count += 1;
        }
    }
    context.replies.count(count);
    Ok(())
}

/// Name of the type of a value, as TYPE returns it.
pub(super) fn type_name(stored: &StoredValue) -> &'static str {
    stored.kind().map_or("string", Kind::name)
}

fn kind(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let name = context.peek_any(&args[1])?.map_or("none", |stored| type_name(&stored));
    context.replies.simple(name);
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
fn move_key(context: &mut Context<'_>, args: Args<'_>, may_replace: bool) -> Result<bool, Failure> {
    let (from, to) = (&args[1], &args[2]);
    let _guard = context.lock_many([from, to].into_iter());
    let stored = context.get_any(from)?.ok_or(NO_SUCH_KEY)?;
    if from == to {
        return Ok(may_replace);
    }
    let replaced = context.get_any(to)?;
    if !may_replace && replaced.is_some() {
        return Ok(false);
    }
    if [Some(&stored), replaced.as_ref()].into_iter().flatten().any(|s| s.metadata.is_some()) {
        return context.collections(|writes| Ok(writes.rename(from, to)?));
    }
    let entry = stored.entry;
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
                .filter(|index| *index < context.shared.select_count())
                .map(
                    |index| if context.shared.replication.is_some() { source_table } else { index },
                )
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
    let Some(stored) = context.get_any_in(source_table, from)? else {
        context.replies.flag(false);
        return Ok(());
    };
    let copies = may_replace || context.get_any_in(target_table, to)?.is_none();
    match stored.metadata {
        _ if !copies => {}
        None => context.write_in(target_table, |batch| {
            batch.put_entry(to, &stored.entry);
        })?,
        Some(_) => {
            let copy = |writes: &mut WriteSet<'_>, source: &dyn Rows| {
                Ok(writes.copy_from(source, from, to)?)
            };
            context.collections_in(target_table, copy)?;
        }
    }
    context.replies.flag(copies);
    Ok(())
}

/// Locks one key in each of two tables, in the order of the tables.
pub(super) fn lock_in_two<'a>(
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
    let Some(stored) = context.peek_any(key)? else {
        context.replies.null();
        return Ok(());
    };
    match word.as_slice() {
        b"encoding" => {
            let name = match stored.kind() {
                Some(Kind::List) => list_encoding(context, key)?,
                _ => encoding(&stored),
            };
            context.replies.bulk(name.as_bytes());
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

/// A list is compact by the sum of its elements.
fn list_encoding(context: &mut Context<'_>, key: &[u8]) -> Result<&'static str, Failure> {
    let is_compact = context.change(key, |writes| Ok(List::open(writes, key)?.fits_compact()?))?;
    Ok(if is_compact { "listpack" } else { "quicklist" })
}

/// The representation that Redis would choose.
fn encoding(stored: &StoredValue) -> &'static str {
    let Some(metadata) = stored.metadata else {
        let value = &stored.entry.value;
        return match (number::parse_i64(value).is_some(), value.len() <= 44) {
            (true, _) => "int",
            (false, true) => "embstr",
            (false, false) => "raw",
        };
    };
    match (metadata.kind, metadata.encoding) {
        (Kind::Stream, _) => "stream",
        (Kind::Set, Encoding::Integers) => "intset",
        (_, Encoding::Integers | Encoding::Compact) if metadata.field_expiry.is_some() => {
            "listpackex"
        }
        (_, Encoding::Integers | Encoding::Compact) => "listpack",
        (Kind::Hash | Kind::Set, Encoding::Large) => "hashtable",
        (Kind::List, Encoding::Large) => "quicklist",
        (Kind::SortedSet, Encoding::Large) => "skiplist",
    }
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
