//! Unions, intersections and differences of sorted sets. Plain sets take part with score 1.
//!
//! All inputs of a union or difference are read; an intersection reads the smallest and looks its
//! members up in the others.
//!
//! Source: the documentation of Redis's ZUNION, ZINTER and ZDIFF.

use std::collections::HashMap;

use siltstone_collections::{Kind, Set, SortedSet, WriteSet};

use super::context::Context;
use super::definition::{NO_KEYS, ONE_KEY, READ, WRITE};
use super::elements::{begin_pairs, float, integer, is};
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

    /// The members of the result, by score.
    fn run(&self, writes: &mut WriteSet<'_>) -> Result<Vec<(Vec<u8>, f64)>, Failure> {
        let mut inputs = Vec::with_capacity(self.keys.len());
        for (key, weight) in self.keys.iter().zip(&self.weights) {
            inputs.push(Input { key, weight: *weight, len: Input::len(writes, key)? });
        }
        // The order of a sum matters if scores are infinite.
        if self.operation != Operation::Difference {
            inputs.sort_by_key(|input| input.len);
        }
        let mut members = match self.operation {
            Operation::Union => self.union(writes, &inputs)?,
            Operation::Intersection => self.intersection(writes, &inputs)?,
            Operation::Difference => self.difference(writes, &inputs)?,
        };
        members.sort_by(|(a, a_score), (b, b_score)| a_score.total_cmp(b_score).then(a.cmp(b)));
        Ok(members)
    }

    fn union(
        &self,
        writes: &mut WriteSet<'_>,
        inputs: &[Input<'_>],
    ) -> Result<Vec<(Vec<u8>, f64)>, Failure> {
        let mut union: HashMap<Vec<u8>, f64> = HashMap::new();
        for input in inputs {
            for (member, score) in input.members(writes)? {
                let score = input.weighted(score);
                union
                    .entry(member)
                    .and_modify(|sum| *sum = self.aggregate.apply(*sum, score))
                    .or_insert(score);
            }
        }
        Ok(union.into_iter().collect())
    }

    fn intersection(
        &self,
        writes: &mut WriteSet<'_>,
        inputs: &[Input<'_>],
    ) -> Result<Vec<(Vec<u8>, f64)>, Failure> {
        let Some((first, others)) = inputs.split_first() else { return Ok(Vec::new()) };
        let mut members = Vec::new();
        'members: for (member, score) in first.members(writes)? {
            let mut score = first.weighted(score);
            for input in others {
                let Some(other) = input.score(writes, &member)? else { continue 'members };
                // As in Redis, 0 times infinity is not 0 here: a sum with it is.
                score = self.aggregate.apply(score, other * input.weight);
            }
            members.push((member, score));
            if members.len() as u64 == self.limit {
                break;
            }
        }
        Ok(members)
    }

    fn difference(
        &self,
        writes: &mut WriteSet<'_>,
        inputs: &[Input<'_>],
    ) -> Result<Vec<(Vec<u8>, f64)>, Failure> {
        let Some((first, others)) = inputs.split_first() else { return Ok(Vec::new()) };
        let mut members = Vec::new();
        'members: for (member, score) in first.members(writes)? {
            for input in others {
                if input.score(writes, &member)?.is_some() {
                    continue 'members;
                }
            }
            members.push((member, score));
        }
        Ok(members)
    }
}

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

    fn members(&self, writes: &mut WriteSet<'_>) -> Result<Vec<(Vec<u8>, f64)>, Failure> {
        match Self::is_set(writes, self.key)? {
            true => {
                let members = Set::open(writes, self.key)?.members()?;
                Ok(members.into_iter().map(|member| (member, 1.0)).collect())
            }
            false => Ok(SortedSet::open(writes, self.key)?.members()?),
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
    let (members, with_scores) = context.view_many(keys.iter().copied(), |writes| {
        let query = Query::parse(writes, &keys, options, operation, Form::Reply)?;
        Ok((query.run(writes)?, query.with_scores))
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
        Ok(query.run(writes)?.len())
    })?;
    context.replies.count(count);
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
    let target = &args[1];
    let (keys, options) = split_keys(args, 2, name)?;
    let all = keys.iter().copied().chain([target]);
    let stored = context.change_many(all, |writes| {
        let query = Query::parse(writes, &keys, options, operation, Form::Store)?;
        let members = query.run(writes)?;
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
