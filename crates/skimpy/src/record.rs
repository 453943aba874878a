//! A version of a key, as it lies in a page.
//!
//! ```text
//!   flags      u8: 1 deleted, 2 expires, 4 payload in pages, 8 first of a group, 16 last of a group,
//!                  32 remapped by collection, 64 the bucket is empty, 128 detours
//!   timestamp  u64
//!   next       u32, the next record of the bucket's chain
//!   prior      u32, the version of the key before this one
//!   [expiry    u64, milliseconds since 1970]
//!   [since     u64, if first of a group that was remapped: the page of the log that was next then]
//!   [detours   count u8, then of each: tag u8, place u32]
//!   inline:           key length (varint), value length (varint), key, value
//!   payload in pages: hash of the key (u64), key length, value length, number of pages (varints),
//!                     pages (u32 each)
//!   empty bucket:     bucket (u32)
//! ```
//!
//! A version that is *buried* has flags 1 and 4 and lengths 0, and no page: of its key there is the hash alone. It
//! stands for a version that nobody sees any more, and hides older ones of the hash (see `versions`).
//!
//! All numbers are little-endian. A *group* is what happens whole or not at all: the operations of a batch,
//! or of several that were sorted together (`pending`), or what collection keeps of a bucket; its records
//! lie one behind the other in the log.
//!
//! A *detour* is another key's version that the chain passes before `next`; its tag is the low byte of its
//! key's hash (see `chains::walk`).
//!
//! Source: SkimpyFTL, section 3.1; groups, expiry, payload and detours are ours.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use siltstone_engine::batch::{read_varint, write_varint};
use siltstone_engine::{Entry, Op, Timestamp};

use crate::location::{Location, NONE};
use crate::page::{u32_at, u64_at};
use crate::pending::Placed;

const DELETED: u8 = 1;
const EXPIRES: u8 = 2;
const IN_PAGES: u8 = 4;
pub(crate) const FIRST: u8 = 8;
pub(crate) const LAST: u8 = 16;
pub(crate) const REMAPPED: u8 = 32;
const EMPTY: u8 = 64;
const DETOURS: u8 = 128;
/// Detours that a record has at most: more keys than five a bucket are seldom put between two collections.
pub(crate) const MOST_DETOURS: usize = 5;
const DETOUR_BYTES: usize = 5;
/// What a record takes more as the first of a group that is remapped.
pub(crate) const SINCE_BYTES: usize = 8;

/// A version of a key.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) timestamp: u64,
    pub(crate) hash: u64,
    /// Empty until it was loaded, if the payload is in pages.
    pub(crate) key: Vec<u8>,
    pub(crate) content: Content,
    pub(crate) expires_at: Option<Timestamp>,
    /// The payload, if it does not lie in the record.
    pub(crate) payload: Option<Payload>,
    /// `FIRST`, `LAST` and `REMAPPED`.
    pub(crate) marks: u8,
    /// Of the first of a group that is remapped: the number of the page that was next.
    pub(crate) since: u64,
    pub(crate) next: AtomicU32,
    pub(crate) prior: AtomicU32,
    /// The newest first.
    pub(crate) detours: Vec<Detour>,
}

/// Another key's version that the chain passes before the next.
#[derive(Debug)]
pub(crate) struct Detour {
    pub(crate) tag: u8,
    at: AtomicU32,
}

impl Detour {
    pub(crate) fn new(tag: u8, at: Location) -> Self {
        Detour { tag, at: AtomicU32::new(at) }
    }

    pub(crate) fn at(&self) -> Location {
        self.at.load(Acquire)
    }
}

/// The tag of a key with this hash.
pub(crate) fn tag(hash: u64) -> u8 {
    hash as u8
}

/// What the key maps to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Value(Vec<u8>),
    Deleted,
    /// No version at all, but that a bucket holds none any more.
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
            detours: Vec::new(),
        }
    }

    /// The version that an operation makes.
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

    /// Lets the links follow records that were placed.
    pub(crate) fn resolve(&self, placed: &Placed) {
        self.link(placed.resolve(self.next()), placed.resolve(self.prior()));
        for detour in &self.detours {
            detour.at.store(placed.resolve(detour.at()), Release);
        }
    }

    /// Leaves no more of it than what hides older versions of its hash.
    pub(crate) fn bury(&mut self) {
        self.key = Vec::new();
        self.content = Content::Deleted;
        self.expires_at = None;
        self.payload = Some(Payload { key_bytes: 0, value_bytes: 0, pages: Vec::new() });
    }

    pub(crate) fn is_buried(&self) -> bool {
        // No key is empty.
        self.payload.as_ref().is_some_and(|payload| payload.key_bytes == 0)
    }

    pub(crate) fn is_marked(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    /// The entry, as a reader sees it at this time.
    pub(crate) fn into_entry(self, now: Timestamp) -> Option<Entry> {
        match self.content {
            Content::Value(value) => {
                Some(Entry { value, expires_at: self.expires_at }).filter(|e| !e.is_expired(now))
            }
            _ => None,
        }
    }

    /// Whether no reader sees the version as an entry at this time or later.
    pub(crate) fn is_gone(&self, now: Timestamp) -> bool {
        !matches!(self.content, Content::Value(_)) || self.expires_at.is_some_and(|at| at <= now)
    }

    /// Bytes that it takes in a page.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let varint = |n: usize| (n.max(1).ilog2() / 7 + 1) as usize;
        let fixed = 17 + if self.expires_at.is_some() { 8 } else { 0 };
        let fixed = fixed + if begins_remapped(self.marks) { SINCE_BYTES } else { 0 };
        let fixed = fixed + detours_bytes(self.detours.len());
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

    /// Bytes that a copy takes in a page as the first of a group, without detours.
    pub(crate) fn copied_bytes(&self) -> usize {
        let since = if begins_remapped(self.marks) { 0 } else { SINCE_BYTES };
        self.encoded_bytes() + since - detours_bytes(self.detours.len())
    }

    /// Bytes that it takes in pages, its payload's too.
    pub(crate) fn total_bytes(&self) -> u64 {
        let payload = self.payload.as_ref().map_or(0, |it| it.key_bytes + it.value_bytes);
        (self.encoded_bytes() + payload) as u64
    }

    /// Writes it as it lies in a page, under these marks, with links to what is placed now.
    pub(crate) fn encode(&self, marks: u8, placed: &Placed, out: &mut Vec<u8>) {
        let (next, prior) = (placed.resolve(self.next()), placed.resolve(self.prior()));
        let mut flags = marks;
        flags |= match self.content {
            Content::Value(_) => 0,
            Content::Deleted => DELETED,
            Content::EmptyBucket(_) => EMPTY,
        };
        flags |= if self.expires_at.is_some() { EXPIRES } else { 0 };
        flags |= if self.payload.is_some() { IN_PAGES } else { 0 };
        flags |= if self.detours.is_empty() { 0 } else { DETOURS };
        out.push(flags);
        out.extend_from_slice(&self.timestamp.to_le_bytes());
        out.extend_from_slice(&next.to_le_bytes());
        out.extend_from_slice(&prior.to_le_bytes());
        if let Some(at) = self.expires_at {
            out.extend_from_slice(&at.to_le_bytes());
        }
        if begins_remapped(marks) {
            out.extend_from_slice(&self.since.to_le_bytes());
        }
        if !self.detours.is_empty() {
            out.push(self.detours.len() as u8);
        }
        for detour in &self.detours {
            out.push(detour.tag);
            out.extend_from_slice(&placed.resolve(detour.at()).to_le_bytes());
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

    /// The record at the start of `bytes` and its length; `None` if it is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut reader = Reader { bytes, at: 0 };
        let flags = reader.take(1)?[0];
        let timestamp = u64_at(reader.take(8)?, 0);
        let (next, prior) = (reader.u32()?, reader.u32()?);
        let expires_at = match flags & EXPIRES {
            0 => None,
            _ => Some(u64_at(reader.take(8)?, 0)),
        };
        let since = match begins_remapped(flags) {
            false => 0,
            true => u64_at(reader.take(8)?, 0),
        };
        let mut detours = Vec::new();
        if flags & DETOURS != 0 {
            for _ in 0..reader.take(1)?[0] {
                let tag = reader.take(1)?[0];
                detours.push(Detour::new(tag, reader.u32()?));
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
        record.detours = detours;
        record.marks = flags & (FIRST | LAST | REMAPPED);
        record.link(next, prior);
        Some((record, reader.at))
    }
}

/// Bytes that so many detours take.
pub(crate) fn detours_bytes(count: usize) -> usize {
    if count == 0 { 0 } else { 1 + DETOUR_BYTES * count }
}

fn begins_remapped(marks: u8) -> bool {
    marks & (FIRST | REMAPPED) == FIRST | REMAPPED
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
    fn records_come_back_as_they_were_and_none_from_what_is_cut_short() {
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
            marks: FIRST | LAST | REMAPPED,
            since: 1 << 40,
            ..Record::new(11, 0, Vec::new(), Content::EmptyBucket(77))
        };
        let aside = Record {
            detours: vec![Detour::new(4, 40), Detour::new(5, 1 << 30)],
            ..Record::new(12, 0, key.clone(), Content::Value(vec![2; 30]))
        };
        let mut buried = Record {
            expires_at: Some(98),
            payload: large.payload.clone(),
            ..Record::new(13, 56, key.clone(), Content::Value(Vec::new()))
        };
        assert!(!buried.is_buried());
        buried.bury();
        assert!(buried.is_buried() && buried.is_gone(0));
        for record in [plain, gone, until, large, empty, aside, buried] {
            let mut bytes = Vec::new();
            record.link(5, 6);
            record.encode(record.marks, &Placed::default(), &mut bytes);
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
            let detours = |record: &Record| -> Vec<_> {
                record.detours.iter().map(|detour| (detour.tag, detour.at())).collect()
            };
            assert_eq!(detours(&back), detours(&record));
        }
    }
}
