//! XREAD and XREADGROUP: entries after an id, for which they may wait.
//!
//! A command that finds nothing and waits is parked ([`super::parking`]) and run again after a
//! write of one of its keys. `$` is replaced by the last id of that moment before, so that the
//! second run knows what is new; `+` is the last entry at each run. XREADGROUP is answered with an
//! error if its group disappears.
//!
//! XREADGROUP delivers as many entries as a reply takes: what is delivered, and does not arrive,
//! is not offered again. An entry that is too large by itself is delivered if it becomes pending.
//!
//! Source: the documentation of Redis's stream commands; replies of Redis 7.2.

use std::time::Instant;

use siltstone_collections::stream::StreamEntry;
use siltstone_collections::{Consumer, Group, Order, Stream, StreamId, WriteSet};
use siltstone_engine::Timestamp;

use super::context::Context;
use super::definition::{BLOCKING, KeyOption, KeysTaken, NO_KEYS, READ, WRITE};
use super::elements::{ReplyRoom, is};
use super::entry::{self, Command};
use super::events::name_event;
use super::failure::{Failure, Outcome, SYNTAX, reply_error, reply_too_large};
use super::parking::{Wait, deadline_ms};
use super::session::TimeoutReply;
use super::stream_args::{
    ReplyLimit, clamped_count, no_group, reply_entry, reply_id, strict_id, take_room,
};
use super::stream_lag::{estimated_position, has_deleted_after};
use crate::keyspace_events::EventClass;
use crate::resp::{Args, RespVersion, Span};
use crate::store::blocked_keys::WaitKind;

pub(super) fn commands() -> Vec<Command> {
    const KEYS: KeyOption = KeyOption {
        from: 1,
        names: &["streams"],
        others: &[("count", 1), ("block", 1), ("group", 2)],
        takes: KeysTaken::Half,
    };
    let command = |name, arity, flags, handler, summary| {
        entry::command("stream", name, arity, flags | BLOCKING, NO_KEYS, handler, summary)
            .with_key_option(KEYS)
    };
    vec![
        command("xread", -4, READ, xread, "Returns entries after an id, or waits for some."),
        command(
            "xreadgroup",
            -7,
            WRITE,
            xreadgroup,
            "Returns new or pending entries to a consumer.",
        ),
    ]
}

/// Arguments of XREAD and XREADGROUP.
struct Read<'a> {
    group: Option<(&'a [u8], &'a [u8])>,
    /// 0: without limit.
    count: u64,
    /// Position of the argument of BLOCK.
    block: Option<&'a [u8]>,
    is_unacknowledged: bool,
    keys: Vec<&'a [u8]>,
    /// Position of the first id.
    ids_at: usize,
}

impl<'a> Read<'a> {
    fn parse(args: Args<'a>, is_group: bool) -> Result<Self, Failure> {
        let (keys, ids_at, is_unacknowledged) = (Vec::new(), 0, false);
        let mut read = Read { group: None, count: 0, block: None, is_unacknowledged, keys, ids_at };
        let mut at = 1;
        while let Some(word) = args.get(at) {
            let left = args.len() - at - 1;
            if is(word, "block") && left >= 1 {
                at += 1;
                read.block = args.get(at);
                deadline_ms(&args[at])?;
            } else if is(word, "count") && left >= 1 {
                at += 1;
                read.count = clamped_count(&args[at])?;
            } else if is(word, "streams") && left >= 1 {
                read.take_streams(args, at + 1, is_group)?;
                break;
            } else if is(word, "group") && left >= 2 {
                if !is_group {
                    return Err(only_groups("GROUP"));
                }
                read.group = args.get(at + 1).zip(args.get(at + 2));
                at += 2;
            } else if is(word, "noack") {
                if !is_group {
                    return Err(only_groups("NOACK"));
                }
                read.is_unacknowledged = true;
            } else {
                return Err(SYNTAX);
            }
            at += 1;
        }
        if read.keys.is_empty() {
            return Err(SYNTAX);
        }
        if is_group && read.group.is_none() {
            return Err(reply_error("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(read)
    }

    fn take_streams(&mut self, args: Args<'a>, at: usize, is_group: bool) -> Result<(), Failure> {
        let words = args.from(at);
        if !words.len().is_multiple_of(2) {
            let (name, symbol) = if is_group { ("xreadgroup", '>') } else { ("xread", '$') };
            return Err(format!(
                "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' \
                 must be specified."
            )
            .into());
        }
        self.keys = words.iter().take(words.len() / 2).collect();
        self.ids_at = at + words.len() / 2;
        Ok(())
    }

    /// The id of the stream at a position.
    fn id<'b>(&self, args: Args<'b>, position: usize) -> &'b [u8] {
        args.get(self.ids_at + position).unwrap_or_default()
    }

    fn max(&self) -> u64 {
        if self.count == 0 { u64::MAX } else { self.count }
    }

    /// When the command ends without having found anything; `None` if it does not wait.
    fn deadline(&self) -> Result<Option<Option<Instant>>, Failure> {
        self.block.map(deadline_ms).transpose()
    }
}

fn only_groups(option: &str) -> Failure {
    format!("ERR The {option} option is only supported by XREADGROUP. You called XREAD instead.")
        .into()
}

/// Entries with their fields; without them if an entry has been deleted.
type StreamEntries = Vec<(StreamId, Option<Vec<u8>>)>;

fn xread(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let read = Read::parse(args, false)?;
    let _guard = context.lock_many(read.keys.iter().copied());
    let is_retry = context.session.is_retry;
    let mut limit = ReplyLimit::new(context);
    let (found, last_ids, lookups) = context.collections(|writes| {
        let mut after = Vec::with_capacity(read.keys.len());
        for (position, key) in read.keys.iter().enumerate() {
            let last = match Stream::open(writes, key) {
                Ok(stream) => Some(stream.state().last),
                // A key that has become something else is not what the command waits for.
                Err(siltstone_collections::Error::WrongType { .. }) if is_retry => None,
                Err(error) => return Err(error.into()),
            };
            after.push(match (read.id(args, position), last) {
                (b">", _) => {
                    return Err(reply_error(
                        "ERR The > ID can be specified only when calling XREADGROUP using the \
                         GROUP <group> <consumer> option.",
                    ));
                }
                (b"$", last) => last.unwrap_or_default(),
                // The last entry, or else the first one that comes.
                (b"+", Some(_)) => {
                    let last = Stream::open(writes, key)?.edge(Order::Descending)?;
                    last.and_then(|(id, _)| id.previous()).unwrap_or_default()
                }
                // Nothing is above it.
                (_, None) => StreamId::MAX,
                (id, Some(_)) => strict_id(id, 0)?,
            });
        }
        let lookups = writes.lookups();
        let mut found = Vec::new();
        for (key, after) in read.keys.iter().zip(&after) {
            let Some(start) = after.next() else { continue };
            let stream = Stream::open(writes, key)?;
            let entries = entries_from(&stream, start, read.max(), &mut limit)?;
            if !entries.is_empty() {
                found.push((*key, entries.into_iter().map(with_fields).collect()));
            }
        }
        Ok((found, after, lookups))
    })?;
    context.record_reads(read.keys.iter().copied(), lookups);
    answer_or_park(context, args, &read, found, &last_ids)
}

fn with_fields((id, encoded): StreamEntry) -> (StreamId, Option<Vec<u8>>) {
    (id, Some(encoded))
}

/// Entries from an id on.
fn entries_from(
    stream: &Stream<'_, '_>,
    start: StreamId,
    max: u64,
    limit: &mut ReplyLimit,
) -> Result<Vec<StreamEntry>, Failure> {
    let mut entries = Vec::new();
    stream.for_each(start..=StreamId::MAX, Order::Ascending, &mut |id, encoded| {
        entries.push((id, encoded.to_vec()));
        limit.add(encoded) && (entries.len() as u64) < max
    })?;
    Ok(entries)
}

/// Replies with what was found, or waits, or replies that there is nothing.
fn answer_or_park(
    context: &mut Context<'_>,
    args: Args<'_>,
    read: &Read<'_>,
    found: Vec<(&[u8], StreamEntries)>,
    last_ids: &[StreamId],
) -> Outcome {
    if !found.is_empty() {
        reply(context, &found);
        return Ok(());
    }
    let Some(deadline) = read.deadline()? else {
        context.replies.null_array();
        return Ok(());
    };
    let kind = if read.group.is_some() { WaitKind::Group } else { WaitKind::Stream };
    let on_timeout = TimeoutReply::NullArray;
    let wait = Wait { kind, keys: read.keys.clone(), deadline, on_timeout };
    let (mut bytes, mut spans) = (Vec::new(), Vec::with_capacity(args.len()));
    for (at, word) in args.iter().enumerate() {
        let start = bytes.len();
        match at.checked_sub(read.ids_at).and_then(|position| last_ids.get(position)) {
            Some(id) if word == b"$" => bytes.extend_from_slice(id.to_string().as_bytes()),
            _ => bytes.extend_from_slice(word),
        }
        spans.push(Span { start, end: bytes.len() });
    }
    context.park(Args::new(&bytes, &spans), wait);
    Ok(())
}

fn reply(context: &mut Context<'_>, found: &[(&[u8], StreamEntries)]) {
    let replies = &mut *context.replies;
    match replies.version {
        RespVersion::Resp2 => replies.array(found.len()),
        RespVersion::Resp3 => replies.map(found.len()),
    }
    for (key, entries) in found {
        if replies.version == RespVersion::Resp2 {
            replies.array(2);
        }
        replies.bulk(key);
        replies.array(entries.len());
        for (id, encoded) in entries {
            match encoded {
                Some(encoded) => reply_entry(replies, &(*id, encoded.clone())),
                None => {
                    replies.array(2);
                    reply_id(replies, *id);
                    replies.null_array();
                }
            }
        }
    }
}

fn xreadgroup(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let read = Read::parse(args, true)?;
    let (group, consumer) = read.group.unwrap_or_default();
    let _guard = context.lock_many(read.keys.iter().copied());
    let now = context.now();
    let mut limit = ReplyLimit::new(context);
    let mut room = ReplyRoom::new(context);
    let max_bytes = context.shared.options.max_output_bytes;
    let (found, created, lookups) = context.collections(|writes| {
        // All are checked before anything changes.
        let mut after = Vec::with_capacity(read.keys.len());
        for (position, key) in read.keys.iter().enumerate() {
            if Stream::open(writes, key)?.group(group)?.is_none() {
                return Err(no_group(key, group, " in XREADGROUP with GROUP option"));
            }
            after.push(match read.id(args, position) {
                b"$" => {
                    return Err(reply_error(
                        "ERR The $ ID is meaningless in the context of XREADGROUP: you want to \
                         read the history of this consumer by specifying a proper ID, or use the \
                         > ID to get new messages. The $ ID would just return an empty result set.",
                    ));
                }
                b"+" => {
                    return Err(reply_error(
                        "ERR The + ID is meaningless in the context of XREADGROUP: you want to \
                         read the history of this consumer by specifying a proper ID, or use the \
                         > ID to get new messages. The + ID would just return an empty result set.",
                    ));
                }
                b">" => None,
                id => Some(strict_id(id, 0)?),
            });
        }
        let lookups = writes.lookups();
        for key in &read.keys {
            room.take_bulk(key)?;
            room.take(MAX_HEADERS_BYTES)?;
        }
        let (mut found, mut created): (Vec<(&[u8], StreamEntries)>, _) = (Vec::new(), Vec::new());
        for (key, after) in read.keys.iter().zip(&after) {
            let is_first = found.iter().all(|(_, entries)| entries.is_empty());
            let mut reader = Reader::open(writes, key, (group, consumer), now)?;
            if reader.is_new {
                created.push(*key);
            }
            let entries = match after {
                Some(after) => Some(reader.history(*after, read.max(), (&mut room, is_first))?),
                None => {
                    let entries = entries_after(&reader, read.max(), &mut limit)?;
                    let may_overflow = is_first && !read.is_unacknowledged;
                    let fitting = fitting(&entries, &mut room, may_overflow);
                    if fitting == 0 && is_first && !entries.is_empty() {
                        return Err(reply_too_large(max_bytes));
                    }
                    reader.news(entries, fitting, read.is_unacknowledged)?
                }
            };
            reader.save();
            found.extend(entries.map(|entries| (*key, entries)));
        }
        Ok((found, created, lookups))
    })?;
    for key in created {
        name_event(context, key, EventClass::STREAM, "xgroup-createconsumer");
    }
    context.record_reads(read.keys.iter().copied(), lookups);
    answer_or_park(context, args, &read, found, &[])
}

/// Entries that a group has not delivered.
fn entries_after(
    reader: &Reader<'_, '_>,
    max: u64,
    limit: &mut ReplyLimit,
) -> Result<Vec<StreamEntry>, Failure> {
    match reader.group.last.next() {
        None => Ok(Vec::new()),
        Some(start) => entries_from(&reader.stream, start, max, limit),
    }
}

/// Number of entries for which a reply has room; at least one if it may overflow.
fn fitting(entries: &[StreamEntry], room: &mut ReplyRoom, may_overflow: bool) -> usize {
    let mut fits = |(id, encoded): &StreamEntry| take_room(room, (*id, encoded.as_slice())).is_ok();
    let fitting = entries.iter().take_while(|entry| fits(entry)).count();
    fitting.max(usize::from(may_overflow)).min(entries.len())
}

/// More than the headers of the arrays of a stream in a reply take.
const MAX_HEADERS_BYTES: usize = 64;

/// A consumer that reads from its stream.
struct Reader<'w, 'r> {
    stream: Stream<'w, 'r>,
    group: Group,
    consumer: Consumer,
    is_new: bool,
    now: Timestamp,
}

impl<'w, 'r> Reader<'w, 'r> {
    fn open(
        writes: &'w mut WriteSet<'r>,
        key: &'w [u8],
        (group, consumer): (&[u8], &[u8]),
        now: Timestamp,
    ) -> Result<Self, Failure> {
        let mut stream = Stream::open(writes, key)?;
        let missing = || no_group(key, group, " in XREADGROUP with GROUP option");
        let mut group = stream.group(group)?.ok_or_else(missing)?;
        let known = stream.consumer(&group, consumer)?;
        let is_new = known.is_none();
        let mut consumer = match known {
            Some(consumer) => consumer,
            None => stream.create_consumer(&mut group, consumer, now),
        };
        consumer.seen_at = now;
        Ok(Reader { stream, group, consumer, is_new, now })
    }

    /// Pending entries of the consumer after an id, for which a reply has room; at least one if they
    /// are the first ones of it.
    fn history(
        &mut self,
        after: StreamId,
        max: u64,
        (room, is_first): (&mut ReplyRoom, bool),
    ) -> Result<StreamEntries, Failure> {
        let Reader { stream, group, consumer, now, .. } = self;
        let Some(start) = after.next() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for id in stream.pending_of(group, consumer, start..=StreamId::MAX, max)? {
            let encoded = stream.get(id)?;
            let has_room = take_room(room, (id, encoded.as_deref().unwrap_or_default())).is_ok();
            if !(has_room || is_first && found.is_empty()) {
                break;
            }
            if encoded.is_some() {
                let deliveries = stream.pending(group, id)?.map_or(0, |entry| entry.deliveries);
                stream.deliver(group, consumer, (id, *now, deliveries + 1))?;
            }
            found.push((id, encoded));
            if !has_room {
                break;
            }
        }
        Ok(found)
    }

    /// Delivers the first ones of entries that the group has not delivered; `None` if there are
    /// none.
    fn news(
        &mut self,
        mut entries: Vec<StreamEntry>,
        fitting: usize,
        is_unacknowledged: bool,
    ) -> Result<Option<StreamEntries>, Failure> {
        let Reader { stream, group, consumer, now, .. } = self;
        entries.truncate(fitting);
        if entries.is_empty() {
            return Ok(None);
        }
        let first = stream.edge(Order::Ascending)?.map(|(id, _)| id);
        for (id, _) in &entries {
            group.read = match group.read {
                Some(read) if !has_deleted_after(stream, first, *id) => Some(read + 1),
                _ => estimated_position(stream, first, *id),
            };
            group.last = *id;
            if !is_unacknowledged {
                stream.deliver(group, consumer, (*id, *now, 1))?;
                consumer.active_at = Some(*now);
            }
        }
        Ok(Some(entries.into_iter().map(with_fields).collect()))
    }

    fn save(mut self) {
        self.stream.save_group(&self.group);
        self.stream.save_consumer(&self.group, &self.consumer);
    }
}
