//! Commands on lists.
//!
//! LINSERT and LREM rewrite the elements on the shorter side; LPOS and they read elements one by
//! one. Everything else costs a lookup per element named.
//!
//! Source: the documentation of Redis's list commands.

use siltstone_collections::{End, List, Order, WriteSet};

use super::context::Context;
use super::definition::{FAST, NO_KEYS, ONE_KEY, READ, TWO_KEYS, WRITE};
use super::elements::{
    self, ReplyRoom, count_from_one, counted_keys, integer, is, reply_list, resolve_range,
};
use super::entry::{self, Command};
use super::failure::{Failure, NO_SUCH_KEY, Outcome, SYNTAX, reply_error, wrong_arity};
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, keys, handler, summary| {
        entry::command("list", name, arity, flags, keys, handler, summary)
    };
    let one = |name, arity, flags, handler, summary| {
        command(name, arity, flags, ONE_KEY, handler, summary)
    };
    vec![
        one("lpush", -3, WRITE | FAST, lpush, "Adds elements at the front of a list."),
        one("rpush", -3, WRITE | FAST, rpush, "Adds elements at the back of a list."),
        one("lpushx", -3, WRITE | FAST, lpushx, "Adds elements at the front of an existing list."),
        one("rpushx", -3, WRITE | FAST, rpushx, "Adds elements at the back of an existing list."),
        one("lpop", -2, WRITE | FAST, lpop, "Removes and returns elements from the front."),
        one("rpop", -2, WRITE | FAST, rpop, "Removes and returns elements from the back."),
        one("llen", 2, READ | FAST, llen, "Returns the number of elements."),
        one("lrange", 4, READ, lrange, "Returns a range of elements."),
        one("lindex", 3, READ, lindex, "Returns the element at a position."),
        one("lset", 4, WRITE, lset, "Replaces the element at a position."),
        one("linsert", 5, WRITE, linsert, "Inserts an element before or after another."),
        one("lrem", 4, WRITE, lrem, "Removes elements that equal a value."),
        one("ltrim", 4, WRITE, ltrim, "Keeps a range of elements."),
        one("lpos", -3, READ, lpos, "Returns the positions of an element."),
        command("lmove", 5, WRITE, TWO_KEYS, lmove, "Moves an element to another list."),
        command("rpoplpush", 3, WRITE, TWO_KEYS, rpoplpush, "Moves the last element to a list."),
        command("lmpop", -4, WRITE, NO_KEYS, lmpop, "Pops elements of the first list that exists.")
            .with_counted_keys(1),
    ]
}

fn lpush(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    push(context, args, End::Front, false)
}

fn rpush(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    push(context, args, End::Back, false)
}

fn lpushx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    push(context, args, End::Front, true)
}

fn rpushx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    push(context, args, End::Back, true)
}

fn push(context: &mut Context<'_>, args: Args<'_>, end: End, only_existing: bool) -> Outcome {
    let len = context.change(&args[1], |writes| {
        let mut list = List::open(writes, &args[1])?;
        if !only_existing || !list.is_empty() {
            args.from(2).iter().for_each(|element| list.push(end, element));
        }
        Ok(list.len())
    })?;
    context.replies.count(len as usize);
    Ok(())
}

fn lpop(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop(context, args, End::Front, "lpop")
}

fn rpop(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop(context, args, End::Back, "rpop")
}

/// Pops up to `count` elements, in the order of popping.
pub(super) fn pop_many(
    list: &mut List<'_, '_>,
    end: End,
    count: u64,
    mut room: ReplyRoom,
) -> Result<Vec<Vec<u8>>, Failure> {
    let (mut elements, len, mut outcome) = (Vec::new(), list.len(), Ok(()));
    if count == 1 {
        elements.extend(list.pop(end)?);
        elements.iter().try_for_each(|element| room.take_bulk(element))?;
        return Ok(elements);
    }
    let count = count.min(len);
    let (popped, order, kept) = match end {
        End::Front => (0..count, Order::Ascending, count..len),
        End::Back => (len - count..len, Order::Descending, 0..len - count),
    };
    list.for_each(popped, order, &mut |_, element| {
        elements.push(element.to_vec());
        outcome = room.take_bulk(element);
        outcome.is_ok()
    })?;
    outcome?;
    if count > 0 {
        list.trim(kept);
    }
    Ok(elements)
}

fn pop(context: &mut Context<'_>, args: Args<'_>, end: End, name: &str) -> Outcome {
    if args.len() > 3 {
        return Err(wrong_arity(name));
    }
    let count = args.get(2).map(elements::count).transpose()?;
    let room = ReplyRoom::new(context);
    let popped = context.change(&args[1], |writes| {
        let mut list = List::open(writes, &args[1])?;
        let exists = !list.is_empty();
        let elements = pop_many(&mut list, end, count.unwrap_or(1), room)?;
        Ok(exists.then_some(elements))
    })?;
    match (popped, count) {
        (None, Some(_)) => context.replies.null_array(),
        (None, None) => context.replies.null(),
        (Some(elements), Some(_)) => reply_list(context, &elements)?,
        (Some(elements), None) => {
            context.replies.bulk_or_null(elements.first().map(Vec::as_slice));
        }
    }
    Ok(())
}

fn llen(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let len = context.view(&args[1], |writes| Ok(List::open(writes, &args[1])?.len()))?;
    context.replies.count(len as usize);
    Ok(())
}

fn lrange(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (start, end) = (integer(&args[2])?, integer(&args[3])?);
    let limit = context.shared.options.max_output_bytes;
    let elements = context.view(&args[1], |writes| {
        let list = List::open(writes, &args[1])?;
        let (mut elements, mut bytes) = (Vec::new(), 0);
        let range = resolve_range(start, end, list.len());
        list.for_each(range, Order::Ascending, &mut |_, element| {
            bytes += element.len();
            elements.push(element.to_vec());
            // The reply overflows anyway.
            bytes <= limit
        })?;
        Ok(elements)
    })?;
    reply_list(context, &elements)
}

/// Position of an index that counts from the end if it is negative.
fn position(index: i64, len: u64) -> Option<u64> {
    match u64::try_from(index) {
        Ok(position) => Some(position).filter(|position| *position < len),
        Err(_) => len.checked_sub(index.unsigned_abs()),
    }
}

fn lindex(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let element = context.view(&args[1], |writes| {
        let list = List::open(writes, &args[1])?;
        // As in Redis, the index is not checked if the key does not exist.
        let index = if list.is_empty() { 0 } else { integer(&args[2])? };
        let Some(position) = position(index, list.len()) else { return Ok(None) };
        Ok(list.get(position)?)
    })?;
    context.replies.bulk_or_null(element.as_deref());
    Ok(())
}

fn lset(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    context.change(&args[1], |writes| {
        let mut list = List::open(writes, &args[1])?;
        if list.is_empty() {
            return Err(NO_SUCH_KEY);
        }
        let position = position(integer(&args[2])?, list.len());
        let position = position.ok_or(reply_error("ERR index out of range"))?;
        list.set(position, &args[3]);
        Ok(())
    })?;
    context.replies.ok();
    Ok(())
}

fn linsert(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let is_after = match &args[2] {
        word if is(word, "before") => false,
        word if is(word, "after") => true,
        _ => return Err(SYNTAX),
    };
    let len = context.change(&args[1], |writes| {
        let mut list = List::open(writes, &args[1])?;
        if list.is_empty() {
            return Ok(0);
        }
        let Some(position) = list.find(&args[3])? else { return Ok(-1) };
        list.insert(position + u64::from(is_after), &args[4])?;
        Ok(list.len() as i64)
    })?;
    context.replies.int(len);
    Ok(())
}

fn lrem(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let count = integer(&args[2])?;
    let order = if count < 0 { Order::Descending } else { Order::Ascending };
    let max = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let removed = context.change(&args[1], |writes| {
        Ok(List::open(writes, &args[1])?.remove(&args[3], max, order)?)
    })?;
    context.replies.count(removed as usize);
    Ok(())
}

fn ltrim(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (start, end) = (integer(&args[2])?, integer(&args[3])?);
    context.change(&args[1], |writes| {
        let mut list = List::open(writes, &args[1])?;
        if !list.is_empty() {
            let range = resolve_range(start, end, list.len());
            list.trim(range);
        }
        Ok(())
    })?;
    context.replies.ok();
    Ok(())
}

fn lpos(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (mut rank, mut count, mut max_compared) = (1, None, 0);
    let mut words = args.from(3).iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or(SYNTAX)?;
        if is(word, "rank") {
            rank = elements::selection(value, false)?;
            if rank == 0 {
                return Err(reply_error(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                     second ... or use negative to start from the end of the list",
                ));
            }
        } else if is(word, "count") {
            let negative = reply_error("ERR COUNT can't be negative");
            count = Some(elements::count(value).map_err(|_| negative)?);
        } else if is(word, "maxlen") {
            let negative = reply_error("ERR MAXLEN can't be negative");
            max_compared = elements::count(value).map_err(|_| negative)?;
        } else {
            return Err(SYNTAX);
        }
    }
    let order = if rank < 0 { Order::Descending } else { Order::Ascending };
    let wanted = match count {
        None => 1,
        Some(0) => u64::MAX,
        Some(count) => count,
    };
    let positions = context.view(&args[1], |writes| {
        let list = List::open(writes, &args[1])?;
        let (mut skip, mut compared) = (rank.unsigned_abs() - 1, 0);
        let mut positions = Vec::new();
        list.for_each(0..list.len(), order, &mut |position, element| {
            if element == &args[2] {
                match skip {
                    0 => positions.push(position),
                    _ => skip -= 1,
                }
            }
            compared += 1;
            (positions.len() as u64) < wanted && compared != max_compared
        })?;
        Ok(positions)
    })?;
    match count {
        None => match positions.first() {
            Some(position) => context.replies.count(*position as usize),
            None => context.replies.null(),
        },
        Some(_) => {
            context.replies.array(positions.len());
            for position in positions {
                context.replies.count(position as usize);
            }
        }
    }
    Ok(())
}

pub(super) fn parse_end(word: &[u8]) -> Result<End, Failure> {
    match word {
        word if is(word, "left") => Ok(End::Front),
        word if is(word, "right") => Ok(End::Back),
        _ => Err(SYNTAX),
    }
}

fn lmove(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (from, to) = (parse_end(&args[3])?, parse_end(&args[4])?);
    move_element(context, &args[1], &args[2], from, to)
}

fn rpoplpush(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    move_element(context, &args[1], &args[2], End::Back, End::Front)
}

fn move_element(
    context: &mut Context<'_>,
    source: &[u8],
    target: &[u8],
    from: End,
    to: End,
) -> Outcome {
    let _guard = context.lock_many([source, target].into_iter());
    let moved = move_locked(context, source, target, from, to)?;
    context.replies.bulk_or_null(moved.as_deref());
    Ok(())
}

/// Moves an element; `None` if there is none. The caller holds the locks of the keys.
pub(super) fn move_locked(
    context: &mut Context<'_>,
    source: &[u8],
    target: &[u8],
    from: End,
    to: End,
) -> Result<Option<Vec<u8>>, Failure> {
    context.collections(|writes| {
        if List::open(writes, source)?.is_empty() {
            return Ok(None);
        }
        // The type of the target is checked before anything changes.
        List::open(writes, target)?;
        if source == target {
            let mut list = List::open(writes, source)?;
            // A single element stays, with the expiry of the list, which counts as changed.
            if list.len() == 1 {
                let element = list.get(0)?;
                element.iter().for_each(|element| _ = list.set(0, element));
                return Ok(element);
            }
            let element = list.pop(from)?;
            element.iter().for_each(|element| list.push(to, element));
            return Ok(element);
        }
        let element = List::open(writes, source)?.pop(from)?;
        let mut list = List::open(writes, target)?;
        element.iter().for_each(|element| list.push(to, element));
        Ok(element)
    })
}

fn lmpop(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (keys, options) = counted_keys_or_syntax(args)?;
    let end = parse_end(options.get(0).ok_or(SYNTAX)?)?;
    let count = match options.len() {
        1 => 1,
        3 if is(&options[1], "count") => {
            count_from_one(&options[2], "ERR count should be greater than 0")?
        }
        _ => return Err(SYNTAX),
    };
    let mut room = ReplyRoom::new(context);
    let popped = context.change_many(keys.iter().copied(), |writes: &mut WriteSet<'_>| {
        for key in &keys {
            let mut list = List::open(writes, key)?;
            if !list.is_empty() {
                room.take_bulk(key)?;
                return Ok(Some((*key, pop_many(&mut list, end, count, room)?)));
            }
        }
        Ok(None)
    })?;
    match popped {
        None => context.replies.null_array(),
        Some((key, elements)) => {
            context.replies.array(2);
            context.replies.bulk(key);
            reply_list(context, &elements)?;
        }
    }
    Ok(())
}

/// The keys of LMPOP: too many of them are a syntax error.
fn counted_keys_or_syntax(args: Args<'_>) -> Result<(Vec<&[u8]>, Args<'_>), Failure> {
    count_from_one(&args[1], "ERR numkeys should be greater than 0")?;
    counted_keys(args, 1).map_err(|_| SYNTAX)
}
