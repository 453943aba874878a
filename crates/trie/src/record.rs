//! The records of the write-ahead log.
//!
//! ```text
//! link  := 0:u8  …                              the first record: see siltstone_table::log
//! batch := 1:u8  first sequence:varint  operations:varint  operation*
//! ```
//!
//! The operations of a batch have consecutive sequence numbers. A batch is one record, so it is
//! recovered atomically. A reader rejects unknown kinds: skipping one could lose writes.
//!
//! Invariant: `decode` accepts any bytes, in memory limited by their length.

use siltstone_engine::WriteBatch;
use siltstone_engine::varint::{read_varint, write_varint};
use siltstone_table::{KIND_LINK, MAX_SEQUENCE, SegmentLink};

const KIND_BATCH: u8 = 1;

/// Appends the header of a batch.
pub(crate) fn push_header(out: &mut Vec<u8>, first_sequence: u64, operations: u32) {
    out.push(KIND_BATCH);
    write_varint(out, first_sequence);
    write_varint(out, u64::from(operations));
}

/// A decoded log record.
pub(crate) enum Record {
    /// The number and the length of the previous log.
    Link(SegmentLink),
    Batch {
        first_sequence: u64,
        batch: WriteBatch,
    },
}

impl Record {
    /// Parses a record; the error describes what is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Record, String> {
        match bytes.split_first() {
            Some((&KIND_LINK, _)) => SegmentLink::decode(bytes).map(Record::Link),
            Some((&KIND_BATCH, mut body)) => {
                let first_sequence = varint(&mut body)?;
                let count = varint(&mut body)?;
                let end = first_sequence.checked_add(count);
                if first_sequence == 0 || end.is_none_or(|end| end > MAX_SEQUENCE) {
                    return Err("sequence number out of range".to_owned());
                }
                if count == 0 {
                    return Err("a record of no operations".to_owned());
                }
                let count = u32::try_from(count).map_err(|_| "too many operations".to_owned())?;
                Ok(Record::Batch { first_sequence, batch: WriteBatch::from_bytes(body, count)? })
            }
            Some((kind, _)) => Err(format!("a record of unknown kind {kind}")),
            None => Err("empty record".to_owned()),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let (value, used) = read_varint(bytes).ok_or("a record's header is cut off")?;
    *bytes = &bytes[used..];
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_records_are_rejected_or_harmless() {
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"v").delete(b"x");
        let mut good = Vec::new();
        push_header(&mut good, 7, 2);
        good.extend_from_slice(batch.as_bytes());
        let Ok(Record::Batch { first_sequence: 7, batch: back }) = Record::decode(&good) else {
            panic!("not read back");
        };
        assert_eq!(back, batch);
        for record in [good, SegmentLink { number: 3, bytes: 4 }.encode().to_vec()] {
            for at in 0..record.len() {
                let _ = Record::decode(&record[..at]);
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut bad = record.clone();
                    bad[at] = value;
                    let _ = Record::decode(&bad);
                }
            }
        }
        assert!(Record::decode(&[]).is_err() && Record::decode(&[9]).is_err());
    }
}
