//! Enumerating keys: SCAN, KEYS, DBSIZE, RANDOMKEY, FLUSHDB.
//!
//! These iterate in engine order; SCAN continues from a saved position ([`crate::store::cursors`]).
//! In key order, a pattern with a literal prefix bounds the iteration. No call delays other clients
//! for long: SCAN ends early after some milliseconds, KEYS and DBSIZE run in slices
//! ([`super::sliced`]).
//!
//! DBSIZE counts exactly up to a million keys, then returns the engine's estimate, which bounds its
//! cost. With collections, whose elements the estimate would count, it always counts. FLUSHDB
//! calls [`Engine::clear`](siltstone_engine::Engine::clear) under all locks of the table, so
//! writers wait. If the engine removes keys one by one, readers may observe it in progress, and a
//! power cut may leave it incomplete. Inside of MULTI it is part of the transaction: the keys that
//! exist at EXEC are removed in its batch.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use super::context::Context;
use super::definition::{FAST, NO_KEYS, READ, WRITE};
use super::entry::{self, Command};
use super::failure::{Failure, NOT_AN_INTEGER, Outcome, SYNTAX, reply_error};
use super::keys::type_name;
use super::sliced::SlicedCommand;
use crate::glob::{self, Pattern};
use crate::replication::group_set::members;
use crate::resp::{Args, number};
use crate::store::Database;
use crate::store::key_iter::Start;

pub(super) fn commands() -> Vec<Command> {
    let command = |group, name, arity, flags, handler, summary| {
        entry::command(group, name, arity, flags, NO_KEYS, handler, summary)
    };
    vec![
        command("generic", "scan", -2, READ, scan, "Iterates over the keys in steps."),
        command("generic", "keys", 2, READ, keys, "Returns all keys that match a pattern."),
        command("generic", "randomkey", 1, READ, randomkey, "Returns a random key."),
        command("server", "dbsize", 1, READ | FAST, dbsize, "Counts the keys."),
        command("server", "flushdb", -1, WRITE, flushdb, "Removes all keys of a table."),
        command("server", "flushall", -1, WRITE, flushall, "Removes all keys."),
    ]
}

/// Maximum keys visited per call of SCAN, whatever its COUNT.
const MAX_SCAN_KEYS: u64 = 100_000;
/// Bytes of keys after which a call of SCAN ends early.
const MAX_SCAN_BYTES: usize = 1 << 20;
/// Time after which a call of SCAN ends early, unless it has visited few keys.
const MAX_SCAN_TIME: Duration = Duration::from_millis(5);
/// Keys visited between two reads of the clock.
const KEYS_PER_CLOCK_READ: u64 = 64;
/// Keys visited by RANDOMKEY in a transaction.
const MAX_SAMPLED_KEYS: u64 = 1000;
/// Draws of RANDOMKEY that may find elements of collections.
const MAX_DRAWS: u32 = 16;
/// Maximum exact count of DBSIZE, unless there are collections.
const MAX_EXACT_COUNT: usize = 1_000_000;

/// Arguments of SCAN.
struct Scan<'a> {
    pattern: Option<&'a [u8]>,
    count: u64,
    /// Name of the wanted type, in lower case.
    kind: Option<Vec<u8>>,
}

impl<'a> Scan<'a> {
    fn parse(args: Args<'a>) -> Result<Self, Failure> {
        let mut scan = Scan { pattern: None, count: 10, kind: None };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let value = words.next().ok_or(SYNTAX)?;
            match word.to_ascii_lowercase().as_slice() {
                b"match" => scan.pattern = Some(value),
                b"count" => {
                    let count = number::parse_i64(value).ok_or(NOT_AN_INTEGER)?;
                    scan.count = u64::try_from(count).ok().filter(|n| *n > 0).ok_or(SYNTAX)?;
                }
                b"type" => scan.kind = Some(value.to_ascii_lowercase()),
                _ => return Err(SYNTAX),
            }
        }
        Ok(scan)
    }
}

/// Parses a cursor like `strtoul`, which Redis uses: optional sign, leading zeros, may be empty.
pub(super) fn parse_cursor(text: &[u8]) -> Option<u64> {
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() {
        return text.is_empty().then_some(0);
    }
    let value = digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })?;
    Some(if is_negative { value.wrapping_neg() } else { value })
}

/// The tables that a command sees which names no keys: the selected one; of several replicated
/// groups those that this node leads.
fn visible_tables(context: &Context<'_>) -> VecDeque<usize> {
    match &context.shared.replication {
        Some(groups) if groups.are_several() => members(groups.led()).collect(),
        _ => [context.session.table].into(),
    }
}

/// Where a scan goes on, in a table that is selected for it: at a saved position, or at the start
/// of the table. `None` if there is no table to scan.
fn resume_scan(context: &mut Context<'_>, number: u64) -> Option<Option<Vec<u8>>> {
    let tables = visible_tables(context);
    let cursors = context.shared.cursors.lock();
    let is_one = context.shared.replication.as_ref().is_none_or(|groups| !groups.are_several());
    let saved = cursors.table_of(number).filter(|_| !is_one);
    // One of a group that this node does not lead any more goes on with the next one.
    let table = tables.into_iter().find(|table| saved.is_none_or(|saved| *table >= saved))?;
    context.session.table = table;
    Some(cursors.load(table, number))
}

fn scan(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let number = parse_cursor(&args[1]).ok_or(reply_error("ERR invalid cursor"))?;
    let scan = Scan::parse(args.from(2))?;
    let Some(saved) = resume_scan(context, number) else {
        context.replies.array(2);
        context.replies.bulk(b"0");
        context.replies.array(0);
        return Ok(());
    };
    let table = context.session.table;
    let prefix = scan.pattern.map_or(&[][..], glob::literal_prefix);
    let start = match saved {
        None => Start::Key(prefix.to_vec()),
        Some(position) => {
            // The pattern may differ from the previous call's.
            let is_ordered = context.database().engine.capabilities().ordered;
            match is_ordered && position.as_slice() < prefix {
                true => Start::Key(prefix.to_vec()),
                false => Start::Position(position),
            }
        }
    };
    let (mut found, mut found_bytes) = (Vec::new(), 0);
    let mut last = None;
    let pattern = scan.pattern.map(Pattern::new);
    // A transaction may have the first collection of the table.
    let keyspace = context.database().keyspace.as_ref();
    let has_collections = keyspace
        .is_some_and(|keyspace| keyspace.has_reserved_rows() || context.is_in_transaction());
    let is_possible = |kind: &[u8]| has_collections || kind == b"string";
    if scan.kind.as_deref().is_none_or(is_possible) {
        let deadline = Instant::now() + MAX_SCAN_TIME;
        let mut iter = context.iter_keys(&start)?;
        let is_ordered = iter.is_ordered();
        let (mut visited, max_visited) = (0_u64, scan.count.min(MAX_SCAN_KEYS));
        loop {
            let next = iter.next()?;
            let Some(key) = next.filter(|key| !is_ordered || key.starts_with(prefix)) else {
                last = None;
                break;
            };
            // There are more keys after the last one visited.
            if last.is_some() {
                break;
            }
            let is_wanted = |kind: &Vec<u8>| -> Result<bool, Failure> {
                let stored = if has_collections { context.get_any(key)? } else { return Ok(true) };
                Ok(stored.is_some_and(|stored| type_name(&stored).as_bytes() == kind))
            };
            if pattern.as_ref().is_none_or(|pattern| pattern.matches(key))
                && scan.kind.as_ref().map_or(Ok(true), is_wanted)?
            {
                found_bytes += key.len();
                found.push(key.to_vec());
            }
            visited += 1;
            let is_late =
                || visited.is_multiple_of(KEYS_PER_CLOCK_READ) && Instant::now() >= deadline;
            if visited >= max_visited || found_bytes >= MAX_SCAN_BYTES || is_late() {
                last = iter.position();
            }
        }
    }
    let next_table = || visible_tables(context).into_iter().find(|next| *next > table);
    let next = match last {
        Some(after) => context.shared.cursors.lock().save(table, Some(after)),
        None => match next_table() {
            Some(next) => context.shared.cursors.lock().save(next, None),
            None => 0,
        },
    };
    context.replies.array(2);
    context.replies.bulk(next.to_string().as_bytes());
    context.replies.array(found.len());
    for key in &found {
        context.replies.bulk(key);
    }
    Ok(())
}

fn keys(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let limit = context.shared.options.max_output_bytes;
    let tables = visible_tables(context);
    begin(context, SlicedCommand::collect(tables, &args[1], limit))
}

fn dbsize(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let limit = context.shared.options.max_output_bytes;
    let tables = visible_tables(context);
    begin(context, SlicedCommand::count(tables, MAX_EXACT_COUNT, limit))
}

/// Runs the first slice of a command; in a transaction all of it.
fn begin(context: &mut Context<'_>, mut sliced: SlicedCommand) -> Outcome {
    match context.is_in_transaction() {
        true => sliced.run_in(context.shared, context.overlays, context.now())?,
        false => sliced.resume(context.shared)?,
    }
    context.end_slice(sliced);
    Ok(())
}

/// A key drawn by the engine ([`Engine::random_key`](siltstone_engine::Engine::random_key)), which
/// is drawn again if it is an element of a collection. One of the first thousand keys in a
/// transaction, which may hide or add keys, and if only elements were drawn.
fn randomkey(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let state = RandomState::new();
    let mut drawn = 0u64;
    let mut below = |limit: u64| {
        drawn += 1;
        // Modulo bias is negligible for 64 bits and such small limits.
        state.hash_one(drawn) % limit.max(1)
    };
    let mut tables = visible_tables(context);
    // One of them at random; the others if it is empty.
    tables.rotate_left(below(tables.len() as u64) as usize);
    let mut key = None;
    for table in tables {
        context.session.table = table;
        key = random_key(context, &mut below)?;
        if key.is_some() {
            break;
        }
    }
    context.replies.bulk_or_null(key.as_deref());
    Ok(())
}

/// A key of the selected table.
fn random_key(
    context: &Context<'_>,
    below: &mut dyn FnMut(u64) -> u64,
) -> Result<Option<Vec<u8>>, Failure> {
    let key = match context.is_in_transaction() {
        false => random_user_key(context.database(), below)?,
        true => None,
    };
    if key.is_some() {
        return Ok(key);
    }
    let mut iter = context.iter_keys(&Start::Key(Vec::new()))?;
    let (mut visited, mut key) = (0, None);
    while visited < MAX_SAMPLED_KEYS
        && let Some(next) = iter.next()?
    {
        visited += 1;
        if below(visited) == 0 {
            key = Some(next.to_vec());
        }
    }
    Ok(key)
}

fn random_user_key(
    database: &Database,
    below: &mut dyn FnMut(u64) -> u64,
) -> Result<Option<Vec<u8>>, Failure> {
    for _ in 0..MAX_DRAWS {
        let Some(stored) = database.engine.random_key(below)? else { return Ok(None) };
        if let Some(key) = database.user_key(&stored) {
            return Ok(Some(key.into_owned()));
        }
    }
    Ok(None)
}

fn flushdb(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let tables = visible_tables(context);
    flush_tables(context, args, tables)
}

/// As in Redis Cluster, each leader removes what it has.
fn flushall(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let tables = match context.shared.replication {
        None => (0..context.shared.databases.len()).collect(),
        Some(_) => visible_tables(context),
    };
    flush_tables(context, args, tables)
}

fn flush_tables(context: &mut Context<'_>, args: Args<'_>, tables: VecDeque<usize>) -> Outcome {
    check_flush_mode(args)?;
    if tables.is_empty() {
        return Err(reply_error("READONLY You can't write against a read only replica."));
    }
    tables.into_iter().try_for_each(|table| flush(context, table))?;
    context.shared.observers.cleared();
    context.replies.ok();
    Ok(())
}

fn check_flush_mode(args: Args<'_>) -> Outcome {
    match args.get(1) {
        None => Ok(()),
        Some(word)
            if args.len() == 2
                && (word.eq_ignore_ascii_case(b"async") || word.eq_ignore_ascii_case(b"sync")) =>
        {
            Ok(())
        }
        Some(_) => Err(SYNTAX),
    }
}

fn flush(context: &mut Context<'_>, table: usize) -> Outcome {
    if let Some(overlay) = context.overlays.get_mut(table) {
        overlay.clear();
        return Ok(());
    }
    Ok(context.batcher.clear(&context.shared.databases, table)?)
}
