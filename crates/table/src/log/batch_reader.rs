//! Batched reads of records by position.
//!
//! ```text
//!   positions   ──▶ 40  950  1800        70,000   ──▶ …
//!   chunk       [ blocks of the log, read at once ][ the next, from the block of a position on ]
//! ```
//!
//! A record costs a copy, and a read only if it is not in the current chunk. Reading most records
//! of a log reads the log once, sequentially; reading few records skips the gaps between them. A
//! caller that knows where a cluster of records ends sets a limit ([`BatchReader::set_limit`]), and
//! nothing beyond it is read.
//!
//! Invariant: a record is validated as by [`LogAccess::read`], with the same result.

use siltstone_engine::{Error, Purpose, Result};

use super::access::LogAccess;
use super::format::{BLOCK_BYTES, FRAGMENT_HEADER_BYTES, HEADER_BYTES, Part, fits_fragment};

/// Bytes of a chunk.
const CHUNK_BYTES: u64 = 16 * BLOCK_BYTES;

/// Reads records of one log by position. Any order is correct; ascending order is fast.
pub struct BatchReader<'a> {
    log: &'a LogAccess,
    purpose: Purpose,
    /// Maximum size of a chunk.
    max_chunk: u64,
    chunk: Vec<u8>,
    /// Offset of the chunk in the file.
    chunk_at: u64,
    /// A chunk ends here, unless a record extends beyond it.
    end: u64,
    /// The buffer for a record of several fragments.
    assembled: Vec<u8>,
}

impl<'a> BatchReader<'a> {
    /// A reader of `log`. Memory: one chunk of 512 KiB.
    pub fn new(log: &'a LogAccess, purpose: Purpose) -> Self {
        Self::reusing(log, purpose, CHUNK_BYTES, Vec::new())
    }

    /// The same with chunks of up to `max_chunk` bytes (a record's remaining block may need more),
    /// reusing the memory of an earlier reader ([`into_memory`](Self::into_memory)).
    pub fn reusing(
        log: &'a LogAccess,
        purpose: Purpose,
        max_chunk: u64,
        mut memory: Vec<u8>,
    ) -> BatchReader<'a> {
        memory.clear();
        BatchReader {
            log,
            purpose,
            max_chunk,
            chunk: memory,
            chunk_at: 0,
            end: u64::MAX,
            assembled: Vec::new(),
        }
    }

    /// The next records all start before `end`: beyond it, only what they need is read.
    pub fn set_limit(&mut self, end: u64) {
        self.end = end;
    }

    /// Gaps up to this size are read through: see [`siltstone_vfs::File::seek_cost_bytes`].
    pub fn coalesce_gap(&self) -> u64 {
        self.log.file().seek_cost_bytes()
    }

    /// The chunk's memory, for another reader.
    pub fn into_memory(self) -> Vec<u8> {
        self.chunk
    }

    /// Appends the record at `position` to `out`. Cost: one read per chunk.
    ///
    /// # Errors
    /// `Corruption` if there is no valid record at `position`; I/O errors.
    pub fn read(&mut self, position: u64, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(self.get(position)?);
        Ok(())
    }

    /// Borrows the record at `position`. Cost: one read per chunk.
    ///
    /// # Errors
    /// `Corruption` if there is no valid record at `position`; I/O errors.
    pub fn get(&mut self, position: u64) -> Result<&[u8]> {
        let (mut at, mut first) = (position, true);
        self.assembled.clear();
        loop {
            let in_block = at % BLOCK_BYTES;
            if in_block < HEADER_BYTES || !fits_fragment(in_block) {
                return Err(self.corruption(at, "no record can start here"));
            }
            self.load(at)?;
            let from = (at - self.chunk_at) as usize;
            let end = self.chunk.len().min(from + (BLOCK_BYTES - in_block) as usize);
            let fragment = self.log.sum().parse_fragment(at, &self.chunk[from..end]);
            let fragment = fragment.map_err(|reason| self.corruption(at, reason))?;
            let payload = from + FRAGMENT_HEADER_BYTES as usize;
            let payload = payload..payload + fragment.len;
            match (fragment.part, first) {
                (Part::Full, true) => return Ok(&self.chunk[payload]),
                (Part::First, true) | (Part::Middle | Part::Last, false) => {}
                _ => return Err(self.corruption(at, "no record starts here")),
            }
            self.assembled.extend_from_slice(&self.chunk[payload]);
            if fragment.part == Part::Last {
                return Ok(&self.assembled);
            }
            at = (at / BLOCK_BYTES + 1) * BLOCK_BYTES + HEADER_BYTES;
            first = false;
        }
    }

    /// Loads the fragment at `at`, or the rest of its block.
    fn load(&mut self, at: u64) -> Result<()> {
        if self.has_fragment(at) {
            return Ok(());
        }
        if at >= self.log.file_bytes() {
            return Err(self.corruption(at, "no record can start here"));
        }
        if at < self.end {
            self.fill(at, self.end.min(at.saturating_add(self.max_chunk)))?;
        }
        if self.has_fragment(at) {
            Ok(())
        } else {
            self.fill(at, (at / BLOCK_BYTES + 1) * BLOCK_BYTES)
        }
    }

    /// Whether the chunk has the whole fragment at `at`, or all that its block or the log has of
    /// it.
    fn has_fragment(&self, at: u64) -> bool {
        let chunk_end = self.chunk_at + self.chunk.len() as u64;
        if !(self.chunk_at..chunk_end).contains(&at) {
            return false;
        }
        let block_end = (at / BLOCK_BYTES + 1) * BLOCK_BYTES;
        let rest = &self.chunk[(at - self.chunk_at) as usize..];
        let is_whole = match *rest {
            [_, _, _, _, a, b, _, ..] => {
                rest.len() as u64 >= FRAGMENT_HEADER_BYTES + u64::from(u16::from_le_bytes([a, b]))
            }
            _ => false,
        };
        is_whole || chunk_end >= block_end.min(self.log.file_bytes())
    }

    fn fill(&mut self, from: u64, to: u64) -> Result<()> {
        let to = to.min(self.log.file_bytes());
        // Empty during the read, so that a failed read leaves no stale bytes at the new offset.
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.resize((to - from) as usize, 0);
        self.log.file().read_lossy_at(from, &mut chunk, self.purpose)?;
        (self.chunk, self.chunk_at) = (chunk, from);
        Ok(())
    }

    fn corruption(&self, at: u64, reason: &str) -> Error {
        Error::corruption(self.log.name(), at, reason)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use siltstone_vfs::{MeteredVfs, Ram, Vfs};

    use super::*;
    use crate::LogWriter;

    #[test]
    fn batched_reads_match_single_reads_and_read_log_once() {
        let vfs: Arc<dyn Vfs> = Arc::new(MeteredVfs::new(Arc::new(Ram::new())));
        let mut log = LogWriter::create(vfs.as_ref(), "log", 7, Purpose::Log).unwrap();
        let record = |i: usize| vec![i as u8; i * i % 70_000];
        let positions: Vec<u64> = (0..400).map(|i| log.append(&[&record(i)]).unwrap()).collect();
        let access = log.access();
        let reads = || vfs.counters().unwrap().snapshot()["flush"].reads;
        let mut reader = BatchReader::new(&access, Purpose::Flush);
        let (mut record_bytes, mut single) = (Vec::new(), Vec::new());
        for (i, &position) in positions.iter().enumerate() {
            record_bytes.clear();
            reader.read(position, &mut record_bytes).unwrap();
            assert_eq!(record_bytes, record(i));
            access.read(position, 10, &mut single, Purpose::Get).unwrap();
            assert_eq!(record_bytes, single);
        }
        assert!(reads() <= log.len().div_ceil(CHUNK_BYTES) + 1, "{} reads", reads());
        // With limits and chunk ends in the middle of records.
        for (max_chunk, ahead) in [(100, 1), (5_000, 1_000), (70_000, 40_000), (1 << 20, 200_000)] {
            let mut reader = BatchReader::reusing(&access, Purpose::Flush, max_chunk, vec![1; 9]);
            for (i, &position) in positions.iter().enumerate().step_by(3) {
                reader.set_limit(position + ahead);
                record_bytes.clear();
                reader.read(position, &mut record_bytes).unwrap();
                assert_eq!(record_bytes, record(i), "{max_chunk} {ahead}");
            }
            assert!(!reader.into_memory().is_empty());
        }
        // Backwards, between records, and past the end.
        for (i, &position) in positions.iter().enumerate().rev().step_by(7) {
            record_bytes.clear();
            reader.read(position, &mut record_bytes).unwrap();
            assert_eq!(record_bytes, record(i));
            assert!(reader.read(position + 1, &mut record_bytes).is_err());
        }
        for nowhere in [0, log.len(), 1 << 40] {
            assert!(reader.read(nowhere, &mut record_bytes).unwrap_err().is_corruption());
        }
    }
}
