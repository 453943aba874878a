//! DUMP and RESTORE: values in Redis's format, for moves between servers.
//!
//! Both hold all elements in memory, up to `--max-request`. DUMP reads under the key's lock and
//! encodes after it; RESTORE decodes before it takes the lock, and writes one batch. So, as COPY
//! and SORT do, they run in one piece, and a large collection delays the other clients of its
//! worker.
//!
//! Source: the documentation of Redis's DUMP and RESTORE; replies of Redis 7.0 and 7.2.

use std::time::Duration;

use siltstone_collections::{Encoding, StoredValue};
use siltstone_engine::Timestamp;
use siltstone_rdb::{Error, StoreError, Value, payload};

use super::connection::integer;
use super::context::Context;
use super::definition::{ONE_KEY, READ, WRITE};
use super::entry::{self, Command};
use super::failure::{self, Failure, Outcome, SYNTAX, reply_error};
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, handler, summary| {
        entry::command("generic", name, arity, flags, ONE_KEY, handler, summary)
    };
    let restored = "Stores a value that DUMP has returned.";
    vec![
        command("dump", 2, READ, dump, "Returns a value in Redis's format."),
        command("restore", -4, WRITE, restore, restored),
        // What MIGRATE of a Redis Cluster sends.
        command("restore-asking", -4, WRITE, restore, restored),
    ]
}

const BUSY_KEY: Failure = reply_error("BUSYKEY Target key name already exists.");
const BAD_DATA: Failure = reply_error("ERR Bad data format");

fn dump(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = &args[1];
    let guard = context.lock(key);
    let Some(stored) = context.read_any(key)? else {
        context.replies.null();
        return Ok(());
    };
    let found = read_value(context, key, stored)?;
    drop(guard);
    match found {
        Some((value, encoding)) => context.replies.bulk(&payload::dump(&value, encoding)),
        None => context.replies.null(),
    }
    Ok(())
}

/// Reads what a key has with its encoding; `None` if the last field of a hash has expired
/// meanwhile. The caller holds the key's lock.
pub(super) fn read_value(
    context: &mut Context<'_>,
    key: &[u8],
    stored: StoredValue,
) -> Result<Option<(Value, Encoding)>, Failure> {
    if stored.metadata.is_none() {
        return Ok(Some((Value::String(stored.entry.value), Encoding::Compact)));
    }
    let max_bytes = context.shared.options.max_request_bytes;
    let found = context.collections(|writes| {
        let read = Value::read(writes, key, stored, max_bytes)?;
        read.ok_or_else(|| failure::too_much_to_dump(max_bytes))
    })?;
    let is_gone = matches!(found.0, Value::Hash(_)) && found.0.is_empty();
    Ok((!is_gone).then_some(found))
}

/// Options of RESTORE.
#[derive(Debug, Default)]
struct Options {
    replaces: bool,
    is_absolute: bool,
    idle: Option<Duration>,
    has_frequency: bool,
}

impl Options {
    fn parse(words: Args<'_>) -> Result<Self, Failure> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.to_ascii_lowercase().as_slice() {
                b"replace" => options.replaces = true,
                b"absttl" => options.is_absolute = true,
                b"idletime" if !options.has_frequency => {
                    let seconds = integer(words.next().ok_or(SYNTAX)?)?;
                    let seconds = u64::try_from(seconds)
                        .map_err(|_| reply_error("ERR Invalid IDLETIME value, must be >= 0"))?;
                    options.idle = Some(Duration::from_secs(seconds));
                }
                // Accepted without effect: frequencies are not tracked.
                b"freq" if options.idle.is_none() => {
                    let frequency = integer(words.next().ok_or(SYNTAX)?)?;
                    if u8::try_from(frequency).is_err() {
                        let text = "ERR Invalid FREQ value, must be >= 0 and <= 255";
                        return Err(reply_error(text));
                    }
                    options.has_frequency = true;
                }
                _ => return Err(SYNTAX),
            }
        }
        Ok(options)
    }

    /// The expiry; `None` for a time to live of 0.
    fn expiry(&self, ttl_ms: &[u8], now: Timestamp) -> Result<Option<Timestamp>, Failure> {
        let ttl_ms = u64::try_from(integer(ttl_ms)?)
            .map_err(|_| reply_error("ERR Invalid TTL value, must be >= 0"))?;
        let start = if self.is_absolute { 0 } else { now };
        Ok((ttl_ms > 0).then(|| start.saturating_add(ttl_ms)))
    }
}

fn restore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, options) = (&args[1], Options::parse(args.from(4))?);
    // Redis reports a key that exists before a payload that is wrong. Checked again under the lock.
    if !options.replaces && context.exists(key)? {
        return Err(BUSY_KEY);
    }
    let expires_at = options.expiry(&args[2], context.now())?;
    let body = payload::verify(&args[3])
        .ok_or(reply_error("ERR DUMP payload version or checksum are wrong"))?;
    let value = read(body, context.shared.options.max_request_bytes)?;
    let _guard = context.lock(key);
    let old = context.get_any(key)?;
    if !options.replaces && old.is_some() {
        return Err(BUSY_KEY);
    }
    let is_collection = old.as_ref().is_some_and(|stored| stored.metadata.is_some());
    if expires_at.is_some_and(|at| at <= context.now()) {
        match old {
            None => {}
            Some(_) if is_collection => {
                context.collections(|writes| Ok(writes.remove(key)?)).map(|_| ())?;
            }
            Some(_) => context.delete(key)?,
        }
        context.replies.ok();
        return Ok(());
    }
    match value {
        Value::String(bytes) => context.put(key, &bytes, expires_at)?,
        value => context.collections(|writes| {
            writes.remove(key)?;
            value.store(writes, key).map_err(|error| match error {
                StoreError::Duplicate => BAD_DATA,
                StoreError::Table(error) => error.into(),
            })?;
            if expires_at.is_some() {
                writes.set_expiry(key, expires_at)?;
            }
            Ok(())
        })?,
    }
    if let Some(idle) = options.idle {
        let (times, now) = (&context.shared.access_times, context.batcher.clock);
        times.record(context.session.table, key, now.checked_sub(idle).unwrap_or(now));
    }
    context.replies.ok();
    Ok(())
}

/// Reads the value of a payload. It may take as much memory as a request.
fn read(body: &[u8], max_bytes: usize) -> Result<Value, Failure> {
    payload::restore(body, max_bytes as u64).map_err(|error| match error {
        Error::Malformed { .. } | Error::Io { .. } => BAD_DATA,
        Error::Unsupported { what, .. } => {
            format!("ERR Bad data format: {what}, which cannot be restored here").into()
        }
        Error::TooLarge { limit, .. } => {
            format!("ERR the value needs more than {limit} bytes, the limit of a request").into()
        }
    })
}
