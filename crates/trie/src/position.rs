//! The position of a scan, from which a later cursor can resume.
//!
//! ```text
//! position := version 1:u8  opening:u64  sequence:u64  source  key                little endian
//! source   := 0:u8  first_log:u64        the memtable whose writes begin with this log
//!           | 1:u8  level:u8  id:u64     the container
//! ```
//!
//! A scan goes from the newest source to the oldest: memtables, then the trie from its root. Items
//! move in the same direction: into the root, from a container into its children, and never back;
//! in a container they keep the order of their hashes. So a scan misses nothing: if a source is
//! gone, its remaining items are in sources still ahead.
//!
//! The sequence number is that of the newest write when the scan began. A newer item hides the item
//! at the scan only if it existed then and was returned in its turn. A later one may be behind the
//! scan, and its key would be missed. A power cut resets sequence numbers, so they are compared
//! within one open of the table only; for a scan from another open, only returned items hide
//! others.
//!
//! Clients may supply the bytes: any content decodes to a position or to `None`, and a scan can
//! resume from any position.

use siltstone_table::fixed::take_u64;

use crate::container_id::ContainerId;

/// The source of the current entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// By its first log.
    Memtable(u64),
    Container(ContainerId),
}

/// The last entry that a scan returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// The number of the table's log when it was opened.
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
            Source::Container(ContainerId { level, id }) => {
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
                Source::Container(ContainerId { level: level.into(), id: take_u64(&mut rest)? })
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
    fn position_survives_encoding_and_malformed_ones_are_harmless() {
        let container_id = ContainerId { level: 3, id: 1 << 40 };
        for source in [Source::Memtable(9), Source::Container(container_id)] {
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
