//! Commands on hashes, besides those on the expiry of fields.
//!
//! Source: the documentation of Redis's hash commands.

use siltstone_collections::Hash;
use siltstone_collections::collection::Pair;

use super::context::Context;
use super::decimal::{self, DecimalError};
use super::definition::{FAST, ONE_KEY, READ, WRITE};
use super::elements::{self, Dice, ElementScan, NOT_A_FLOAT, begin_pairs, integer, is, reply_list};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, SYNTAX, reply_error, reply_too_large, wrong_arity};
use crate::resp::Args;
use crate::resp::number::{Digits, parse_i64};

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, handler, summary| {
        entry::command("hash", name, arity, flags, ONE_KEY, handler, summary)
    };
    vec![
        command("hset", -4, WRITE | FAST, hset, "Sets fields of a hash."),
        command("hmset", -4, WRITE | FAST, hmset, "Sets fields of a hash."),
        command("hsetnx", 4, WRITE | FAST, hsetnx, "Sets a field if it does not exist."),
        command("hget", 3, READ | FAST, hget, "Returns the value of a field."),
        command("hmget", -3, READ | FAST, hmget, "Returns the values of fields."),
        command("hgetall", 2, READ, hgetall, "Returns all fields and values."),
        command("hdel", -3, WRITE | FAST, hdel, "Removes fields."),
        command("hlen", 2, READ | FAST, hlen, "Returns the number of fields."),
        command("hexists", 3, READ | FAST, hexists, "Whether a field exists."),
        command("hkeys", 2, READ, hkeys, "Returns all fields."),
        command("hvals", 2, READ, hvals, "Returns all values."),
        command("hstrlen", 3, READ | FAST, hstrlen, "Returns the length of a field's value."),
        command("hincrby", 4, WRITE | FAST, hincrby, "Adds an integer to a field."),
        command("hincrbyfloat", 4, WRITE | FAST, hincrbyfloat, "Adds a fraction to a field."),
        command("hrandfield", -2, READ, hrandfield, "Returns random fields."),
        command("hscan", -3, READ, hscan, "Iterates over the fields in steps."),
    ]
}

fn hset(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let added = set_fields(context, args, "hset")?;
    context.replies.count(added);
    Ok(())
}

fn hmset(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    set_fields(context, args, "hmset")?;
    context.replies.ok();
    Ok(())
}

/// Sets the fields, and returns the number of new ones.
fn set_fields(context: &mut Context<'_>, args: Args<'_>, name: &str) -> Result<usize, Failure> {
    if !args.len().is_multiple_of(2) {
        return Err(wrong_arity(name));
    }
    context.change(&args[1], |writes| {
        let mut hash = Hash::open(writes, &args[1])?;
        let mut added = 0;
        for (field, value) in args.from(2).iter().zip(args.from(3).iter()).step_by(2) {
            added += usize::from(hash.insert(field, value)?);
        }
        Ok(added)
    })
}

fn hsetnx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let is_new = context.change(&args[1], |writes| {
        Ok(Hash::open(writes, &args[1])?.insert_new(&args[2], &args[3])?)
    })?;
    context.replies.flag(is_new);
    Ok(())
}

fn hget(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let value =
        context.view(&args[1], |writes| Ok(Hash::open(writes, &args[1])?.get(&args[2])?))?;
    context.replies.bulk_or_null(value.as_deref());
    Ok(())
}

fn hmget(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let limit = context.shared.options.max_output_bytes;
    let values = context.view(&args[1], |writes| {
        let hash = Hash::open(writes, &args[1])?;
        let (mut values, mut bytes) = (Vec::new(), 0);
        for field in args.from(2).iter() {
            let value = hash.get(field)?;
            bytes += value.as_ref().map_or(0, Vec::len);
            values.push(value);
            // A field may be named many times.
            if bytes > limit {
                return Err(reply_too_large(limit));
            }
        }
        Ok(values)
    })?;
    context.replies.array(values.len());
    for value in &values {
        context.replies.bulk_or_null(value.as_deref());
    }
    Ok(())
}

/// Fields and values of a hash, up to the limit of a reply.
fn pairs(context: &mut Context<'_>, key: &[u8]) -> Result<Vec<Pair>, Failure> {
    let limit = context.shared.options.max_output_bytes;
    context.view(key, |writes| {
        let (mut pairs, mut bytes) = (Vec::new(), 0);
        Hash::open(writes, key)?.for_each(&mut |field, value| {
            bytes += field.len() + value.len();
            pairs.push((field.to_vec(), value.to_vec()));
            // The reply overflows anyway.
            bytes <= limit
        })?;
        Ok(pairs)
    })
}

fn hgetall(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let pairs = pairs(context, &args[1])?;
    context.replies.map(pairs.len());
    for (field, value) in &pairs {
        context.replies.bulk(field);
        context.replies.bulk(value);
    }
    Ok(())
}

fn hkeys(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let fields: Vec<_> = pairs(context, &args[1])?.into_iter().map(|(field, _)| field).collect();
    reply_list(context, &fields)
}

fn hvals(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let values: Vec<_> = pairs(context, &args[1])?.into_iter().map(|(_, value)| value).collect();
    reply_list(context, &values)
}

fn hdel(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let removed = context.change(&args[1], |writes| {
        let mut hash = Hash::open(writes, &args[1])?;
        let mut removed = 0;
        for field in args.from(2).iter() {
            removed += usize::from(hash.remove(field)?);
        }
        Ok(removed)
    })?;
    context.replies.count(removed);
    Ok(())
}

fn hlen(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let len = context.view(&args[1], |writes| Ok(Hash::open(writes, &args[1])?.len()))?;
    context.replies.count(len as usize);
    Ok(())
}

fn hexists(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let expiry =
        context.view(&args[1], |writes| Ok(Hash::open(writes, &args[1])?.expiry(&args[2])?))?;
    context.replies.flag(expiry.is_some());
    Ok(())
}

fn hstrlen(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let value =
        context.view(&args[1], |writes| Ok(Hash::open(writes, &args[1])?.get(&args[2])?))?;
    context.replies.count(value.map_or(0, |value| value.len()));
    Ok(())
}

fn hincrby(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let step = integer(&args[3])?;
    let mut sum = 0;
    context.change(&args[1], |writes| {
        Hash::open(writes, &args[1])?.update(&args[2], |old| {
            let old = parse_i64(old.unwrap_or(b"0"));
            let old = old.ok_or(reply_error("ERR hash value is not an integer"))?;
            let overflow = reply_error("ERR increment or decrement would overflow");
            sum = old.checked_add(step).ok_or(overflow)?;
            Ok(Digits::new(sum).as_bytes().to_vec())
        })
    })?;
    context.replies.int(sum);
    Ok(())
}

fn hincrbyfloat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let step = decimal::parse_double(&args[3]).map_err(|_| NOT_A_FLOAT)?;
    if step.is_infinite() {
        return Err(reply_error("ERR value is NaN or Infinity"));
    }
    let mut sum = Vec::new();
    context.change(&args[1], |writes| {
        Hash::open(writes, &args[1])?.update(&args[2], |old| {
            let added = decimal::add(old.unwrap_or(b"0"), &args[3]);
            let added = added.map_err(|error| match error {
                DecimalError::NotANumber => reply_error("ERR hash value is not a float"),
                DecimalError::NotFinite => {
                    reply_error("ERR increment would produce NaN or Infinity")
                }
            })?;
            sum = added.into_bytes();
            Ok(sum.clone())
        })
    })?;
    context.replies.bulk(&sum);
    Ok(())
}

fn hrandfield(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let with_values = args.get(3).is_some_and(|word| is(word, "withvalues"));
    if args.len() > 4 || args.len() == 4 && !with_values {
        return Err(SYNTAX);
    }
    let count = args.get(2).map(|word| elements::selection(word, with_values)).transpose()?;
    let mut dice = Dice::new();
    let max_bytes = context.shared.options.max_output_bytes;
    // Values that are not returned are not kept.
    let kept = |value: Vec<u8>| if with_values { value } else { Vec::new() };
    let selected = context.view(&args[1], |writes| {
        let hash = Hash::open(writes, &args[1])?;
        let draw = |dice: &mut Dice| {
            let drawn = hash.draw(&mut |bound| dice.below(bound))?;
            Ok(drawn.map(|(field, value)| (field, kept(value))))
        };
        let each = |visit: &mut dyn FnMut(Pair) -> bool| {
            Ok(hash.for_each(&mut |field, value| visit((field.to_vec(), kept(value.to_vec()))))?)
        };
        let limit = (max_bytes, |(field, value): &Pair| field.len() + value.len());
        match count {
            None => Ok(draw(&mut dice)?.into_iter().collect()),
            Some(count) => elements::select(count, hash.len(), &mut dice, draw, each, limit),
        }
    })?;
    if count.is_none() {
        context.replies.bulk_or_null(selected.first().map(|(field, _)| field.as_slice()));
        return Ok(());
    }
    if !with_values {
        let fields: Vec<_> = selected.into_iter().map(|(field, _)| field).collect();
        return reply_list(context, &fields);
    }
    let is_nested = begin_pairs(context, selected.len());
    for (field, value) in &selected {
        if is_nested {
            context.replies.array(2);
        }
        context.replies.bulk(field);
        context.replies.bulk(value);
    }
    Ok(())
}

fn hscan(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let scan = ElementScan::parse_of_hash(args)?;
    let (pairs, next) = context.view(&args[1], |writes| {
        let hash = Hash::open(writes, &args[1])?;
        Ok(hash.scan(scan.from, scan.count_of(hash.is_compact()))?)
    })?;
    let pairs = pairs.into_iter();
    match scan.without_values {
        true => scan.reply(context, next, pairs.map(|(field, _)| [field]).collect()),
        false => scan.reply(context, next, pairs.map(|(field, value)| [field, value]).collect()),
    }
}
