//! The records of the log.
//!
//! ```text
//! link    := 0:u8  …                              the first record: siltstone_table::log::wal
//! last   := 1:u8  operation                                    the last of a batch
//! part   := 2:u8  operation                                    more of the same batch follows
//! ```
//!
//! Each operation (`siltstone_engine::batch`) has a record of its own, so a LogStore can read it by
//! its position alone. A batch counts only if its last record is present.
//!
//! A reader refuses unknown kinds: skipping one would lose writes.

use siltstone_engine::Op;
use siltstone_table::{KIND_LINK, SegmentLink};

use crate::item;

const KIND_LAST: u8 = 1;
const KIND_PART: u8 = 2;

/// Bytes of a record before its operation.
pub(crate) const HEAD: usize = 1;

/// The first byte of an operation's record.
pub(crate) fn head(is_last: bool) -> &'static [u8] {
    if is_last { &[KIND_LAST] } else { &[KIND_PART] }
}

/// A decoded record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// The number and length of the preceding log.
    Link(SegmentLink),
    /// An operation; `is_last`: it is the last of its batch.
    Operation { op: Op<'a>, is_last: bool },
}

impl Record<'_> {
    /// Parses a record; the error describes what is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Record<'_>, String> {
        let (&kind, body) = bytes.split_first().ok_or("an empty record")?;
        match kind {
            KIND_LINK => SegmentLink::decode(bytes).map(Record::Link),
            KIND_LAST | KIND_PART => match item::first(body) {
                Some((op, len)) if len == body.len() => {
                    Ok(Record::Operation { op, is_last: kind == KIND_LAST })
                }
                _ => Err("a malformed operation".to_owned()),
            },
            _ => Err(format!("unknown kind of record {kind}: written by a newer version?")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::WriteBatch;

    #[test]
    fn records_round_trip_and_malformed_ones_are_rejected() {
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"v");
        let op = batch.iter().next().unwrap();
        let record = [head(true), batch.as_bytes()].concat();
        assert_eq!(Record::decode(&record), Ok(Record::Operation { op, is_last: true }));
        let link = SegmentLink { number: 3, bytes: 99 };
        assert_eq!(Record::decode(&link.encode()), Ok(Record::Link(link)));
        for good in [record, link.encode().to_vec()] {
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
