//! XINFO: streams, their groups and consumers.
//!
//! `radix-tree-keys` and `radix-tree-nodes` are those of Redis for as many entries.
//!
//! Source: the documentation of Redis's stream commands; replies of Redis 7.2.

use siltstone_collections::stream::StreamEntry;
use siltstone_collections::{Consumer, Group, Order, PendingEntry, Stream, StreamId, StreamState};

use super::context::Context;
use super::definition::READ;
use super::elements::{integer, is};
use super::entry::{self, Command};
use super::failure::{
    Failure, NO_SUCH_KEY, Outcome, bad_subcommand, unknown_subcommand, wrong_subcommand_arity,
};
use super::help;
use super::stream_args::{
    ReplyLimit, no_group_of, node_entries, reply_entries, reply_entry, reply_id,
};
use super::stream_lag::lag;
use crate::resp::{Args, Replies};

pub(super) fn commands() -> Vec<Command> {
    let summary = "Describes streams and consumer groups.";
    vec![entry::command("stream", "xinfo", -2, READ, (2, 2, 1), xinfo, summary)]
}

const ALL: std::ops::RangeInclusive<StreamId> = StreamId::MIN..=StreamId::MAX;

fn xinfo(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let word = args[1].to_ascii_lowercase();
    match (word.as_slice(), args.len()) {
        (b"help", 2) => help::reply(context.replies, "XINFO", &HELP),
        (b"consumers", 4) => consumers(context, args),
        (b"groups", 3) => groups(context, args),
        (b"stream", 3..) => stream(context, args),
        (b"help" | b"consumers" | b"groups" | b"stream", _) => {
            Err(wrong_subcommand_arity("xinfo", &word))
        }
        _ => Err(unknown_subcommand("XINFO", &args[1])),
    }
}

/// Reads an existing stream.
fn view<T>(
    context: &mut Context<'_>,
    key: &[u8],
    mut operation: impl FnMut(&Stream<'_, '_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    context.view(key, |writes| {
        let stream = Stream::open(writes, key)?;
        if !stream.exists() { Err(NO_SUCH_KEY) } else { operation(&stream) }
    })
}

fn field(replies: &mut Replies, name: &str) {
    replies.bulk(name.as_bytes());
}

fn reply_optional(replies: &mut Replies, value: Option<i64>) {
    match value {
        Some(value) => replies.int(value),
        None => replies.null(),
    }
}

fn consumers(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let consumers = view(context, &args[2], |stream| {
        let group = stream.group(&args[3])?.ok_or_else(|| no_group_of(&args[2], &args[3]))?;
        Ok(stream.consumers(&group)?)
    })?;
    let now = context.now();
    let since = |at: u64| now.saturating_sub(at) as i64;
    let replies = &mut *context.replies;
    replies.array(consumers.len());
    for consumer in consumers {
        replies.map(4);
        field(replies, "name");
        replies.bulk(&consumer.name);
        field(replies, "pending");
        replies.count(consumer.pending as usize);
        field(replies, "idle");
        replies.int(since(consumer.seen_at));
        field(replies, "inactive");
        replies.int(consumer.active_at.map_or(-1, since));
    }
    Ok(())
}

fn groups(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let groups = view(context, &args[2], |stream| {
        let first = stream.edge(Order::Ascending)?.map(|(id, _)| id);
        let mut groups = Vec::new();
        for group in stream.groups()? {
            let consumers = stream.consumers(&group)?.len();
            let lag = lag(stream, first, &group);
            groups.push((group, consumers, lag));
        }
        Ok(groups)
    })?;
    let replies = &mut *context.replies;
    replies.array(groups.len());
    for (group, consumers, lag) in groups {
        replies.map(6);
        field(replies, "name");
        replies.bulk(&group.name);
        field(replies, "consumers");
        replies.count(consumers);
        field(replies, "pending");
        replies.count(group.pending as usize);
        reply_progress(replies, &group, lag);
    }
    Ok(())
}

/// Replies with how far a group has read.
fn reply_progress(replies: &mut Replies, group: &Group, lag: Option<i64>) {
    field(replies, "last-delivered-id");
    reply_id(replies, group.last);
    field(replies, "entries-read");
    reply_optional(replies, group.read.map(|read| read as i64));
    field(replies, "lag");
    reply_optional(replies, lag);
}

/// What XINFO STREAM shows of a stream.
struct Description {
    len: u64,
    state: StreamState,
    first: Option<StreamId>,
}

impl Description {
    fn of(stream: &Stream<'_, '_>) -> Result<Self, Failure> {
        let first = stream.edge(Order::Ascending)?.map(|(id, _)| id);
        Ok(Description { len: stream.len(), state: *stream.state(), first })
    }

    fn reply(&self, replies: &mut Replies, node_entries: u64) {
        let nodes = self.len.div_ceil(node_entries) as usize;
        field(replies, "length");
        replies.count(self.len as usize);
        field(replies, "radix-tree-keys");
        replies.count(nodes);
        field(replies, "radix-tree-nodes");
        replies.count(nodes + 1);
        field(replies, "last-generated-id");
        reply_id(replies, self.state.last);
        field(replies, "max-deleted-entry-id");
        reply_id(replies, self.state.deleted);
        field(replies, "entries-added");
        replies.count(self.state.added as usize);
        field(replies, "recorded-first-entry-id");
        reply_id(replies, self.first.unwrap_or_default());
    }
}

fn stream(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = args.from(3);
    if options.is_empty() {
        return short(context, &args[2]);
    }
    // The key is looked up before the options.
    let count = view(context, &args[2], |_| {
        let is_counted = options.len() == 3;
        if !is_counted && options.len() != 1
            || !is(&options[0], "full")
            || is_counted && !is(&options[1], "count")
        {
            return Err(bad_subcommand("XINFO", &args[1]));
        }
        match options.get(2) {
            None => Ok(DEFAULT_COUNT),
            Some(count) => Ok(u64::try_from(integer(count)?).unwrap_or(DEFAULT_COUNT)),
        }
    })?;
    full(context, &args[2], if count == 0 { u64::MAX } else { count })
}

/// Entries that XINFO STREAM FULL shows.
const DEFAULT_COUNT: u64 = 10;

fn short(context: &mut Context<'_>, key: &[u8]) -> Outcome {
    let (description, groups, edges) = view(context, key, |stream| {
        let edges = [stream.edge(Order::Ascending)?, stream.edge(Order::Descending)?];
        Ok((Description::of(stream)?, stream.groups()?.len(), edges))
    })?;
    let node_entries = node_entries(context);
    let replies = &mut *context.replies;
    replies.map(10);
    description.reply(replies, node_entries);
    field(replies, "groups");
    replies.count(groups);
    for (name, edge) in ["first-entry", "last-entry"].into_iter().zip(edges) {
        field(replies, name);
        match edge {
            Some(entry) => reply_entry(replies, &entry),
            None => replies.null(),
        }
    }
    Ok(())
}

/// A group as XINFO STREAM FULL shows it.
struct FullGroup {
    group: Group,
    lag: Option<i64>,
    pending: Vec<PendingEntry>,
    consumers: Vec<(Consumer, Vec<PendingEntry>)>,
}

impl FullGroup {
    fn read(
        stream: &Stream<'_, '_>,
        first: Option<StreamId>,
        group: Group,
        max: u64,
        limit: &mut ReplyLimit,
    ) -> Result<Self, Failure> {
        let mut pending = Vec::new();
        stream.for_each_pending(&group, ALL, Order::Ascending, &mut |entry| {
            let has_room = limit.add(&entry.consumer);
            pending.push(entry);
            has_room && (pending.len() as u64) < max
        })?;
        let mut consumers = Vec::new();
        for consumer in stream.consumers(&group)? {
            let mut own = Vec::new();
            // An id takes more than a byte of the reply.
            for id in stream.pending_of(&group, &consumer, ALL, max.min(limit.left()))? {
                own.extend(stream.pending(&group, id)?);
                if !limit.add(&[]) {
                    break;
                }
            }
            consumers.push((consumer, own));
        }
        Ok(FullGroup { lag: lag(stream, first, &group), group, pending, consumers })
    }

    fn reply(&self, replies: &mut Replies) {
        replies.map(7);
        field(replies, "name");
        replies.bulk(&self.group.name);
        reply_progress(replies, &self.group, self.lag);
        field(replies, "pel-count");
        replies.count(self.group.pending as usize);
        field(replies, "pending");
        replies.array(self.pending.len());
        for entry in &self.pending {
            replies.array(4);
            reply_id(replies, entry.id);
            replies.bulk(&entry.consumer);
            replies.int(entry.delivered_at as i64);
            replies.count(entry.deliveries as usize);
        }
        field(replies, "consumers");
        replies.array(self.consumers.len());
        for (consumer, pending) in &self.consumers {
            replies.map(5);
            field(replies, "name");
            replies.bulk(&consumer.name);
            field(replies, "seen-time");
            replies.int(consumer.seen_at as i64);
            field(replies, "active-time");
            replies.int(consumer.active_at.map_or(-1, |at| at as i64));
            field(replies, "pel-count");
            replies.count(consumer.pending as usize);
            field(replies, "pending");
            replies.array(pending.len());
            for entry in pending {
                replies.array(3);
                reply_id(replies, entry.id);
                replies.int(entry.delivered_at as i64);
                replies.count(entry.deliveries as usize);
            }
        }
    }
}

fn full(context: &mut Context<'_>, key: &[u8], max: u64) -> Outcome {
    let mut limit = ReplyLimit::new(context);
    let (description, entries, groups) = view(context, key, |stream| {
        let description = Description::of(stream)?;
        let mut entries: Vec<StreamEntry> = Vec::new();
        stream.for_each(ALL, Order::Ascending, &mut |id, encoded| {
            entries.push((id, encoded.to_vec()));
            // The reply overflows anyway.
            limit.add(encoded) && (entries.len() as u64) < max
        })?;
        let mut groups = Vec::new();
        for group in stream.groups()? {
            groups.push(FullGroup::read(stream, description.first, group, max, &mut limit)?);
        }
        Ok((description, entries, groups))
    })?;
    let node_entries = node_entries(context);
    let replies = &mut *context.replies;
    replies.map(9);
    description.reply(replies, node_entries);
    field(replies, "entries");
    reply_entries(replies, &entries);
    field(replies, "groups");
    replies.array(groups.len());
    groups.iter().for_each(|group| group.reply(replies));
    Ok(())
}

const HELP: [&str; 6] = [
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
];
