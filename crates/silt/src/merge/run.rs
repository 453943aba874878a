//! A sorted run: entries of a merge that exceed its memory, on disk while it runs.
//!
//! ```text
//! run   := chunk*                                                             little endian
//! chunk := len:u32  crc32c:u32  entry*[len]       checksum of file number, offset and entries
//! entry := age:u32  len:u32  operation
//! ```
//!
//! A run is removed when its last handle is dropped, or at open after a crash. So the format has no
//! version, and runs are never synced.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_runtime::RateLimiter;
use siltstone_table::FileSum;
use siltstone_vfs::{File, Vfs};

use super::sort::Age;
use crate::file::{Fields, FileWriter};
use crate::names::Kind;

/// A chunk ends with the entry that brings it to this many bytes.
pub(super) const CHUNK_BYTES: usize = 64 << 10;
/// Bytes before a chunk's entries, and before an entry's operation.
const HEADER_BYTES: usize = 8;

/// A complete run; dropping it removes its file.
pub(super) struct Run {
    vfs: Arc<dyn Vfs>,
    file: Arc<dyn File>,
    number: u64,
    bytes: u64,
}

/// Writes a run.
pub(super) struct RunWriter {
    run: Run,
    out: FileWriter,
    chunk: Vec<u8>,
}

impl RunWriter {
    pub(super) fn create(vfs: &Arc<dyn Vfs>, number: u64, rate: &Arc<RateLimiter>) -> Result<Self> {
        let file = vfs.create(&Kind::Run.name(number))?;
        let out = FileWriter::new(file.clone(), 0, Purpose::Compaction, rate.clone());
        let run = Run { vfs: vfs.clone(), file, number, bytes: 0 };
        Ok(RunWriter { run, out, chunk: Vec::new() })
    }

    pub(super) fn add(&mut self, age: Age, entry: &[u8]) -> Result<()> {
        self.chunk.extend_from_slice(&age.to_le_bytes());
        self.chunk.extend_from_slice(&(entry.len() as u32).to_le_bytes());
        self.chunk.extend_from_slice(entry);
        if self.chunk.len() >= CHUNK_BYTES { self.end_chunk() } else { Ok(()) }
    }

    fn end_chunk(&mut self) -> Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let crc = FileSum::new(self.run.number).of(self.out.at(), &self.chunk);
        self.out.write(&(self.chunk.len() as u32).to_le_bytes())?;
        self.out.write(&crc.to_le_bytes())?;
        self.out.write(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Run> {
        self.end_chunk()?;
        self.out.flush()?;
        self.run.bytes = self.out.at();
        Ok(self.run)
    }
}

impl Run {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the run from its start.
    pub(super) fn read(self) -> RunReader {
        RunReader { run: self, next_chunk: 0, chunk: Vec::new(), at: 0, entry: 0..0 }
    }

    fn corruption(&self, at: u64, reason: &str) -> Error {
        Error::corruption(Kind::Run.name(self.number), at, reason)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.vfs.remove(&Kind::Run.name(self.number));
    }
}

/// Iterates over the entries of a run.
pub(super) struct RunReader {
    run: Run,
    /// The file offset of the next chunk.
    next_chunk: u64,
    chunk: Vec<u8>,
    /// The offset of the next entry in the chunk.
    at: usize,
    entry: std::ops::Range<usize>,
}

impl RunReader {
    /// Moves to the next entry; returns its age.
    pub(super) fn next(&mut self) -> Result<Option<Age>> {
        if self.at == self.chunk.len() && !self.load()? {
            return Ok(None);
        }
        let header = self.chunk.get(self.at..self.at + HEADER_BYTES);
        let (age, len) = header.map_or((0, u32::MAX), |header| {
            let mut fields = Fields(header);
            (fields.u32(), fields.u32())
        });
        let start = self.at + HEADER_BYTES;
        self.at = start + len as usize;
        if self.at > self.chunk.len() {
            return Err(self.run.corruption(self.next_chunk, "a chunk is malformed"));
        }
        self.entry = start..self.at;
        Ok(Some(age))
    }

    /// The operation of the current entry.
    pub(super) fn entry(&self) -> &[u8] {
        &self.chunk[self.entry.clone()]
    }

    /// Reads the next chunk; `false` if there is none.
    fn load(&mut self) -> Result<bool> {
        if self.next_chunk == self.run.bytes {
            return Ok(false);
        }
        let purpose = Purpose::Compaction;
        let mut header = [0; HEADER_BYTES];
        self.run.file.read_at(self.next_chunk, &mut header, purpose)?;
        let mut fields = Fields(&header);
        let (len, crc) = (fields.u32(), fields.u32());
        let start = self.next_chunk + HEADER_BYTES as u64;
        if start + u64::from(len) > self.run.bytes {
            return Err(self.run.corruption(self.next_chunk, "a chunk is cut off"));
        }
        self.chunk.resize(len as usize, 0);
        self.run.file.read_at(start, &mut self.chunk, purpose)?;
        if FileSum::new(self.run.number).of(self.next_chunk, &self.chunk) != crc {
            return Err(self
                .run
                .corruption(self.next_chunk, "a chunk does not match its checksum"));
        }
        (self.next_chunk, self.at) = (start + u64::from(len), 0);
        Ok(true)
    }
}
