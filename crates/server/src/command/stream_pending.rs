//! Entries that consumers have yet to acknowledge: XACK, XPENDING, XCLAIM, XAUTOCLAIM.
//!
//! A group may have any number of pending entries, so they are read in parts, up to what a reply
//! takes. XAUTOCLAIM then ends early, with the position of the next call; XCLAIM fails before it
//! writes.
//!
//! Source: the documentation of Redis's stream commands; replies of Redis 7.2.

use siltstone_collections::stream::StreamEntry;
use siltstone_collections::{Consumer, Group, Order, PendingEntry, Stream, StreamId};
use siltstone_engine::Timestamp;

use super::context::Context;
use super::definition::{FAST, ONE_KEY, READ, WRITE};
use super::elements::{ReplyRoom, count_from_one, integer, is};
use super::entry::{self, Command};
use super::events::name_event;
use super::failure::{Failure, Outcome, SYNTAX, reply_error};
use super::stream_args::{
    ReplyLimit, clamped_count, end_id, no_group, reply_entry, reply_id, start_id, strict_id,
    strict_ids, take_room,
};
use crate::keyspace_events::EventClass;
use crate::resp::{Args, number};

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, handler, summary| {
        entry::command("stream", name, arity, flags, ONE_KEY, handler, summary)
    };
    vec![
        command("xack", -4, WRITE | FAST, xack, "Acknowledges entries."),
        command("xpending", -3, READ, xpending, "Returns the pending entries of a group."),
        command("xclaim", -6, WRITE | FAST, xclaim, "Takes over pending entries."),
        command("xautoclaim", -6, WRITE | FAST, xautoclaim, "Takes over idle pending entries."),
    ]
}

fn xack(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let acknowledged = context.change(&args[1], |writes| {
        let mut stream = Stream::open(writes, &args[1])?;
        let Some(mut group) = stream.group(&args[2])? else { return Ok(0) };
        let mut acknowledged = 0;
        for id in strict_ids(args.from(3))? {
            acknowledged += usize::from(stream.acknowledge(&mut group, id)?);
        }
        if acknowledged > 0 {
            stream.save_group(&group);
        }
        Ok(acknowledged)
    })?;
    context.replies.count(acknowledged);
    Ok(())
}

fn xpending(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        3 => summary(context, args),
        6..=9 => list(context, args),
        _ => Err(SYNTAX),
    }
}

/// XPENDING without a range: number, lowest and highest id, and number per consumer.
fn summary(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    const ALL: std::ops::RangeInclusive<StreamId> = StreamId::MIN..=StreamId::MAX;
    let (count, edges, consumers) = context.view(&args[1], |writes| {
        let stream = Stream::open(writes, &args[1])?;
        let group = group_of(&stream, args)?;
        let mut edges = Vec::new();
        for order in [Order::Ascending, Order::Descending] {
            stream.for_each_pending(&group, ALL, order, &mut |entry| {
                edges.push(entry.id);
                false
            })?;
        }
        let mut consumers = stream.consumers(&group)?;
        consumers.retain(|consumer| consumer.pending > 0);
        Ok((group.pending, edges, consumers))
    })?;
    let replies = &mut *context.replies;
    replies.array(4);
    replies.count(count as usize);
    let [first, last] = edges[..] else {
        replies.null();
        replies.null();
        replies.null_array();
        return Ok(());
    };
    reply_id(replies, first);
    reply_id(replies, last);
    replies.array(consumers.len());
    for consumer in consumers {
        replies.array(2);
        replies.bulk(&consumer.name);
        replies.bulk(consumer.pending.to_string().as_bytes());
    }
    Ok(())
}

/// XPENDING with a range.
fn list(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let has_idle = is(&args[3], "idle");
    let min_idle = if has_idle { integer(&args[4])? } else { 0 };
    if has_idle && args.len() < 8 {
        return Err(SYNTAX);
    }
    let range = args.from(if has_idle { 5 } else { 3 });
    let max = clamped_count(&range[2])?;
    let ids = start_id(&range[0])?..=end_id(&range[1])?;
    let now = context.now();
    let mut limit = ReplyLimit::new(context);
    let idle_of = |entry: &PendingEntry| now.saturating_sub(entry.delivered_at);
    let is_idle =
        |entry: &PendingEntry| i64::try_from(idle_of(entry)).unwrap_or(i64::MAX) >= min_idle;
    let entries = context.view(&args[1], |writes| {
        let stream = Stream::open(writes, &args[1])?;
        let group = group_of(&stream, args)?;
        let mut entries: Vec<PendingEntry> = Vec::new();
        if max == 0 {
            return Ok(entries);
        }
        let Some(name) = range.get(3) else {
            stream.for_each_pending(&group, ids.clone(), Order::Ascending, &mut |entry| {
                let mut has_room = true;
                if is_idle(&entry) {
                    has_room = limit.add(&entry.consumer);
                    entries.push(entry);
                }
                has_room && (entries.len() as u64) < max
            })?;
            return Ok(entries);
        };
        let Some(consumer) = stream.consumer(&group, name)? else { return Ok(entries) };
        let wanted = if min_idle > 0 { MAX_PART_ENTRIES } else { max.min(MAX_PART_ENTRIES) };
        let (mut from, end) = (Some(*ids.start()), *ids.end());
        while let Some(start) = from {
            let part = stream.pending_of(&group, &consumer, start..=end, wanted)?;
            from = part.get(wanted as usize - 1).and_then(|id| id.next());
            for id in part {
                // Those that are not idle do not count.
                let Some(entry) = stream.pending(&group, id)?.filter(is_idle) else { continue };
                let has_room = limit.add(&entry.consumer);
                entries.push(entry);
                if !has_room || entries.len() as u64 >= max {
                    return Ok(entries);
                }
            }
        }
        Ok(entries)
    })?;
    let replies = &mut *context.replies;
    replies.array(entries.len());
    for entry in entries {
        replies.array(4);
        reply_id(replies, entry.id);
        replies.bulk(&entry.consumer);
        replies.count(idle_of(&entry) as usize);
        replies.count(entry.deliveries as usize);
    }
    Ok(())
}

/// The group of XPENDING, XCLAIM and XAUTOCLAIM.
fn group_of(stream: &Stream<'_, '_>, args: Args<'_>) -> Result<Group, Failure> {
    stream.group(&args[2])?.ok_or_else(|| no_group(&args[1], &args[2], ""))
}

/// A consumer that takes over entries.
struct Claimant<'s, 'w, 'r> {
    stream: &'s mut Stream<'w, 'r>,
    group: Group,
    consumer: Consumer,
    is_new: bool,
    now: Timestamp,
    /// Idle time from which entries may be taken over, in milliseconds.
    min_idle: u64,
    claimed: Vec<StreamEntry>,
}

impl<'s, 'w, 'r> Claimant<'s, 'w, 'r> {
    fn open(
        stream: &'s mut Stream<'w, 'r>,
        (mut group, name): (Group, &[u8]),
        now: Timestamp,
        min_idle: u64,
    ) -> Result<Self, Failure> {
        let known = stream.consumer(&group, name)?;
        let is_new = known.is_none();
        let mut consumer = match known {
            Some(consumer) => consumer,
            None => stream.create_consumer(&mut group, name, now),
        };
        consumer.seen_at = now;
        let claimed = Vec::new();
        Ok(Claimant { stream, group, consumer, is_new, now, min_idle, claimed })
    }

    /// Ends the pending entry of a deleted entry.
    fn forget(&mut self, id: StreamId) -> Outcome {
        // The consumer may be its own.
        self.stream.save_consumer(&self.group, &self.consumer);
        self.stream.acknowledge(&mut self.group, id)?;
        let consumer = self.stream.consumer(&self.group, &self.consumer.name)?;
        self.consumer = consumer.unwrap_or_else(|| self.consumer.clone());
        Ok(())
    }

    fn is_idle(&self, entry: &PendingEntry) -> bool {
        self.now.saturating_sub(entry.delivered_at) >= self.min_idle
    }

    fn claim(&mut self, (id, fields): StreamEntry, at: Timestamp, deliveries: u64) -> Outcome {
        let Claimant { stream, group, consumer, .. } = self;
        stream.deliver(group, consumer, (id, at, deliveries))?;
        consumer.active_at = Some(self.now);
        self.claimed.push((id, fields));
        Ok(())
    }

    fn finish(self) -> (Vec<StreamEntry>, bool) {
        self.stream.save_group(&self.group);
        self.stream.save_consumer(&self.group, &self.consumer);
        (self.claimed, self.is_new)
    }
}

fn min_idle(word: &[u8], command: &str) -> Result<u64, Failure> {
    let invalid = || Failure::from(format!("ERR Invalid min-idle-time argument for {command}"));
    let min_idle = number::parse_i64(word).ok_or_else(invalid)?;
    Ok(u64::try_from(min_idle).unwrap_or(0))
}

/// Options of XCLAIM.
#[derive(Default)]
struct ClaimOptions {
    creates: bool,
    only_ids: bool,
    delivered_at: Option<i64>,
    deliveries: Option<u64>,
    last: StreamId,
}

impl ClaimOptions {
    fn parse(args: Args<'_>, now: Timestamp) -> Result<Self, Failure> {
        let invalid = |option: &str| {
            Failure::from(format!("ERR Invalid {option} option argument for XCLAIM"))
        };
        let mut options = ClaimOptions::default();
        let mut at = 0;
        while let Some(word) = args.get(at) {
            let value = args.get(at + 1);
            let number = |option| value.and_then(number::parse_i64).ok_or_else(|| invalid(option));
            at += 2;
            if is(word, "force") {
                options.creates = true;
                at -= 1;
            } else if is(word, "justid") {
                options.only_ids = true;
                at -= 1;
            } else if is(word, "idle") && value.is_some() {
                options.delivered_at = Some((now as i64).saturating_sub(number("IDLE")?));
            } else if is(word, "time") && value.is_some() {
                options.delivered_at = Some(number("TIME")?);
            } else if is(word, "retrycount") && value.is_some() {
                options.deliveries = u64::try_from(number("RETRYCOUNT")?).ok();
            } else if let Some(id) = value.filter(|_| is(word, "lastid")) {
                options.last = strict_id(id, 0)?;
            } else {
                let word = String::from_utf8_lossy(word);
                return Err(format!("ERR Unrecognized XCLAIM option '{word}'").into());
            }
        }
        Ok(options)
    }
}

fn xclaim(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = &args[1];
    let now = context.now();
    let mut room = ReplyRoom::new(context);
    let (claimed, is_new, only_ids) = context.change(key, |writes| {
        let mut stream = Stream::open(writes, key)?;
        let mut group = group_of(&stream, args)?;
        let min_idle = min_idle(&args[4], "XCLAIM")?;
        let words = args.from(5);
        let ids: Vec<StreamId> = words.iter().map_while(|word| strict_id(word, 0).ok()).collect();
        let options = ClaimOptions::parse(words.from(ids.len()), now)?;
        group.last = group.last.max(options.last);
        // A time in the future is taken as now.
        let at = options.delivered_at.and_then(|at| u64::try_from(at).ok()).unwrap_or(now).min(now);
        let only_ids = options.only_ids;
        let mut claimant = Claimant::open(&mut stream, (group, &args[3]), now, min_idle)?;
        for id in ids {
            let pending = claimant.stream.pending(&claimant.group, id)?;
            let Some(mut fields) = claimant.stream.get(id)? else {
                if pending.is_some() {
                    claimant.forget(id)?;
                }
                continue;
            };
            let old = match pending {
                Some(pending) if !claimant.is_idle(&pending) => continue,
                Some(pending) => pending.deliveries,
                // As in Redis, a pending entry that is created counts as delivered once before.
                None if options.creates => 1,
                None => continue,
            };
            if only_ids {
                fields = Vec::new();
            }
            // An id may be named many times.
            take_room(&mut room, (id, fields.as_slice()))?;
            let deliveries = options.deliveries.unwrap_or(old + u64::from(!only_ids));
            claimant.claim((id, fields), at, deliveries)?;
        }
        let (claimed, is_new) = claimant.finish();
        Ok((claimed, is_new, only_ids))
    })?;
    if is_new {
        name_event(context, key, EventClass::STREAM, "xgroup-createconsumer");
    }
    reply_claimed(context, &claimed, only_ids);
    Ok(())
}

fn reply_claimed(context: &mut Context<'_>, claimed: &[StreamEntry], only_ids: bool) {
    context.replies.array(claimed.len());
    for entry in claimed {
        match only_ids {
            true => reply_id(context.replies, entry.0),
            false => reply_entry(context.replies, entry),
        }
    }
}

/// Pending entries that XAUTOCLAIM reads per entry that it may return.
const ATTEMPTS_PER_ENTRY: u64 = 10;
/// Maximum number of pending entries that are read at a time.
const MAX_PART_ENTRIES: u64 = 1000;
/// Highest COUNT of XAUTOCLAIM, as in Redis.
const MAX_CLAIMS: u64 = i64::MAX as u64 / 16;

fn xautoclaim(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = &args[1];
    let min_idle = min_idle(&args[4], "XAUTOCLAIM")?;
    let start = start_id(&args[5])?;
    let (mut count, mut only_ids, mut at) = (100, false, 6);
    while let Some(word) = args.get(at) {
        if is(word, "count") && at + 1 < args.len() {
            const TEXT: &str = "ERR COUNT must be > 0";
            at += 1;
            count = count_from_one(&args[at], TEXT)?;
            if count > MAX_CLAIMS {
                return Err(reply_error(TEXT));
            }
        } else if is(word, "justid") {
            only_ids = true;
        } else {
            return Err(SYNTAX);
        }
        at += 1;
    }
    let now = context.now();
    let mut room = ReplyRoom::new(context);
    let (claimed, deleted, next, is_new) = context.change(key, |writes| {
        let mut stream = Stream::open(writes, key)?;
        let group = group_of(&stream, args)?;
        let mut claimant = Claimant::open(&mut stream, (group, &args[3]), now, min_idle)?;
        let (mut left, mut deleted) = (count, Vec::new());
        let mut attempts = count.saturating_mul(ATTEMPTS_PER_ENTRY);
        let (mut next, mut from) = (StreamId::MIN, Some(start));
        'parts: while let Some(start) = from {
            // One more than may be looked at, for the position of the next call.
            let wanted = attempts.saturating_add(1).min(MAX_PART_ENTRIES) as usize;
            let mut part = Vec::new();
            let Claimant { stream, group, .. } = &claimant;
            let ids = start..=StreamId::MAX;
            stream.for_each_pending(group, ids, Order::Ascending, &mut |entry| {
                part.push(entry);
                part.len() < wanted
            })?;
            from = part.get(wanted - 1).and_then(|entry| entry.id.next());
            for entry in part {
                next = entry.id;
                if left == 0 || attempts == 0 {
                    break 'parts;
                }
                attempts -= 1;
                // Those that are not idle may have been deleted.
                let fields = claimant.stream.get(entry.id)?;
                if fields.is_some() && !claimant.is_idle(&entry) {
                    continue;
                }
                let shown = fields.as_deref().filter(|_| !only_ids).unwrap_or_default();
                if let Err(failure) = take_room(&mut room, (entry.id, shown)) {
                    // The next call begins with it, unless it is too large by itself.
                    match left == count {
                        true => return Err(failure),
                        false => break 'parts,
                    }
                }
                left -= 1;
                match fields {
                    None => {
                        claimant.forget(entry.id)?;
                        deleted.push(entry.id);
                    }
                    Some(fields) => {
                        let fields = if only_ids { Vec::new() } else { fields };
                        let deliveries = entry.deliveries + u64::from(!only_ids);
                        claimant.claim((entry.id, fields), now, deliveries)?;
                    }
                }
            }
            if from.is_none() {
                next = StreamId::MIN;
            }
        }
        let (claimed, is_new) = claimant.finish();
        Ok((claimed, deleted, next, is_new))
    })?;
    if is_new {
        name_event(context, key, EventClass::STREAM, "xgroup-createconsumer");
    }
    context.replies.array(3);
    reply_id(context.replies, next);
    reply_claimed(context, &claimed, only_ids);
    context.replies.array(deleted.len());
    deleted.into_iter().for_each(|id| reply_id(context.replies, id));
    Ok(())
}
