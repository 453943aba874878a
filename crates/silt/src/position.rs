//! The resume position of a scan: where a later cursor continues.
//!
//! ```text
//! position := version 2:u8  opening:u64  start  partition:u32  place            little endian
//! start    := generation:u64  end:u32  store:u64
//! place    := 0:u8  generation:u64  position:u32        in a LogStore, by the position in the log
//!           | 1:u8  store:u64  slot:u32                 in a HashStore
//!           | 2:u8  key                                 in the SortedStore, by the key's hash
//! ```
//!
//! A scan goes from the newest store of a partition to the oldest. Conversion and merges move
//! entries the same way: to stores that are still ahead of the scan, or to its own place. So no
//! entry is missed: if the store of a position is gone, the scan continues at the first store that
//! may hold its remaining entries.
//!
//! `start` records which entries existed when the scan began. An entry in a newer store hides an
//! older one only if it existed then, because the scan has returned it already. A later one may lie
//! behind the scan, and hiding the older one would lose the key.
//!
//! Reopening the table regroups logs into other generations, and after a power cut file numbers may
//! be used again. A scan that was begun in another opening therefore restarts the logs of its
//! partition, and hides entries only by those that it returns itself. An opening is identified by
//! the number of the log that it began and the seed of its process, since a power cut may take the
//! log and its number.
//!
//! Positions may come from clients: arbitrary bytes decode to a position or to nothing, and a scan
//! can continue at every position.

use siltstone_structures::hash::hash64_seeded;
use siltstone_table::fixed::{take_u32, take_u64};

/// Which entries existed when a scan began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanStart {
    /// The name of the active generation, and the first position in it that was not yet written.
    pub(crate) generation: u64,
    pub(crate) end: u32,
    /// HashStores with smaller numbers existed.
    pub(crate) store: u64,
}

/// A place in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StorePosition {
    Log { generation: u64, position: u32 },
    Hash { store: u64, slot: u32 },
    Sorted { key: Vec<u8> },
}

/// The last entry that a scan returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// The opening of the table in which the scan began.
    pub(crate) opening: u64,
    pub(crate) start: ScanStart,
    pub(crate) partition: u32,
    pub(crate) place: StorePosition,
}

const VERSION: u8 = 2;

/// Identifies the opening of a table that began the log `log`, in a process with this seed.
pub(crate) fn opening(log: u64, seed: u64) -> u64 {
    hash64_seeded(&log.to_le_bytes(), seed)
}

impl ScanStart {
    /// No entry existed.
    pub(crate) const NONE: ScanStart = ScanStart { generation: 0, end: 0, store: 0 };

    /// Whether an entry of a LogStore existed.
    pub(crate) fn existed_in_log(&self, generation: u64, position: u32) -> bool {
        generation < self.generation || (generation == self.generation && position < self.end)
    }
}

impl Position {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.opening.to_le_bytes());
        out.extend_from_slice(&self.start.generation.to_le_bytes());
        out.extend_from_slice(&self.start.end.to_le_bytes());
        out.extend_from_slice(&self.start.store.to_le_bytes());
        out.extend_from_slice(&self.partition.to_le_bytes());
        let (kind, number, at) = match &self.place {
            StorePosition::Log { generation, position } => (0, generation, position),
            StorePosition::Hash { store, slot } => (1, store, slot),
            StorePosition::Sorted { key } => {
                out.push(2);
                out.extend_from_slice(key);
                return out;
            }
        };
        out.push(kind);
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&at.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&[VERSION])?;
        let opening = take_u64(&mut rest)?;
        let start = ScanStart {
            generation: take_u64(&mut rest)?,
            end: take_u32(&mut rest)?,
            store: take_u64(&mut rest)?,
        };
        let partition = take_u32(&mut rest)?;
        let (&kind, mut rest) = rest.split_first()?;
        let place = match kind {
            0 => StorePosition::Log {
                generation: take_u64(&mut rest)?,
                position: take_u32(&mut rest)?,
            },
            1 => StorePosition::Hash { store: take_u64(&mut rest)?, slot: take_u32(&mut rest)? },
            2 => StorePosition::Sorted { key: std::mem::take(&mut rest).to_vec() },
            _ => return None,
        };
        rest.is_empty().then_some(Position { opening, start, partition, place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_round_trip_and_malformed_ones_are_rejected() {
        let start = ScanStart { generation: 7, end: 99, store: 12 };
        for place in [
            StorePosition::Log { generation: 9, position: 4 },
            StorePosition::Hash { store: 1 << 40, slot: 3 },
            StorePosition::Sorted { key: b"key".to_vec() },
        ] {
            let position = Position { opening: 5, start, partition: 3, place };
            let good = position.encode();
            assert_eq!(Position::decode(&good), Some(position));
            for at in 0..good.len() {
                assert!(at >= 34 || Position::decode(&good[..at]).is_none());
                let mut bad = good.clone();
                bad[at] ^= 0xff;
                let _ = Position::decode(&bad);
            }
        }
    }
}
