//! Which keyspace events a command causes: from the keys that it wrote and its name.
//!
//! Handlers know nothing of events, except those whose events depend on what they did
//! ([`name_event`]). [`Context`] notes the written keys while events are published, and after the
//! handler [`derive()`] names the events. They are published when the
//! writes have been applied: at the end of the command, or of EXEC.
//!
//! Source: the documentation of Redis's keyspace notifications.

use siltstone_engine::{Op, WriteBatch};

use super::context::Context;
use super::definition::Definition;
use crate::keyspace_events::EventClass;
use crate::resp::Args;
use crate::shared::Shared;
use crate::store::write_batcher::{KeyEvent, KeyWrite, WriteBatcher};

/// Event of the commands that write a key, and its class. Commands whose event depends on the key
/// or on what they did are in [`events_of`].
const EVENTS: [(EventClass, &str, &[&str]); 41] = [
    (
        EventClass::STRING,
        "set",
        &["set", "setex", "psetex", "setnx", "getset", "mset", "msetnx", "bitop"],
    ),
    (EventClass::STRING, "incrby", &["incr", "incrby", "decr", "decrby"]),
    (EventClass::STRING, "incrbyfloat", &["incrbyfloat"]),
    (EventClass::STRING, "append", &["append"]),
    (EventClass::STRING, "setrange", &["setrange"]),
    (EventClass::STRING, "setbit", &["setbit", "bitfield"]),
    (EventClass::STRING, "pfadd", &["pfadd", "pfmerge"]),
    (EventClass::GENERIC, "expire", &["expire", "pexpire", "expireat", "pexpireat"]),
    (EventClass::GENERIC, "persist", &["persist"]),
    (EventClass::GENERIC, "rename_to", &["rename", "renamenx"]),
    (EventClass::GENERIC, "copy_to", &["copy"]),
    (EventClass::GENERIC, "restore", &["restore", "restore-asking"]),
    (EventClass::LIST, "lpush", &["lpush", "lpushx"]),
    (EventClass::LIST, "rpush", &["rpush", "rpushx"]),
    (EventClass::LIST, "lpop", &["lpop", "blpop"]),
    (EventClass::LIST, "rpop", &["rpop", "brpop"]),
    (EventClass::LIST, "lset", &["lset"]),
    (EventClass::LIST, "linsert", &["linsert"]),
    (EventClass::LIST, "lrem", &["lrem"]),
    (EventClass::LIST, "ltrim", &["ltrim"]),
    (EventClass::HASH, "hset", &["hset", "hmset", "hsetnx"]),
    (EventClass::HASH, "hincrby", &["hincrby"]),
    (EventClass::HASH, "hincrbyfloat", &["hincrbyfloat"]),
    (EventClass::HASH, "hdel", &["hdel"]),
    (EventClass::SET, "sadd", &["sadd"]),
    (EventClass::SET, "srem", &["srem"]),
    (EventClass::SET, "spop", &["spop"]),
    (EventClass::SET, "sinterstore", &["sinterstore"]),
    (EventClass::SET, "sunionstore", &["sunionstore"]),
    (EventClass::SET, "sdiffstore", &["sdiffstore"]),
    (EventClass::SORTED_SET, "zadd", &["zadd", "geoadd"]),
    (EventClass::SORTED_SET, "zincr", &["zincrby"]),
    (EventClass::SORTED_SET, "zrem", &["zrem"]),
    (EventClass::SORTED_SET, "zpopmin", &["zpopmin", "bzpopmin"]),
    (EventClass::SORTED_SET, "zpopmax", &["zpopmax", "bzpopmax"]),
    (EventClass::SORTED_SET, "zremrangebyrank", &["zremrangebyrank"]),
    (EventClass::SORTED_SET, "zremrangebyscore", &["zremrangebyscore"]),
    (EventClass::SORTED_SET, "zremrangebylex", &["zremrangebylex"]),
    (EventClass::SORTED_SET, "zrangestore", &["zrangestore"]),
    (EventClass::SORTED_SET, "zunionstore", &["zunionstore"]),
    (EventClass::SORTED_SET, "zinterstore", &["zinterstore"]),
];
/// Commands that take elements from a collection: a key that becomes empty also has the event
/// `del`.
const REMOVERS: [EventClass; 4] =
    [EventClass::LIST, EventClass::HASH, EventClass::SET, EventClass::SORTED_SET];

/// Notes the writes of a batch, before they are applied. Rows of collections besides the one of the
/// user's key are left out.
pub(super) fn note_writes(context: &mut Context<'_>, table: usize, batch: &WriteBatch) {
    let wants_new = context.shared.events.has(EventClass::NEW);
    let database = &context.shared.databases[table];
    for op in batch.iter() {
        let Some(key) = database.user_key(op.key()) else { continue };
        let is_new = wants_new
            && matches!(op, Op::Put { .. })
            && matches!(context.get_any_in(table, &key), Ok(None));
        let (is_removed, has_expiry) = match op {
            Op::Put { expires_at, .. } => (false, expires_at.is_some()),
            Op::Delete { .. } => (true, false),
        };
        let key = key.into_owned();
        let named = Vec::new();
        let write = KeyWrite { table, key, is_new, is_removed, has_expiry, named };
        context.batcher.key_writes.push(write);
    }
}

/// Names an event of a key of the selected table, which the running command has changed.
pub(super) fn name_event(
    context: &mut Context<'_>,
    key: &[u8],
    class: EventClass,
    event: &'static str,
) {
    if !context.shared.observers.has_events() {
        return;
    }
    let table = context.session.table;
    let batcher = &mut *context.batcher;
    let mut writes = batcher.key_writes.iter_mut();
    match writes.find(|write| write.table == table && write.key == key) {
        Some(write) => write.named.push((class, event)),
        // Rows of the collection were written, and the row of its key was not.
        None => batcher.events.push(KeyEvent { table, class, event, key: key.to_vec() }),
    }
}

/// Names the events of a command that has succeeded, in the order of its keys.
pub(super) fn derive(batcher: &mut WriteBatcher, command: &Definition, args: Args<'_>) {
    if batcher.key_writes.is_empty() {
        return;
    }
    let mut writes = std::mem::take(&mut batcher.key_writes);
    let mut keys: Vec<(usize, &[u8])> = command.keys_in(args).enumerate().collect();
    // As in Redis, the event of the target comes first.
    let is_move = ["lmove", "blmove", "rpoplpush", "brpoplpush"].contains(&command.name);
    if is_move {
        keys.reverse();
    }
    for (position, key) in keys {
        let Some(at) = writes.iter().position(|write| write.key == key) else { continue };
        let write = &writes[at];
        for (class, event) in events_of(command.name, args, position, write) {
            batcher.events.push(KeyEvent { table: write.table, class, event, key: key.to_vec() });
        }
        // Within one list both events are of one write.
        if !is_move {
            writes.remove(at);
        }
    }
}

fn events_of(
    command: &str,
    args: Args<'_>,
    position: usize,
    write: &KeyWrite,
) -> Vec<(EventClass, &'static str)> {
    let own = event_of(command, args, position, write);
    let mut events = Vec::new();
    events.extend(write.is_new.then_some((EventClass::NEW, "new")));
    events.extend(&write.named);
    match write.is_removed {
        false => events.extend(own),
        true => {
            let removes = |(class, event): &(EventClass, &str)| {
                REMOVERS.contains(class) && !event.ends_with("store") || *event == "rename_from"
            };
            events.extend(own.filter(removes));
            if !command.starts_with("rename") {
                events.push((EventClass::GENERIC, "del"));
            }
        }
    }
    if write.has_expiry && ["set", "setex", "psetex"].contains(&command) {
        events.push((EventClass::GENERIC, "expire"));
    }
    events
}

/// The event of a write by its command.
fn event_of(
    command: &str,
    args: Args<'_>,
    position: usize,
    write: &KeyWrite,
) -> Option<(EventClass, &'static str)> {
    let has = |word: &str| args.iter().any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    let is_left = |at: usize| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(b"left"));
    let event = match (command, position) {
        ("rename" | "renamenx", 0) => (EventClass::GENERIC, "rename_from"),
        ("getex", _) if write.has_expiry => (EventClass::GENERIC, "expire"),
        ("getex", _) => (EventClass::GENERIC, "persist"),
        ("rpoplpush" | "brpoplpush", 0) => (EventClass::LIST, "rpop"),
        ("rpoplpush" | "brpoplpush", _) => (EventClass::LIST, "lpush"),
        ("lmove" | "blmove", 0) => (EventClass::LIST, if is_left(3) { "lpop" } else { "rpop" }),
        ("lmove" | "blmove", _) => (EventClass::LIST, if is_left(4) { "lpush" } else { "rpush" }),
        ("lmpop" | "blmpop", _) => (EventClass::LIST, if has("left") { "lpop" } else { "rpop" }),
        ("zmpop" | "bzmpop", _) => {
            (EventClass::SORTED_SET, if has("min") { "zpopmin" } else { "zpopmax" })
        }
        ("smove", 0) => (EventClass::SET, "srem"),
        ("smove", _) => (EventClass::SET, "sadd"),
        ("zadd", _) if has("incr") => (EventClass::SORTED_SET, "zincr"),
        ("georadius" | "georadiusbymember", _) => (EventClass::SORTED_SET, "georadiusstore"),
        ("sort", _) => (EventClass::LIST, "sortstore"),
        ("geosearchstore", _) => (EventClass::SORTED_SET, "geosearchstore"),
        ("zdiffstore", _) => (EventClass::SORTED_SET, "zdiffstore"),
        _ => {
            let (class, event, _) =
                EVENTS.iter().find(|(_, _, commands)| commands.contains(&command))?;
            (*class, *event)
        }
    };
    Some(event)
}

/// Publishes the events of the commands that have been applied.
#[inline]
pub(super) fn publish(shared: &Shared, batcher: &mut WriteBatcher) {
    if !batcher.events.is_empty() {
        for KeyEvent { table, class, event, key } in batcher.events.drain(..) {
            let index = shared.select_index(table);
            shared.events.publish(&shared.pubsub, index, class, event, &key);
        }
    }
}
