//! The format of a record: one version of a key.
//!
//! ```text
//!   flags      u8: 1 deleted, 2 expires, 4 payload in pages, 8 first and 16 last of a group,
//!                  32 relocated by collection, 64 the bucket is empty, 128 skip links
//!   timestamp  u64
//!   next       u32, the next record of the bucket's chain
//!   prior      u32, the previous version of the key
//!   [expiry    u64, milliseconds since 1970]
//!   [since     u64, if first of a relocated group: the next page of the log at that time]
//!   [skip links  count u8, then of each: tag u8, location u32]
//!   inline:           key length (varint), value length (varint), key, value
//!   payload in pages: hash of the key (u64), key length, value length, number of pages (varints),
//!                     pages (u32 each)
//!   empty bucket:     bucket (u32)
//! ```
//!
//! A *tombstoned* version (hash tombstone) has flags 1 and 4, lengths 0, and no page: only the hash
//! of its key. (Any other version with flag 4 has a page, also that of the empty key.) It replaces
//! a version that is no longer visible, and hides older ones of the hash (see `version_map`).
//!
//! All numbers are little-endian. A *group* is atomic: the operations of a batch, or of several
//! that were sorted together (`write_buffer`), or the live versions of a collected bucket. Its
//! records are consecutive in the log.
//!
//! A *skip link* points to another key's version that the chain passes before `next`; its tag is
//! the low byte of that key's hash (see `chains::chain_iter`).
//!
//! Source: SkimpyFTL, section 3.1. Groups, expiry, payload pages and skip links are not in the
//! paper.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use siltstone_engine::varint::{read_varint, write_varint};
use siltstone_engine::{Entry, Op, Timestamp};

use crate::bytes::{u32_at, u64_at};
use crate::location::Placement;
use crate::location::{Location, NONE};

const DELETED: u8 = 1;
const EXPIRES: u8 = 2;
const IN_PAGES: u8 = 4;
pub(crate) const FIRST: u8 = 8;
pub(crate) const LAST: u8 = 16;
pub(crate) const RELOCATED: u8 = 32;
const EMPTY: u8 = 64;
const SKIP_LINKS: u8 = 128;
/// The maximum number of skip links: few buckets get more than five new keys between two
/// collections.
pub(crate) const MAX_SKIP_LINKS: usize = 5;
const SKIP_LINK_BYTES: usize = 5;
/// Additional bytes of the first record of a relocated group.
pub(crate) const SINCE_BYTES: usize = 8;

/// A version of a key.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) timestamp: u64,
    pub(crate) hash: u64,
    /// Empty until it is loaded, if the payload is in pages.
    pub(crate) key: Vec<u8>,
    pub(crate) content: Content,
    pub(crate) expires_at: Option<Timestamp>,
    /// The payload, if it is in pages of its own.
    pub(crate) payload: Option<Payload>,
    /// `FIRST`, `LAST` and `RELOCATED`.
    pub(crate) marks: u8,
    /// First record of a relocated group only: the number of the next log page at that time.
    pub(crate) since: u64,
    pub(crate) next: AtomicU32,
    pub(crate) prior: AtomicU32,
    /// The newest first.
    pub(crate) skip_links: Vec<SkipLink>,
}

/// A link to another key's version that the chain passes before the next record.
#[derive(Debug)]
pub(crate) struct SkipLink {
    pub(crate) tag: u8,
    at: AtomicU32,
}

impl SkipLink {
    pub(crate) fn new(tag: u8, at: Location) -> Self {
        SkipLink { tag, at: AtomicU32::new(at) }
    }

    pub(crate) fn at(&self) -> Location {
        self.at.load(Acquire)
    }
}

/// The tag of a key with this hash.
pub(crate) fn tag(hash: u64) -> u8 {
    hash as u8
}

/// The content of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Value(Vec<u8>),
    Deleted,
    /// No version: the bucket is empty.
    EmptyBucket(u32),
}

/// Key and value in pages of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Payload {
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    pub(crate) pages: Vec<u32>,
}

impl Record {
    pub(crate) fn new(timestamp: u64, hash: u64, key: Vec<u8>, content: Content) -> Self {
        Record {
            timestamp,
            hash,
            key,
            content,
            expires_at: None,
            payload: None,
            marks: 0,
            since: 0,
            next: AtomicU32::new(NONE),
            prior: AtomicU32::new(NONE),
            skip_links: Vec::new(),
        }
    }

    /// The version that an operation creates.
    pub(crate) fn of(op: Op<'_>, timestamp: u64, hash: u64) -> Self {
        let key = op.key().to_vec();
        match op {
            Op::Delete { .. } => Record::new(timestamp, hash, key, Content::Deleted),
            Op::Put { value, expires_at, .. } => Record {
                expires_at,
                ..Record::new(timestamp, hash, key, Content::Value(value.to_vec()))
            },
        }
    }

    pub(crate) fn next(&self) -> Location {
        self.next.load(Acquire)
    }

    pub(crate) fn prior(&self) -> Location {
        self.prior.load(Acquire)
    }

    pub(crate) fn link(&self, next: Location, prior: Location) {
        self.next.store(next, Release);
        self.prior.store(prior, Release);
    }

    /// A copy of a record that may be shared.
    pub(crate) fn copied(&self) -> Record {
        let copy = Record {
            expires_at: self.expires_at,
            payload: self.payload.clone(),
            marks: self.marks,
            skip_links: self.skip_links.iter().map(|it| SkipLink::new(it.tag, it.at())).collect(),
            ..Record::new(self.timestamp, self.hash, self.key.clone(), self.content.clone())
        };
        copy.link(self.next(), self.prior());
        copy
    }

    /// Updates the links to records that were programmed.
    pub(crate) fn resolve(&self, placement: &Placement) {
        self.link(placement.resolve(self.next()), placement.resolve(self.prior()));
        for skip_link in &self.skip_links {
            skip_link.at.store(placement.resolve(skip_link.at()), Release);
        }
    }

    /// Reduces the version to a hash tombstone, which hides older versions of its hash.
    pub(crate) fn tombstone(&mut self) {
        self.key = Vec::new();
        self.content = Content::Deleted;
        self.expires_at = None;
        self.payload = Some(Payload { key_bytes: 0, value_bytes: 0, pages: Vec::new() });
    }

    pub(crate) fn is_tombstoned(&self) -> bool {
        self.payload.as_ref().is_some_and(|payload| payload.pages.is_empty())
    }

    /// Whether the key is loaded, or is not in pages.
    pub(crate) fn has_key(&self) -> bool {
        self.payload.as_ref().is_none_or(|payload| self.key.len() == payload.key_bytes)
    }

    pub(crate) fn is_marked(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    /// The entry that is visible to a reader at this time.
    pub(crate) fn into_entry(self, now: Timestamp) -> Option<Entry> {
        match self.content {
            Content::Value(value) => {
                Some(Entry { value, expires_at: self.expires_at }).filter(|e| !e.is_expired(now))
            }
            _ => None,
        }
    }

    /// Whether the version is a deletion, or has expired at this time.
    pub(crate) fn is_gone(&self, now: Timestamp) -> bool {
        !matches!(self.content, Content::Value(_)) || self.expires_at.is_some_and(|at| at <= now)
    }

    /// Whether the version is a value that has expired at this time.
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        matches!(self.content, Content::Value(_)) && self.expires_at.is_some_and(|at| at <= now)
    }

    /// Bytes of the record in a page.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let varint = |n: usize| (n.max(1).ilog2() / 7 + 1) as usize;
        let fixed = 17 + if self.expires_at.is_some() { 8 } else { 0 };
        let fixed = fixed + if begins_relocated(self.marks) { SINCE_BYTES } else { 0 };
        let fixed = fixed + skip_links_bytes(self.skip_links.len());
        fixed
            + match (&self.content, &self.payload) {
                (Content::EmptyBucket(_), _) => 4,
                (_, Some(Payload { key_bytes, value_bytes, pages })) => {
                    let lengths = varint(*key_bytes) + varint(*value_bytes);
                    8 + lengths + varint(pages.len()) + 4 * pages.len()
                }
                (content, None) => {
                    let value = if let Content::Value(value) = content { value.len() } else { 0 };
                    varint(self.key.len()) + varint(value) + self.key.len() + value
                }
            }
    }

    /// Bytes of a copy as the first record of a relocated group, without skip links.
    pub(crate) fn copied_bytes(&self) -> usize {
        let since = if begins_relocated(self.marks) { 0 } else { SINCE_BYTES };
        self.encoded_bytes() + since - skip_links_bytes(self.skip_links.len())
    }

    /// Bytes of the record in its page, and of its key and value in payload pages.
    pub(crate) fn total_bytes(&self) -> u64 {
        let payload = self.payload.as_ref().map_or(0, |it| it.key_bytes + it.value_bytes);
        (self.encoded_bytes() + payload) as u64
    }

    /// Encodes the record with these marks, and with links to the programmed records.
    pub(crate) fn encode(&self, marks: u8, placement: &Placement, out: &mut Vec<u8>) {
        let (next, prior) = (placement.resolve(self.next()), placement.resolve(self.prior()));
        let mut flags = marks;
        flags |= match self.content {
            Content::Value(_) => 0,
            Content::Deleted => DELETED,
            Content::EmptyBucket(_) => EMPTY,
        };
        flags |= if self.expires_at.is_some() { EXPIRES } else { 0 };
        flags |= if self.payload.is_some() { IN_PAGES } else { 0 };
        flags |= if self.skip_links.is_empty() { 0 } else { SKIP_LINKS };
        out.push(flags);
        out.extend_from_slice(&self.timestamp.to_le_bytes());
        out.extend_from_slice(&next.to_le_bytes());
        out.extend_from_slice(&prior.to_le_bytes());
        if let Some(at) = self.expires_at {
            out.extend_from_slice(&at.to_le_bytes());
        }
        if begins_relocated(marks) {
            out.extend_from_slice(&self.since.to_le_bytes());
        }
        if !self.skip_links.is_empty() {
            out.push(self.skip_links.len() as u8);
        }
        for skip_link in &self.skip_links {
            out.push(skip_link.tag);
            out.extend_from_slice(&placement.resolve(skip_link.at()).to_le_bytes());
        }
        match (&self.content, &self.payload) {
            (Content::EmptyBucket(bucket), _) => out.extend_from_slice(&bucket.to_le_bytes()),
            (_, Some(Payload { key_bytes, value_bytes, pages })) => {
                out.extend_from_slice(&self.hash.to_le_bytes());
                write_varint(out, *key_bytes as u64);
                write_varint(out, *value_bytes as u64);
                write_varint(out, pages.len() as u64);
                pages.iter().for_each(|page| out.extend_from_slice(&page.to_le_bytes()));
            }
            (content, None) => {
                let value: &[u8] = if let Content::Value(value) = content { value } else { &[] };
                write_varint(out, self.key.len() as u64);
                write_varint(out, value.len() as u64);
                out.extend_from_slice(&self.key);
                out.extend_from_slice(value);
            }
        }
    }

    /// Decodes the record at the start of `bytes`, and its length; `None` if it is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut reader = Reader { bytes, at: 0 };
        let flags = reader.take(1)?[0];
        let timestamp = u64_at(reader.take(8)?, 0);
        let (next, prior) = (reader.u32()?, reader.u32()?);
        let expires_at = match flags & EXPIRES {
            0 => None,
            _ => Some(u64_at(reader.take(8)?, 0)),
        };
        let since = match begins_relocated(flags) {
            false => 0,
            true => u64_at(reader.take(8)?, 0),
        };
        let mut skip_links = Vec::new();
        if flags & SKIP_LINKS != 0 {
            for _ in 0..reader.take(1)?[0] {
                let tag = reader.take(1)?[0];
                skip_links.push(SkipLink::new(tag, reader.u32()?));
            }
        }
        let content = |value: &[u8]| match flags & DELETED {
            0 => Content::Value(value.to_vec()),
            _ => Content::Deleted,
        };
        let mut record = if flags & EMPTY != 0 {
            Record::new(timestamp, 0, Vec::new(), Content::EmptyBucket(reader.u32()?))
        } else if flags & IN_PAGES != 0 {
            let hash = u64_at(reader.take(8)?, 0);
            let (key_bytes, value_bytes) = (reader.varint()?, reader.varint()?);
            let count = reader.varint()?;
            let pages = reader.take(count.checked_mul(4)?)?;
            let pages = pages.chunks_exact(4).map(|page| u32_at(page, 0)).collect();
            let payload = Some(Payload { key_bytes, value_bytes, pages });
            Record { payload, ..Record::new(timestamp, hash, Vec::new(), content(&[])) }
        } else {
            let (key, value) = (reader.varint()?, reader.varint()?);
            let (key, value) = (reader.take(key)?, reader.take(value)?);
            let hash = crate::keys::hash(key);
            Record::new(timestamp, hash, key.to_vec(), content(value))
        };
        record.expires_at = expires_at;
        record.since = since;
        record.skip_links = skip_links;
        record.marks = flags & (FIRST | LAST | RELOCATED);
        record.link(next, prior);
        Some((record, reader.at))
    }
}

/// Bytes of `count` skip links.
pub(crate) fn skip_links_bytes(count: usize) -> usize {
    if count == 0 { 0 } else { 1 + SKIP_LINK_BYTES * count }
}

fn begins_relocated(marks: u8) -> bool {
    marks & (FIRST | RELOCATED) == FIRST | RELOCATED
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32_at(bytes, 0))
    }

    fn varint(&mut self) -> Option<usize> {
        let (value, used) = read_varint(self.bytes.get(self.at..)?)?;
        self.at += used;
        usize::try_from(value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_truncated_ones_are_rejected() {
        let key = b"key".to_vec();
        let plain =
            Record::new(7, crate::keys::hash(b"key"), key.clone(), Content::Value(vec![1; 300]));
        let gone =
            Record { marks: FIRST | LAST, ..Record::new(8, 0, key.clone(), Content::Deleted) };
        let until = Record {
            expires_at: Some(99),
            ..Record::new(9, 0, key.clone(), Content::Value(Vec::new()))
        };
        let payload = Payload { key_bytes: 3, value_bytes: 9000, pages: vec![7, 9, 1 << 28] };
        let large = Record {
            payload: Some(payload),
            ..Record::new(10, 55, Vec::new(), Content::Value(Vec::new()))
        };
        let empty = Record {
            marks: FIRST | LAST | RELOCATED,
            since: 1 << 40,
            ..Record::new(11, 0, Vec::new(), Content::EmptyBucket(77))
        };
        let linked = Record {
            skip_links: vec![SkipLink::new(4, 40), SkipLink::new(5, 1 << 30)],
            ..Record::new(12, 0, key.clone(), Content::Value(vec![2; 30]))
        };
        let payload = Payload { key_bytes: 0, value_bytes: 9000, pages: vec![7, 9, 1 << 28] };
        let nameless = Record {
            payload: Some(payload),
            ..Record::new(14, 57, Vec::new(), Content::Value(Vec::new()))
        };
        assert!(!nameless.is_tombstoned() && nameless.has_key() && !large.has_key());
        let mut tombstoned = Record {
            expires_at: Some(98),
            payload: large.payload.clone(),
            ..Record::new(13, 56, key.clone(), Content::Value(Vec::new()))
        };
        assert!(!tombstoned.is_tombstoned());
        tombstoned.tombstone();
        assert!(tombstoned.is_tombstoned() && tombstoned.is_gone(0));
        for record in [plain, gone, until, large, empty, linked, nameless, tombstoned] {
            let mut bytes = Vec::new();
            record.link(5, 6);
            record.encode(record.marks, &Placement::default(), &mut bytes);
            assert_eq!(bytes.len(), record.encoded_bytes(), "{record:?}");
            for cut in 0..bytes.len() {
                assert!(Record::decode(&bytes[..cut]).is_none(), "{record:?} cut at {cut}");
            }
            let (back, length) = Record::decode(&bytes).unwrap();
            assert_eq!(length, bytes.len());
            assert_eq!((back.next(), back.prior(), back.timestamp), (5, 6, record.timestamp));
            assert!(back.payload.is_none() || back.hash == record.hash);
            assert_eq!((&back.key, &back.content), (&record.key, &record.content));
            assert_eq!((&back.payload, back.expires_at), (&record.payload, record.expires_at));
            assert_eq!((back.marks, back.since), (record.marks, record.since));
            let skip_links = |record: &Record| -> Vec<_> {
                record.skip_links.iter().map(|skip_link| (skip_link.tag, skip_link.at())).collect()
            };
            assert_eq!(skip_links(&back), skip_links(&record));
        }
    }
}
