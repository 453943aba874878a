//! The record that begins a table's part of a batch over several tables.
//!
//! ```text
//!   log of table 3   … [part 17 of {3, 5}, 2 records][record][record] …
//!   log of table 5   … [part 17 of {3, 5}, 1 record][record] …
//!
//!   part := 255:u8  batch:u64 LE  records:u32 LE  tables:u16 LE  table:u64 LE *
//! ```
//!
//! The record and those that it counts are appended by one request. A batch counts only if the log
//! of every table in its list has the whole part, or if that table's manifest says that it had it.
//! There is no record of the commit: the batch is committed once all of its parts are there. The
//! numbers of the batches in one log ascend.
//!
//! A reader that does not know this kind of record rejects the log. The contents of the records
//! that follow are those of the engine, as in a batch of one table.
//!
//! Source: the implicit commit of CockroachDB's "parallel commits" (Taft et al., "CockroachDB: The
//! Resilient Geo-Distributed SQL Database", SIGMOD 2020, section 3.1).

use std::fmt;

/// The first byte of such a record. Kinds of engine records count up from 1.
pub const KIND_PART: u8 = 255;

/// The most tables that take part in one batch.
pub const MAX_PART_TABLES: usize = 1024;

/// The most bytes that the record takes, with its framing.
pub const MAX_PART_BYTES: u64 = 16 << 10;

const HEADER_BYTES: usize = 15;
const TABLE_BYTES: usize = 8;

/// The beginning of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRecord {
    /// The number of the batch.
    pub batch: u64,
    /// How many of the next records belong to the part.
    pub records: u32,
    /// The tables that take part, with this one, ascending.
    pub tables: Vec<u64>,
}

impl PartRecord {
    /// Whether a record begins a part.
    pub fn is_in(record: &[u8]) -> bool {
        record.first() == Some(&KIND_PART)
    }

    /// Encodes the record. There are at most [`MAX_PART_TABLES`] tables.
    pub fn encode(batch: u64, records: usize, tables: &[u64]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + tables.len() * TABLE_BYTES);
        out.push(KIND_PART);
        out.extend_from_slice(&batch.to_le_bytes());
        out.extend_from_slice(&(records as u32).to_le_bytes());
        out.extend_from_slice(&(tables.len() as u16).to_le_bytes());
        tables.iter().for_each(|table| out.extend_from_slice(&table.to_le_bytes()));
        out
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// A message if the record is malformed.
    pub fn decode(record: &[u8]) -> Result<PartRecord, String> {
        let malformed = || "a malformed beginning of a part of a batch".to_owned();
        let (head, body) = record.split_first_chunk::<HEADER_BYTES>().ok_or_else(malformed)?;
        let (tables, rest) = body.as_chunks::<TABLE_BYTES>();
        let count = usize::from(u16::from_le_bytes([head[13], head[14]]));
        if head[0] != KIND_PART || !rest.is_empty() || tables.len() != count {
            return Err(malformed());
        }
        Ok(PartRecord {
            batch: u64::from_le_bytes(std::array::from_fn(|i| head[1 + i])),
            records: u32::from_le_bytes(std::array::from_fn(|i| head[9 + i])),
            tables: tables.iter().map(|table| u64::from_le_bytes(*table)).collect(),
        })
    }
}

impl fmt::Display for PartRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartRecord { batch, records, tables } = self;
        write!(f, "part of batch {batch} over tables {tables:?}: the next {records} records")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_round_trips_and_malformed_record_is_rejected() {
        let part = PartRecord { batch: u64::MAX - 3, records: 70_000, tables: vec![1, 1 << 60] };
        let bytes = PartRecord::encode(part.batch, 70_000, &part.tables);
        assert!(PartRecord::is_in(&bytes) && !PartRecord::is_in(&[0]) && !PartRecord::is_in(&[]));
        assert_eq!(PartRecord::decode(&bytes), Ok(part));
        for at in 0..bytes.len() {
            assert!(PartRecord::decode(&bytes[..at]).is_err());
        }
        assert!(PartRecord::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
        assert!(PartRecord::decode(&[1; 31]).is_err());
        let largest = PartRecord::encode(1, 1, &vec![0; MAX_PART_TABLES]);
        assert!(largest.len() as u64 + 64 <= MAX_PART_BYTES);
    }
}
