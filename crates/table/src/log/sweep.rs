//! Reading many records of a log by their positions, in ascending order.
//!
//! ```text
//!   positions   ──▶ 40  950  1800        70,000   ──▶ …
//!   chunk       [ blocks of the log, read at once ][ the next, from the block of a position on ]
//! ```
//!
//! A record costs a copy, and a read only where it is not in the chunk: a sweep over most records of a
//! log reads the log once, in order; one over few records skips what lies between them. Whoever knows
//! where the records end that are close to each other says so ([`BatchReader::go_to`]), and nothing is
//! read behind them.
//!
//! Invariant: a record is checked in the same way as by [`LogAccess::read`], and is the same.
//!
//! Source: ours.

use siltstone_engine::{Error, Purpose, Result};

use super::format::{BLOCK, FRAGMENT, HEADER, Part, fits_fragment};
use super::reader::LogAccess;

/// Bytes of a chunk.
const CHUNK: u64 = 16 * BLOCK;

/// Reads records of one log in the order of their positions. Any order is right; ascending is cheap.
pub struct BatchReader<'a> {
    log: &'a LogAccess,
    purpose: Purpose,
    /// A chunk has at most so many bytes.
    most: u64,
    chunk: Vec<u8>,
    /// Where the chunk lies in the file.
    chunk_at: u64,
    /// A chunk ends here at the latest, unless a record goes on behind it.
    end: u64,
    /// A record of several fragments.
    assembled: Vec<u8>,
}

impl<'a> BatchReader<'a> {
    /// A sweep over `log`. Memory: a chunk of 512 KiB.
    pub fn new(log: &'a LogAccess, purpose: Purpose) -> Self {
        Self::reusing(log, purpose, CHUNK, Vec::new())
    }

    /// The same with chunks of at most `most` bytes, but for one with a block or a part of it, in the memory
    /// of an earlier sweep ([`into_memory`](Self::into_memory)).
    pub fn reusing(
        log: &'a LogAccess,
        purpose: Purpose,
        most: u64,
        mut memory: Vec<u8>,
    ) -> BatchReader<'a> {
        memory.clear();
        BatchReader {
            log,
            purpose,
            most,
            chunk: memory,
            chunk_at: 0,
            end: u64::MAX,
            assembled: Vec::new(),
        }
    }

    /// What comes next are records before `end`: of what lies behind, no more is read than they need.
    pub fn go_to(&mut self, end: u64) {
        self.end = end;
    }

    /// A gap of at most this is read over rather than jumped: see [`siltstone_vfs::File::seek_cost_bytes`].
    pub fn most_gap(&self) -> u64 {
        self.log.file().seek_cost_bytes()
    }

    /// The memory of the chunk, for another sweep.
    pub fn into_memory(self) -> Vec<u8> {
        self.chunk
    }

    /// Appends the record at `position` to `out`. Cost: one read a chunk.
    ///
    /// # Errors
    /// `Corruption` if there is no whole record at `position`; the medium's.
    pub fn read(&mut self, position: u64, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(self.get(position)?);
        Ok(())
    }

    /// Lends the record at `position`. Cost: one read a chunk.
    ///
    /// # Errors
    /// `Corruption` if there is no whole record at `position`; the medium's.
    pub fn get(&mut self, position: u64) -> Result<&[u8]> {
        let (mut at, mut first) = (position, true);
        self.assembled.clear();
        loop {
            let in_block = at % BLOCK;
            if in_block < HEADER || !fits_fragment(in_block) {
                return Err(self.corruption(at, "no record can be here"));
            }
            self.load(at)?;
            let from = (at - self.chunk_at) as usize;
            let end = self.chunk.len().min(from + (BLOCK - in_block) as usize);
            let fragment = self.log.sum().parse_fragment(at, &self.chunk[from..end]);
            let fragment = fragment.map_err(|reason| self.corruption(at, reason))?;
            let payload = from + FRAGMENT as usize;
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
            at = (at / BLOCK + 1) * BLOCK + HEADER;
            first = false;
        }
    }

    /// Makes the fragment at `at` present, or all that is left of its block.
    fn load(&mut self, at: u64) -> Result<()> {
        if self.has_fragment(at) {
            return Ok(());
        }
        if at >= self.log.file_bytes() {
            return Err(self.corruption(at, "no record can be here"));
        }
        if at < self.end {
            self.fill(at, self.end.min(at.saturating_add(self.most)))?;
        }
        if self.has_fragment(at) { Ok(()) } else { self.fill(at, (at / BLOCK + 1) * BLOCK) }
    }

    /// Whether the fragment at `at` is whole in the chunk, or as much of it as its block or the log has.
    fn has_fragment(&self, at: u64) -> bool {
        let chunk_end = self.chunk_at + self.chunk.len() as u64;
        if !(self.chunk_at..chunk_end).contains(&at) {
            return false;
        }
        let block_end = (at / BLOCK + 1) * BLOCK;
        let rest = &self.chunk[(at - self.chunk_at) as usize..];
        let is_whole = match *rest {
            [_, _, _, _, a, b, _, ..] => {
                rest.len() as u64 >= FRAGMENT + u64::from(u16::from_le_bytes([a, b]))
            }
            _ => false,
        };
        is_whole || chunk_end >= block_end.min(self.log.file_bytes())
    }

    fn fill(&mut self, from: u64, to: u64) -> Result<()> {
        let to = to.min(self.log.file_bytes());
        // Empty while it is being filled: a failed read must not leave old bytes at a new place.
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.resize((to - from) as usize, 0);
        self.log.file().read_at(from, &mut chunk, self.purpose)?;
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

    use siltstone_vfs::{Metered, Ram, Vfs};

    use super::*;
    use crate::LogWriter;

    #[test]
    fn is_every_record_read_as_by_itself_and_the_log_once() {
        let vfs: Arc<dyn Vfs> = Arc::new(Metered::new(Arc::new(Ram::new())));
        let mut log = LogWriter::create(vfs.as_ref(), "log", 7, Purpose::Log).unwrap();
        let record = |i: usize| vec![i as u8; i * i % 70_000];
        let positions: Vec<u64> = (0..400).map(|i| log.append(&[&record(i)]).unwrap()).collect();
        let access = log.access();
        let reads = || vfs.counters().unwrap().snapshot()["flush"].reads;
        let mut sweep = BatchReader::new(&access, Purpose::Flush);
        let (mut swept, mut alone) = (Vec::new(), Vec::new());
        for (i, &position) in positions.iter().enumerate() {
            swept.clear();
            sweep.read(position, &mut swept).unwrap();
            assert_eq!(swept, record(i));
            access.read(position, 10, &mut alone, Purpose::Get).unwrap();
            assert_eq!(swept, alone);
        }
        assert!(reads() <= log.len().div_ceil(CHUNK) + 1, "{} reads", reads());
        // With ends that cut records, and chunks that do.
        for (most, ahead) in [(100, 1), (5_000, 1_000), (70_000, 40_000), (1 << 20, 200_000)] {
            let mut sweep = BatchReader::reusing(&access, Purpose::Flush, most, vec![1; 9]);
            for (i, &position) in positions.iter().enumerate().step_by(3) {
                sweep.go_to(position + ahead);
                swept.clear();
                sweep.read(position, &mut swept).unwrap();
                assert_eq!(swept, record(i), "{most} {ahead}");
            }
            assert!(!sweep.into_memory().is_empty());
        }
        // Backwards, beside a record, and behind the end.
        for (i, &position) in positions.iter().enumerate().rev().step_by(7) {
            swept.clear();
            sweep.read(position, &mut swept).unwrap();
            assert_eq!(swept, record(i));
            assert!(sweep.read(position + 1, &mut swept).is_err());
        }
        for nowhere in [0, log.len(), 1 << 40] {
            assert!(sweep.read(nowhere, &mut swept).unwrap_err().is_corruption());
        }
    }
}
