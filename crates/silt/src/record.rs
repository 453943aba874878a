//! The records of the log.
//!
//! ```text
//! link    := 0:u8  …                              the first record: siltstone_table::log::chain
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
use siltstone_table::{KIND_LINK, Link};

use crate::item;

const KIND_LAST: u8 = 1;
const KIND_PART: u8 = 2;

/// What stands before the operation in a record.
pub(crate) const HEAD: usize = 1;

/// The first byte of an operation's record.
pub(crate) fn head(is_last: bool) -> &'static [u8] {
    if is_last { &[KIND_LAST] } else { &[KIND_PART] }
}

/// A record, read back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// The log before, and its length.
    Link(Link),
    /// An operation; `is_last`: no more of its batch follow.
    Operation { op: Op<'a>, is_last: bool },
}

impl Record<'_> {
    /// Parses a record; the error says what is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Record<'_>, String> {
        let (&kind, body) = bytes.split_first().ok_or("an empty record")?;
        match kind {
            KIND_LINK => Link::decode(bytes).map(Record::Link),
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
        let link = Link { number: 3, bytes: 99 };
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
