//! Streams: nodes of entries, consumer groups, pending entries.
//!
//! ```text
//!   nodes:length  (string: id  string: listpack)*     id: ms:u64 seq:u64, big-endian
//!   entries:length  last id:length length
//!   type 13, 15:  first id:length length  deleted id:length length  added:length
//!   groups:length
//!     group       string: name  last id:length length
//!                 type 13, 15:  read:length                            2^64 - 1: not known
//!     pending     length  (id  delivered:u64  deliveries:length)*
//!     consumers   length  (string: name  seen:u64  type 15: active:u64
//!                          pending:length  (id)*)*
//! ```
//!
//! The listpacks of nodes are those of `stream_node`. Times are milliseconds since 1970,
//! little-endian; `active` is 2^64 - 1 if there was none.
//!
//! Invariant: ids of a decoded stream ascend, none is above the last id, and each pending entry has
//! a consumer.

use std::io::Read;

use siltstone_collections::StreamId;
use siltstone_engine::Timestamp;

use crate::error::{Error, Result};
use crate::sink::{put_bytes, put_length, put_string};
use crate::source::Source;
use crate::stream_node::{decode_node, encode_node, node_len};

const UNKNOWN: u64 = u64::MAX;
/// A stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    /// Entries in the order of their ids.
    pub entries: Vec<StreamEntry>,
    /// The highest id that was ever added.
    pub last: StreamId,
    /// The highest id that was ever deleted by name.
    pub deleted: StreamId,
    /// Number of entries that were ever added.
    pub added: u64,
    /// Consumer groups.
    pub groups: Vec<StreamGroup>,
}

/// An entry of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEntry {
    /// Id.
    pub id: StreamId,
    /// Fields and values, one after the other.
    pub fields: Vec<Vec<u8>>,
}

/// A consumer group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamGroup {
    /// Name.
    pub name: Vec<u8>,
    /// Id of the last entry that was delivered.
    pub last: StreamId,
    /// Number of entries up to that one; `None` if it is not known.
    pub read: Option<u64>,
    /// Consumers.
    pub consumers: Vec<StreamConsumer>,
    /// Pending entries in the order of their ids.
    pub pending: Vec<PendingEntry>,
}

/// A consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamConsumer {
    /// Name.
    pub name: Vec<u8>,
    /// When it last tried to read or claim.
    pub seen_at: Timestamp,
    /// When it last got an entry, if ever.
    pub active_at: Option<Timestamp>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingEntry {
    /// Id of the entry, which may have been deleted.
    pub id: StreamId,
    /// Position of the consumer that has it.
    pub consumer: usize,
    /// When it was last delivered.
    pub delivered_at: Timestamp,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// Version of the encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// Type 0f, of Redis 5.
    One,
    /// Type 13, of Redis 7.0.
    Two,
    /// Type 15, of Redis 7.2.
    Three,
}

fn parse_id([ms, seq]: [[u8; 8]; 2]) -> StreamId {
    StreamId { ms: u64::from_be_bytes(ms), seq: u64::from_be_bytes(seq) }
}

fn raw_id<R: Read>(source: &mut Source<R>) -> Result<StreamId> {
    Ok(parse_id([source.array()?, source.array()?]))
}

fn lengths_id<R: Read>(source: &mut Source<R>) -> Result<StreamId> {
    Ok(StreamId { ms: source.length()?, seq: source.length()? })
}

fn put_raw_id(out: &mut Vec<u8>, id: StreamId) {
    out.extend_from_slice(&id.ms.to_be_bytes());
    out.extend_from_slice(&id.seq.to_be_bytes());
}

fn put_lengths_id(out: &mut Vec<u8>, id: StreamId) {
    put_length(out, id.ms);
    put_length(out, id.seq);
}

/// Reads the body of a stream.
pub(crate) fn decode<R: Read>(source: &mut Source<R>, version: Version) -> Result<Stream> {
    let mut stream = Stream::default();
    for _ in 0..source.length()? {
        let offset = source.offset();
        let node = source.string()?;
        let id = match *node.as_chunks().0 {
            [ms, seq] if node.len() == 16 => parse_id([ms, seq]),
            _ => {
                let reason = "the id of a node has not 16 bytes";
                return Err(Error::Malformed { offset, reason });
            }
        };
        decode_node(source, id, &mut stream.entries)?;
    }
    let count = source.length()?;
    stream.last = lengths_id(source)?;
    if count != stream.entries.len() as u64 {
        return Err(source.malformed("a stream has another number of entries than stated"));
    }
    if stream.entries.last().is_some_and(|entry| entry.id > stream.last) {
        return Err(source.malformed("a stream has an entry above its last id"));
    }
    stream.added = count;
    if version >= Version::Two {
        // The first id follows from the entries.
        lengths_id(source)?;
        stream.deleted = lengths_id(source)?;
        stream.added = counter(source)?;
    }
    for _ in 0..source.length()? {
        let group = decode_group(source, version)?;
        stream.groups.push(group);
    }
    Ok(stream)
}

fn counter<R: Read>(source: &mut Source<R>) -> Result<u64> {
    let counter = source.length()?;
    checked_counter(source, counter)
}

/// Counters are signed in Redis, so that they never overflow here.
fn checked_counter<R: Read>(source: &Source<R>, counter: u64) -> Result<u64> {
    match i64::try_from(counter) {
        Ok(_) => Ok(counter),
        Err(_) => Err(source.malformed("a counter of a stream is above 2^63 - 1")),
    }
}

fn decode_group<R: Read>(source: &mut Source<R>, version: Version) -> Result<StreamGroup> {
    let (name, last) = (source.element()?, lengths_id(source)?);
    let read = match version {
        Version::One => None,
        Version::Two | Version::Three => match source.length()? {
            UNKNOWN => None,
            read => Some(checked_counter(source, read)?),
        },
    };
    let mut group = StreamGroup { name, last, read, ..StreamGroup::default() };
    for _ in 0..source.length()? {
        source.charge_elements(1)?;
        let id = raw_id(source)?;
        if group.pending.last().is_some_and(|last| last.id >= id) {
            return Err(source.malformed("the pending entries of a group are not in order"));
        }
        let (delivered_at, deliveries) = (source.u64_le()?, counter(source)?);
        // Its consumer follows.
        group.pending.push(PendingEntry { id, consumer: usize::MAX, delivered_at, deliveries });
    }
    for position in 0..source.length()? {
        source.charge_elements(1)?;
        let (name, seen_at) = (source.element()?, source.u64_le()?);
        let active_at = match version {
            // As Redis 7.2 reads them.
            Version::One | Version::Two => Some(seen_at),
            Version::Three => Some(source.u64_le()?).filter(|time| *time != UNKNOWN),
        };
        group.consumers.push(StreamConsumer { name, seen_at, active_at });
        for _ in 0..source.length()? {
            let id = raw_id(source)?;
            let found = group.pending.binary_search_by_key(&id, |pending| pending.id);
            match found.ok().map(|at| &mut group.pending[at]) {
                Some(pending) if pending.consumer == usize::MAX => {
                    pending.consumer = position as usize;
                }
                _ => return Err(source.malformed("a consumer's entry is not its group's")),
            }
        }
    }
    match group.pending.iter().all(|pending| pending.consumer != usize::MAX) {
        true => Ok(group),
        false => Err(source.malformed("a pending entry has no consumer")),
    }
}

/// Writes the body of a stream, as type 13.
pub(crate) fn encode(out: &mut Vec<u8>, stream: &Stream) {
    let (mut nodes, mut count) = (Vec::new(), 0);
    let mut rest = &stream.entries[..];
    while let Some(first) = rest.first() {
        let len = node_len(rest);
        let (node, after) = rest.split_at(len);
        let mut id = Vec::with_capacity(16);
        put_raw_id(&mut id, first.id);
        put_bytes(&mut nodes, &id);
        put_bytes(&mut nodes, &encode_node(first, node));
        count += 1;
        rest = after;
    }
    put_length(out, count);
    out.append(&mut nodes);
    put_length(out, stream.entries.len() as u64);
    put_lengths_id(out, stream.last);
    put_lengths_id(out, stream.entries.first().map_or(StreamId::MIN, |entry| entry.id));
    put_lengths_id(out, stream.deleted);
    put_length(out, stream.added);
    put_length(out, stream.groups.len() as u64);
    stream.groups.iter().for_each(|group| encode_group(out, group));
}

fn encode_group(out: &mut Vec<u8>, group: &StreamGroup) {
    put_string(out, &group.name);
    put_lengths_id(out, group.last);
    put_length(out, group.read.unwrap_or(UNKNOWN));
    put_length(out, group.pending.len() as u64);
    let mut by_consumer = vec![Vec::new(); group.consumers.len()];
    for pending in &group.pending {
        put_raw_id(out, pending.id);
        out.extend_from_slice(&pending.delivered_at.to_le_bytes());
        put_length(out, pending.deliveries);
        if let Some(ids) = by_consumer.get_mut(pending.consumer) {
            ids.push(pending.id);
        }
    }
    put_length(out, group.consumers.len() as u64);
    for (consumer, ids) in group.consumers.iter().zip(by_consumer) {
        put_string(out, &consumer.name);
        out.extend_from_slice(&consumer.seen_at.to_le_bytes());
        put_length(out, ids.len() as u64);
        ids.into_iter().for_each(|id| put_raw_id(out, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listpack::ListpackWriter;

    /// A group with a consumer and a pending entry; `active` follows the time it was last seen.
    fn group(read: &[u8], active: &[u8]) -> Vec<u8> {
        let (id, time) = ([&[0; 7][..], &[5], &[0; 7], &[1]].concat(), [7, 0, 0, 0, 0, 0, 0, 0]);
        let pending = [&[1][..], &id, &time, &[3]].concat();
        let consumers = [&[1, 1, b'c'][..], &time, active, &[1], &id].concat();
        [&[1, 1, b'g', 6, 0][..], read, &pending, &consumers].concat()
    }

    fn read(version: Version, head: &[u8], group: &[u8]) -> Result<Stream> {
        // One node with the entries 5-0 and 5-1, of which the first is deleted.
        let mut pack = ListpackWriter::new();
        [1, 1, 1].iter().for_each(|number| pack.push_int(*number));
        pack.push(b"f");
        [0, 3, 0, 0, 7, 4, 2, 0, 1, 8, 4].iter().for_each(|number| pack.push_int(*number));
        let mut input = vec![1, 16];
        put_raw_id(&mut input, StreamId { ms: 5, seq: 0 });
        put_bytes(&mut input, &pack.finish());
        // One entry, and the last id.
        input.extend_from_slice(&[1, 6, 0]);
        input.extend_from_slice(head);
        input.extend_from_slice(group);
        decode(&mut Source::new(&input[..], 1 << 20, false), version)
    }

    #[test]
    fn streams_of_all_versions_are_read() {
        let head = [5, 1, 5, 0, 9];
        let active = 11_u64.to_le_bytes();
        let three = read(Version::Three, &head, &group(&[2], &active)).unwrap();
        let entry = StreamEntry {
            id: StreamId { ms: 5, seq: 1 },
            fields: vec![b"f".to_vec(), b"8".to_vec()],
        };
        let consumer = |active_at| StreamConsumer { name: b"c".to_vec(), seen_at: 7, active_at };
        let pending = PendingEntry { id: entry.id, consumer: 0, delivered_at: 7, deliveries: 3 };
        let expected = Stream {
            entries: vec![entry],
            last: StreamId { ms: 6, seq: 0 },
            deleted: StreamId { ms: 5, seq: 0 },
            added: 9,
            groups: vec![StreamGroup {
                name: b"g".to_vec(),
                last: StreamId { ms: 6, seq: 0 },
                read: Some(2),
                consumers: vec![consumer(Some(11))],
                pending: vec![pending],
            }],
        };
        assert_eq!(three, expected);
        let never = read(Version::Three, &head, &group(&[2], &[0xff; 8])).unwrap();
        assert_eq!(never.groups[0].consumers, [consumer(None)]);
        let unknown = [&[0x81][..], &[0xff; 8]].concat();
        let two = read(Version::Two, &head, &group(&unknown, &[])).unwrap();
        assert_eq!(two.groups[0].consumers, [consumer(Some(7))]);
        assert_eq!(two.groups[0].read, None);
        let one = read(Version::One, &[], &group(&[], &[])).unwrap();
        assert_eq!((one.entries.len(), one.added, one.groups[0].read), (1, 1, None));
    }

    #[test]
    fn counters_beyond_those_of_redis_are_malformed() {
        let large = [&[0x81][..], &[0xff; 7], &[0xfe]].concat();
        let [valid, large_added] = [&[9][..], &large].map(|added| [&[5, 1, 5, 0], added].concat());
        let whole = group(&[2], &[]);
        assert!(read(Version::Two, &valid, &whole).is_ok());
        for (head, group) in [(&large_added, &whole), (&valid, &group(&large, &[]))] {
            let error = read(Version::Two, head, group).unwrap_err();
            assert!(matches!(error, Error::Malformed { .. }), "{error}");
        }
    }
}
