//! Pops that wait for an element: BLPOP, BLMOVE, BZPOPMIN and their variants.
//!
//! Each takes what it finds under the locks of its keys, or is parked before it releases them. It
//! is run again by whoever writes one of the keys ([`super::serve`]).
//!
//! Source: the documentation of Redis's blocking commands; replies of Redis 7.2.

use std::time::{Duration, Instant};

use siltstone_collections::{End, List, Order, SortedSet, WriteSet};

use super::context::Context;
use super::definition::{BLOCKING, FAST, NO_KEYS, TWO_KEYS, WRITE};
use super::elements::{ReplyRoom, count_from_one, counted_keys, float, is, reply_list};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, SYNTAX, reply_error};
use super::lists::{self, parse_end};
use super::parking::Wait;
use super::session::TimeoutReply;
use super::sorted_sets::{self, reply_pairs};
use crate::resp::Args;
use crate::store::blocked_keys::WaitKind;

pub(super) fn commands() -> Vec<Command> {
    let command = |group, name, arity, flags, keys, handler, summary| {
        entry::command(group, name, arity, flags | WRITE | BLOCKING, keys, handler, summary)
    };
    let keys = (1, -2, 1);
    let list = |name, arity, keys, handler, summary| {
        command("list", name, arity, 0, keys, handler, summary)
    };
    let set =
        |name, handler, summary| command("sorted-set", name, -3, FAST, keys, handler, summary);
    vec![
        list("blpop", -3, keys, blpop, "Pops the first element of a list, or waits for one."),
        list("brpop", -3, keys, brpop, "Pops the last element of a list, or waits for one."),
        list("blmove", 6, TWO_KEYS, blmove, "Moves an element to another list, or waits for one."),
        list("brpoplpush", 4, TWO_KEYS, brpoplpush, "Moves the last element, or waits for one."),
        list("blmpop", -5, NO_KEYS, blmpop, "Pops elements of the first list, or waits for one.")
            .with_counted_keys(2),
        set("bzpopmin", bzpopmin, "Pops the member with the lowest score, or waits for one."),
        set("bzpopmax", bzpopmax, "Pops the member with the highest score, or waits for one."),
        command(
            "sorted-set",
            "bzmpop",
            -5,
            0,
            NO_KEYS,
            bzmpop,
            "Pops members of the first sorted set, or waits for one.",
        )
        .with_counted_keys(2),
    ]
}

/// Parses a timeout in seconds; 0: without end.
fn deadline(text: &[u8]) -> Result<Option<Instant>, Failure> {
    const MAX_MS: f64 = i64::MAX as f64;
    let seconds = float(text).filter(|seconds| !seconds.is_nan());
    let seconds = seconds.ok_or(reply_error("ERR timeout is not a float or out of range"))?;
    if seconds < 0.0 {
        return Err(reply_error("ERR timeout is negative"));
    }
    if seconds * 1000.0 >= MAX_MS {
        return Err(reply_error("ERR timeout is out of range"));
    }
    if seconds == 0.0 {
        return Ok(None);
    }
    let timeout = Duration::from_millis((seconds * 1000.0).ceil() as u64);
    // A time beyond what the clock can express is without end.
    Ok(Instant::now().checked_add(timeout))
}

/// Takes from the first key that has something, or parks the command. `take` returns `None` if the
/// key has nothing, `reply` writes what was taken.
fn take_or_park<T>(
    context: &mut Context<'_>,
    args: Args<'_>,
    (kind, keys, deadline): (WaitKind, Vec<&[u8]>, Option<Instant>),
    take: impl Fn(&mut WriteSet<'_>, &[u8]) -> Result<Option<T>, Failure>,
    reply: impl FnOnce(&mut Context<'_>, &[u8], T) -> Outcome,
) -> Outcome {
    let _guard = context.lock_many(keys.iter().copied());
    for key in &keys {
        if !context.may_take(key, kind) {
            continue;
        }
        match context.collections(|writes| take(writes, key)) {
            Ok(None) => {}
            Ok(Some(taken)) => return reply(context, key, taken),
            // A key that has become something else is not what the command waits for.
            Err(failure) if context.session.is_retry && failure.is_wrong_type() => {}
            Err(failure) => return Err(failure),
        }
    }
    context.park(args, Wait { kind, keys, deadline, on_timeout: TimeoutReply::NullArray });
    Ok(())
}

fn blpop(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop_element(context, args, End::Front)
}

fn brpop(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop_element(context, args, End::Back)
}

/// The keys before the last argument, and the deadline that it gives.
fn keys_and_deadline(args: Args<'_>) -> Result<(Vec<&[u8]>, Option<Instant>), Failure> {
    let last = args.len() - 1;
    Ok((args.iter().take(last).skip(1).collect(), deadline(&args[last])?))
}

fn pop_element(context: &mut Context<'_>, args: Args<'_>, end: End) -> Outcome {
    let (keys, deadline) = keys_and_deadline(args)?;
    let room = ReplyRoom::new(context);
    let take = |writes: &mut WriteSet<'_>, key: &[u8]| {
        let Some(element) = List::open(writes, key)?.pop(end)? else { return Ok(None) };
        let mut room = room;
        room.take_bulk(key)?;
        room.take_bulk(&element)?;
        Ok(Some(element))
    };
    take_or_park(context, args, (WaitKind::List, keys, deadline), take, |context, key, element| {
        context.replies.array(2);
        context.replies.bulk(key);
        context.replies.bulk(&element);
        Ok(())
    })
}

fn blmove(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (from, to) = (parse_end(&args[3])?, parse_end(&args[4])?);
    move_element(context, args, from, to)
}

fn brpoplpush(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    move_element(context, args, End::Back, End::Front)
}

fn move_element(context: &mut Context<'_>, args: Args<'_>, from: End, to: End) -> Outcome {
    let deadline = deadline(&args[args.len() - 1])?;
    let (source, target) = (&args[1], &args[2]);
    let _guard = context.lock_many([source, target].into_iter());
    if context.may_take(source, WaitKind::List) {
        let exists = match context.collections(|writes| Ok(!List::open(writes, source)?.is_empty()))
        {
            Err(failure) if context.session.is_retry && failure.is_wrong_type() => false,
            exists => exists?,
        };
        if exists {
            let moved = lists::move_locked(context, source, target, from, to)?;
            context.replies.bulk_or_null(moved.as_deref());
            return Ok(());
        }
    }
    if context.is_in_transaction() {
        context.replies.null();
        return Ok(());
    }
    let (kind, keys, on_timeout) = (WaitKind::List, vec![source], TimeoutReply::NullArray);
    context.park(args, Wait { kind, keys, deadline, on_timeout });
    Ok(())
}

/// Keys, options and deadline of BLMPOP and BZMPOP.
type CountedKeys<'a> = (Vec<&'a [u8]>, Args<'a>, Option<Instant>);

fn counted(args: Args<'_>) -> Result<CountedKeys<'_>, Failure> {
    let deadline = deadline(&args[1])?;
    count_from_one(&args[2], "ERR numkeys should be greater than 0")?;
    let (keys, options) = counted_keys(args, 2).map_err(|_| SYNTAX)?;
    Ok((keys, options, deadline))
}

/// The COUNT after the direction, or 1.
fn count_of(options: Args<'_>) -> Result<u64, Failure> {
    match options.len() {
        1 => Ok(1),
        3 if is(&options[1], "count") => {
            count_from_one(&options[2], "ERR count should be greater than 0")
        }
        _ => Err(SYNTAX),
    }
}

fn blmpop(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (keys, options, deadline) = counted(args)?;
    let end = parse_end(options.get(0).ok_or(SYNTAX)?)?;
    let count = count_of(options)?;
    let room = ReplyRoom::new(context);
    let take = |writes: &mut WriteSet<'_>, key: &[u8]| {
        let mut list = List::open(writes, key)?;
        let exists = !list.is_empty();
        let mut room = room;
        room.take_bulk(key)?;
        let elements = lists::pop_many(&mut list, end, count, room)?;
        Ok(exists.then_some(elements))
    };
    take_or_park(context, args, (WaitKind::List, keys, deadline), take, |context, key, elements| {
        context.replies.array(2);
        context.replies.bulk(key);
        reply_list(context, &elements)
    })
}

fn bzpopmin(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop_member(context, args, Order::Ascending)
}

fn bzpopmax(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop_member(context, args, Order::Descending)
}

/// Members with their scores.
type Members = Vec<(Vec<u8>, f64)>;

/// Pops members of a sorted set; `None` if it has none.
fn pop_members(
    writes: &mut WriteSet<'_>,
    key: &[u8],
    (order, count): (Order, u64),
    mut room: ReplyRoom,
) -> Result<Option<Members>, Failure> {
    let mut set = SortedSet::open(writes, key)?;
    let exists = !set.is_empty();
    room.take_bulk(key)?;
    let members = sorted_sets::pop_many(&mut set, order, count, room)?;
    Ok(exists.then_some(members))
}

fn pop_member(context: &mut Context<'_>, args: Args<'_>, order: Order) -> Outcome {
    let (keys, deadline) = keys_and_deadline(args)?;
    let room = ReplyRoom::new(context);
    let take = |writes: &mut WriteSet<'_>, key: &[u8]| pop_members(writes, key, (order, 1), room);
    let wait = (WaitKind::SortedSet, keys, deadline);
    take_or_park(context, args, wait, take, |context, key, members| {
        context.replies.array(1 + 2 * members.len());
        context.replies.bulk(key);
        reply_pairs(context, &members, false);
        Ok(())
    })
}

fn bzmpop(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (keys, options, deadline) = counted(args)?;
    let order = match options.get(0) {
        Some(word) if is(word, "min") => Order::Ascending,
        Some(word) if is(word, "max") => Order::Descending,
        _ => return Err(SYNTAX),
    };
    let count = count_of(options)?;
    let room = ReplyRoom::new(context);
    let take =
        |writes: &mut WriteSet<'_>, key: &[u8]| pop_members(writes, key, (order, count), room);
    let wait = (WaitKind::SortedSet, keys, deadline);
    take_or_park(context, args, wait, take, |context, key, members| {
        context.replies.array(2);
        context.replies.bulk(key);
        context.replies.array(members.len());
        reply_pairs(context, &members, true);
        Ok(())
    })
}
