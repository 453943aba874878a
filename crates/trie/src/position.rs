//! Where a walk stands, so that a later cursor goes on there.
//!
//! ```text
//! position := version 1:u8  opening:u64  sequence:u64  place  key                 little endian
//! place    := 0:u8  first_log:u64        the memtable whose writes begin with this log
//!           | 1:u8  level:u8  id:u64     the container
//! ```
//!
//! The walk goes from the newest place to the oldest: memtables, then the trie from its root. Items go
//! the same way: into the root, from a container into its children, and never back; in a container they
//! keep the order of their hashes. So nothing is passed by: where the place is gone, what was left of it is
//! in places that are still ahead.
//!
//! The sequence number is that of the newest write that was there when the walk was begun. A newer item
//! hides one that the walk comes to only if it was there by then, and was shown in its turn: a younger one may
//! lie behind the walk, and its key would be missed. A power cut takes numbers back, so they are compared
//! within one opening of the table only; a walk from another one hides nothing but by what it shows.
//!
//! Bytes come from clients perhaps: of any content they give a position or nothing, and any position
//! is one to go on from.
//!
//! Source: ours; as in `silt`.

use siltstone_table::fixed::take_u64;

use crate::version::Place;

/// Where the entry under the cursor lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// By its first log.
    Memtable(u64),
    Container(Place),
}

/// The last entry of a walk that was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// The number that the table's log had when it was opened.
    pub(crate) opening: u64,
    pub(crate) sequence: u64,
    pub(crate) source: Source,
    pub(crate) key: Vec<u8>,
}

const VERSION: u8 = 1;

impl Position {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.opening.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        match self.source {
            Source::Memtable(first_log) => {
                out.push(0);
                out.extend_from_slice(&first_log.to_le_bytes());
            }
            Source::Container(Place { level, id }) => {
                out.extend_from_slice(&[1, level as u8]);
                out.extend_from_slice(&id.to_le_bytes());
            }
        }
        out.extend_from_slice(&self.key);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&[VERSION])?;
        let (opening, sequence) = (take_u64(&mut rest)?, take_u64(&mut rest)?);
        let (&kind, mut rest) = rest.split_first()?;
        let source = match kind {
            0 => Source::Memtable(take_u64(&mut rest)?),
            1 => {
                let (&level, behind) = rest.split_first()?;
                rest = behind;
                Source::Container(Place { level: level.into(), id: take_u64(&mut rest)? })
            }
            _ => return None,
        };
        Some(Position { opening, sequence, source, key: rest.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn do_positions_come_back_and_hostile_ones_do_no_harm() {
        let place = Place { level: 3, id: 1 << 40 };
        for source in [Source::Memtable(9), Source::Container(place)] {
            let position = Position { opening: 4, sequence: 1 << 50, source, key: b"key".to_vec() };
            let good = position.encode();
            assert_eq!(Position::decode(&good), Some(position));
            for at in 0..good.len() {
                assert!(at >= 26 || Position::decode(&good[..at]).is_none());
                let mut bad = good.clone();
                bad[at] ^= 0xff;
                let _ = Position::decode(&bad);
            }
        }
    }
}
