//! Sequential log reader.
//!
//! [`LogReader`] returns a record as a slice of its read buffer if it is one fragment, and
//! assembles it otherwise. At the first invalid bytes it asks `tail` whether they had been
//! durable.
//!
//! Invariant: memory is bounded by the read buffer (256 KiB) plus the largest actual record; every
//! step advances, so reading terminates.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{File, Mode, Vfs};

use super::format::{
    BLOCK_BYTES, FRAGMENT_HEADER_BYTES, HEADER_BYTES, HeaderFault, LogSum, Part, fits_fragment,
    parse_seal,
};
use crate::bytes_file::BytesFile;

/// Bytes per sequential read.
const CHUNK_BYTES: u64 = 8 * BLOCK_BYTES;

/// How the reader treats the end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogMode {
    /// After a possible crash: a torn tail of unsynced writes is not an error.
    Recover,
    /// The log was sealed: any missing byte is corruption.
    Sealed,
}

/// How a log ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEnd {
    /// With its seal: nothing is missing.
    Sealed,
    /// After a whole record, with nothing after it.
    Clean,
    /// In invalid bytes that, on all evidence, had not been synced.
    Torn {
        /// Bytes after the last whole record.
        dropped_bytes: u64,
    },
}

/// A record, borrowed from the reader until its next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRecord<'a> {
    /// Its offset in the file, as returned by `append` and taken by
    /// [`LogAccess`](super::LogAccess).
    pub position: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Reads a log sequentially from its start.
pub struct LogReader {
    pub(super) file: Arc<dyn File>,
    pub(super) name: String,
    pub(super) sum: LogSum,
    mode: LogMode,
    /// The file's length when it was opened.
    pub(super) len: u64,
    /// The next byte to parse.
    at: u64,
    /// The end of the last whole record.
    pub(super) end: u64,
    pub(super) records: u64,
    chunk: Vec<u8>,
    chunk_at: u64,
    /// The buffer for a record of several fragments.
    assembled: Vec<u8>,
    finished: Option<Result<LogEnd>>,
    /// There was proof so far that bytes of this log were synced.
    was_synced: bool,
}

/// One parsing step. Ranges refer to the chunk.
enum Step {
    /// A block header or padding, to be skipped.
    Skip,
    Fragment {
        part: Part,
        at: u64,
        payload: std::ops::Range<usize>,
    },
    /// Invalid bytes, or the end of the file.
    Stop {
        reason: &'static str,
    },
}

impl LogReader {
    /// Opens the log `name`, written with `number`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn open(vfs: &dyn Vfs, name: &str, number: u64, mode: LogMode) -> Result<Self> {
        Self::from_file(vfs.open(name, Mode::Read)?, name, number, mode)
    }

    /// Reads a log from an open file; `name` is for messages.
    ///
    /// # Errors
    /// I/O errors.
    pub fn from_file(file: Arc<dyn File>, name: &str, number: u64, mode: LogMode) -> Result<Self> {
        Ok(LogReader {
            len: file.len()?,
            file,
            name: name.into(),
            sum: LogSum::new(number),
            mode,
            at: 0,
            end: 0,
            records: 0,
            chunk: Vec::new(),
            chunk_at: 0,
            assembled: Vec::new(),
            finished: None,
            was_synced: false,
        })
    }

    /// The next record; `None` at the log's end, which [`end`](LogReader::end) then describes.
    ///
    /// # Errors
    /// `Corruption` if durable bytes are damaged; `Refused` for a newer format; I/O errors. All
    /// later calls return the same result.
    #[expect(clippy::should_implement_trait, reason = "records are lent, which Iterator cannot do")]
    pub fn next(&mut self) -> Result<Option<LogRecord<'_>>> {
        match &self.finished {
            Some(Ok(_)) => return Ok(None),
            Some(Err(error)) => return Err(error.clone()),
            None => {}
        }
        match self.advance() {
            Ok(Ok((position, Some(payload)))) => {
                Ok(Some(LogRecord { position, bytes: &self.chunk[payload] }))
            }
            Ok(Ok((position, None))) => Ok(Some(LogRecord { position, bytes: &self.assembled })),
            Ok(Err(end)) => {
                self.finished = Some(Ok(end));
                Ok(None)
            }
            Err(error) => {
                self.finished = Some(Err(error.clone()));
                Err(error)
            }
        }
    }

    /// How the log ended; `None` before the end and after an error.
    pub fn end(&self) -> Option<LogEnd> {
        self.finished.as_ref().and_then(|end| end.as_ref().ok()).copied()
    }

    /// The end of the last whole record returned, in bytes.
    pub fn valid_bytes(&self) -> u64 {
        self.end
    }

    /// Whether there was proof so far that the log was ever synced. Proof is written with the first
    /// record after a sync, so a log that was synced only at its end has none.
    pub fn was_synced(&self) -> bool {
        self.was_synced
    }

    /// Records returned so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The next record (its position, and its range of the chunk unless it was assembled), or the
    /// log's end.
    #[expect(clippy::type_complexity, reason = "private; a type alias would not help")]
    fn advance(&mut self) -> Result<Result<(u64, Option<std::ops::Range<usize>>), LogEnd>> {
        let mut record_start = None;
        self.assembled.clear();
        let (position, payload) = loop {
            match self.parse_next()? {
                Step::Skip => {}
                Step::Stop { reason } => return self.stop(record_start.is_some(), reason).map(Err),
                Step::Fragment { part, at, payload } => match (part, record_start) {
                    (Part::Full, None) => break (at, Some(payload)),
                    (Part::First, None) => {
                        record_start = Some(at);
                        self.assembled.extend_from_slice(&self.chunk[payload]);
                    }
                    (Part::Middle, Some(_)) => {
                        self.assembled.extend_from_slice(&self.chunk[payload]);
                    }
                    (Part::Last, Some(position)) => {
                        self.assembled.extend_from_slice(&self.chunk[payload]);
                        break (position, None);
                    }
                    (Part::Seal, None) => return self.check_seal(at, payload).map(Err),
                    // No loss of sectors can reorder valid fragments.
                    _ => return Err(self.corruption(at, "a fragment is out of order")),
                },
            }
        };
        self.end = self.at;
        self.records += 1;
        Ok(Ok((position, payload)))
    }

    /// Parses the bytes at `self.at` and advances past them.
    fn parse_next(&mut self) -> Result<Step> {
        if self.at >= self.len {
            return Ok(Step::Stop { reason: "the file ends" });
        }
        let (at, in_block) = (self.at, self.at % BLOCK_BYTES);
        let range = self.load(at - in_block)?;
        let block = &self.chunk[range.clone()];
        if in_block == 0 {
            return match self.sum.parse_header(at, block) {
                Ok(synced_to) => {
                    self.was_synced |= synced_to > 0;
                    self.at += HEADER_BYTES;
                    Ok(Step::Skip)
                }
                Err(HeaderFault::Damaged(reason)) => Ok(Step::Stop { reason }),
                Err(HeaderFault::Newer(version)) => Err(self.newer(version)),
            };
        }
        let rest = &block[in_block as usize..];
        if !fits_fragment(in_block) {
            if rest.iter().any(|&b| b != 0) {
                return Ok(Step::Stop { reason: "the padding of a block is not zero" });
            }
            self.at += rest.len() as u64;
            return Ok(Step::Skip);
        }
        match self.sum.parse_fragment(at, rest) {
            Err(reason) => Ok(Step::Stop { reason }),
            Ok(fragment) => {
                let from = range.start + (in_block + FRAGMENT_HEADER_BYTES) as usize;
                // For the first record the flag proves nothing: nothing precedes it.
                self.was_synced |= fragment.prev_synced && self.records > 0;
                self.was_synced |= fragment.part == Part::Seal;
                self.at += FRAGMENT_HEADER_BYTES + fragment.len as u64;
                Ok(Step::Fragment { part: fragment.part, at, payload: from..from + fragment.len })
            }
        }
    }

    /// Loads the block at `block_at` and returns its range of the chunk, which is shorter than a
    /// block at the end of the file.
    fn load(&mut self, block_at: u64) -> Result<std::ops::Range<usize>> {
        let loaded = self.chunk_at..self.chunk_at + self.chunk.len() as u64;
        if !loaded.contains(&block_at) {
            let len = CHUNK_BYTES.min(self.len - block_at) as usize;
            // Empty during the read, so that a failed read leaves no stale bytes at the new offset.
            let mut chunk = std::mem::take(&mut self.chunk);
            chunk.resize(len, 0);
            let read = self.file.read_lossy_at(block_at, &mut chunk, Purpose::Recovery);
            read.or_else(|error| self.read_truncated(block_at, &mut chunk, error))?;
            self.chunk = chunk;
            self.chunk_at = block_at;
        }
        let from = (block_at - self.chunk_at) as usize;
        Ok(from..self.chunk.len().min(from + BLOCK_BYTES as usize))
    }

    /// Handles a read `error` if the file has become shorter: the writer may have released its
    /// preallocated zeros since the file was opened. The missing bytes read as zeros.
    fn read_truncated(&self, at: u64, chunk: &mut [u8], error: Error) -> Result<()> {
        let there = self.file.len()?.saturating_sub(at);
        if there >= chunk.len() as u64 {
            return Err(error);
        }
        let (there, gone) = chunk.split_at_mut(there as usize);
        gone.fill(0);
        if there.is_empty() {
            Ok(())
        } else {
            self.file.read_lossy_at(at, there, Purpose::Recovery)
        }
    }

    /// The bytes of the block at `block_at`, for `tail`.
    pub(super) fn block(&mut self, block_at: u64) -> Result<&[u8]> {
        let range = self.load(block_at)?;
        Ok(&self.chunk[range])
    }

    fn stop(&mut self, amid_record: bool, reason: &'static str) -> Result<LogEnd> {
        let end = self.classify_tail(self.at, amid_record, reason)?;
        if self.mode == LogMode::Sealed && end != LogEnd::Sealed {
            return Err(self.corruption(self.at, &format!("{reason}, and the log was sealed")));
        }
        Ok(end)
    }

    fn check_seal(&mut self, at: u64, payload: std::ops::Range<usize>) -> Result<LogEnd> {
        let (end, records) = (self.end, self.records);
        let seal = parse_seal(&self.chunk[payload]);
        let is_last = self.ends_at(self.at)?;
        match seal {
            Some(seal) if seal == (end, records) && is_last => Ok(LogEnd::Sealed),
            Some(seal) if seal == (end, records) => {
                Err(self.corruption(self.at, "there are bytes after the seal"))
            }
            _ => Err(self.corruption(at, "the seal does not match the log")),
        }
    }

    /// Whether the file ends at `end`. After a power failure during sealing, zeros may follow: the
    /// preallocated tail, whose release was not yet durable.
    pub(super) fn ends_at(&mut self, end: u64) -> Result<bool> {
        if self.mode == LogMode::Sealed {
            return Ok(end == self.len);
        }
        let mut block_at = end - end % BLOCK_BYTES;
        while block_at < self.len {
            let from = end.saturating_sub(block_at) as usize;
            if self.block(block_at)?.iter().skip(from).any(|&byte| byte != 0) {
                return Ok(false);
            }
            block_at += BLOCK_BYTES;
        }
        Ok(true)
    }

    pub(super) fn corruption(&self, at: u64, reason: &str) -> Error {
        Error::corruption(&self.name, at, reason)
    }

    pub(super) fn newer(&self, version: u8) -> Error {
        newer(&self.name, version)
    }
}

/// The log `name` has a newer version.
pub(super) fn newer(name: &str, version: u8) -> Error {
    Error::Refused {
        path: name.to_owned(),
        reason: format!("log format {version} is newer than this program; use a newer one"),
    }
}

/// Records of a log with their positions in bytes.
pub type PositionedRecords = Vec<(u64, Vec<u8>)>;

/// Parses a whole log: the records with their positions, and how it ended.
///
/// # Errors
/// As [`LogReader::next`]. Arbitrary bytes give a result, with memory bounded by their length.
pub fn parse_log(bytes: &[u8], number: u64, mode: LogMode) -> Result<(PositionedRecords, LogEnd)> {
    let mut reader = LogReader::from_file(Arc::new(BytesFile::new(bytes)), "log", number, mode)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next()? {
        records.push((record.position, record.bytes.to_vec()));
    }
    let end =
        reader.end().ok_or_else(|| Error::Invalid("reading a log did not reach its end".into()))?;
    Ok((records, end))
}
