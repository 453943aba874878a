//! MOVE, and why there is no SWAPDB.
//!
//! Databases are tables, each with its own log, so MOVE is two writes. The copy is made durable
//! before the key is removed: after a power cut the key is in one of the tables, or in both.
//!
//! Source: the documentation of Redis's MOVE; replies of Redis 7.0.

use siltstone_collections::{Rows, WriteSet};

use super::connection::table_index;
use super::context::Context;
use super::definition::{ADMIN, FAST, NO_KEYS, ONE_KEY, WRITE};
use super::entry::{self, Command};
use super::failure::{Outcome, reply_error};
use super::keys::lock_in_two;
use crate::keyspace_events::EventClass;
use crate::resp::Args;
use crate::store::write_batcher::KeyEvent;

pub(super) fn commands() -> Vec<Command> {
    let command = |group, name, flags, keys, handler, summary| {
        entry::command(group, name, 3, flags, keys, handler, summary)
    };
    vec![
        command("generic", "move", WRITE | FAST, ONE_KEY, move_key, "Moves a key to a table."),
        command("server", "swapdb", ADMIN | FAST, NO_KEYS, swapdb, "Not supported."),
    ]
}

fn move_key(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, source_table) = (&args[1], context.session.table);
    let target_table = table_index(context, &args[2])?;
    if source_table == target_table {
        return Err(reply_error("ERR source and destination objects are the same"));
    }
    if context.is_in_transaction() {
        return Err(reply_error(
            "ERR MOVE is not allowed in transactions: they write to one table",
        ));
    }
    let _guards = lock_in_two(context, source_table, key, target_table, key);
    let stored = context.get_any(key)?;
    let (Some(stored), None) = (stored, context.get_any_in(target_table, key)?) else {
        context.replies.flag(false);
        return Ok(());
    };
    let is_collection = stored.metadata.is_some();
    if is_collection {
        let copy =
            |writes: &mut WriteSet<'_>, source: &dyn Rows| Ok(writes.copy_from(source, key, key)?);
        context.collections_in(target_table, copy)?;
    } else {
        context.write_in(target_table, |batch| {
            batch.put_entry(key, &stored.entry);
        })?;
    }
    context.shared.databases[target_table].engine.sync()?;
    if is_collection {
        context.collections(|writes| Ok(writes.remove(key)?))?;
    } else {
        context.delete(key)?;
    }
    context.batcher.key_writes.clear();
    if context.shared.observers.has_events() {
        let class = EventClass::GENERIC;
        for (table, event) in [(source_table, "move_from"), (target_table, "move_to")] {
            context.batcher.events.push(KeyEvent { table, class, event, key: key.to_vec() });
        }
    }
    context.replies.flag(true);
    Ok(())
}

fn swapdb(_context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    Err(reply_error(
        "ERR SWAPDB is not supported: a database is a table, which keeps its name and its engine",
    ))
}
