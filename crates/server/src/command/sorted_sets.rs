//! Commands on the members of one sorted set: adding, removing, popping, looking up.
//!
//! Ranges are in [`super::sorted_set_ranges`], unions and the like in
//! [`super::sorted_set_algebra`].
//!
//! Source: the documentation of Redis's sorted set commands.

use siltstone_collections::{Order, ScoreRange, SortedSet};

use super::context::Context;
use super::definition::{FAST, NO_KEYS, ONE_KEY, READ, WRITE};
use super::elements::{
    self, Dice, ElementScan, NOT_A_FLOAT, ReplyRoom, begin_pairs, count_from_one, counted_keys,
    float, is, reply_list,
};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, SYNTAX, reply_error};
use crate::resp::number::format_double;
use crate::resp::{Args, RespVersion};

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, handler, summary| {
        entry::command("sorted-set", name, arity, flags, ONE_KEY, handler, summary)
    };
    vec![
        command("zadd", -4, WRITE | FAST, zadd, "Adds members or updates their scores."),
        command("zincrby", 4, WRITE | FAST, zincrby, "Adds to the score of a member."),
        command("zrem", -3, WRITE | FAST, zrem, "Removes members."),
        command("zscore", 3, READ | FAST, zscore, "Returns the score of a member."),
        command("zmscore", -3, READ | FAST, zmscore, "Returns the scores of members."),
        command("zcard", 2, READ | FAST, zcard, "Returns the number of members."),
        command("zrank", -3, READ | FAST, zrank, "Returns the rank of a member."),
        command("zrevrank", -3, READ | FAST, zrevrank, "Returns the rank from the highest score."),
        command("zpopmin", -2, WRITE | FAST, zpopmin, "Pops members with the lowest scores."),
        command("zpopmax", -2, WRITE | FAST, zpopmax, "Pops members with the highest scores."),
        command("zrandmember", -2, READ, zrandmember, "Returns random members."),
        command("zscan", -3, READ, zscan, "Iterates over the members in steps."),
        entry::command(
            "sorted-set",
            "zmpop",
            -4,
            WRITE,
            NO_KEYS,
            zmpop,
            "Pops members of the first sorted set that exists.",
        )
        .with_counted_keys(1),
    ]
}

const NOT_A_NUMBER: Failure = reply_error("ERR resulting score is not a number (NaN)");

/// Options of ZADD.
#[derive(Default)]
struct AddOptions {
    only_new: bool,
    only_existing: bool,
    only_greater: bool,
    only_less: bool,
    counts_changes: bool,
    adds_to_score: bool,
}

/// The result of ZADD.
#[derive(Default)]
struct ZaddResult {
    new: usize,
    changed: usize,
    /// Score of the last member, unless a condition kept it.
    score: Option<f64>,
}

impl AddOptions {
    /// Parses the options; returns their number.
    fn parse(args: Args<'_>) -> Result<(Self, usize), Failure> {
        let mut options = Self::default();
        let mut parsed = 0;
        for word in args.iter() {
            match word {
                word if is(word, "nx") => options.only_new = true,
                word if is(word, "xx") => options.only_existing = true,
                word if is(word, "gt") => options.only_greater = true,
                word if is(word, "lt") => options.only_less = true,
                word if is(word, "ch") => options.counts_changes = true,
                word if is(word, "incr") => options.adds_to_score = true,
                _ => break,
            }
            parsed += 1;
        }
        let pairs = args.len() - parsed;
        if pairs == 0 || !pairs.is_multiple_of(2) {
            return Err(SYNTAX);
        }
        let AddOptions { only_new, only_existing, only_greater, only_less, .. } = options;
        if only_new && only_existing {
            return Err(reply_error("ERR XX and NX options at the same time are not compatible"));
        }
        if only_greater && only_less || only_new && (only_greater || only_less) {
            return Err(reply_error(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if options.adds_to_score && pairs > 2 {
            return Err(reply_error("ERR INCR option supports a single increment-element pair"));
        }
        Ok((options, parsed))
    }

    fn add(
        &self,
        set: &mut SortedSet<'_, '_>,
        member: &[u8],
        score: f64,
        added: &mut ZaddResult,
    ) -> Outcome {
        added.score = None;
        set.update(member, |old| {
            let Some(old) = old else {
                added.score = (!self.only_existing).then_some(score);
                added.new += usize::from(!self.only_existing);
                return Ok(added.score);
            };
            if self.only_new {
                return Ok(None);
            }
            let score = if self.adds_to_score { old + score } else { score };
            if score.is_nan() {
                return Err(NOT_A_NUMBER);
            }
            if self.only_less && score >= old || self.only_greater && score <= old {
                return Ok(None);
            }
            added.score = Some(score);
            added.changed += usize::from(score != old);
            Ok(Some(score).filter(|score| *score != old))
        })?;
        Ok(())
    }
}

fn zadd(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (options, parsed) = AddOptions::parse(args.from(2))?;
    let pairs = args.from(2 + parsed);
    // All scores are checked before anything changes.
    let scores = pairs.iter().step_by(2).map(|word| float(word).ok_or(NOT_A_FLOAT));
    let scores = scores.collect::<Result<Vec<_>, _>>()?;
    let added = context.change(&args[1], |writes| {
        let mut set = SortedSet::open(writes, &args[1])?;
        let mut added = ZaddResult::default();
        for (score, member) in scores.into_iter().zip(pairs.from(1).iter().step_by(2)) {
            options.add(&mut set, member, score, &mut added)?;
        }
        Ok(added)
    })?;
    match (options.adds_to_score, added.score) {
        (true, Some(score)) => context.replies.double(score),
        (true, None) => context.replies.null(),
        (false, _) if options.counts_changes => context.replies.count(added.new + added.changed),
        (false, _) => context.replies.count(added.new),
    }
    Ok(())
}

fn zincrby(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let step = float(&args[2]).ok_or(NOT_A_FLOAT)?;
    let options = AddOptions { adds_to_score: true, ..AddOptions::default() };
    let added = context.change(&args[1], |writes| {
        let mut added = ZaddResult::default();
        options.add(&mut SortedSet::open(writes, &args[1])?, &args[3], step, &mut added)?;
        Ok(added)
    })?;
    context.replies.double(added.score.unwrap_or(step));
    Ok(())
}

fn zrem(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let removed = context.change(&args[1], |writes| {
        let mut set = SortedSet::open(writes, &args[1])?;
        let mut removed = 0;
        for member in args.from(2).iter() {
            removed += usize::from(set.remove(member)?.is_some());
        }
        Ok(removed)
    })?;
    context.replies.count(removed);
    Ok(())
}

fn reply_score(context: &mut Context<'_>, score: Option<f64>) {
    match score {
        Some(score) => context.replies.double(score),
        None => context.replies.null(),
    }
}

fn zscore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let score =
        context.view(&args[1], |writes| Ok(SortedSet::open(writes, &args[1])?.score(&args[2])?))?;
    reply_score(context, score);
    Ok(())
}

fn zmscore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let scores = context.view(&args[1], |writes| {
        let set = SortedSet::open(writes, &args[1])?;
        let scores: Result<Vec<_>, _> =
            args.from(2).iter().map(|member| set.score(member)).collect();
        Ok(scores?)
    })?;
    context.replies.array(scores.len());
    scores.into_iter().for_each(|score| reply_score(context, score));
    Ok(())
}

fn zcard(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let len = context.view(&args[1], |writes| Ok(SortedSet::open(writes, &args[1])?.len()))?;
    context.replies.count(len as usize);
    Ok(())
}

fn zrank(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    rank(context, args, Order::Ascending, "zrank")
}

fn zrevrank(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    rank(context, args, Order::Descending, "zrevrank")
}

fn rank(context: &mut Context<'_>, args: Args<'_>, order: Order, name: &str) -> Outcome {
    if args.len() > 4 {
        return Err(super::failure::wrong_arity(name));
    }
    let with_score = args.len() == 4;
    if with_score && !is(&args[3], "withscore") {
        return Err(SYNTAX);
    }
    let found = context
        .view(&args[1], |writes| Ok(SortedSet::open(writes, &args[1])?.rank(&args[2], order)?))?;
    match found {
        None if with_score => context.replies.null_array(),
        None => context.replies.null(),
        Some((rank, score)) => {
            if with_score {
                context.replies.array(2);
            }
            context.replies.count(rank as usize);
            if with_score {
                context.replies.double(score);
            }
        }
    }
    Ok(())
}

/// Pops up to `count` members from an end.
pub(super) fn pop_many(
    set: &mut SortedSet<'_, '_>,
    order: Order,
    count: u64,
    mut room: ReplyRoom,
) -> Result<Vec<(Vec<u8>, f64)>, Failure> {
    let members = set.range(0..count, order)?;
    for (member, score) in &members {
        room.take_bulk(member)?;
        room.take_bulk(format_double(*score).as_bytes())?;
        // The header of a pair.
        room.take(4)?;
    }
    if members.len() as u64 == set.len() && !members.is_empty() {
        set.clear();
        return Ok(members);
    }
    for (member, _) in &members {
        set.remove(member)?;
    }
    Ok(members)
}

fn zpopmin(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop(context, args, Order::Ascending)
}

fn zpopmax(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop(context, args, Order::Descending)
}

fn pop(context: &mut Context<'_>, args: Args<'_>, order: Order) -> Outcome {
    if args.len() > 3 {
        return Err(SYNTAX);
    }
    let count = args.get(2).map(elements::count).transpose()?;
    let room = ReplyRoom::new(context);
    let members = context.change(&args[1], |writes| {
        pop_many(&mut SortedSet::open(writes, &args[1])?, order, count.unwrap_or(1), room)
    })?;
    // Without a count the pair is flat in RESP3, too.
    let is_nested = context.replies.version == RespVersion::Resp3 && count.is_some();
    context.replies.array(if is_nested { members.len() } else { 2 * members.len() });
    reply_pairs(context, &members, is_nested);
    Ok(())
}

/// Replies with members and scores, each pair in its own array if they are nested.
pub(super) fn reply_pairs(context: &mut Context<'_>, members: &[(Vec<u8>, f64)], is_nested: bool) {
    members.iter().for_each(|(member, score)| reply_pair(context, member, *score, is_nested));
}

/// Replies with a member and its score.
pub(super) fn reply_pair(context: &mut Context<'_>, member: &[u8], score: f64, is_nested: bool) {
    if is_nested {
        context.replies.array(2);
    }
    context.replies.bulk(member);
    context.replies.double(score);
}

fn zmpop(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    count_from_one(&args[1], "ERR numkeys should be greater than 0")?;
    let (keys, options) = counted_keys(args, 1).map_err(|_| SYNTAX)?;
    let order = match options.get(0) {
        Some(word) if is(word, "min") => Order::Ascending,
        Some(word) if is(word, "max") => Order::Descending,
        _ => return Err(SYNTAX),
    };
    let count = match options.len() {
        1 => 1,
        3 if is(&options[1], "count") => {
            count_from_one(&options[2], "ERR count should be greater than 0")?
        }
        _ => return Err(SYNTAX),
    };
    let mut room = ReplyRoom::new(context);
    let popped = context.change_many(keys.iter().copied(), |writes| {
        for key in &keys {
            let mut set = SortedSet::open(writes, key)?;
            if !set.is_empty() {
                room.take_bulk(key)?;
                return Ok(Some((*key, pop_many(&mut set, order, count, room)?)));
            }
        }
        Ok(None)
    })?;
    match popped {
        None => context.replies.null_array(),
        Some((key, members)) => {
            context.replies.array(2);
            context.replies.bulk(key);
            context.replies.array(members.len());
            reply_pairs(context, &members, true);
        }
    }
    Ok(())
}

/// Members and scores, ordered for a selection of distinct ones by their bits.
type MemberScore = (Vec<u8>, u64);

fn zrandmember(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let with_scores = args.get(3).is_some_and(|word| is(word, "withscores"));
    if args.len() > 4 || args.len() == 4 && !with_scores {
        return Err(SYNTAX);
    }
    let count = args.get(2).map(|word| elements::selection(word, with_scores)).transpose()?;
    let mut dice = Dice::new();
    let bits = |(member, score): (Vec<u8>, f64)| (member, score.to_bits());
    let max_bytes = context.shared.options.max_output_bytes;
    let selected: Vec<MemberScore> = context.view(&args[1], |writes| {
        let set = SortedSet::open(writes, &args[1])?;
        let draw = |dice: &mut Dice| Ok(set.draw(&mut |bound| dice.below(bound))?.map(bits));
        let each = |visit: &mut dyn FnMut(MemberScore) -> bool| {
            let mut visit = |member: &[u8], score| visit(bits((member.to_vec(), score)));
            Ok(set.for_each(ScoreRange::ALL, Order::Ascending, &mut visit)?)
        };
        let limit = (max_bytes, |(member, _): &MemberScore| member.len());
        elements::select(count.unwrap_or(1), set.len(), &mut dice, draw, each, limit)
    })?;
    if count.is_none() {
        context.replies.bulk_or_null(selected.first().map(|(member, _)| member.as_slice()));
        return Ok(());
    }
    if !with_scores {
        let members: Vec<_> = selected.into_iter().map(|(member, _)| member).collect();
        return reply_list(context, &members);
    }
    let is_nested = begin_pairs(context, selected.len());
    let members: Vec<_> =
        selected.into_iter().map(|(member, bits)| (member, f64::from_bits(bits))).collect();
    reply_pairs(context, &members, is_nested);
    Ok(())
}

fn zscan(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let scan = ElementScan::parse(args)?;
    let (members, next) = context.view(&args[1], |writes| {
        let set = SortedSet::open(writes, &args[1])?;
        // A small one is returned by score, as in Redis.
        match set.is_compact() {
            true => Ok((set.members()?, None)),
            false => Ok(set.scan(scan.from, scan.count)?),
        }
    })?;
    let text = |score: f64| crate::resp::number::format_double(score).into_bytes();
    let elements = members.into_iter().map(|(member, score)| [member, text(score)]).collect();
    scan.reply(context, next, elements)
}
