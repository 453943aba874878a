//! A segment of the archive: the changes of all tables between two moments of a store.
//!
//! ```text
// ANCHOR: layout
//!     0   8  "SILTARCH"
//!     8   2  version: 1
//!    10   2  flags: 1 = ends with a mark, 2 = the body is encrypted
//!    12   4  zero
//!    16   8  number, from 1
//!    24   8  since: the last moment before, in ms since 1970, at which nothing in it had happened
//!    32   8  until: the moment of the mark, in ms since 1970
//!    40   8  length of the content
//!    48  32  BLAKE3 of the segment before, as it states it; zeros in the first segment
//!    80   …  body: the content as a zstd frame, or that as a file encrypted with the store's key
//!   end-32   BLAKE3 of everything before
//!
//!   content   length:u32  state:JSON  change*
//!   state     {"tables":[{"name":…,"engine":…,"options":{…},"merge_operator":…,
//!              "feed":{"id":…,"sequence":…}},…],"places":{…}}       of the store behind the segment
//!   change    0:u8  table:u64  first sequence:varint  operations:varint  length:varint  operation*
//!             1:u8  table:u64  sequence:varint                               every key was removed
// ANCHOR_END: layout
//! ```
//!
//! Integers are little-endian; operations are in the log form of batches. The changes of a table
//! are in the order of their sequence numbers; those of different tables in any order. A segment
//! with a mark ends at one moment of the whole store. One without a mark is a piece of the next
//! segment with one, so that no segment is large; the sequence numbers in its state say how far it
//! goes. A reader refuses newer versions. The hash is verified without a key.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use siltstone::catalogue::TableSpec;
use siltstone::encryption::Keys;
use siltstone::{Error, Result, StorePosition, TablePosition, Timestamp, WriteBatch};
use siltstone_engine::Purpose;
use siltstone_engine::varint::{read_varint, write_varint};
use siltstone_vfs::{Mode, Ram, Vfs};

pub(crate) use blake3::Hash;

const MAGIC: &[u8; 8] = b"SILTARCH";
const VERSION: u16 = 1;
const FLAG_MARK: u16 = 1;
const FLAG_ENCRYPTED: u16 = 2;
const HEADER_BYTES: usize = 80;
const HASH_BYTES: usize = 32;
const KIND_WRITE: u8 = 0;
const KIND_CLEARED: u8 = 1;
/// The level of zstd: the fastest.
const ZSTD_LEVEL: i32 = 1;
/// The name of the file whose encrypted form is a body.
const BODY: &str = "segment";

/// The hash before the first segment.
pub(crate) const NO_SEGMENT: Hash = Hash::from_bytes([0; HASH_BYTES]);

/// The header of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) number: u64,
    pub(crate) is_mark: bool,
    pub(crate) since: Timestamp,
    pub(crate) until: Timestamp,
    /// The hash of the segment before.
    pub(crate) previous: Hash,
}

/// The tables of a store at a mark.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArchivedState {
    pub(crate) tables: Vec<ArchivedTable>,
    pub(crate) places: BTreeMap<String, String>,
}

/// A table at a mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArchivedTable {
    pub(crate) name: String,
    pub(crate) engine: String,
    pub(crate) options: BTreeMap<String, String>,
    /// The name of its merge operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) merge_operator: Option<String>,
    /// `None` if its engine has no change feed.
    pub(crate) feed: Option<ArchivedFeed>,
}

/// The position in the changes of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArchivedFeed {
    pub(crate) id: u64,
    pub(crate) sequence: u64,
}

impl ArchivedState {
    pub(crate) fn of(position: &StorePosition) -> Self {
        let tables = position.tables.iter().map(|(name, table)| {
            let TablePosition { spec, merge_operator, feed } = table.clone();
            let feed = feed.map(|feed| ArchivedFeed { id: feed.id, sequence: feed.sequence });
            let TableSpec { engine, options } = spec;
            ArchivedTable { name: name.clone(), engine, options, merge_operator, feed }
        });
        ArchivedState { tables: tables.collect(), places: position.places.clone() }
    }

    /// The position of the table `id`.
    pub(crate) fn sequence(&self, id: u64) -> Option<u64> {
        self.feeds().find(|(_, feed)| feed.id == id).map(|(_, feed)| feed.sequence)
    }

    /// The tables with a change feed.
    pub(crate) fn feeds(&self) -> impl Iterator<Item = (&ArchivedTable, ArchivedFeed)> {
        self.tables.iter().filter_map(|table| Some((table, table.feed?)))
    }

    /// Replaces the position of the table `id`.
    pub(crate) fn set_sequence(&mut self, id: u64, sequence: u64) {
        let feeds = self.tables.iter_mut().filter_map(|table| table.feed.as_mut());
        feeds.filter(|feed| feed.id == id).for_each(|feed| feed.sequence = sequence);
    }
}

/// A change in a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ArchivedChange {
    /// A batch with its first sequence number.
    Write { table: u64, first: u64, batch: WriteBatch },
    /// Every key of the table was removed.
    Cleared { table: u64, sequence: u64 },
}

/// Changes in their encoded form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes(Vec<u8>);

impl Changes {
    /// Bytes in memory.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn push_write(&mut self, table: u64, first: u64, batch: &WriteBatch) {
        self.0.push(KIND_WRITE);
        self.0.extend_from_slice(&table.to_le_bytes());
        for number in [first, batch.len() as u64, batch.as_bytes().len() as u64] {
            write_varint(&mut self.0, number);
        }
        self.0.extend_from_slice(batch.as_bytes());
    }

    pub(crate) fn push_cleared(&mut self, table: u64, sequence: u64) {
        self.0.push(KIND_CLEARED);
        self.0.extend_from_slice(&table.to_le_bytes());
        write_varint(&mut self.0, sequence);
    }

    /// The changes. An error is what is malformed, and the last item.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<ArchivedChange, String>> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            Some(take_change(&mut rest).inspect_err(|_| rest = &[]))
        })
    }
}

fn take_change(rest: &mut &[u8]) -> Result<ArchivedChange, String> {
    let cut_off = || "a change is cut off".to_owned();
    let kind = take(rest, 1).ok_or_else(cut_off)?[0];
    let table = take(rest, 8).and_then(|bytes| bytes.try_into().ok()).ok_or_else(cut_off)?;
    let table = u64::from_le_bytes(table);
    let first = take_varint(rest).ok_or_else(cut_off)?;
    match kind {
        KIND_CLEARED => Ok(ArchivedChange::Cleared { table, sequence: first }),
        KIND_WRITE => {
            let count = take_varint(rest).and_then(|count| u32::try_from(count).ok());
            let count = count.ok_or_else(cut_off)?;
            let length = take_varint(rest).and_then(|length| usize::try_from(length).ok());
            let bytes = length.and_then(|length| take(rest, length)).ok_or_else(cut_off)?;
            let batch = WriteBatch::from_bytes_with_merges(bytes, count)?;
            Ok(ArchivedChange::Write { table, first, batch })
        }
        other => Err(format!("a change of the unknown kind {other}")),
    }
}

fn take<'b>(rest: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let (value, used) = read_varint(rest)?;
    *rest = &rest[used..];
    Some(value)
}

/// A decoded segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) header: Header,
    pub(crate) state: ArchivedState,
    pub(crate) changes: Changes,
}

/// The bytes of a segment, and its hash. With keys it is encrypted.
pub(crate) fn encode(
    header: &Header,
    state: &ArchivedState,
    changes: &Changes,
    keys: &Keys,
) -> Result<(Vec<u8>, Hash)> {
    let state = serde_json::to_vec(state).map_err(|error| Error::Invalid(error.to_string()))?;
    let mut content = Vec::with_capacity(4 + state.len() + changes.len());
    content.extend_from_slice(&(state.len() as u32).to_le_bytes());
    content.extend_from_slice(&state);
    content.extend_from_slice(&changes.0);
    let mut body = zstd::bulk::compress(&content, ZSTD_LEVEL)
        .map_err(|error| Error::io("compress", BODY, &error))?;
    let mut flags = if header.is_mark { FLAG_MARK } else { 0 };
    if !keys.is_none() {
        flags |= FLAG_ENCRYPTED;
        body = encrypt(&body, keys)?;
    }
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len() + HASH_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&flags.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    for number in [header.number, header.since, header.until, content.len() as u64] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(header.previous.as_bytes());
    bytes.extend_from_slice(&body);
    let hash = blake3::hash(&bytes);
    bytes.extend_from_slice(hash.as_bytes());
    Ok((bytes, hash))
}

/// The verified parts of a segment's bytes.
struct Parts<'b> {
    header: Header,
    is_encrypted: bool,
    content_bytes: u64,
    body: &'b [u8],
    hash: Hash,
}

/// Compares the segment `name` with its hash. Returns its header and its hash.
///
/// # Errors
/// `Corruption`; `Invalid` for a newer version.
pub(crate) fn verify(name: &str, bytes: &[u8]) -> Result<(Header, Hash)> {
    split(name, bytes).map(|parts| (parts.header, parts.hash))
}

fn split<'b>(name: &str, bytes: &'b [u8]) -> Result<Parts<'b>> {
    let damaged = |reason: &str| Error::corruption(name, 0, reason);
    let end = bytes.len().checked_sub(HASH_BYTES).filter(|end| *end >= HEADER_BYTES);
    let end = end.ok_or_else(|| damaged("this segment is too short"))?;
    let hash = blake3::hash(&bytes[..end]);
    if hash.as_bytes() != &bytes[end..] {
        return Err(damaged("this segment is damaged"));
    }
    let (header, body) = bytes[..end].split_at(HEADER_BYTES);
    if header[..8] != *MAGIC {
        return Err(damaged("it is no segment of an archive"));
    }
    let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let long = |at: usize| header[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    let (version, flags) = (short(8), short(10));
    if version != VERSION || flags & !(FLAG_MARK | FLAG_ENCRYPTED) != 0 {
        return Err(Error::Invalid(format!(
            "{name} has version {version} with flags {flags}, and this program reads version \
             {VERSION}: use a newer program"
        )));
    }
    let mut previous = [0; HASH_BYTES];
    previous.copy_from_slice(&header[48..HEADER_BYTES]);
    let header = Header {
        number: long(16),
        is_mark: flags & FLAG_MARK != 0,
        since: long(24),
        until: long(32),
        previous: Hash::from_bytes(previous),
    };
    let is_encrypted = flags & FLAG_ENCRYPTED != 0;
    Ok(Parts { header, is_encrypted, content_bytes: long(40), body, hash })
}

/// Decodes the segment `name`. Returns its hash, too.
///
/// # Errors
/// `Corruption`; `Invalid` for a newer version; `Refused` if it is encrypted and there are no keys,
/// or not these.
pub(crate) fn decode(name: &str, bytes: &[u8], keys: &Keys) -> Result<(Segment, Hash)> {
    let damaged = |reason: &str| Error::corruption(name, 0, reason);
    let parts = split(name, bytes)?;
    let decrypted;
    let mut body = parts.body;
    if parts.is_encrypted {
        if keys.is_none() {
            let reason = "it is encrypted: give its key (DbOptions::encryption, or --key-file)";
            return Err(Error::Refused { path: name.to_owned(), reason: reason.to_owned() });
        }
        decrypted = decrypt(body, keys)?;
        body = &decrypted;
    }
    let capacity = usize::try_from(parts.content_bytes).map_err(|_| damaged("it is too long"))?;
    let content = zstd::bulk::decompress(body, capacity).map_err(|e| damaged(&e.to_string()))?;
    let mut rest = &content[..];
    let state = take(&mut rest, 4).and_then(|length| length.try_into().ok());
    let state = state.and_then(|length| take(&mut rest, u32::from_le_bytes(length) as usize));
    let state = state.ok_or_else(|| damaged("its state is cut off"))?;
    let state = serde_json::from_slice(state).map_err(|error| damaged(&error.to_string()))?;
    let changes = Changes(rest.to_vec());
    Ok((Segment { header: parts.header, state, changes }, parts.hash))
}

fn encrypt(body: &[u8], keys: &Keys) -> Result<Vec<u8>> {
    let ram: Arc<dyn Vfs> = Arc::new(Ram::new());
    let file = keys.wrap(ram.clone()).create(BODY)?;
    file.write_at(0, body, Purpose::Maintenance)?;
    file.sync(Purpose::Maintenance)?;
    drop(file);
    let file = ram.open(BODY, Mode::Read)?;
    let mut encrypted = vec![0; file.len()? as usize];
    file.read_at(0, &mut encrypted, Purpose::Maintenance)?;
    Ok(encrypted)
}

fn decrypt(body: &[u8], keys: &Keys) -> Result<Vec<u8>> {
    let ram: Arc<dyn Vfs> = Arc::new(Ram::new());
    ram.create(BODY)?.write_at(0, body, Purpose::Maintenance)?;
    let file = keys.wrap(ram).open(BODY, Mode::Read)?;
    let mut decrypted = vec![0; file.len()? as usize];
    file.read_at(0, &mut decrypted, Purpose::Maintenance)?;
    Ok(decrypted)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn sample() -> (Header, ArchivedState, Changes) {
        let header = Header {
            number: 7,
            is_mark: true,
            since: 1_795_671_000_000,
            until: 1_795_671_010_000,
            previous: blake3::hash(b"before"),
        };
        let table = ArchivedTable {
            name: "stock".into(),
            engine: "lsm".into(),
            options: [("memtable".to_owned(), "8MiB".to_owned())].into(),
            merge_operator: None,
            feed: Some(ArchivedFeed { id: 5, sequence: 12 }),
        };
        let state = ArchivedState { tables: vec![table], places: BTreeMap::new() };
        let mut changes = Changes::default();
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").delete(b"b").put_until(b"c", b"2", 77).merge(b"d", b"+");
        batch.delete_range::<&[u8]>(&b"e"[..]..).delete_range::<&[u8]>(..&b"b"[..]);
        changes.push_write(5, 6, &batch);
        changes.push_cleared(5, 12);
        (header, state, changes)
    }

    fn decoded(bytes: &[u8]) -> Result<(Segment, Hash)> {
        decode("s", bytes, &Keys::default())
    }

    #[test]
    fn segment_round_trips_with_every_kind_of_change() {
        let (header, state, changes) = sample();
        let (bytes, hash) = encode(&header, &state, &changes, &Keys::default()).unwrap();
        let (segment, found) = decoded(&bytes).unwrap();
        assert_eq!((&segment.header, &segment.state, found), (&header, &state, hash));
        assert_eq!(verify("s", &bytes).unwrap(), (header, hash));
        let changes: Vec<_> = segment.changes.iter().map(Result::unwrap).collect();
        let [ArchivedChange::Write { table: 5, first: 6, batch }, cleared] = &changes[..] else {
            panic!("{changes:?}")
        };
        assert_eq!((batch.len(), batch.range_deletions(), batch.merges()), (6, 2, 1));
        assert_eq!(*cleared, ArchivedChange::Cleared { table: 5, sequence: 12 });
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
        let (header, state, changes) = sample();
        let (bytes, _) = encode(&header, &state, &changes, &Keys::default()).unwrap();
        for at in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            assert!(decoded(&damaged).unwrap_err().is_corruption(), "bit {at}");
        }
        for length in 0..bytes.len() {
            assert!(decoded(&bytes[..length]).unwrap_err().is_corruption(), "{length}");
        }
    }

    #[test]
    fn newer_version_is_refused_by_number() {
        let (header, state, changes) = sample();
        let (mut bytes, _) = encode(&header, &state, &changes, &Keys::default()).unwrap();
        bytes[8] = 2;
        let end = bytes.len() - HASH_BYTES;
        let hash = blake3::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(hash.as_bytes());
        let error = decoded(&bytes).unwrap_err();
        assert!(error.to_string().contains("version 2"), "{error}");
    }

    #[test]
    fn malformed_changes_end_with_an_error() {
        let (_, _, changes) = sample();
        for length in 1..changes.len() {
            let cut = Changes(changes.0[..length].to_vec());
            let found: Vec<_> = cut.iter().collect();
            let whole = found.len() == 1 && found[0].is_ok();
            assert!(whole || found.last().unwrap().is_err(), "{length}");
        }
        assert!(Changes(vec![9; 20]).iter().next().unwrap().is_err());
    }
}
