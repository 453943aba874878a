//! The records of the log.
//!
//! ```text
//! chain  := 0:u8  previous log:u64 LE  its length:u64 LE       the first record; 0, 0: none before
//! last   := 1:u8  operation                                    it ends a batch
//! part   := 2:u8  operation                                    more of the same batch follows
//! ```
//!
//! An operation (`siltstone_engine::batch`) has a record of its own, so that its position is all that
//! a LogStore needs to read it and nothing else. Without its last record none of a batch counts.
//!
//! A reader refuses kinds that it does not know: to skip one would lose writes.
//!
//! Source: ours.

use siltstone_engine::Op;

use crate::item;

const KIND_CHAIN: u8 = 0;
const KIND_LAST: u8 = 1;
const KIND_PART: u8 = 2;

/// What stands before the operation in a record.
pub(crate) const HEAD: usize = 1;

/// The first byte of an operation's record.
pub(crate) fn head(is_last: bool) -> &'static [u8] {
    if is_last { &[KIND_LAST] } else { &[KIND_PART] }
}

/// The bytes of a chain record.
pub(crate) fn chain((previous, previous_len): (u64, u64)) -> Vec<u8> {
    let mut out = vec![KIND_CHAIN];
    out.extend_from_slice(&previous.to_le_bytes());
    out.extend_from_slice(&previous_len.to_le_bytes());
    out
}

/// A record, read back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// The log before, and its length.
    Chain { previous: u64, previous_len: u64 },
    /// An operation; `is_last`: no more of its batch follow.
    Operation { op: Op<'a>, is_last: bool },
}

impl Record<'_> {
    /// Parses a record; the error says what is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Record<'_>, String> {
        let (&kind, body) = bytes.split_first().ok_or("an empty record")?;
        match kind {
            KIND_CHAIN => {
                let halves = body.split_first_chunk::<8>();
                let halves = halves.and_then(|(a, b)| Some((*a, <[u8; 8]>::try_from(b).ok()?)));
                let (previous, len) = halves.ok_or("a malformed chain record")?;
                let previous = u64::from_le_bytes(previous);
                Ok(Record::Chain { previous, previous_len: u64::from_le_bytes(len) })
            }
            KIND_LAST | KIND_PART => match item::first(body) {
                Some((op, len)) if len == body.len() => {
                    Ok(Record::Operation { op, is_last: kind == KIND_LAST })
                }
                _ => Err("a malformed operation".to_owned()),
            },
            _ => Err(format!("unknown kind of record {kind}: a newer version's?")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::WriteBatch;

    #[test]
    fn do_records_come_back_and_hostile_ones_do_no_harm() {
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"v");
        let op = batch.iter().next().unwrap();
        let record = [head(true), batch.as_bytes()].concat();
        assert_eq!(Record::decode(&record), Ok(Record::Operation { op, is_last: true }));
        let link = chain((3, 99));
        assert_eq!(Record::decode(&link), Ok(Record::Chain { previous: 3, previous_len: 99 }));
        for good in [record, link] {
            for at in 0..good.len() {
                assert!(Record::decode(&good[..at]).is_err());
                let mut bad = good.clone();
                bad[at] ^= 0x80;
                let _ = Record::decode(&bad);
            }
        }
        assert!(Record::decode(&[9]).is_err());
    }
}
