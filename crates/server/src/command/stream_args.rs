//! Arguments and replies that the commands on streams share: ids, ranges, trimming, entries.

use std::sync::atomic::Ordering::Relaxed;

use siltstone_collections::stream::StreamEntry;
use siltstone_collections::{Stream, StreamId, TrimTo, fields};

use super::context::Context;
use super::elements::{ReplyRoom, digits, integer, is};
use super::failure::{Failure, Outcome, SYNTAX, reply_error};
use crate::resp::{Args, Replies, number};

/// Entries of a node of Redis's streams, of which trimming with `~` deletes whole ones; not 0.
pub(super) fn node_entries(context: &Context<'_>) -> u64 {
    let entries = context.shared.settings.stream_node_entries.load(Relaxed) as u64;
    // A node without a limit is as large as any trimming.
    if entries == 0 { u64::MAX } else { entries }
}

/// Entries that trimming with `~` deletes without a LIMIT, in nodes, and at most.
const DEFAULT_LIMIT_NODES: u64 = 100;
const MAX_DEFAULT_LIMIT: u64 = 1_000_000;

const INVALID_ID: Failure =
    reply_error("ERR Invalid stream ID specified as stream command argument");
const INVALID_START: Failure = reply_error("ERR invalid start ID for the interval");
const INVALID_END: Failure = reply_error("ERR invalid end ID for the interval");

/// The id of a new entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NewId {
    /// `*`
    Auto,
    /// `ms-*`
    Milliseconds(u64),
    Given(StreamId),
}

impl NewId {
    pub(super) fn parse(word: &[u8]) -> Result<Self, Failure> {
        if word == b"*" {
            return Ok(NewId::Auto);
        }
        match word.strip_suffix(b"-*") {
            Some(ms) => parse_number(ms).map(NewId::Milliseconds),
            None => strict_id(word, 0).map(NewId::Given),
        }
    }

    /// The id, after the last one of the stream; `None` if there is none.
    pub(super) fn resolve(self, last: StreamId, now_ms: u64) -> Option<StreamId> {
        match self {
            NewId::Given(id) => Some(id),
            NewId::Auto if now_ms > last.ms => Some(StreamId { ms: now_ms, seq: 0 }),
            NewId::Auto => last.next(),
            NewId::Milliseconds(ms) if ms == last.ms => {
                last.seq.checked_add(1).map(|seq| StreamId { ms, seq })
            }
            NewId::Milliseconds(ms) => Some(StreamId { ms, seq: 0 }),
        }
    }
}

/// Parses a part of an id, which may have leading zeros.
fn parse_number(digits: &[u8]) -> Result<u64, Failure> {
    let trimmed = digits.iter().skip_while(|digit| **digit == b'0').count();
    match digits.len() {
        0 => Err(INVALID_ID),
        _ if trimmed == 0 => Ok(0),
        len => number::parse_u64(&digits[len - trimmed..]).ok_or(INVALID_ID),
    }
}

/// Parses `ms` or `ms-seq`; a missing `seq` is `missing_seq`.
pub(super) fn strict_id(word: &[u8], missing_seq: u64) -> Result<StreamId, Failure> {
    let dash = word.iter().position(|byte| *byte == b'-');
    let (ms, seq) = match dash {
        None => (word, None),
        Some(at) => (&word[..at], Some(&word[at + 1..])),
    };
    Ok(StreamId { ms: parse_number(ms)?, seq: seq.map_or(Ok(missing_seq), parse_number)? })
}

/// As [`strict_id`], or `-` or `+` for the lowest and the highest id.
pub(super) fn any_id(word: &[u8], missing_seq: u64) -> Result<StreamId, Failure> {
    match word {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => strict_id(word, missing_seq),
    }
}

/// Parses the lower end of a range, which is exclusive behind `(`.
pub(super) fn start_id(word: &[u8]) -> Result<StreamId, Failure> {
    match word {
        [b'(', id @ ..] if !id.is_empty() => strict_id(id, 0)?.next().ok_or(INVALID_START),
        _ => any_id(word, 0),
    }
}

/// Parses the upper end of a range, which is exclusive behind `(`.
pub(super) fn end_id(word: &[u8]) -> Result<StreamId, Failure> {
    match word {
        [b'(', id @ ..] if !id.is_empty() => strict_id(id, u64::MAX)?.previous().ok_or(INVALID_END),
        _ => any_id(word, u64::MAX),
    }
}

/// Parses ids up to the end of the arguments.
pub(super) fn strict_ids(args: Args<'_>) -> Result<Vec<StreamId>, Failure> {
    args.iter().map(|word| strict_id(word, 0)).collect()
}

/// Parses a COUNT for which negative numbers stand for 0.
pub(super) fn clamped_count(word: &[u8]) -> Result<u64, Failure> {
    Ok(u64::try_from(integer(word)?).unwrap_or(0))
}

/// How a stream is trimmed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trim {
    to: TrimTo,
    /// Maximum number of entries to delete.
    max: u64,
    /// Entries of a node: only whole ones are deleted.
    step: u64,
}

impl Trim {
    /// Trims a stream, and returns the number of deleted entries.
    pub(super) fn run(&self, stream: &mut Stream<'_, '_>) -> Result<u64, Failure> {
        Ok(stream.trim(self.to, self.max, self.step)?)
    }
}

/// Options of XADD and XTRIM.
#[derive(Default)]
pub(super) struct TrimOptions {
    to: Option<TrimTo>,
    is_approximate: bool,
    limit: Option<u64>,
}

impl TrimOptions {
    /// Parses one option at the beginning of the arguments. Returns the number of its words; 0 if
    /// it is none.
    pub(super) fn parse_one(&mut self, args: Args<'_>) -> Result<usize, Failure> {
        let Some(word) = args.get(0).filter(|_| args.len() > 1) else { return Ok(0) };
        if is(word, "limit") {
            let limit = u64::try_from(integer(&args[1])?);
            self.limit =
                Some(limit.map_err(|_| reply_error("ERR The LIMIT argument must be >= 0."))?);
            return Ok(2);
        }
        let is_min_id = is(word, "minid");
        if !is_min_id && !is(word, "maxlen") {
            return Ok(0);
        }
        if self.to.is_some() {
            return Err(reply_error(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ));
        }
        let has_sign = args.len() > 2 && [&b"~"[..], b"="].contains(&&args[1]);
        self.is_approximate = has_sign && &args[1] == b"~";
        let words = if has_sign { 3 } else { 2 };
        let value = &args[words - 1];
        self.to = Some(match is_min_id {
            true => TrimTo::MinId(strict_id(value, 0)?),
            false => {
                let len = u64::try_from(integer(value)?);
                let len = len.map_err(|_| reply_error("ERR The MAXLEN argument must be >= 0."))?;
                TrimTo::MaxLen(len)
            }
        });
        Ok(words)
    }

    /// Checks that the options fit together. XTRIM must trim.
    pub(super) fn finish(
        self,
        must_trim: bool,
        node_entries: u64,
    ) -> Result<Option<Trim>, Failure> {
        let TrimOptions { to, is_approximate, limit } = self;
        if to.is_none() && limit.is_some_and(|limit| limit > 0) {
            return Err(reply_error(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        if to.is_none() && must_trim {
            return Err(reply_error(
                "ERR syntax error, XTRIM must be called with a trimming strategy",
            ));
        }
        if limit.is_some() && !is_approximate {
            return Err(reply_error(
                "ERR syntax error, LIMIT cannot be used without the special ~ option",
            ));
        }
        let Some(to) = to else { return Ok(None) };
        let limited = DEFAULT_LIMIT_NODES.saturating_mul(node_entries).min(MAX_DEFAULT_LIMIT);
        let trim = match (is_approximate, limit) {
            (false, _) => Trim { to, max: u64::MAX, step: 1 },
            (true, Some(0)) => Trim { to, max: u64::MAX, step: node_entries },
            (true, limit) => Trim { to, max: limit.unwrap_or(limited), step: node_entries },
        };
        Ok(Some(trim))
    }
}

/// Reads the options of XTRIM, which end the arguments.
pub(super) fn trim_arguments(args: Args<'_>, node_entries: u64) -> Result<Trim, Failure> {
    let (mut options, mut at) = (TrimOptions::default(), 0);
    while at < args.len() {
        match options.parse_one(args.from(at))? {
            0 => return Err(SYNTAX),
            words => at += words,
        }
    }
    options.finish(true, node_entries)?.ok_or(SYNTAX)
}

/// Error for a missing key or group.
pub(super) fn no_group(key: &[u8], group: &[u8], suffix: &str) -> Failure {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    format!("NOGROUP No such key '{key}' or consumer group '{group}'{suffix}").into()
}

/// Error for a missing group of an existing key.
pub(super) fn no_group_of(key: &[u8], group: &[u8]) -> Failure {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    format!("NOGROUP No such consumer group '{group}' for key name '{key}'").into()
}

pub(super) fn reply_id(replies: &mut Replies, id: StreamId) {
    replies.bulk(id.to_string().as_bytes());
}

/// Replies with an id and its fields.
pub(super) fn reply_entry(replies: &mut Replies, (id, encoded): &StreamEntry) {
    replies.array(2);
    reply_id(replies, *id);
    replies.array(fields(encoded).count());
    fields(encoded).for_each(|field| replies.bulk(field));
}

/// Takes the room of an entry in a reply.
pub(super) fn take_room(room: &mut ReplyRoom, (id, encoded): (StreamId, &[u8])) -> Outcome {
    // Two headers of arrays, and the frame of the id.
    let of_id = digits(id.ms) + digits(id.seq) + 8;
    room.take(of_id + 7 + digits(fields(encoded).count() as u64))?;
    fields(encoded).try_for_each(|field| room.take_bulk(field))
}

pub(super) fn reply_entries(replies: &mut Replies, entries: &[StreamEntry]) {
    replies.array(entries.len());
    entries.iter().for_each(|entry| reply_entry(replies, entry));
}

/// Limits what one reply may collect: counts bytes, and stops where the reply overflows anyway.
pub(super) struct ReplyLimit {
    left: usize,
}

impl ReplyLimit {
    pub(super) fn new(context: &Context<'_>) -> Self {
        ReplyLimit { left: context.shared.options.max_output_bytes }
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> u64 {
        self.left as u64
    }

    /// Counts an entry, and returns whether there may be more.
    pub(super) fn add(&mut self, encoded: &[u8]) -> bool {
        self.left = self.left.saturating_sub(encoded.len() + 1);
        self.left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_as_in_redis() {
        let id = |ms, seq| StreamId { ms, seq };
        let text = |result: Result<StreamId, Failure>| result.ok();
        assert_eq!(text(strict_id(b"5", 7)), Some(id(5, 7)));
        assert_eq!(text(strict_id(b"5-1", 7)), Some(id(5, 1)));
        assert_eq!(text(strict_id(b"005-00", 7)), Some(id(5, 0)));
        for wrong in [&b"-"[..], b"+", b"", b"5-", b"-5", b"5-1-1", b"a", b"5-*", b"-1-0"] {
            assert_eq!(text(strict_id(wrong, 0)), None, "{wrong:?}");
        }
        assert_eq!(text(start_id(b"(5")), Some(id(5, 1)));
        assert_eq!(text(end_id(b"(5-0")), Some(id(4, u64::MAX)));
        assert_eq!(text(end_id(b"5")), Some(id(5, u64::MAX)));
        assert_eq!((text(start_id(b"(-")), text(start_id(b"("))), (None, None));
        assert_eq!(text(end_id(b"(0-0")), None);
    }

    #[test]
    fn new_ids_follow_the_last_one() {
        let id = |ms, seq| StreamId { ms, seq };
        let resolve = |word: &[u8], last| NewId::parse(word).unwrap().resolve(last, 10);
        assert_eq!(resolve(b"*", id(5, 5)), Some(id(10, 0)));
        assert_eq!(resolve(b"*", id(10, 5)), Some(id(10, 6)));
        assert_eq!(resolve(b"*", id(11, u64::MAX)), Some(id(12, 0)));
        assert_eq!(resolve(b"*", StreamId::MAX), None);
        assert_eq!(resolve(b"5-*", id(5, 5)), Some(id(5, 6)));
        assert_eq!(resolve(b"5-*", id(5, u64::MAX)), None);
        assert_eq!(resolve(b"0-*", id(0, 0)), Some(id(0, 1)));
        assert_eq!(resolve(b"4-*", id(5, 5)), Some(id(4, 0)));
        assert_eq!(resolve(b"4", id(5, 5)), Some(id(4, 0)));
    }
}
