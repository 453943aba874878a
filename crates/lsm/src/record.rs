//! The records of the write-ahead log. For positions in it see `log_position`.
//!
//! ```text
//! link     := 0:u8  …                             the first record: see siltstone_table::log
//! batch    := 1:u8  first sequence:varint  operations:varint  operation*
//! part     := 2:u8  the same                the batch continues in the next record
//! retained := 3:u8  operations:varint  sequence:varint*  operation*
//! ranges   := 4:u8  is_last:u8  first sequence:varint  operations:varint  operation*
//! merges   := 5:u8  the same
//! ingested := 6:u8  sequence:varint         files were ingested with this sequence number
//! cleared  := 7:u8  sequence:varint         every key was removed with this sequence number
//! ```
//!
//! The operations of a batch have consecutive sequence numbers. A large batch is divided into
//! parts, so that one operation can be read by its position without the whole batch. The parts are
//! adjacent in one log; without the last of them (a `batch`) none is valid. A batch with range
//! deletions consists of `ranges` instead, which versions before range deletions refuse, and one
//! with merges, with or without range deletions, of `merges`. Retained operations were written
//! before and are repeated so that an older log can be deleted (TRIAD-MEM); they keep their
//! sequence numbers. An `ingested` record is evidence: the manifest had durably named the files
//! before it was written, so a manifest without them has lost its end. Versions before ingestion
//! refuse it. A `cleared` record is the same for a removal of all keys, and is written if the log
//! is kept for a change feed.
//!
//! A reader rejects unknown kinds: skipping one could lose writes.

use siltstone_engine::batch::{self, all_operations};
use siltstone_engine::varint::{read_varint, write_varint};
use siltstone_engine::{BatchOp, Op, WriteBatch};
use siltstone_table::kind::check_sequence;
use siltstone_table::{KIND_LINK, MAX_SEQUENCE, SegmentLink};

pub(crate) use crate::log_position::Position;

const KIND_BATCH: u8 = 1;
const KIND_PART: u8 = 2;
const KIND_RETAINED: u8 = 3;
const KIND_RANGES: u8 = 4;
const KIND_MERGES: u8 = 5;
const KIND_INGESTED: u8 = 6;
const KIND_CLEARED: u8 = 7;

/// The maximum size of a part: the most that a lookup by position reads and checks, unless the
/// value is larger. A quarter of what a log caches together, so that most parts lie in one such
/// chunk.
pub(crate) const PART_BYTES: usize = 1 << 10;

/// The kinds of operations in a batch, which decide on its kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchKind {
    /// Puts and deletes.
    Points,
    /// Range deletions, too.
    Ranges,
    /// Any.
    Merges,
}

impl BatchKind {
    pub(crate) fn of(batch: &WriteBatch) -> Self {
        match (batch.merges(), batch.range_deletions()) {
            (0, 0) => BatchKind::Points,
            (0, _) => BatchKind::Ranges,
            _ => BatchKind::Merges,
        }
    }
}

/// Appends the header of a record of consecutive operations; `is_last` ends the batch.
pub(crate) fn push_header(
    out: &mut Vec<u8>,
    first_sequence: u64,
    operations: u32,
    is_last: bool,
    kind: BatchKind,
) {
    match (kind, is_last) {
        (BatchKind::Points, true) => out.push(KIND_BATCH),
        (BatchKind::Points, false) => out.push(KIND_PART),
        (BatchKind::Ranges, is_last) => out.extend_from_slice(&[KIND_RANGES, u8::from(is_last)]),
        (BatchKind::Merges, is_last) => out.extend_from_slice(&[KIND_MERGES, u8::from(is_last)]),
    }
    write_varint(out, first_sequence);
    write_varint(out, u64::from(operations));
}

/// The header of a record of retained operations.
pub(crate) fn retained_header(sequences: &[u64]) -> Vec<u8> {
    let mut out = vec![KIND_RETAINED];
    write_varint(&mut out, sequences.len() as u64);
    sequences.iter().for_each(|&sequence| write_varint(&mut out, sequence));
    out
}

/// The record of an ingestion.
pub(crate) fn ingested_record(sequence: u64) -> Vec<u8> {
    let mut out = vec![KIND_INGESTED];
    write_varint(&mut out, sequence);
    out
}

/// The record of a removal of all keys.
pub(crate) fn cleared_record(sequence: u64) -> Vec<u8> {
    let mut out = vec![KIND_CLEARED];
    write_varint(&mut out, sequence);
    out
}

/// A decoded log record.
pub(crate) enum Record {
    /// The number and the length of the previous log.
    Link(SegmentLink),
    /// Operations of one batch; `is_last`: the batch ends here.
    Batch {
        first_sequence: u64,
        batch: WriteBatch,
        is_last: bool,
    },
    Retained {
        sequences: Vec<u64>,
        batch: WriteBatch,
    },
    /// The sequence number of an ingestion that the manifest has.
    Ingested(u64),
    /// The sequence number of a removal of all keys that the manifest has.
    Cleared(u64),
}

impl Record {
    /// Parses a record; the error describes what is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Record, String> {
        match bytes.split_first() {
            Some((&KIND_LINK, _)) => SegmentLink::decode(bytes).map(Record::Link),
            Some((&kind @ (KIND_INGESTED | KIND_CLEARED), mut rest)) => {
                let sequence = check_sequence(take_varint(&mut rest)?)?;
                let is_whole = sequence > 0 && rest.is_empty();
                match (is_whole, kind) {
                    (false, _) => Err(out_of_range()),
                    (true, KIND_INGESTED) => Ok(Record::Ingested(sequence)),
                    (true, _) => Ok(Record::Cleared(sequence)),
                }
            }
            Some((&kind, _)) => {
                let header = Header::decode(bytes)?;
                let (count, is_last) = (header.count, header.is_last);
                let batch = match kind {
                    KIND_RANGES => WriteBatch::from_bytes_with_ranges(header.body, count)?,
                    KIND_MERGES => WriteBatch::from_bytes_with_merges(header.body, count)?,
                    _ => WriteBatch::from_bytes(header.body, count)?,
                };
                Ok(match header.sequences {
                    Sequences::From(first_sequence) => {
                        Record::Batch { first_sequence, batch, is_last }
                    }
                    Sequences::Each(mut bytes) => {
                        let mut next = || take_varint(&mut bytes);
                        let sequences = (0..count).map(|_| next()).collect::<Result<_, _>>()?;
                        Record::Retained { sequences, batch }
                    }
                })
            }
            None => Err("empty record".to_owned()),
        }
    }
}

/// The value that a record's first operation put under `key`, if the record is a valid batch and
/// this is operation `sequence`, without an expiry. Most records have one such operation; for all
/// others see [`find`].
#[inline]
pub(crate) fn first_put<'r>(record: &'r [u8], key: &[u8], sequence: u64) -> Option<&'r [u8]> {
    let (&(KIND_BATCH | KIND_PART), rest) = record.split_first()? else { return None };
    let (first, used) = read_varint(rest)?;
    let rest = rest.get(used..)?;
    let (count, used) = read_varint(rest)?;
    let is_valid = (1..=u64::from(u32::MAX)).contains(&count)
        && first.checked_add(count).is_some_and(|end| end <= MAX_SEQUENCE);
    if first != sequence || first == 0 || !is_valid {
        return None;
    }
    let (found, value) = batch::first_put(rest.get(used..)?)?;
    (found == key).then_some(value)
}

/// Finds the operation `sequence` of a record; parses only the operations before it.
pub(crate) fn find(record: &[u8], sequence: u64) -> Result<Op<'_>, String> {
    let header = Header::decode(record)?;
    let at = match header.sequences {
        Sequences::From(first) => sequence.checked_sub(first),
        Sequences::Each(mut bytes) => {
            let matches = |_: &u64| take_varint(&mut bytes) == Ok(sequence);
            (0..u64::from(header.count)).find(matches)
        }
    };
    let at = at.filter(|&at| at < u64::from(header.count));
    let at = at.ok_or_else(|| format!("the record does not hold operation {sequence}"))?;
    match all_operations(header.body).nth(at as usize) {
        Some(Ok(BatchOp::Point(op))) => Ok(op),
        Some(Ok(BatchOp::DeleteRange { .. })) => {
            Err(format!("operation {sequence} is a range deletion"))
        }
        Some(Ok(BatchOp::Merge { .. })) => Err(format!("operation {sequence} is a merge")),
        Some(Err(reason)) => Err(reason),
        None => Err("a record is cut off".into()),
    }
}

/// Appends to `out` a record that contains the operation `sequence` of `record`, and few or no
/// other operations; `false` if `record` lacks it. `scratch` is any batch, reused for its memory.
pub(crate) fn extract(
    record: &[u8],
    sequence: u64,
    scratch: &mut WriteBatch,
    out: &mut Vec<u8>,
) -> bool {
    let Ok(op) = find(record, sequence) else { return false };
    match Header::decode(record) {
        Ok(Header { count: 1, .. }) => out.extend_from_slice(record),
        _ => {
            scratch.clear();
            scratch.push(op);
            push_header(out, sequence, 1, true, BatchKind::Points);
            out.extend_from_slice(scratch.as_bytes());
        }
    }
    true
}

/// The part of a record before its operations.
struct Header<'a> {
    sequences: Sequences<'a>,
    count: u32,
    /// No part of the batch follows.
    is_last: bool,
    body: &'a [u8],
}

/// The sequence numbers of a record's operations.
enum Sequences<'a> {
    /// Consecutive, from this one.
    From(u64),
    /// One varint per operation, validated.
    Each(&'a [u8]),
}

impl<'a> Header<'a> {
    fn decode(bytes: &'a [u8]) -> Result<Self, String> {
        let (&kind, mut rest) = bytes.split_first().ok_or("empty record")?;
        match kind {
            KIND_BATCH | KIND_PART | KIND_RANGES | KIND_MERGES => {
                let is_last = match kind {
                    KIND_RANGES | KIND_MERGES => take_flag(&mut rest)?,
                    kind => kind == KIND_BATCH,
                };
                let first = take_varint(&mut rest)?;
                let count = take_count(&mut rest)?;
                let end = first.checked_add(u64::from(count));
                if first == 0 || end.is_none_or(|end| end > MAX_SEQUENCE) {
                    return Err(out_of_range());
                }
                Ok(Header { sequences: Sequences::From(first), count, is_last, body: rest })
            }
            KIND_RETAINED => {
                let count = take_count(&mut rest)?;
                let sequences = rest;
                for _ in 0..count {
                    if !(1..=MAX_SEQUENCE).contains(&take_varint(&mut rest)?) {
                        return Err(out_of_range());
                    }
                }
                Ok(Header {
                    sequences: Sequences::Each(sequences),
                    count,
                    is_last: true,
                    body: rest,
                })
            }
            _ => Err(format!("unknown kind of record {kind}: a newer version's?")),
        }
    }
}

fn out_of_range() -> String {
    "sequence number out of range".to_owned()
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let (value, used) = read_varint(bytes).ok_or("a record's header is cut off")?;
    *bytes = &bytes[used..];
    Ok(value)
}

fn take_flag(bytes: &mut &[u8]) -> Result<bool, String> {
    match bytes.split_first() {
        Some((flag @ (0 | 1), rest)) => {
            *bytes = rest;
            Ok(*flag == 1)
        }
        _ => Err("a record's header is malformed".to_owned()),
    }
}

fn take_count(bytes: &mut &[u8]) -> Result<u32, String> {
    match u32::try_from(take_varint(bytes)?) {
        Ok(0) => Err("a record of no operations".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err("too many operations".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch_of(n: u8) -> WriteBatch {
        let mut batch = WriteBatch::new();
        (0..n).for_each(|i| {
            batch.put(&[b'k', i], &[i; 5]);
        });
        batch
    }

    #[test]
    fn operation_is_found_by_its_sequence_number() {
        let batch = batch_of(9);
        let mut consecutive = Vec::new();
        push_header(&mut consecutive, 100, 9, true, BatchKind::Points);
        consecutive.extend_from_slice(batch.as_bytes());
        let scattered: Vec<u64> = (0..9).map(|i| i * i * 1000 + 7).collect();
        let mut retained = retained_header(&scattered);
        retained.extend_from_slice(batch.as_bytes());
        for (i, op) in batch.iter().enumerate() {
            assert_eq!(find(&consecutive, 100 + i as u64), Ok(op));
            assert_eq!(find(&retained, scattered[i]), Ok(op));
            for (record, sequence) in [(&consecutive, 100 + i as u64), (&retained, scattered[i])] {
                let mut single = Vec::new();
                assert!(extract(record, sequence, &mut batch.clone(), &mut single));
                assert_eq!(find(&single, sequence), Ok(op));
                assert!(single.len() < 30);
            }
        }
        for absent in [99, 109, u64::MAX] {
            assert!(find(&consecutive, absent).is_err());
            assert!(find(&retained, absent).is_err());
            assert!(!extract(&retained, absent, &mut WriteBatch::new(), &mut Vec::new()));
        }
        let Ok(Record::Retained { sequences, batch: decoded }) = Record::decode(&retained) else {
            panic!("not read back");
        };
        assert_eq!((sequences, decoded), (scattered, batch));
    }

    #[test]
    fn range_deletions_are_read_back_from_their_kind_of_record_alone() {
        let mut batch = batch_of(1);
        batch.delete_range("a".."b").put(b"z", b"1");
        for is_last in [false, true] {
            let mut record = Vec::new();
            push_header(&mut record, 7, 3, is_last, BatchKind::Ranges);
            record.extend_from_slice(batch.as_bytes());
            let Ok(Record::Batch { first_sequence: 7, batch: decoded, is_last: last }) =
                Record::decode(&record)
            else {
                panic!("not read back")
            };
            assert_eq!((decoded, last), (batch.clone(), is_last));
            assert_eq!(find(&record, 9).map(|op| op.key()), Ok(&b"z"[..]));
            assert!(find(&record, 8).is_err(), "a range deletion has no value");
        }
        let mut plain = Vec::new();
        push_header(&mut plain, 7, 3, true, BatchKind::Points);
        plain.extend_from_slice(batch.as_bytes());
        assert!(Record::decode(&plain).is_err());
    }

    #[test]
    fn merges_are_read_back_from_their_kind_of_record_alone() {
        let mut batch = batch_of(1);
        batch.merge(b"m", b"+1").delete_range("a".."b").put(b"z", b"1");
        assert_eq!(BatchKind::of(&batch), BatchKind::Merges);
        for is_last in [false, true] {
            let mut record = Vec::new();
            push_header(&mut record, 7, 4, is_last, BatchKind::Merges);
            record.extend_from_slice(batch.as_bytes());
            let Ok(Record::Batch { first_sequence: 7, batch: decoded, is_last: last }) =
                Record::decode(&record)
            else {
                panic!("not read back")
            };
            assert_eq!((decoded, last), (batch.clone(), is_last));
            assert_eq!(find(&record, 10).map(|op| op.key()), Ok(&b"z"[..]));
            assert!(find(&record, 8).is_err(), "an operand is no value");
        }
        for kind in [BatchKind::Points, BatchKind::Ranges] {
            let mut other = Vec::new();
            push_header(&mut other, 7, 4, true, kind);
            other.extend_from_slice(batch.as_bytes());
            assert!(Record::decode(&other).is_err());
        }
    }

    #[test]
    fn malformed_records_are_rejected_or_harmless() {
        let mut retained = retained_header(&[1, 2, 1 << 40]);
        retained.extend_from_slice(batch_of(3).as_bytes());
        let mut part = Vec::new();
        push_header(&mut part, 5, 3, false, BatchKind::Points);
        part.extend_from_slice(batch_of(3).as_bytes());
        let (mut ranges, mut batch) = (Vec::new(), batch_of(2));
        push_header(&mut ranges, 5, 3, false, BatchKind::Ranges);
        ranges.extend_from_slice(batch.delete_range("a".."b").as_bytes());
        let mut merges = Vec::new();
        push_header(&mut merges, 5, 3, true, BatchKind::Merges);
        merges.extend_from_slice(batch_of(2).merge(b"m", b"1").as_bytes());
        for good in
            [retained, part, ranges, merges, SegmentLink { number: 3, bytes: 4 }.encode().to_vec()]
        {
            assert!(Record::decode(&good).is_ok());
            for at in 0..good.len() {
                let _ = Record::decode(&good[..at]);
                let _ = find(&good[..at], 6);
                for value in [0, 0x7f, 0x80, 0xff] {
                    let mut bad = good.clone();
                    bad[at] = value;
                    let _ = Record::decode(&bad);
                    let _ = find(&bad, 6);
                }
            }
        }
        assert!(Record::decode(&[]).is_err());
        assert!(Record::decode(&[9]).is_err());
    }
}
