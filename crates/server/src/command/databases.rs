//! MOVE and SWAPDB.
//!
//! Databases are tables, each with its own log, so MOVE is two writes. The copy is made durable
//! before the key is removed: after a power cut the key is in one of the tables, or in both.
//!
//! SWAPDB exchanges the tables behind two numbers ([`Database::swap`]): one write of the store's
//! catalogue, which is atomic. The tables must be on one engine, since a command that does not lock
//! its keys may look at the kind of its table and then at the table. Numbers whose table memcached
//! or UDP clients use are refused: these clients name the table.
//!
//! Source: the documentation of Redis's MOVE and SWAPDB; replies of Redis 7.0.

use siltstone_collections::{Rows, WriteSet};

use super::connection::table_index;
use super::context::Context;
use super::definition::{FAST, NO_KEYS, ONE_KEY, WRITE};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, reply_error};
use super::keys::lock_in_two;
use crate::keyspace_events::EventClass;
use crate::resp::{Args, number};
use crate::store::Database;
use crate::store::write_batcher::KeyEvent;

pub(super) fn commands() -> Vec<Command> {
    let command = |group, name, flags, keys, handler, summary| {
        entry::command(group, name, 3, flags, keys, handler, summary)
    };
    vec![
        command("generic", "move", WRITE | FAST, ONE_KEY, move_key, "Moves a key to a table."),
        command("server", "swapdb", WRITE | FAST, NO_KEYS, swapdb, "Exchanges two tables."),
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

fn swapdb(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let shared = context.shared;
    if shared.replication.is_some() {
        return Err(reply_error("ERR SWAPDB is not allowed in cluster mode"));
    }
    let index =
        |at: usize, reason: &'static str| number::parse_i64(&args[at]).ok_or(reply_error(reason));
    let first = index(1, "ERR invalid first DB index")?;
    let second = index(2, "ERR invalid second DB index")?;
    let database = |index: i64| {
        let table = usize::try_from(index).ok().filter(|table| *table < shared.databases.len());
        table.ok_or(reply_error("ERR DB index is out of range"))
    };
    let (first, second) = (database(first)?, database(second)?);
    if context.is_in_transaction() {
        return Err(reply_error("ERR SWAPDB is not allowed in transactions and scripts"));
    }
    if first != second {
        // All tables are locked in the order of their numbers.
        let [lower, higher] = [first.min(second), first.max(second)];
        let [lower, higher] = [lower, higher].map(|table| &shared.databases[table]);
        let _guards = [lower.locks.all(), higher.locks.all()];
        check_swap(lower, higher)?;
        lower.swap(higher)?;
    }
    context.replies.ok();
    Ok(())
}

/// Refuses to exchange tables that differ in more than their contents.
fn check_swap(first: &Database, second: &Database) -> Result<(), Failure> {
    for database in [first, second] {
        if database.is_named_by_other_protocols() {
            let name = &database.name;
            return Err(Failure::Text(
                format!("ERR SWAPDB: memcached or UDP clients use the table '{name}'").into(),
            ));
        }
    }
    let (engine, other) = (first.engine.name(), second.engine.name());
    if engine != other {
        return Err(Failure::Text(
            format!(
                "ERR SWAPDB: the tables '{}' ({engine}) and '{}' ({other}) are on different engines",
                first.name, second.name
            )
            .into(),
        ));
    }
    Ok(())
}
