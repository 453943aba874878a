//! MIGRATE: moves keys to another server, by RESTORE over one connection.
//!
//! ```text
//! worker:            MIGRATE ── a key exists? ── parks, enqueues ticket
//! job thread:        connect ── AUTH, SELECT ── per window of keys:
//!                      under the key's lock: watch it, read it      (each key)
//!                      send RESTORE ... RESTORE, read the replies   (no lock is held)
//!                      under the locks: delete the keys whose RESTORE was acknowledged, and that
//!                      were not written since they were read        (one batch)
//! ```
//!
//! Invariant: a key is deleted only if the target has acknowledged the value that it still has. So
//! no value is lost, whatever happens to the connection, and a write meanwhile is not lost either:
//! then both servers have the key, and the command fails.
//!
//! Redis stops for all clients instead. Here nobody waits for the target, also not a MIGRATE in the
//! opposite direction, or one to this server itself.
//!
//! Source: the documentation of Redis's MIGRATE; replies of Redis 7.0.

use std::time::Duration;

use siltstone_rdb::payload;

use super::connection::integer;
use super::context::Context;
use super::definition::{KeyOption, KeysTaken, NO_MULTI, WRITE};
use super::dump::read_value;
use super::entry::{self, Command};
use super::failure::{Failure, NOT_AN_INTEGER, Outcome, SYNTAX, reply_error};
use super::migrate_target::{Target, append_request};
use crate::keyspace_events::EventClass;
use crate::resp::Args;
use crate::store::Database;
use crate::store::write_batcher::KeyEvent;

/// Time limit in place of one that is not positive.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(1);
/// Bytes from which a window of keys is sent: bounds memory, and the replies that wait.
const WINDOW_BYTES: usize = 1 << 20;

pub(super) fn commands() -> Vec<Command> {
    const KEYS: KeyOption = KeyOption {
        from: 6,
        names: &["keys"],
        others: &[("auth", 1), ("auth2", 2)],
        takes: KeysTaken::All,
    };
    let (keys, flags) = ((3, 3, 1), WRITE | NO_MULTI);
    let summary = "Moves keys to another server.";
    vec![
        entry::command("generic", "migrate", -6, flags, keys, migrate, summary)
            .with_key_option(KEYS),
    ]
}

/// A parsed command.
struct Request<'a> {
    host: &'a str,
    port: u16,
    database: i64,
    /// Maximum time without progress.
    time_limit: Duration,
    copies: bool,
    replaces: bool,
    /// The words behind AUTH at the target.
    login: Vec<&'a [u8]>,
    /// Each once.
    keys: Vec<&'a [u8]>,
}

impl<'a> Request<'a> {
    fn parse(args: Args<'a>) -> Result<Self, Failure> {
        let (mut copies, mut replaces) = (false, false);
        let (mut login, mut keys): (Vec<&[u8]>, Option<Vec<&[u8]>>) = (Vec::new(), None);
        let mut at = 6;
        while let Some(word) = args.get(at) {
            let rest = args.from(at + 1);
            let count = match word.to_ascii_lowercase().as_slice() {
                b"copy" => {
                    copies = true;
                    0
                }
                b"replace" => {
                    replaces = true;
                    0
                }
                name @ (b"auth" | b"auth2") => {
                    let count = if name == b"auth" { 1 } else { 2 };
                    login = rest.iter().take(count).collect();
                    if login.len() < count {
                        return Err(SYNTAX);
                    }
                    count
                }
                b"keys" => {
                    if !args.get(3).is_some_and(<[u8]>::is_empty) {
                        return Err(reply_error(
                            "ERR When using MIGRATE KEYS option, the key argument must be set to \
                             the empty string",
                        ));
                    }
                    keys = Some(rest.iter().collect());
                    rest.len()
                }
                _ => return Err(SYNTAX),
            };
            at += 1 + count;
        }
        let word = |at| args.get(at).unwrap_or_default();
        let time_limit_ms = u64::try_from(integer(word(5))?).ok().filter(|limit| *limit > 0);
        let database = integer(word(4))?;
        let port = u16::try_from(integer(word(2))?).map_err(|_| NOT_AN_INTEGER)?;
        let host = std::str::from_utf8(word(1))
            .map_err(|_| reply_error("ERR the host is not a name or an address"))?;
        let mut keys = keys.unwrap_or_else(|| vec![word(3)]);
        keys.sort_unstable();
        keys.dedup();
        let time_limit = time_limit_ms.map_or(DEFAULT_TIME_LIMIT, Duration::from_millis);
        Ok(Request { host, port, database, time_limit, copies, replaces, login, keys })
    }
}

fn migrate(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let request = Request::parse(args)?;
    if context.session.is_retry {
        return run(context, &request);
    }
    let mut has_key = false;
    for key in &request.keys {
        has_key |= context.exists(key)?;
    }
    if !has_key {
        context.replies.simple("NOKEY");
        return Ok(());
    }
    if let Some(ticket) = context.park_until_done(args) {
        context.shared.jobs.enqueue(ticket);
    }
    Ok(())
}

/// On the job thread.
fn run(context: &mut Context<'_>, request: &Request<'_>) -> Outcome {
    let shared = context.shared;
    let time_limit = request.time_limit;
    let mut target = Target::connect(request.host, request.port, time_limit, &shared.stop)?;
    log_in(&mut target, request)?;
    let (mut keys, mut has_sent) = (request.keys.iter().copied(), false);
    let (mut refusal, mut written_meanwhile) = (None, 0);
    loop {
        let (mut commands, mut window) = (Vec::new(), Vec::new());
        while commands.len() < WINDOW_BYTES
            && let Some(key) = keys.next()
        {
            window.extend(read(context, key, request, &mut commands)?);
        }
        if window.is_empty() {
            break;
        }
        has_sent = true;
        let mut acknowledged = Vec::new();
        let ended = exchange(&mut target, &commands, window, &mut acknowledged, &mut refusal);
        if !request.copies {
            written_meanwhile += remove(context, &acknowledged)?;
        }
        ended?;
    }
    if let Some(text) = refusal {
        return Err(format!("ERR Target instance replied with error: {text}").into());
    }
    if written_meanwhile > 0 {
        return Err(format!(
            "ERR {written_meanwhile} of the keys were written while they were moved, and both \
             instances have them; MIGRATE them again with REPLACE"
        )
        .into());
    }
    match has_sent {
        true => context.replies.ok(),
        // All have expired or were removed meanwhile.
        false => context.replies.simple("NOKEY"),
    }
    Ok(())
}

/// Authenticates at the target, and selects the database.
fn log_in(target: &mut Target<'_>, request: &Request<'_>) -> Outcome {
    let mut commands = Vec::new();
    let mut replies = 1;
    if !request.login.is_empty() {
        let mut words = vec![&b"AUTH"[..]];
        words.extend(&request.login);
        append_request(&mut commands, &words);
        replies += 1;
    }
    append_request(&mut commands, &[b"SELECT", request.database.to_string().as_bytes()]);
    target.send(&commands)?;
    for _ in 0..replies {
        if let Err(text) = target.status()? {
            return Err(format!("ERR Target instance replied with error: {text}").into());
        }
    }
    Ok(())
}

/// A key that was sent. It is watched, so that a write is noticed.
struct SentKey<'a> {
    database: &'a Database,
    key: &'a [u8],
    version: u64,
}

impl<'a> SentKey<'a> {
    /// The caller holds the key's lock.
    fn new(database: &'a Database, key: &'a [u8]) -> Self {
        SentKey { database, key, version: database.watches.add(key) }
    }

    /// Whether the key was written since it was read. The caller holds its lock.
    fn is_written(&self) -> bool {
        self.database.watches.version(self.key) != self.version
    }
}

impl Drop for SentKey<'_> {
    fn drop(&mut self) {
        self.database.watches.remove(self.key);
    }
}

/// Reads a key, and appends the command that restores it; `None` if it does not exist.
fn read<'k, 'c: 'k>(
    context: &mut Context<'c>,
    key: &'k [u8],
    request: &Request<'_>,
    commands: &mut Vec<u8>,
) -> Result<Option<SentKey<'k>>, Failure> {
    let guard = context.lock(key);
    let Some(stored) = context.read_any(key)? else { return Ok(None) };
    let expires_at = stored.entry.expires_at;
    let Some((value, encoding)) = read_value(context, key, stored)? else { return Ok(None) };
    // After the read, which writes if fields of a hash have expired.
    let sent = SentKey::new(context.database(), key);
    drop(guard);
    // A time to live of 0 would be none.
    let now = context.shared.now(context.session.table);
    let ttl_ms = expires_at.map_or(0, |at| at.saturating_sub(now).max(1));
    let (ttl_ms, payload) = (ttl_ms.to_string(), payload::dump(&value, encoding));
    let words: [&[u8]; 5] = [b"RESTORE", key, ttl_ms.as_bytes(), &payload, b"REPLACE"];
    append_request(commands, &words[..if request.replaces { 5 } else { 4 }]);
    Ok(Some(sent))
}

/// Sends a window of commands, and reads their replies. The first refusal is kept.
fn exchange<'k>(
    target: &mut Target<'_>,
    commands: &[u8],
    window: Vec<SentKey<'k>>,
    acknowledged: &mut Vec<SentKey<'k>>,
    refusal: &mut Option<String>,
) -> Outcome {
    target.send(commands)?;
    for sent in window {
        match target.status()? {
            Ok(()) => acknowledged.push(sent),
            Err(text) => _ = refusal.get_or_insert(text),
        }
    }
    Ok(())
}

/// Removes keys that the target has. Returns how many were written meanwhile, and stay.
fn remove(context: &mut Context<'_>, acknowledged: &[SentKey<'_>]) -> Result<usize, Failure> {
    let _guard = context.lock_many(acknowledged.iter().map(|sent| sent.key));
    let unchanged: Vec<_> = acknowledged.iter().filter(|sent| !sent.is_written()).collect();
    if context.database().keyspace.is_some() {
        context.collections(|writes| {
            for sent in &unchanged {
                writes.remove(sent.key)?;
            }
            Ok(())
        })?;
    } else if !unchanged.is_empty() {
        context.write(|batch| {
            for sent in &unchanged {
                batch.delete(sent.key);
            }
        })?;
    }
    // Named here, so that they are also published if the command fails later.
    context.batcher.key_writes.clear();
    if context.shared.observers.has_events() {
        let (table, class, event) = (context.session.table, EventClass::GENERIC, "del");
        for sent in &unchanged {
            context.batcher.events.push(KeyEvent { table, class, event, key: sent.key.to_vec() });
        }
    }
    Ok(acknowledged.len() - unchanged.len())
}
