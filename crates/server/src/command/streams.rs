//! Commands on the entries of streams.
//!
//! Reading is in [`super::stream_reads`] as far as it may wait, consumer groups are in
//! [`super::stream_groups`]. Trimming with `~` deletes multiples of `stream-node-max-entries`, as
//! Redis deletes whole nodes.
//!
//! Source: the documentation of Redis's stream commands; replies of Redis 7.2.

use siltstone_collections::{Order, Stream, StreamId};

use super::context::Context;
use super::definition::{FAST, ONE_KEY, READ, WRITE};
use super::elements::{integer, is};
use super::entry::{self, Command};
use super::events::name_event;
use super::failure::{Failure, NO_SUCH_KEY, Outcome, SYNTAX, reply_error, wrong_arity};
use super::stream_args::{
    NewId, ReplyLimit, TrimOptions, clamped_count, end_id, node_entries, reply_entries, reply_id,
    start_id, strict_id, strict_ids, trim_arguments,
};
use crate::keyspace_events::EventClass;
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, handler, summary| {
        entry::command("stream", name, arity, flags, ONE_KEY, handler, summary)
    };
    vec![
        command("xadd", -5, WRITE | FAST, xadd, "Adds an entry to a stream."),
        command("xlen", 2, READ | FAST, xlen, "Returns the number of entries."),
        command("xrange", -4, READ, xrange, "Returns the entries of a range of ids."),
        command("xrevrange", -4, READ, xrevrange, "Returns a range of entries, the last first."),
        command("xdel", -3, WRITE | FAST, xdel, "Deletes entries."),
        command("xtrim", -4, WRITE, xtrim, "Deletes entries from the front."),
        command("xsetid", -3, WRITE | FAST, xsetid, "Sets the last id of a stream."),
    ]
}

fn xadd(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = &args[1];
    let (mut options, mut creates, mut at) = (TrimOptions::default(), true, 2);
    let id = loop {
        let Some(word) = args.get(at) else { return Err(wrong_arity("xadd")) };
        match options.parse_one(args.from(at))? {
            0 if is(word, "nomkstream") => creates = false,
            0 => break NewId::parse(word)?,
            words => at += words - 1,
        }
        at += 1;
    };
    let trim = options.finish(false, node_entries(context))?;
    let fields = args.from(at + 1);
    if fields.is_empty() || !fields.len().is_multiple_of(2) {
        return Err(wrong_arity("xadd"));
    }
    if id == NewId::Given(StreamId::MIN) {
        return Err(reply_error("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let now = context.now();
    let added = context.change(key, |writes| {
        let mut stream = Stream::open(writes, key)?;
        if !creates && !stream.exists() {
            return Ok(None);
        }
        let last = stream.state().last;
        if last == StreamId::MAX {
            return Err(reply_error(
                "ERR The stream has exhausted the last possible ID, unable to add more items",
            ));
        }
        let id = id.resolve(last, now).filter(|id| stream.append(*id, fields.iter()));
        let id = id.ok_or(reply_error(
            "ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ))?;
        let trimmed = trim.map_or(Ok(0), |trim| trim.run(&mut stream))?;
        Ok(Some((id, trimmed)))
    })?;
    let Some((id, trimmed)) = added else {
        context.replies.null();
        return Ok(());
    };
    name_event(context, key, EventClass::STREAM, "xadd");
    if trimmed > 0 {
        name_event(context, key, EventClass::STREAM, "xtrim");
    }
    reply_id(context.replies, id);
    Ok(())
}

fn xlen(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let len = context.view(&args[1], |writes| Ok(Stream::open(writes, &args[1])?.len()))?;
    context.replies.count(len as usize);
    Ok(())
}

fn xrange(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    range(context, args, (&args[2], &args[3]), Order::Ascending)
}

fn xrevrange(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    range(context, args, (&args[3], &args[2]), Order::Descending)
}

fn range(
    context: &mut Context<'_>,
    args: Args<'_>,
    (start, end): (&[u8], &[u8]),
    order: Order,
) -> Outcome {
    let (start, end) = (start_id(start)?, end_id(end)?);
    let mut count = None;
    let mut words = args.from(4).iter();
    while let Some(word) = words.next() {
        match words.next() {
            Some(value) if is(word, "count") => count = Some(clamped_count(value)?),
            _ => return Err(SYNTAX),
        }
    }
    let mut limit = ReplyLimit::new(context);
    let entries = context.view(&args[1], |writes| {
        let stream = Stream::open(writes, &args[1])?;
        if stream.exists() && count == Some(0) {
            return Ok(None);
        }
        let mut entries = Vec::new();
        stream.for_each(start..=end, order, &mut |id, encoded| {
            entries.push((id, encoded.to_vec()));
            limit.add(encoded) && count.is_none_or(|count| (entries.len() as u64) < count)
        })?;
        Ok(Some(entries))
    })?;
    match entries {
        None => context.replies.null_array(),
        Some(entries) => reply_entries(context.replies, &entries),
    }
    Ok(())
}

fn xdel(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = &args[1];
    let deleted = context.change(key, |writes| {
        let mut stream = Stream::open(writes, key)?;
        if !stream.exists() {
            return Ok(0);
        }
        let mut deleted = 0;
        for id in strict_ids(args.from(2))? {
            deleted += usize::from(stream.remove(id)?);
        }
        Ok(deleted)
    })?;
    if deleted > 0 {
        name_event(context, key, EventClass::STREAM, "xdel");
    }
    context.replies.count(deleted);
    Ok(())
}

fn xtrim(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = &args[1];
    let trim = trim_arguments(args.from(2), node_entries(context))?;
    let trimmed = context.change(key, |writes| trim.run(&mut Stream::open(writes, key)?))?;
    if trimmed > 0 {
        name_event(context, key, EventClass::STREAM, "xtrim");
    }
    context.replies.count(trimmed as usize);
    Ok(())
}

fn xsetid(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, last) = (&args[1], strict_id(&args[2], 0)?);
    let (mut added, mut deleted) = (None, None);
    let mut words = args.from(3).iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or(SYNTAX)?;
        if is(word, "entriesadded") {
            let negative = reply_error("ERR entries_added must be positive");
            added = Some(u64::try_from(integer(value)?).map_err(|_| negative)?);
        } else if is(word, "maxdeletedid") {
            let id = strict_id(value, 0)?;
            if last < id {
                return Err(reply_error(
                    "ERR The ID specified in XSETID is smaller than the provided \
                     max_deleted_entry_id",
                ));
            }
            deleted = Some(id).filter(|id| *id != StreamId::MIN);
        } else {
            return Err(SYNTAX);
        }
    }
    context.change(key, |writes| {
        let mut stream = Stream::open(writes, key)?;
        if !stream.exists() {
            return Err(NO_SUCH_KEY);
        }
        check_last_id(&stream, last, added)?;
        stream.set_state(last, deleted, added);
        Ok(())
    })?;
    name_event(context, key, EventClass::STREAM, "xsetid");
    context.replies.ok();
    Ok(())
}

/// Checks that no entry has an id above a new last id, nor are there more entries than were added.
fn check_last_id(
    stream: &Stream<'_, '_>,
    last: StreamId,
    added: Option<u64>,
) -> Result<(), Failure> {
    if last < stream.state().deleted {
        return Err(reply_error(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    let Some((top, _)) = stream.edge(Order::Descending)? else { return Ok(()) };
    if last < top {
        return Err(reply_error(
            "ERR The ID specified in XSETID is smaller than the target stream top item",
        ));
    }
    if added.is_some_and(|added| added < stream.len()) {
        return Err(reply_error(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    Ok(())
}
