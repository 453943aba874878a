//! Where a walk stands, so that a later cursor goes on there.
//!
//! ```text
//! position := version 2:u8  opening:u64  mark  partition:u32  place            little endian
//! mark     := generation:u64  end:u32  store:u64
//! place    := 0:u8  generation:u64  position:u32        in a LogStore, by the place in the log
//!           | 1:u8  store:u64  slot:u32                 in a HashStore
//!           | 2:u8  key                                 in the SortedStore, by the key's hash
//! ```
//!
//! The walk goes from the newest store of a partition to the oldest, and entries go the same way:
//! conversion and merges bring them to stores that are still ahead, or to the place where the walk
//! stands. So nothing is passed by: where the store is gone, the walk goes on at the first one that may
//! hold what was left of it.
//!
//! The mark is how the table was when the walk was begun. An entry of a newer store hides one that the
//! walk comes to only if it was there then, and was shown in its turn; a newer one may lie behind the
//! walk, and its key would be missed.
//!
//! Opening the table puts logs together in other generations, and a power cut takes numbers back. So a walk
//! from another opening begins the logs of its partition anew, and hides nothing but by what it shows.
//!
//! Bytes come from clients perhaps: of any content they give a position or nothing, and any position
//! is one to go on from.
//!
//! Source: ours.

use siltstone_table::fixed::{take_u32, take_u64};

/// What was there when a walk was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The active generation by its name, and where in it the first entry would be that was not.
    pub(crate) generation: u64,
    pub(crate) end: u32,
    /// HashStores with numbers below this one were there.
    pub(crate) store: u64,
}

/// A place in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Log { generation: u64, position: u32 },
    Hash { store: u64, slot: u32 },
    Sorted { key: Vec<u8> },
}

/// The last entry of a walk that was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// The number that the table's log had when it was opened.
    pub(crate) opening: u64,
    pub(crate) mark: Mark,
    pub(crate) partition: u32,
    pub(crate) place: Place,
}

const VERSION: u8 = 2;

impl Mark {
    /// Nothing was there.
    pub(crate) const NONE: Mark = Mark { generation: 0, end: 0, store: 0 };

    /// Whether an entry in a LogStore was there.
    pub(crate) fn has_logged(&self, generation: u64, position: u32) -> bool {
        generation < self.generation || (generation == self.generation && position < self.end)
    }
}

impl Position {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.opening.to_le_bytes());
        out.extend_from_slice(&self.mark.generation.to_le_bytes());
        out.extend_from_slice(&self.mark.end.to_le_bytes());
        out.extend_from_slice(&self.mark.store.to_le_bytes());
        out.extend_from_slice(&self.partition.to_le_bytes());
        let (kind, number, at) = match &self.place {
            Place::Log { generation, position } => (0, generation, position),
            Place::Hash { store, slot } => (1, store, slot),
            Place::Sorted { key } => {
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
        let mark = Mark {
            generation: take_u64(&mut rest)?,
            end: take_u32(&mut rest)?,
            store: take_u64(&mut rest)?,
        };
        let partition = take_u32(&mut rest)?;
        let (&kind, mut rest) = rest.split_first()?;
        let place = match kind {
            0 => Place::Log { generation: take_u64(&mut rest)?, position: take_u32(&mut rest)? },
            1 => Place::Hash { store: take_u64(&mut rest)?, slot: take_u32(&mut rest)? },
            2 => Place::Sorted { key: std::mem::take(&mut rest).to_vec() },
            _ => return None,
        };
        rest.is_empty().then_some(Position { opening, mark, partition, place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn do_positions_come_back_and_hostile_ones_do_no_harm() {
        let mark = Mark { generation: 7, end: 99, store: 12 };
        for place in [
            Place::Log { generation: 9, position: 4 },
            Place::Hash { store: 1 << 40, slot: 3 },
            Place::Sorted { key: b"key".to_vec() },
        ] {
            let position = Position { opening: 5, mark, partition: 3, place };
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
