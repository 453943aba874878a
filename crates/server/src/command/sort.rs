//! SORT and SORT_RO: the elements of a list, set or sorted set, in an order.
//!
//! ```text
//!   SORT mylist BY weight_* GET data_*->name
//!     element "7" ─▶ weight_7          by which it is sorted
//!                 └▶ data_7, field name     which is returned
//! ```
//!
//! Keys that come from patterns are known only once the elements are read, so with a pattern the
//! whole table is locked. Texts are compared byte by byte.
//!
//! Elements, weights and what is stored may take as much memory as a request; what is returned is
//! limited as any reply. Patterns can name one long value for each of many elements.
//!
//! Source: the documentation of Redis's SORT; replies of Redis 7.2.

use std::cmp::Ordering;

use siltstone_collections::{End, Hash, Kind, List, Order, ScoreRange, Set, SortedSet, WriteSet};
use siltstone_engine::MAX_KEY_BYTES;

use super::context::Context;
use super::definition::{KeyOption, KeysTaken, ONE_KEY, READ, WRITE};
use super::elements::{float, integer, is};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, SYNTAX, WRONG_TYPE, reply_error, reply_too_large};
use crate::replication::groups::Groups;
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    const STORE: KeyOption = KeyOption {
        from: 2,
        names: &["store"],
        others: &[("by", 1), ("get", 1), ("limit", 2)],
        takes: KeysTaken::One,
    };
    let command = |name, flags, handler, summary| {
        entry::command("generic", name, -2, flags, ONE_KEY, handler, summary)
    };
    vec![
        command("sort", WRITE, sort, "Sorts elements, and returns or stores them.")
            .with_key_option(STORE),
        command("sort_ro", READ, sort_ro, "Sorts elements, and returns them."),
    ]
}

/// The least that a value takes in a reply besides its own bytes.
const MIN_REPLY_BYTES: usize = 3;
/// About what a value takes in memory besides its own bytes.
const VALUE_OVERHEAD_BYTES: usize = 64;

/// The memory that a call may still take.
struct Room {
    left: usize,
    limit: usize,
}

impl Room {
    fn new(context: &Context<'_>) -> Self {
        let limit = context.shared.options.max_request_bytes;
        Room { left: limit, limit }
    }

    /// Takes the room of a value.
    fn take(&mut self, value: &[u8]) -> Outcome {
        let left = self.left.checked_sub(VALUE_OVERHEAD_BYTES + value.len());
        self.left = left.ok_or_else(|| {
            let limit = self.limit;
            format!("ERR SORT needs more memory than {limit} bytes, the limit of a request")
        })?;
        Ok(())
    }
}

/// Options of SORT.
#[derive(Default)]
struct Options<'a> {
    /// The pattern of the keys to sort by.
    by: Option<&'a [u8]>,
    is_unsorted: bool,
    is_descending: bool,
    is_text: bool,
    limit: Option<(i64, i64)>,
    get: Vec<&'a [u8]>,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>, may_store: bool) -> Result<Self, Failure> {
        let mut options = Options::default();
        let mut at = 2;
        while let Some(word) = args.get(at) {
            let value = args.get(at + 1);
            at += 1;
            match word {
                word if is(word, "asc") => options.is_descending = false,
                word if is(word, "desc") => options.is_descending = true,
                word if is(word, "alpha") => options.is_text = true,
                word if is(word, "limit") && at + 1 < args.len() => {
                    options.limit = Some((integer(&args[at])?, integer(&args[at + 1])?));
                    at += 2;
                }
                word if is(word, "store") && value.is_some() && may_store => {
                    options.store = value;
                    at += 1;
                }
                word if is(word, "by") && value.is_some() => {
                    options.by = value;
                    options.is_unsorted |= value.is_some_and(|by| !by.contains(&b'*'));
                    at += 1;
                }
                word if is(word, "get") && value.is_some() => {
                    options.get.extend(value);
                    at += 1;
                }
                _ => return Err(SYNTAX),
            }
        }
        Ok(options)
    }

    fn has_patterns(&self) -> bool {
        self.by.is_some() && !self.is_unsorted || self.get.iter().any(|get| *get != b"#")
    }

    /// Positions of the elements to return, of `len`.
    fn range(&self, len: usize) -> std::ops::Range<usize> {
        let (start, count) = self.limit.unwrap_or((0, -1));
        let start = usize::try_from(start).unwrap_or(0).min(len);
        match usize::try_from(count) {
            Err(_) => start..len,
            Ok(count) => start..start.saturating_add(count).min(len),
        }
    }
}

/// Whether a call reads keys that it does not name.
pub(super) fn reads_unnamed_keys(args: Args<'_>) -> bool {
    Options::parse(args, true).is_ok_and(|options| options.has_patterns())
}

fn sort(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    run(context, args, true)
}

fn sort_ro(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    run(context, args, false)
}

/// The elements of a list, set or sorted set, in its own order.
fn elements(
    writes: &mut WriteSet<'_>,
    key: &[u8],
    room: &mut Room,
) -> Result<(Option<Kind>, Vec<Vec<u8>>), Failure> {
    let Some(stored) = writes.stored(key)? else { return Ok((None, Vec::new())) };
    let (mut elements, mut taken) = (Vec::new(), Ok(()));
    let mut visit = |element: &[u8]| {
        taken = room.take(element);
        elements.push(element.to_vec());
        taken.is_ok()
    };
    match stored.kind() {
        Some(Kind::List) => {
            let list = List::open(writes, key)?;
            list.for_each(0..list.len(), Order::Ascending, &mut |_, element| visit(element))?;
        }
        Some(Kind::Set) => Set::open(writes, key)?.for_each(&mut visit)?,
        Some(Kind::SortedSet) => {
            let set = SortedSet::open(writes, key)?;
            set.for_each(ScoreRange::ALL, Order::Ascending, &mut |member, _| visit(member))?;
        }
        _ => return Err(WRONG_TYPE),
    }
    taken?;
    Ok((stored.kind(), elements))
}

/// Checks that the keys that patterns name are in this table, and that the user may read them: all
/// keys.
fn check_patterns(context: &Context<'_>, args: Args<'_>, options: &Options<'_>) -> Outcome {
    let (acl, session) = (&context.shared.acl, &context.session);
    if !options.has_patterns() {
        return Ok(());
    }
    let option = if options.by.is_some() && !options.is_unsorted { "BY" } else { "GET" };
    if context.shared.replication.as_ref().is_some_and(Groups::are_several) {
        return Err(format!(
            "ERR {option} option of SORT denied in cluster mode when keys formed by the pattern may \
             be in different slots."
        )
        .into());
    }
    if session.access.is_free(acl) {
        return Ok(());
    }
    let number = context.shared.commands.find(&args[0]).unwrap_or_default();
    if session.access.user().may_read_all(&acl.names, number, args) {
        return Ok(());
    }
    Err(format!("ERR {option} option of SORT denied due to insufficient ACL permissions.").into())
}

fn run(context: &mut Context<'_>, args: Args<'_>, may_store: bool) -> Outcome {
    let mut options = Options::parse(args, may_store)?;
    check_patterns(context, args, &options)?;
    let key = &args[1];
    let _guard = match options.has_patterns() {
        true => context.lock_table(),
        false => context.lock_many([key].into_iter().chain(options.store)),
    };
    let mut room = Room::new(context);
    let ((kind, mut elements), lookups) = context.collections(|writes| {
        let found = elements(writes, key, &mut room)?;
        Ok((found, writes.lookups()))
    })?;
    context.record_reads([key].into_iter(), lookups);
    // The order of a set is arbitrary: what is stored or returned to a script has a definite one.
    if options.is_unsorted
        && kind == Some(Kind::Set)
        && (options.store.is_some() || context.is_in_transaction())
    {
        (options.is_unsorted, options.is_text, options.by) = (false, true, None);
    }
    if !options.is_unsorted {
        elements = sorted(context, elements, &options, &mut room)?;
    } else if options.is_descending && kind != Some(Kind::Set) {
        elements.reverse();
    }
    let range = options.range(elements.len());
    let mut found: Vec<Option<Vec<u8>>> = Vec::new();
    let max_bytes = context.shared.options.max_output_bytes;
    let mut left = max_bytes;
    let mut keep = |value: Option<Vec<u8>>| {
        if options.store.is_some() {
            room.take(value.as_deref().unwrap_or_default())?;
        } else {
            let bytes = MIN_REPLY_BYTES + value.as_ref().map_or(0, Vec::len);
            left = left.checked_sub(bytes).ok_or_else(|| reply_too_large(max_bytes))?;
        }
        found.push(value);
        Ok::<_, Failure>(())
    };
    for element in elements.drain(range) {
        for pattern in &options.get {
            keep(value_of(context, pattern, &element)?)?;
        }
        if options.get.is_empty() {
            keep(Some(element))?;
        }
    }
    let Some(target) = options.store else {
        context.replies.array(found.len());
        found.iter().for_each(|value| context.replies.bulk_or_null(value.as_deref()));
        return Ok(());
    };
    context.collections(|writes| {
        writes.remove(target)?;
        let mut list = List::open(writes, target)?;
        for value in &found {
            list.push(End::Back, value.as_deref().unwrap_or_default());
        }
        Ok(())
    })?;
    context.replies.count(found.len());
    Ok(())
}

/// The value that a pattern names for an element: of a key, or of a field of a hash.
fn value_of(
    context: &mut Context<'_>,
    pattern: &[u8],
    element: &[u8],
) -> Result<Option<Vec<u8>>, Failure> {
    if pattern == b"#" {
        return Ok(Some(element.to_vec()));
    }
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else { return Ok(None) };
    let (before, after) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = after.windows(2).position(|bytes| bytes == b"->");
    let arrow = arrow.filter(|at| at + 2 < after.len());
    let (after, field) = match arrow {
        Some(at) => (&after[..at], Some(&after[at + 2..])),
        None => (after, None),
    };
    let key = [before, element, after].concat();
    if key.len() > MAX_KEY_BYTES {
        // There is no such key.
        return Ok(None);
    }
    let Some(stored) = context.peek_any(&key)? else { return Ok(None) };
    match (field, stored.kind()) {
        (None, None) => Ok(Some(stored.entry.value)),
        (Some(field), Some(Kind::Hash)) => {
            context.collections(|writes| Ok(Hash::open(writes, &key)?.get(field)?))
        }
        _ => Ok(None),
    }
}

/// The weight by which an element is sorted.
enum Weight {
    Number(f64),
    Text(Option<Vec<u8>>),
}

impl Weight {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Weight::Number(a), Weight::Number(b)) => a.total_cmp(b),
            (Weight::Text(a), Weight::Text(b)) => a.cmp(b),
            (Weight::Number(_), Weight::Text(_)) => Ordering::Less,
            (Weight::Text(_), Weight::Number(_)) => Ordering::Greater,
        }
    }
}

fn sorted(
    context: &mut Context<'_>,
    elements: Vec<Vec<u8>>,
    options: &Options<'_>,
    room: &mut Room,
) -> Result<Vec<Vec<u8>>, Failure> {
    let mut weighted = Vec::with_capacity(elements.len());
    for element in elements {
        let by = match options.by {
            Some(pattern) => value_of(context, pattern, &element)?,
            // Elements of equal weight are sorted by themselves.
            None if options.is_text => None,
            None => Some(element.clone()),
        };
        let weight = match (options.is_text, by) {
            (true, by) => {
                by.as_ref().map_or(Ok(()), |text| room.take(text))?;
                Weight::Text(by)
            }
            (false, None) => Weight::Number(0.0),
            (false, Some(text)) if text.is_empty() => Weight::Number(0.0),
            // -0 is 0.
            (false, Some(text)) => Weight::Number(
                float(&text)
                    .ok_or(reply_error("ERR One or more scores can't be converted into double"))?
                    + 0.0,
            ),
        };
        weighted.push((weight, element));
    }
    weighted.sort_by(|(a, x), (b, y)| {
        let order = a.compare(b).then_with(|| x.cmp(y));
        if options.is_descending { order.reverse() } else { order }
    });
    Ok(weighted.into_iter().map(|(_, element)| element).collect())
}
