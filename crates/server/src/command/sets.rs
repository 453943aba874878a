//! Commands on sets.
//!
//! Intersections read the smallest set, differences the first one, in parts, and look its members
//! up in the others. Unions read all sets.
//!
//! Source: the documentation of Redis's set commands.

use std::collections::BTreeSet;

use siltstone_collections::{Set, WriteSet};

use super::context::Context;
use super::definition::{ALL_KEYS, FAST, NO_KEYS, ONE_KEY, READ, TWO_KEYS, WRITE};
use super::elements::{
    self, Dice, ElementScan, ReplyRoom, ResultLimit, counted_keys, integer, is, reply_list,
};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, SYNTAX, reply_error};
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, keys, handler, summary| {
        entry::command("set", name, arity, flags, keys, handler, summary)
    };
    let one = |name, arity, flags, handler, summary| {
        command(name, arity, flags, ONE_KEY, handler, summary)
    };
    vec![
        one("sadd", -3, WRITE | FAST, sadd, "Adds members to a set."),
        one("srem", -3, WRITE | FAST, srem, "Removes members."),
        one("smembers", 2, READ, smembers, "Returns all members."),
        one("sismember", 3, READ | FAST, sismember, "Whether a set has a member."),
        one("smismember", -3, READ | FAST, smismember, "Whether a set has members."),
        one("scard", 2, READ | FAST, scard, "Returns the number of members."),
        one("spop", -2, WRITE | FAST, spop, "Removes and returns random members."),
        one("srandmember", -2, READ, srandmember, "Returns random members."),
        one("sscan", -3, READ, sscan, "Iterates over the members in steps."),
        command("smove", 4, WRITE | FAST, TWO_KEYS, smove, "Moves a member to another set."),
        command("sinter", -2, READ, ALL_KEYS, sinter, "Returns the intersection of sets."),
        command("sunion", -2, READ, ALL_KEYS, sunion, "Returns the union of sets."),
        command("sdiff", -2, READ, ALL_KEYS, sdiff, "Returns the difference of sets."),
        command("sinterstore", -3, WRITE, ALL_KEYS, sinterstore, "Stores an intersection."),
        command("sunionstore", -3, WRITE, ALL_KEYS, sunionstore, "Stores a union."),
        command("sdiffstore", -3, WRITE, ALL_KEYS, sdiffstore, "Stores a difference."),
        command("sintercard", -3, READ, NO_KEYS, sintercard, "Counts an intersection.")
            .with_counted_keys(1),
    ]
}

fn sadd(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let added = context.change(&args[1], |writes| {
        let mut set = Set::open(writes, &args[1])?;
        let mut added = 0;
        for member in args.from(2).iter() {
            added += usize::from(set.insert(member)?);
        }
        Ok(added)
    })?;
    context.replies.count(added);
    Ok(())
}

fn srem(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let removed = context.change(&args[1], |writes| {
        let mut set = Set::open(writes, &args[1])?;
        let mut removed = 0;
        for member in args.from(2).iter() {
            removed += usize::from(set.remove(member)?);
        }
        Ok(removed)
    })?;
    context.replies.count(removed);
    Ok(())
}

/// Members of a set, up to the limit of a reply.
fn bounded_members(set: &Set<'_, '_>, limit: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let (mut members, mut bytes) = (Vec::new(), 0);
    set.for_each(&mut |member| {
        bytes += member.len();
        members.push(member.to_vec());
        bytes <= limit
    })?;
    Ok(members)
}

fn reply_set(context: &mut Context<'_>, members: &[Vec<u8>]) -> Outcome {
    context.replies.set(members.len());
    for member in members {
        context.replies.bulk(member);
    }
    Ok(())
}

fn smembers(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let limit = context.shared.options.max_output_bytes;
    let members =
        context.view(&args[1], |writes| bounded_members(&Set::open(writes, &args[1])?, limit))?;
    reply_set(context, &members)
}

fn sismember(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let is_member =
        context.view(&args[1], |writes| Ok(Set::open(writes, &args[1])?.contains(&args[2])?))?;
    context.replies.flag(is_member);
    Ok(())
}

fn smismember(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let found = context.view(&args[1], |writes| {
        let set = Set::open(writes, &args[1])?;
        let found: Result<Vec<bool>, _> =
            args.from(2).iter().map(|member| set.contains(member)).collect();
        Ok(found?)
    })?;
    context.replies.array(found.len());
    found.into_iter().for_each(|is_member| context.replies.flag(is_member));
    Ok(())
}

fn scard(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let len = context.view(&args[1], |writes| Ok(Set::open(writes, &args[1])?.len()))?;
    context.replies.count(len as usize);
    Ok(())
}

fn spop(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(SYNTAX);
    }
    let count = args.get(2).map(elements::count).transpose()?;
    let mut room = ReplyRoom::new(context);
    let max_bytes = context.shared.options.max_output_bytes;
    let popped = context.change(&args[1], |writes| {
        let mut set = Set::open(writes, &args[1])?;
        let wanted = count.unwrap_or(1);
        if wanted >= set.len() {
            let members = bounded_members(&set, max_bytes)?;
            members.iter().try_for_each(|member| room.take_bulk(member))?;
            if !set.is_empty() {
                set.clear();
            }
            return Ok(members);
        }
        let wanted = i64::try_from(wanted).unwrap_or(i64::MAX);
        let members = select(&set, wanted, max_bytes)?;
        members.iter().try_for_each(|member| room.take_bulk(member))?;
        for member in &members {
            set.remove(member)?;
        }
        Ok(members)
    })?;
    match count {
        None => context.replies.bulk_or_null(popped.first().map(Vec::as_slice)),
        Some(_) => reply_set(context, &popped)?,
    }
    Ok(())
}

fn select(set: &Set<'_, '_>, count: i64, max_bytes: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let draw = |dice: &mut Dice| Ok(set.draw(&mut |bound| dice.below(bound))?);
    let each = |visit: &mut dyn FnMut(Vec<u8>) -> bool| {
        Ok(set.for_each(&mut |member| visit(member.to_vec()))?)
    };
    elements::select(count, set.len(), &mut Dice::new(), draw, each, (max_bytes, Vec::len))
}

fn srandmember(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(SYNTAX);
    }
    let count = args.get(2).map(|word| elements::selection(word, false)).transpose()?;
    let max_bytes = context.shared.options.max_output_bytes;
    let selected = context.view(&args[1], |writes| {
        select(&Set::open(writes, &args[1])?, count.unwrap_or(1), max_bytes)
    })?;
    match count {
        None => context.replies.bulk_or_null(selected.first().map(Vec::as_slice)),
        Some(_) => reply_list(context, &selected)?,
    }
    Ok(())
}

fn sscan(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let scan = ElementScan::parse(args)?;
    let (members, next) = context.view(&args[1], |writes| {
        let set = Set::open(writes, &args[1])?;
        Ok(set.scan(scan.from, scan.count_of(set.is_compact()))?)
    })?;
    scan.reply(context, next, members.into_iter().map(|member| [member]).collect())
}

fn smove(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (source, target, member) = (&args[1], &args[2], &args[3]);
    let moved = context.change_many([source, target].into_iter(), |writes| {
        let source_set = Set::open(writes, source)?;
        if source_set.is_empty() {
            return Ok(false);
        }
        let is_member = source_set.contains(member)?;
        Set::open(writes, target)?;
        if !is_member || source == target {
            return Ok(is_member);
        }
        Set::open(writes, source)?.remove(member)?;
        Set::open(writes, target)?.insert(member)?;
        Ok(true)
    })?;
    context.replies.flag(moved);
    Ok(())
}

/// An operation on several sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Algebra {
    Intersection,
    Union,
    Difference,
}

/// Members of a set that are read at a time.
const PART_MEMBERS: usize = 1000;

/// The sets with their sizes. The types of all keys are checked, also where one of them decides the
/// result.
fn sizes<'k>(
    writes: &mut WriteSet<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Vec<(&'k [u8], u64)>, Failure> {
    let mut sizes = Vec::new();
    for key in keys {
        sizes.push((key, Set::open(writes, key)?.len()));
    }
    Ok(sizes)
}

/// Members of the union; beyond the limit not all of them.
fn union<'k>(
    writes: &mut WriteSet<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
    mut limit: ResultLimit,
) -> Result<Vec<Vec<u8>>, Failure> {
    let mut union: BTreeSet<Vec<u8>> = BTreeSet::new();
    for (key, _) in sizes(writes, keys)? {
        Set::open(writes, key)?.for_each(&mut |member| {
            union.contains(member) || {
                union.insert(member.to_vec());
                limit.take(member.len())
            }
        })?;
        if !limit.has_room() {
            break;
        }
    }
    Ok(union.into_iter().collect())
}

/// Visits the members of an intersection or difference until `visit` returns false.
fn for_each_kept<'k>(
    writes: &mut WriteSet<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
    algebra: Algebra,
    visit: &mut dyn FnMut(Vec<u8>) -> bool,
) -> Outcome {
    let is_intersection = algebra == Algebra::Intersection;
    let mut sets = sizes(writes, keys)?;
    if is_intersection {
        if sets.iter().any(|(_, len)| *len == 0) {
            return Ok(());
        }
        let smallest = (0..sets.len()).min_by_key(|at| sets[*at].1).unwrap_or_default();
        sets.swap(0, smallest);
    }
    let Some(((first, _), others)) = sets.split_first() else { return Ok(()) };
    let mut from = Some(0);
    while let Some(start) = from {
        let (members, next) = Set::open(writes, first)?.scan(start, PART_MEMBERS)?;
        from = next;
        'members: for member in members {
            for (key, _) in others {
                if Set::open(writes, key)?.contains(&member)? != is_intersection {
                    continue 'members;
                }
            }
            if !visit(member) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Members of the result; beyond the limit not all of them.
fn combine<'k>(
    writes: &mut WriteSet<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
    algebra: Algebra,
    mut limit: ResultLimit,
) -> Result<Vec<Vec<u8>>, Failure> {
    if algebra == Algebra::Union {
        return union(writes, keys, limit);
    }
    let mut kept = Vec::new();
    for_each_kept(writes, keys, algebra, &mut |member| {
        let has_room = limit.take(member.len());
        kept.push(member);
        has_room
    })?;
    Ok(kept)
}

fn sinter(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_combined(context, args, Algebra::Intersection)
}

fn sunion(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_combined(context, args, Algebra::Union)
}

fn sdiff(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_combined(context, args, Algebra::Difference)
}

fn reply_combined(context: &mut Context<'_>, args: Args<'_>, algebra: Algebra) -> Outcome {
    let keys = args.from(1).iter();
    let limit = ResultLimit::of_reply(context);
    let members =
        context.view_many(keys.clone(), |writes| combine(writes, keys.clone(), algebra, limit))?;
    reply_set(context, &members)
}

fn sinterstore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    store_combined(context, args, Algebra::Intersection)
}

fn sunionstore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    store_combined(context, args, Algebra::Union)
}

fn sdiffstore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    store_combined(context, args, Algebra::Difference)
}

fn store_combined(context: &mut Context<'_>, args: Args<'_>, algebra: Algebra) -> Outcome {
    let (target, limit) = (&args[1], ResultLimit::of_rows(context));
    let stored = context.change_many(args.from(1).iter(), |writes| {
        let members = combine(writes, args.from(2).iter(), algebra, limit)?;
        // Any type is overwritten.
        writes.remove(target)?;
        let mut set = Set::open(writes, target)?;
        for member in &members {
            set.insert(member)?;
        }
        Ok(members.len())
    })?;
    context.replies.count(stored);
    Ok(())
}

fn sintercard(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (keys, options) = counted_keys(args, 1)?;
    let mut limit = u64::MAX;
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let value = words.next().filter(|_| is(word, "limit")).ok_or(SYNTAX)?;
        let negative = reply_error("ERR LIMIT can't be negative");
        let value = integer(value).ok().and_then(|limit| u64::try_from(limit).ok());
        // 0 means no limit.
        limit = value.map(|limit| if limit == 0 { u64::MAX } else { limit }).ok_or(negative)?;
    }
    let keys = keys.iter().copied();
    let count = context.view_many(keys.clone(), |writes| {
        let mut count = 0;
        for_each_kept(writes, keys.clone(), Algebra::Intersection, &mut |_| {
            count += 1;
            count < limit
        })?;
        Ok(count)
    })?;
    context.replies.count(count as usize);
    Ok(())
}
