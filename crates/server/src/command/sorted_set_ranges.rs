//! Commands on ranges of a sorted set: by rank, by score, by member.
//!
//! ZRANGE and its older forms are parsed into one [`RangeQuery`]. LIMIT reads the members that it
//! skips.
//!
//! Source: the documentation of Redis's ZRANGE and related commands.

use std::ops::Bound;

use siltstone_collections::{MemberRange, MemberSelection, Order, ScoreRange, SortedSet};

use super::context::Context;
use super::decimal;
use super::definition::{FAST, ONE_KEY, READ, TWO_KEYS, WRITE};
use super::elements::{begin_pairs, integer, is, resolve_range};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, SYNTAX, reply_error};
use super::sorted_sets::reply_pair;
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, keys, handler, summary| {
        entry::command("sorted-set", name, arity, flags, keys, handler, summary)
    };
    let one = |name, arity, flags, handler, summary| {
        command(name, arity, flags, ONE_KEY, handler, summary)
    };
    vec![
        one("zrange", -4, READ, zrange, "Returns a range of members."),
        one("zrevrange", -4, READ, zrevrange, "Returns members from the highest score."),
        one("zrangebyscore", -4, READ, zrangebyscore, "Returns members by score."),
        one("zrevrangebyscore", -4, READ, zrevrangebyscore, "Returns members by falling score."),
        one("zrangebylex", -4, READ, zrangebylex, "Returns members in a range of bytes."),
        one("zrevrangebylex", -4, READ, zrevrangebylex, "Returns members in reverse byte order."),
        command("zrangestore", -5, WRITE, TWO_KEYS, zrangestore, "Stores a range of members."),
        one("zcount", 4, READ | FAST, zcount, "Counts members by score."),
        one("zlexcount", 4, READ | FAST, zlexcount, "Counts members in a range of bytes."),
        one("zremrangebyrank", 4, WRITE, zremrangebyrank, "Removes a range of ranks."),
        one("zremrangebyscore", 4, WRITE, zremrangebyscore, "Removes a range of scores."),
        one("zremrangebylex", 4, WRITE, zremrangebylex, "Removes a range of bytes."),
    ]
}

/// A selection of members.
enum Selection {
    /// By rank, counted from the end if negative.
    Ranks(i64, i64),
    Scores(ScoreRange),
    Members(MemberRange),
    /// None, as from `+` to `-`.
    Nothing,
}

/// How a selection is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// A query for a range.
struct RangeQuery {
    selection: Selection,
    order: Order,
    skip: u64,
    /// Maximum number of members.
    max: u64,
    with_scores: bool,
}

/// Parses an end of a range of scores, such as `1.5`, `(1.5` or `-inf`.
fn parse_score_bound(word: &[u8]) -> Option<Bound<f64>> {
    // As in Redis, a number beyond the range of doubles is infinity here.
    let value = |text: &[u8]| match text {
        [] => Some(0.0),
        text => decimal::parse_double(text).ok(),
    };
    match word {
        [b'(', text @ ..] => Some(Bound::Excluded(value(text)?)),
        text => Some(Bound::Included(value(text)?)),
    }
}

fn parse_scores(min: &[u8], max: &[u8]) -> Result<Selection, Failure> {
    let parse = |word| parse_score_bound(word).ok_or(reply_error("ERR min or max is not a float"));
    Ok(Selection::Scores(ScoreRange { min: parse(min)?, max: parse(max)? }))
}

/// Parses an end of a range of members: `[m`, `(m`, `-` or `+`.
fn parse_member_bound(word: &[u8]) -> Result<Bound<Vec<u8>>, Failure> {
    match word {
        b"-" | b"+" => Ok(Bound::Unbounded),
        [b'[', member @ ..] => Ok(Bound::Included(member.to_vec())),
        [b'(', member @ ..] => Ok(Bound::Excluded(member.to_vec())),
        _ => Err(reply_error("ERR min or max not valid string range item")),
    }
}

fn parse_members(min: &[u8], max: &[u8]) -> Result<Selection, Failure> {
    let range = MemberRange { min: parse_member_bound(min)?, max: parse_member_bound(max)? };
    Ok(if min == b"+" || max == b"-" { Selection::Nothing } else { Selection::Members(range) })
}

impl RangeQuery {
    fn new(selection: Selection, order: Order) -> Self {
        RangeQuery { selection, order, skip: 0, max: u64::MAX, with_scores: false }
    }

    /// Parses `min max [option …]`. `by` and `order` are `None` if options give them.
    fn parse(
        args: Args<'_>,
        by: Option<By>,
        order: Option<Order>,
        is_stored: bool,
    ) -> Result<Self, Failure> {
        let (mut wanted_by, mut wanted_order) = (by, order);
        let (mut with_scores, mut limit) = (false, None);
        let mut words = args.from(2).iter();
        while let Some(word) = words.next() {
            if is(word, "withscores") && !is_stored {
                with_scores = true;
            } else if is(word, "limit") {
                let (Some(skip), Some(max)) = (words.next(), words.next()) else {
                    return Err(SYNTAX);
                };
                limit = Some((integer(skip)?, integer(max)?));
            } else if is(word, "rev") && wanted_order.is_none() {
                wanted_order = Some(Order::Descending);
            } else if is(word, "byscore") && wanted_by.is_none() {
                wanted_by = Some(By::Score);
            } else if is(word, "bylex") && wanted_by.is_none() {
                wanted_by = Some(By::Member);
            } else {
                return Err(SYNTAX);
            }
        }
        let (by, order) = (wanted_by.unwrap_or(By::Rank), wanted_order.unwrap_or(Order::Ascending));
        // As in Redis, a count of -1 is no limit, also where LIMIT is not allowed.
        if by == By::Rank && limit.is_some_and(|(_, max)| max != -1) {
            return Err(reply_error(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Member {
            return Err(reply_error(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        // From the highest score down, the upper end comes first.
        let (min, max) = match (order, by) {
            (Order::Descending, By::Score | By::Member) => (&args[1], &args[0]),
            _ => (&args[0], &args[1]),
        };
        let selection = match by {
            By::Rank => Selection::Ranks(integer(min)?, integer(max)?),
            By::Score => parse_scores(min, max)?,
            By::Member => parse_members(min, max)?,
        };
        let mut query = RangeQuery { with_scores, ..Self::new(selection, order) };
        let limit = limit.filter(|_| by != By::Rank);
        match limit.map(|(skip, max)| (u64::try_from(skip), max)) {
            None => {}
            // A negative offset selects nothing, a negative count has no limit.
            Some((Err(_), _)) => query.selection = Selection::Nothing,
            Some((Ok(skip), max)) => {
                query.skip = skip;
                query.max = u64::try_from(max).unwrap_or(u64::MAX);
            }
        }
        Ok(query)
    }

    /// The selected members, up to `limit` bytes of them.
    fn run(&self, set: &SortedSet<'_, '_>, limit: usize) -> Result<Members, Failure> {
        let (mut members, mut skipped) = (Members::default(), 0);
        let ranks = match self.selection {
            Selection::Ranks(start, end) => resolve_range(start, end, set.len()),
            _ => 0..0,
        };
        members.reserve(ranks.end.saturating_sub(ranks.start));
        let mut visit = |member: &[u8], score: f64| {
            if skipped < self.skip {
                skipped += 1;
                return true;
            }
            if members.len() as u64 == self.max {
                return false;
            }
            members.push(member, score);
            members.names.len() <= limit
        };
        match &self.selection {
            Selection::Nothing => {}
            Selection::Ranks(..) => {
                let walked = set.for_each_rank(ranks, self.order, &mut visit)?;
                members.is_reversed = walked != self.order;
            }
            Selection::Scores(scores) => set.for_each(*scores, self.order, &mut visit)?,
            Selection::Members(range) => set.for_each_member(range, self.order, &mut visit)?,
        }
        Ok(members)
    }
}

/// Members for which memory is reserved before they are read, and the bytes per name.
const MAX_RESERVED_MEMBERS: u64 = 4096;
const EXPECTED_NAME_BYTES: usize = 24;

/// Members with their scores.
#[derive(Default)]
struct Members {
    names: Vec<u8>,
    /// Where each name ends, and the score.
    ends: Vec<(usize, f64)>,
    /// The last one comes first.
    is_reversed: bool,
}

impl Members {
    fn len(&self) -> usize {
        self.ends.len()
    }

    /// Reserves memory for the members to come, up to a few thousand.
    fn reserve(&mut self, count: u64) {
        let count = count.min(MAX_RESERVED_MEMBERS) as usize;
        self.ends.reserve(count);
        self.names.reserve(count * EXPECTED_NAME_BYTES);
    }

    fn push(&mut self, name: &[u8], score: f64) {
        self.names.extend_from_slice(name);
        self.ends.push((self.names.len(), score));
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], f64)> {
        let len = self.len();
        (0..len).map(move |place| {
            let at = if self.is_reversed { len - 1 - place } else { place };
            let start = at.checked_sub(1).map_or(0, |before| self.ends[before].0);
            let (end, score) = self.ends[at];
            (&self.names[start..end], score)
        })
    }
}

/// Runs a query on the sorted set at the first argument.
fn reply_range(
    context: &mut Context<'_>,
    args: Args<'_>,
    by: Option<By>,
    order: Option<Order>,
) -> Outcome {
    let query = RangeQuery::parse(args.from(2), by, order, false)?;
    let limit = context.shared.options.max_output_bytes;
    let members =
        context.view(&args[1], |writes| query.run(&SortedSet::open(writes, &args[1])?, limit))?;
    if query.with_scores {
        let is_nested = begin_pairs(context, members.len());
        members.iter().for_each(|(member, score)| reply_pair(context, member, score, is_nested));
    } else {
        context.replies.array(members.len());
        context.replies.reserve_bulks(members.len(), members.names.len());
        members.iter().for_each(|(member, _)| context.replies.bulk(member));
    }
    Ok(())
}

fn zrange(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_range(context, args, None, None)
}

fn zrevrange(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_range(context, args, Some(By::Rank), Some(Order::Descending))
}

fn zrangebyscore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_range(context, args, Some(By::Score), Some(Order::Ascending))
}

fn zrevrangebyscore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_range(context, args, Some(By::Score), Some(Order::Descending))
}

fn zrangebylex(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_range(context, args, Some(By::Member), Some(Order::Ascending))
}

fn zrevrangebylex(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_range(context, args, Some(By::Member), Some(Order::Descending))
}

fn zrangestore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (target, source) = (&args[1], &args[2]);
    let query = RangeQuery::parse(args.from(3), None, None, true)?;
    // What is larger is not written anyway.
    let limit = context.shared.options.max_request_bytes;
    let stored = context.change_many([target, source].into_iter(), |writes| {
        let members = query.run(&SortedSet::open(writes, source)?, limit)?;
        // Any type is overwritten.
        writes.remove(target)?;
        let mut set = SortedSet::open(writes, target)?;
        for (member, score) in members.iter() {
            set.insert(member, score)?;
        }
        Ok(members.len())
    })?;
    context.replies.count(stored);
    Ok(())
}

/// Counts the selected members.
fn count(context: &mut Context<'_>, key: &[u8], selection: &Selection) -> Outcome {
    let count = context.view(key, |writes| {
        let set = SortedSet::open(writes, key)?;
        let mut count = 0;
        let mut visit = |_: &[u8], _: f64| {
            count += 1;
            true
        };
        match selection {
            Selection::Scores(scores) => set.for_each(*scores, Order::Ascending, &mut visit)?,
            Selection::Members(range) => {
                set.for_each_member(range, Order::Ascending, &mut visit)?;
            }
            Selection::Ranks(..) | Selection::Nothing => {}
        }
        Ok(count)
    })?;
    context.replies.count(count);
    Ok(())
}

fn zcount(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let selection = parse_scores(&args[2], &args[3])?;
    count(context, &args[1], &selection)
}

fn zlexcount(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let selection = parse_members(&args[2], &args[3])?;
    count(context, &args[1], &selection)
}

/// Removes the selected members.
fn remove(context: &mut Context<'_>, key: &[u8], selection: Selection) -> Outcome {
    let removed = context.change(key, |writes| {
        let mut set = SortedSet::open(writes, key)?;
        let selection = match selection {
            Selection::Ranks(start, end) => {
                MemberSelection::Ranks(resolve_range(start, end, set.len()))
            }
            Selection::Scores(scores) => MemberSelection::Scores(scores),
            Selection::Members(range) => MemberSelection::Members(range),
            Selection::Nothing => return Ok(0),
        };
        Ok(set.remove_selected(&selection)?)
    })?;
    context.replies.count(removed as usize);
    Ok(())
}

fn zremrangebyrank(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let selection = Selection::Ranks(integer(&args[2])?, integer(&args[3])?);
    remove(context, &args[1], selection)
}

fn zremrangebyscore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let selection = parse_scores(&args[2], &args[3])?;
    remove(context, &args[1], selection)
}

fn zremrangebylex(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let selection = parse_members(&args[2], &args[3])?;
    remove(context, &args[1], selection)
}
