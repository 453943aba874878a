//! Reading many records of a log by their positions, in ascending order.
//!
//! ```text
//!   positions   ──▶ 40  950  1800        70,000   ──▶ …
//!   chunk       [ blocks of the log, read at once ][ the next, from the block of a position on ]
//! ```
//!
//! A record costs a copy, and a read only where it is not in the chunk: a sweep over most records of a
//! log reads the log once, in order; one over few records skips what lies between them.
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
pub struct LogSweep<'a> {
    log: &'a LogAccess,
    purpose: Purpose,
    chunk: Vec<u8>,
    /// Where the chunk lies in the file: the start of a block.
    chunk_at: u64,
}

impl<'a> LogSweep<'a> {
    /// A sweep over `log`. Memory: a chunk of 512 KiB.
    pub fn new(log: &'a LogAccess, purpose: Purpose) -> Self {
        LogSweep { log, purpose, chunk: Vec::new(), chunk_at: 0 }
    }

    /// Appends the record at `position` to `out`. Cost: one read a chunk.
    ///
    /// # Errors
    /// `Corruption` if there is no whole record at `position`; the medium's.
    pub fn read(&mut self, position: u64, out: &mut Vec<u8>) -> Result<()> {
        let (mut at, mut first) = (position, true);
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
            match (fragment.part, first) {
                (Part::Full | Part::First, true) | (Part::Middle | Part::Last, false) => {}
                _ => return Err(self.corruption(at, "no record starts here")),
            }
            let payload = from + FRAGMENT as usize;
            out.extend_from_slice(&self.chunk[payload..payload + fragment.len]);
            if matches!(fragment.part, Part::Full | Part::Last) {
                return Ok(());
            }
            at = (at / BLOCK + 1) * BLOCK + HEADER;
            first = false;
        }
    }

    /// Makes the block of `at` present.
    fn load(&mut self, at: u64) -> Result<()> {
        if (self.chunk_at..self.chunk_at + self.chunk.len() as u64).contains(&at) {
            return Ok(());
        }
        let (block, len) = (at - at % BLOCK, self.log.file_bytes());
        if at >= len {
            return Err(self.corruption(at, "no record can be here"));
        }
        // Empty while it is being filled: a failed read must not leave old bytes at a new place.
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.resize(CHUNK.min(len - block) as usize, 0);
        self.log.file().read_at(block, &mut chunk, self.purpose)?;
        (self.chunk, self.chunk_at) = (chunk, block);
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

    use siltstone_media::{Media, Metered, Ram};

    use super::*;
    use crate::LogWriter;

    #[test]
    fn is_every_record_read_as_by_itself_and_the_log_once() {
        let media: Arc<dyn Media> = Arc::new(Metered::new(Arc::new(Ram::new())));
        let mut log = LogWriter::create(media.as_ref(), "log", 7, Purpose::Log).unwrap();
        let record = |i: usize| vec![i as u8; i * i % 70_000];
        let positions: Vec<u64> = (0..400).map(|i| log.append(&[&record(i)]).unwrap()).collect();
        let access = log.access();
        let reads = || media.counters().unwrap().snapshot()["flush"].reads;
        let mut sweep = LogSweep::new(&access, Purpose::Flush);
        let (mut swept, mut alone) = (Vec::new(), Vec::new());
        for (i, &position) in positions.iter().enumerate() {
            swept.clear();
            sweep.read(position, &mut swept).unwrap();
            assert_eq!(swept, record(i));
            access.read(position, 10, &mut alone, Purpose::Get).unwrap();
            assert_eq!(swept, alone);
        }
        assert!(reads() <= log.len().div_ceil(CHUNK) + 1, "{} reads", reads());
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
