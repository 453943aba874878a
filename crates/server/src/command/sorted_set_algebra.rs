//! Unions, intersections and differences of sorted sets. Plain sets take part with score 1.
//!
//! All inputs of a union are read; an intersection reads the smallest one, a difference the first
//! one, in parts, and look its members up in the others.
//!
//! Source: the documentation of Redis's ZUNION, ZINTER and ZDIFF.

use std::collections::HashMap;

use siltstone_collections::{Kind, Set, SortedSet, WriteSet};

use super::context::Context;
use super::definition::{NO_KEYS, ONE_KEY, READ, WRITE};
use super::elements::{ResultLimit, begin_pairs, float, integer, is};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, SYNTAX, WRONG_TYPE, reply_error};
use super::sorted_sets::reply_pairs;
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, keys, handler, summary| {
        entry::command("sorted-set", name, arity, flags, keys, handler, summary)
    };
    let read = |name, handler, summary| {
        command(name, -3, READ, NO_KEYS, handler, summary).with_counted_keys(1)
    };
    let store = |name, handler, summary| {
        command(name, -4, WRITE, ONE_KEY, handler, summary).with_counted_keys(2)
    };
    vec![
        read("zunion", zunion, "Returns the union of sorted sets."),
        read("zinter", zinter, "Returns the intersection of sorted sets."),
        read("zdiff", zdiff, "Returns the difference of sorted sets."),
        read("zintercard", zintercard, "Counts the intersection of sorted sets."),
        store("zunionstore", zunionstore, "Stores the union of sorted sets."),
        store("zinterstore", zinterstore, "Stores the intersection of sorted sets."),
        store("zdiffstore", zdiffstore, "Stores the difference of sorted sets."),
    ]
}

/// An operation on several sorted sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// How the scores of a member are combined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    /// Combines two scores, of which `b` may be NaN: MIN and MAX ignore it.
    fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            // Opposite infinities cancel out, as in Redis.
            Aggregate::Sum => Some(a + b).filter(|sum| !sum.is_nan()).unwrap_or(0.0),
            Aggregate::Min => a.min(b),
            Aggregate::Max => a.max(b),
        }
    }
}

/// A parsed command.
struct Query<'a> {
    operation: Operation,
    keys: &'a [&'a [u8]],
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    /// Maximum number of members of the result.
    limit: u64,
}

/// Options that a command accepts beside its keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Replies with the members.
    Reply,
    /// Stores them.
    Store,
    /// Counts them.
    Count,
}

/// Splits `numkeys key …` from the argument at `at` on: the keys, and the options behind them.
fn split_keys<'a>(
    args: Args<'a>,
    at: usize,
    name: &str,
) -> Result<(Vec<&'a [u8]>, Args<'a>), Failure> {
    let count = integer(&args[at])?;
    if count < 1 {
        return Err(format!("ERR at least 1 input key is needed for '{name}' command").into());
    }
    let count = usize::try_from(count).map_err(|_| SYNTAX)?;
    if count > args.len() - at - 1 {
        return Err(SYNTAX);
    }
    Ok((args.from(at + 1).iter().take(count).collect(), args.from(at + 1 + count)))
}

impl<'a> Query<'a> {
    /// Parses the options behind the keys. The types of the keys are checked first, as in Redis.
    fn parse(
        writes: &mut WriteSet<'_>,
        keys: &'a [&'a [u8]],
        options: Args<'_>,
        operation: Operation,
        form: Form,
    ) -> Result<Self, Failure> {
        for key in keys {
            Input::len(writes, key)?;
        }
        let count = keys.len();
        let mut query = Query {
            operation,
            weights: vec![1.0; keys.len()],
            keys,
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: u64::MAX,
        };
        let has_scores = form != Form::Count && operation != Operation::Difference;
        let mut words = options.iter();
        while let Some(word) = words.next() {
            if is(word, "weights") && has_scores && words.len() >= count {
                for weight in &mut query.weights {
                    let word = words.next().ok_or(SYNTAX)?;
                    *weight = float(word).ok_or(reply_error("ERR weight value is not a float"))?;
                }
            } else if is(word, "aggregate") && has_scores {
                query.aggregate = match words.next().ok_or(SYNTAX)? {
                    word if is(word, "sum") => Aggregate::Sum,
                    word if is(word, "min") => Aggregate::Min,
                    word if is(word, "max") => Aggregate::Max,
                    _ => return Err(SYNTAX),
                };
            } else if is(word, "withscores") && form == Form::Reply {
                query.with_scores = true;
            } else if is(word, "limit") && form == Form::Count {
                let negative = reply_error("ERR LIMIT can't be negative");
                let limit = integer(words.next().ok_or(SYNTAX)?).ok();
                let limit = limit.and_then(|limit| u64::try_from(limit).ok()).ok_or(negative)?;
                // 0 means no limit.
                query.limit = if limit == 0 { u64::MAX } else { limit };
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(query)
    }

    /// The inputs, in the order in which they are combined.
    fn inputs(&self, writes: &mut WriteSet<'_>) -> Result<Vec<Input<'a>>, Failure> {
        let mut inputs = Vec::with_capacity(self.keys.len());
        for (key, weight) in self.keys.iter().zip(&self.weights) {
            inputs.push(Input { key, weight: *weight, len: Input::len(writes, key)? });
        }
        // The order of a sum matters if scores are infinite.
        if self.operation != Operation::Difference {
            inputs.sort_by_key(|input| input.len);
        }
        Ok(inputs)
    }

    /// The members of the result, by score; beyond the limit not all of them.
    fn run(
        &self,
        writes: &mut WriteSet<'_>,
        mut limit: ResultLimit,
    ) -> Result<Vec<(Vec<u8>, f64)>, Failure> {
        let inputs = self.inputs(writes)?;
        let mut members = match self.operation {
            Operation::Union => self.union(writes, &inputs, limit)?,
            Operation::Intersection | Operation::Difference => {
                let mut members = Vec::new();
                self.for_each_kept(writes, &inputs, &mut |member, score| {
                    let has_room = limit.take(member.len());
                    members.push((member, score));
                    has_room
                })?;
                members
            }
        };
        members.sort_by(|(a, a_score), (b, b_score)| a_score.total_cmp(b_score).then(a.cmp(b)));
        Ok(members)
    }

    /// The number of members of an intersection or difference, up to the limit.
    fn count(&self, writes: &mut WriteSet<'_>) -> Result<u64, Failure> {
        let (inputs, mut count) = (self.inputs(writes)?, 0);
        self.for_each_kept(writes, &inputs, &mut |_, _| {
            count += 1;
            count < self.limit
        })?;
        Ok(count)
    }

    fn union(
        &self,
        writes: &mut WriteSet<'_>,
        inputs: &[Input<'_>],
        mut limit: ResultLimit,
    ) -> Result<Vec<(Vec<u8>, f64)>, Failure> {
        let mut union: HashMap<Vec<u8>, f64> = HashMap::new();
        for input in inputs {
            let mut from = Some(0);
            while let Some(start) = from.filter(|_| limit.has_room()) {
                let (members, next) = input.scan(writes, start)?;
                from = next;
                for (member, score) in members {
                    let (score, len) = (input.weighted(score), member.len());
                    let combined = union.entry(member).and_modify(|sum| {
                        *sum = self.aggregate.apply(*sum, score);
                    });
                    combined.or_insert_with(|| {
                        limit.take(len);
                        score
                    });
                }
            }
        }
        Ok(union.into_iter().collect())
    }

    /// Visits the members of an intersection or difference until `visit` returns false.
    fn for_each_kept(
        &self,
        writes: &mut WriteSet<'_>,
        inputs: &[Input<'_>],
        visit: &mut dyn FnMut(Vec<u8>, f64) -> bool,
    ) -> Outcome {
        let Some((first, others)) = inputs.split_first() else { return Ok(()) };
        let is_difference = self.operation == Operation::Difference;
        let mut from = Some(0);
        while let Some(start) = from {
            let (members, next) = first.scan(writes, start)?;
            from = next;
            'members: for (member, score) in members {
                let mut score = if is_difference { score } else { first.weighted(score) };
                for input in others {
                    match (input.score(writes, &member)?, is_difference) {
                        (Some(_), true) | (None, false) => continue 'members,
                        (None, true) => {}
                        // As in Redis, 0 times infinity is not 0 here: a sum with it is.
                        (Some(other), false) => {
                            score = self.aggregate.apply(score, other * input.weight);
                        }
                    }
                }
                if !visit(member, score) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Members of an input that are read at a time.
const PART_MEMBERS: usize = 1000;

/// Members with their scores.
type Members = Vec<(Vec<u8>, f64)>;

/// An input: a set or sorted set.
struct Input<'a> {
    key: &'a [u8],
    weight: f64,
    len: u64,
}

impl Input<'_> {
    fn is_set(writes: &WriteSet<'_>, key: &[u8]) -> Result<bool, Failure> {
        match writes.stored(key)? {
            None => Ok(false),
            Some(stored) => match stored.kind() {
                Some(Kind::SortedSet) => Ok(false),
                Some(Kind::Set) => Ok(true),
                _ => Err(WRONG_TYPE),
            },
        }
    }

    fn len(writes: &mut WriteSet<'_>, key: &[u8]) -> Result<u64, Failure> {
        match Self::is_set(writes, key)? {
            true => Ok(Set::open(writes, key)?.len()),
            false => Ok(SortedSet::open(writes, key)?.len()),
        }
    }

    /// Members from a position on, and the next position.
    fn scan(
        &self,
        writes: &mut WriteSet<'_>,
        from: u32,
    ) -> Result<(Members, Option<u32>), Failure> {
        match Self::is_set(writes, self.key)? {
            true => {
                let (members, next) = Set::open(writes, self.key)?.scan(from, PART_MEMBERS)?;
                Ok((members.into_iter().map(|member| (member, 1.0)).collect(), next))
            }
            false => Ok(SortedSet::open(writes, self.key)?.scan(from, PART_MEMBERS)?),
        }
    }

    fn score(&self, writes: &mut WriteSet<'_>, member: &[u8]) -> Result<Option<f64>, Failure> {
        match Self::is_set(writes, self.key)? {
            true => Ok(Set::open(writes, self.key)?.contains(member)?.then_some(1.0)),
            false => Ok(SortedSet::open(writes, self.key)?.score(member)?),
        }
    }

    /// A score times the weight; 0 times infinity is 0, as in Redis for unions and for the first
    /// set of an intersection.
    fn weighted(&self, score: f64) -> f64 {
        Some(score * self.weight).filter(|score| !score.is_nan()).unwrap_or(0.0)
    }
}

fn zunion(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply(context, args, Operation::Union, "zunion")
}

fn zinter(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply(context, args, Operation::Intersection, "zinter")
}

fn zdiff(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply(context, args, Operation::Difference, "zdiff")
}

fn reply(context: &mut Context<'_>, args: Args<'_>, operation: Operation, name: &str) -> Outcome {
    let (keys, options) = split_keys(args, 1, name)?;
    // What is larger overflows the reply anyway.
    let limit = ResultLimit::of_reply(context);
    let (members, with_scores) = context.view_many(keys.iter().copied(), |writes| {
        let query = Query::parse(writes, &keys, options, operation, Form::Reply)?;
        Ok((query.run(writes, limit)?, query.with_scores))
    })?;
    if with_scores {
        let is_nested = begin_pairs(context, members.len());
        reply_pairs(context, &members, is_nested);
    } else {
        context.replies.array(members.len());
        for (member, _) in &members {
            context.replies.bulk(member);
        }
    }
    Ok(())
}

fn zintercard(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (keys, options) = split_keys(args, 1, "zintercard")?;
    let count = context.view_many(keys.iter().copied(), |writes| {
        let operation = Operation::Intersection;
        let query = Query::parse(writes, &keys, options, operation, Form::Count)?;
        query.count(writes)
    })?;
    context.replies.count(count as usize);
    Ok(())
}

fn zunionstore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    store(context, args, Operation::Union, "zunionstore")
}

fn zinterstore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    store(context, args, Operation::Intersection, "zinterstore")
}

fn zdiffstore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    store(context, args, Operation::Difference, "zdiffstore")
}

fn store(context: &mut Context<'_>, args: Args<'_>, operation: Operation, name: &str) -> Outcome {
    let (target, limit) = (&args[1], ResultLimit::of_rows(context));
    let (keys, options) = split_keys(args, 2, name)?;
    let all = keys.iter().copied().chain([target]);
    let stored = context.change_many(all, |writes| {
        let query = Query::parse(writes, &keys, options, operation, Form::Store)?;
        let members = query.run(writes, limit)?;
        // Any type is overwritten.
        writes.remove(target)?;
        let mut set = SortedSet::open(writes, target)?;
        for (member, score) in &members {
            set.insert(member, *score)?;
        }
        Ok(members.len())
    })?;
    context.replies.count(stored);
    Ok(())
}
