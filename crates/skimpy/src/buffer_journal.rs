//! The journal of the write buffer: makes buffered batches survive a process crash.
//!
//! A page holds many small writes, so programming a page per write would waste space. A buffered
//! batch smaller than a page is appended here instead, and its page is programmed when it is full.
//! A real drive would use a few bytes of power-loss-protected memory. A synced write programs its
//! page at once and needs no journal.
//!
//! ```text
//!   frame, consecutive from the start of the file:
//!    0  sum        u32, CRC-32C of all that follows
//!    4  length     u32, bytes of the batch
//!    8  operations u32
//!   12  epoch      u32, the opening of the table that wrote it
//!   16  timestamp  u64
//!   24  previous   u64, the timestamp of the preceding batch, to detect gaps
//!   32  durable    u64, pages of the log below this were durable
//!   40  the batch in its log form
//! ```
//!
//! All numbers are little-endian. When the write buffer is empty the journal restarts at the
//! beginning of the file. Frames behind the new ones are from earlier rounds; their batches are on
//! the device.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result, WriteBatch};
use siltstone_vfs::{File, Mode, Vfs};

use crate::bytes::{u32_at, u64_at};

/// The file's name.
pub(crate) const NAME: &str = "packing";
const HEADER_BYTES: usize = 40;
/// The journal restarts before it exceeds this size.
const MAX_BYTES: u64 = 256 << 10;

pub(crate) struct BufferJournal {
    file: Arc<dyn File>,
    end: u64,
}

/// A journaled batch.
pub(crate) struct Frame {
    pub(crate) epoch: u32,
    pub(crate) timestamp: u64,
    pub(crate) previous: u64,
    pub(crate) durable: u64,
    pub(crate) batch: WriteBatch,
}

impl Frame {
    /// Bytes of the frame in the file.
    pub(crate) fn encoded_bytes(&self) -> u64 {
        (HEADER_BYTES + self.batch.as_bytes().len()) as u64
    }
}

impl BufferJournal {
    /// Opens the file to be rewritten from its start, or creates it. It is created after the
    /// device's first checkpoint, so its existence proves that there must be a device.
    pub(crate) fn open(vfs: &dyn Vfs) -> Result<Self> {
        if vfs.exists(NAME)? {
            return Ok(BufferJournal { file: vfs.open(NAME, Mode::ReadWrite)?, end: 0 });
        }
        let file = vfs.create(NAME)?;
        file.sync(Purpose::Manifest)?;
        vfs.sync_dir(Purpose::Manifest)?;
        Ok(BufferJournal { file, end: 0 })
    }

    /// The valid frames at the start of the file; none if it does not exist.
    pub(crate) fn read(vfs: &dyn Vfs) -> Result<Vec<Frame>> {
        match vfs.exists(NAME)? {
            true => frames(&*vfs.open(NAME, Mode::Read)?),
            false => Ok(Vec::new()),
        }
    }

    /// Whether the write buffer should be programmed before the next append.
    pub(crate) fn is_full(&self) -> bool {
        self.end >= MAX_BYTES
    }

    /// Appends a batch.
    ///
    /// # Errors
    /// I/O errors: the batch is not in the journal. `ReadOnly` if it may be.
    pub(crate) fn append(&mut self, frame: &Frame) -> Result<()> {
        let batch = frame.batch.as_bytes();
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&(batch.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(frame.batch.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&frame.epoch.to_le_bytes());
        for number in [frame.timestamp, frame.previous, frame.durable] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(batch);
        let sum = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        if let Err(error) = self.file.write_at(self.end, &bytes, Purpose::Log) {
            return Err(match self.invalidate(&bytes) {
                Ok(()) => error,
                Err(again) => Error::ReadOnly {
                    cause: format!("{error}, and that could not be undone: {again}"),
                },
            });
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Makes durable that this frame, whose write failed, is invalid.
    fn invalidate(&self, frame: &[u8]) -> Result<()> {
        let mut sum = [0; 4];
        if self.file.len()? < self.end + sum.len() as u64 {
            return Ok(());
        }
        self.file.read_at(self.end, &mut sum, Purpose::Log)?;
        if sum != frame[..4] {
            return Ok(());
        }
        let other = sum.map(|byte| !byte);
        self.file.write_at(self.end, &other, Purpose::Log)?;
        self.file.sync(Purpose::Log)
    }

    /// Restarts at the beginning of the file, after all batches were programmed.
    pub(crate) fn restart(&mut self) {
        self.end = 0;
    }
}

/// The valid frames at the start of the file.
pub(crate) fn frames(file: &dyn File) -> Result<Vec<Frame>> {
    // Frames begin below the limit, and none is longer than a page.
    let len = file.len()?.min(MAX_BYTES + (1 << 20));
    let mut bytes = vec![0; len as usize];
    file.read_at(0, &mut bytes, Purpose::Recovery)?;
    let mut frames = Vec::new();
    let mut rest = &bytes[..];
    while let Some((frame, length)) = frame(rest) {
        frames.push(frame);
        rest = &rest[length..];
    }
    Ok(frames)
}

fn frame(bytes: &[u8]) -> Option<(Frame, usize)> {
    let header = bytes.get(..HEADER_BYTES)?;
    let end = HEADER_BYTES.checked_add(u32_at(header, 4) as usize)?;
    let covered = bytes.get(4..end)?;
    if u32_at(header, 0) != crc32c::crc32c(covered) || end == HEADER_BYTES {
        return None;
    }
    let batch = WriteBatch::from_bytes(&bytes[HEADER_BYTES..end], u32_at(header, 8)).ok()?;
    let frame = Frame {
        epoch: u32_at(header, 12),
        timestamp: u64_at(header, 16),
        previous: u64_at(header, 24),
        durable: u64_at(header, 32),
        batch,
    };
    Some((frame, end))
}
