//! All keys: SCAN, KEYS, DBSIZE, RANDOMKEY, FLUSHDB.
//!
//! These walk the table in engine order; how SCAN finds its place again is told in
//! [`crate::store::cursors`]. Where that is key order, a pattern that begins with plain bytes bounds
//! the walk to the keys that begin with them. No call keeps other clients waiting for long: SCAN
//! ends early after some milliseconds, KEYS and DBSIZE run in slices ([`super::sliced`]).
//!
//! DBSIZE counts exactly up to a million keys, then answers with the engine's estimate, so that it
//! cannot be used to keep a worker busy. FLUSHDB is the engine's affair
//! ([`Engine::clear`](siltstone_engine::Engine::clear)), under all locks of the table: writers
//! wait. Where the engine removes one key after the other, readers may see it half done, and a
//! power cut may leave it so. Inside of MULTI it is part of the transaction: the keys that are
//! there at EXEC are removed in its batch.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use super::failure::{NOT_AN_INTEGER, SYNTAX, words};
use super::sliced::Sliced;
use super::{Command, Context, FAST, NO_KEYS, Outcome, READ, WRITE};
use crate::glob::{self, Pattern};
use crate::resp::{Args, number};
use crate::store::walk::Start;

pub(super) fn commands() -> Vec<Command> {
    let command = |group, name, arity, flags, handler, summary| {
        super::command(group, name, arity, flags, NO_KEYS, handler, summary)
    };
    vec![
        command("generic", "scan", -2, READ, scan, "Walks over the keys in steps."),
        command("generic", "keys", 2, READ, keys, "Returns all keys that match a pattern."),
        command("generic", "randomkey", 1, READ, randomkey, "Returns some key."),
        command("server", "dbsize", 1, READ | FAST, dbsize, "Counts the keys."),
        command("server", "flushdb", -1, WRITE, flushdb, "Removes all keys of a table."),
        command("server", "flushall", -1, WRITE, flushall, "Removes all keys."),
    ]
}

/// The most keys that one call of SCAN looks at, whatever COUNT it asks for.
const MAX_SCAN_STEP: u64 = 100_000;
/// The bytes of keys after which a call of SCAN ends early.
const MAX_SCAN_BYTES: usize = 1 << 20;
/// The time after which a call of SCAN ends early.
const MAX_SCAN_TIME: Duration = Duration::from_millis(5);
/// How many keys RANDOMKEY looks at in a transaction.
const MAX_WALKED: u64 = 1000;
/// How far DBSIZE counts.
const EXACT_COUNT: usize = 1_000_000;

/// What SCAN was asked for.
struct Scan<'a> {
    pattern: Option<&'a [u8]>,
    count: u64,
    wants_strings: bool,
}

impl<'a> Scan<'a> {
    fn parse(args: Args<'a>) -> Result<Self, super::Failure> {
        let mut scan = Scan { pattern: None, count: 10, wants_strings: true };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let value = words.next().ok_or(SYNTAX)?;
            match word.to_ascii_lowercase().as_slice() {
                b"match" => scan.pattern = Some(value),
                b"count" => {
                    let count = number::parse_i64(value).ok_or(NOT_AN_INTEGER)?;
                    scan.count = u64::try_from(count).ok().filter(|n| *n > 0).ok_or(SYNTAX)?;
                }
                b"type" => scan.wants_strings = value.eq_ignore_ascii_case(b"string"),
                _ => return Err(SYNTAX),
            }
        }
        Ok(scan)
    }
}

/// A cursor as `strtoul` reads it, which Redis uses: with a sign, with zeros before it, or empty.
fn parse_cursor(text: &[u8]) -> Option<u64> {
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

fn scan(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let number = parse_cursor(&args[1]).ok_or(words("ERR invalid cursor"))?;
    let scan = Scan::parse(args.from(2))?;
    let table = context.session.table;
    let prefix = scan.pattern.map_or(&[][..], glob::literal_prefix);
    let start = match context.shared.cursors.lock().load(table, number) {
        None => Start::Key(prefix.to_vec()),
        Some(position) => {
            // The pattern may be another one than in the call before.
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
    if scan.wants_strings {
        let deadline = Instant::now() + MAX_SCAN_TIME;
        let mut walk = context.walk(&start)?;
        let is_ordered = walk.is_ordered();
        let mut steps = scan.count.min(MAX_SCAN_STEP);
        loop {
            let next = walk.next()?;
            let Some(key) = next.filter(|key| !is_ordered || key.starts_with(prefix)) else {
                last = None;
                break;
            };
            // There is more, behind the last key that was looked at.
            if last.is_some() {
                break;
            }
            if pattern.as_ref().is_none_or(|pattern| pattern.matches(key)) {
                found_bytes += key.len();
                found.push(key.to_vec());
            }
            let is_over = found_bytes >= MAX_SCAN_BYTES || Instant::now() >= deadline;
            steps = if is_over { 0 } else { steps.saturating_sub(1) };
            if steps == 0 {
                last = walk.position();
            }
        }
    }
    let next = match last {
        Some(after) => context.shared.cursors.lock().save(table, after),
        None => 0,
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
    let (sliced, start) = Sliced::collect(&args[1]);
    sliced.begin(context, &start)
}

fn dbsize(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let (sliced, start) = Sliced::count(EXACT_COUNT);
    sliced.begin(context, &start)
}

/// A key drawn by the engine ([`Engine::random_key`](siltstone_engine::Engine::random_key)); in a
/// transaction, which may hide keys or have others, one of the first thousand.
fn randomkey(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let state = RandomState::new();
    let mut drawn = 0u64;
    let mut below = |limit: u64| {
        drawn += 1;
        // Of 64 bits: the limits are so small that no number is noticeably more likely.
        state.hash_one(drawn) % limit.max(1)
    };
    let key = match context.is_in_transaction() {
        false => context.database().engine.random_key(&mut below)?,
        true => {
            let mut walk = context.walk(&Start::Key(Vec::new()))?;
            let (mut walked, mut key) = (0, None);
            while walked < MAX_WALKED
                && let Some(next) = walk.next()?
            {
                walked += 1;
                if below(walked) == 0 {
                    key = Some(next.to_vec());
                }
            }
            key
        }
    };
    context.replies.bulk_or_null(key.as_deref());
    Ok(())
}

fn flushdb(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check_flush_mode(args)?;
    flush(context, context.session.table)?;
    context.replies.ok();
    Ok(())
}

fn flushall(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check_flush_mode(args)?;
    for table in 0..context.shared.databases.len() {
        flush(context, table)?;
    }
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
    Ok(context.turn.clear(&context.shared.databases, table)?)
}
