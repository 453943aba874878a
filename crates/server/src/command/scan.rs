//! All keys: SCAN, KEYS, DBSIZE, RANDOMKEY, FLUSHDB.
//!
//! These walk the table in engine order; how SCAN finds its place again is told in
//! [`crate::store::cursors`]. Where that is key order, a pattern that begins with plain bytes bounds
//! the walk to the keys that begin with them. No call keeps other clients waiting for long: SCAN ends
//! early after some milliseconds, KEYS and DBSIZE run in slices ([`super::sliced`]).
//!
//! DBSIZE counts exactly up to a million keys, then answers with the engine's estimate, so that it
//! cannot be used to keep a worker busy. FLUSHDB removes in batches under all locks of the table:
//! writers wait, readers may see it half done, and a power cut may leave it so. Inside of MULTI it is
//! part of the transaction: the keys that are there at EXEC are removed in its batch.

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

/// The first key behind a random position between the least key and the greatest. Keys behind
/// large gaps come more often than others. Without an order it is one of the first thousand.
fn randomkey(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let engine = &context.database().engine;
    if !engine.capabilities().ordered {
        return randomkey_unordered(context);
    }
    let mut cursor = engine.iter()?;
    let last = if cursor.last()? { cursor.key().to_vec() } else { Vec::new() };
    drop(cursor);
    let mut walk = context.walk(&Start::Key(Vec::new()))?;
    let Some(first) = walk.next()?.map(<[u8]>::to_vec) else {
        drop(walk);
        context.replies.null();
        return Ok(());
    };
    let target = random_between(&first, &last, RandomState::new().hash_one(()));
    let found = match context.walk(&Start::Key(target))?.next()? {
        Some(key) => key.to_vec(),
        None => first,
    };
    drop(walk);
    context.replies.bulk(&found);
    Ok(())
}

fn randomkey_unordered(context: &mut Context<'_>) -> Outcome {
    const STEPS: u64 = 1000;
    let mut walk = context.walk(&Start::Key(Vec::new()))?;
    let mut found: Vec<Vec<u8>> = Vec::new();
    while found.len() < STEPS as usize
        && let Some(key) = walk.next()?
    {
        found.push(key.to_vec());
    }
    drop(walk);
    let random = RandomState::new().hash_one(()) % found.len().max(1) as u64;
    match found.get(random as usize) {
        Some(key) => context.replies.bulk(key),
        None => context.replies.null(),
    }
    Ok(())
}

/// A string between two others: their common beginning, then a random number of 64 bits between
/// what follows.
fn random_between(low: &[u8], high: &[u8], random: u64) -> Vec<u8> {
    let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    let next_bytes = |key: &[u8]| {
        let mut bytes = [0; 8];
        let rest = &key[common..];
        let len = rest.len().min(8);
        bytes[..len].copy_from_slice(&rest[..len]);
        u64::from_be_bytes(bytes)
    };
    let (from, to) = (next_bytes(low), next_bytes(high));
    let between = match to.checked_sub(from) {
        Some(width) => from + random % width.saturating_add(1).max(1),
        None => from,
    };
    [&low[..common], &between.to_be_bytes()].concat()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_position_lies_between_its_bounds() {
        for (low, high) in [("a", "b"), ("user:1", "user:9999"), ("a", "a"), ("", "zz"), ("b", "a")]
        {
            for random in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
                let target = random_between(low.as_bytes(), high.as_bytes(), random);
                assert!(target.as_slice() >= low.as_bytes());
                if low <= high {
                    let padded = [high.as_bytes(), &[0; 9]].concat();
                    assert!(target <= padded, "{low} {high} {random:x}");
                }
            }
        }
    }
}
