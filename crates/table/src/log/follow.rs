//! Reads a log record by record while it is written.
//!
//! A follower stops after the last whole record and continues there at a later call. Bytes after
//! it may be unwritten, half written, torn by a crash, or damaged: the follower does not say
//! which. Its caller knows from elsewhere, such as the number of the newest visible write or the
//! link in the next segment, whether there must be another record.
//!
//! Invariant: a record is returned only if all of its fragments match their checksums. Bytes that
//! did not are read from the file again at the next call. Bytes that did may be those of a record
//! that was removed again: a caller that knows that the next record is final calls
//! [`LogFollower::forget`] first, unless the bytes were read after that.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{File, Mode, Vfs, is_zero};

use super::LogRecord;
use super::format::{
    BLOCK_BYTES, FRAGMENT_HEADER_BYTES, HEADER_BYTES, HeaderFault, LogSum, Part, fits_fragment,
};
use super::reader::newer;

/// Bytes per read.
const CHUNK_BYTES: u64 = 8 * BLOCK_BYTES;

/// A position in a log that may grow.
pub struct LogFollower {
    file: Arc<dyn File>,
    name: String,
    number: u64,
    sum: LogSum,
    /// The end of the last record.
    end: u64,
    chunk: Vec<u8>,
    chunk_at: u64,
    /// The buffer for a record of several fragments.
    assembled: Vec<u8>,
}

/// A whole record: its position, its end, and its range of the chunk unless it was assembled.
struct ParsedRecord {
    position: u64,
    end: u64,
    payload: Option<Range<usize>>,
}

impl LogFollower {
    /// A follower at the start of the log `name`, written with `number`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn open(vfs: &dyn Vfs, name: &str, number: u64) -> Result<Self> {
        Ok(LogFollower {
            file: vfs.open(name, Mode::Read)?,
            name: name.to_owned(),
            number,
            sum: LogSum::new(number),
            end: 0,
            chunk: Vec::new(),
            chunk_at: 0,
            assembled: Vec::new(),
        })
    }

    /// The same log under another name: continues at the same position.
    ///
    /// # Errors
    /// I/O errors.
    pub fn reopen(&mut self, vfs: &dyn Vfs, name: &str) -> Result<()> {
        self.file = vfs.open(name, Mode::Read)?;
        name.clone_into(&mut self.name);
        Ok(())
    }

    /// The number of the log.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The name of the log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The end of the last record, in bytes.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Forgets what was read ahead: the next record is read from the file.
    pub fn forget(&mut self) {
        self.chunk.clear();
    }

    /// The next whole record; `None` if there is none at present.
    ///
    /// # Errors
    /// `Refused` for a newer format; I/O errors. The position is unchanged.
    #[expect(clippy::should_implement_trait, reason = "records are lent, which Iterator cannot do")]
    pub fn next(&mut self) -> Result<Option<LogRecord<'_>>> {
        let mut parsed = self.parse()?;
        if parsed.is_none() && !self.chunk.is_empty() {
            self.chunk.clear();
            parsed = self.parse()?;
        }
        let Some(ParsedRecord { position, end, payload }) = parsed else {
            self.chunk.clear();
            return Ok(None);
        };
        self.end = end;
        let bytes = payload.map_or(&self.assembled[..], |payload| &self.chunk[payload]);
        Ok(Some(LogRecord { position, bytes }))
    }

    /// Whether nothing but zeros follows the last record in its block.
    ///
    /// # Errors
    /// I/O errors.
    pub fn is_blank_after_end(&mut self) -> Result<bool> {
        self.chunk.clear();
        let blank = match self.load(self.end)? {
            Some(range) => is_zero(&self.chunk[range]),
            None => true,
        };
        self.chunk.clear();
        Ok(blank)
    }

    /// Parses the record after `self.end`; `None` if it is not whole.
    fn parse(&mut self) -> Result<Option<ParsedRecord>> {
        let (mut at, mut position) = (self.end, None);
        self.assembled.clear();
        loop {
            let in_block = at % BLOCK_BYTES;
            if !fits_fragment(in_block) {
                at += BLOCK_BYTES - in_block;
                continue;
            }
            let Some(range) = self.load(at)? else { return Ok(None) };
            if in_block == 0 {
                match self.sum.parse_header(at, &self.chunk[range]) {
                    Ok(_) => at += HEADER_BYTES,
                    Err(HeaderFault::Damaged(_)) => return Ok(None),
                    Err(HeaderFault::Newer(version)) => return Err(newer(&self.name, version)),
                }
                continue;
            }
            let Ok(fragment) = self.sum.parse_fragment(at, &self.chunk[range.clone()]) else {
                return Ok(None);
            };
            let payload = range.start + FRAGMENT_HEADER_BYTES as usize;
            let payload = payload..payload + fragment.len;
            let start = at;
            at += FRAGMENT_HEADER_BYTES + fragment.len as u64;
            match (fragment.part, position) {
                (Part::Full, None) => {
                    return Ok(Some(ParsedRecord {
                        position: start,
                        end: at,
                        payload: Some(payload),
                    }));
                }
                (Part::First, None) => position = Some(start),
                (Part::Middle | Part::Last, Some(_)) => {}
                // A seal, or what a torn append has left.
                _ => return Ok(None),
            }
            self.assembled.extend_from_slice(&self.chunk[payload]);
            if let (Part::Last, Some(position)) = (fragment.part, position) {
                return Ok(Some(ParsedRecord { position, end: at, payload: None }));
            }
        }
    }

    /// The range of the chunk from `at` to the end of its block; `None` past the end of the file.
    fn load(&mut self, at: u64) -> Result<Option<Range<usize>>> {
        let block_at = at - at % BLOCK_BYTES;
        let loaded = self.chunk_at..self.chunk_at + self.chunk.len() as u64;
        if !(loaded.contains(&block_at) && loaded.contains(&at)) {
            let mut chunk = std::mem::take(&mut self.chunk);
            let mut file_bytes = self.file.len()?;
            loop {
                let len = CHUNK_BYTES.min(file_bytes.saturating_sub(block_at));
                chunk.resize(len as usize, 0);
                // Of an encrypted log, also the tail that a crash has left is no frame.
                match self.file.read_lossy_at(block_at, &mut chunk, Purpose::Scan) {
                    Ok(()) => break,
                    Err(Error::Io { kind: std::io::ErrorKind::UnexpectedEof, .. }) => {}
                    Err(error) => return Err(error),
                }
                // The log was completed meanwhile, and its preallocated tail released.
                let before = std::mem::replace(&mut file_bytes, self.file.len()?);
                if file_bytes >= before {
                    return Ok(None);
                }
            }
            (self.chunk, self.chunk_at) = (chunk, block_at);
        }
        let from = (at - self.chunk_at) as usize;
        let to = self.chunk.len().min((block_at - self.chunk_at + BLOCK_BYTES) as usize);
        Ok((from < to).then_some(from..to))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;
    use crate::LogWriter;
    use siltstone_vfs::Ram;

    #[test]
    fn records_are_followed_while_the_log_grows() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let mut log = LogWriter::create(vfs.as_ref(), "log", 7, Purpose::Log).unwrap();
        let mut follower = LogFollower::open(vfs.as_ref(), "log", 7).unwrap();
        assert!(follower.next().unwrap().is_none());
        let record = |i: usize| vec![i as u8; i * i % 70_000];
        for i in 0..400 {
            let position = log.append(&[&record(i)]).unwrap();
            // Sometimes several at once.
            if i % 5 == 4 {
                for j in i - 4..=i {
                    let found = follower.next().unwrap().unwrap();
                    assert_eq!(found.bytes, record(j), "record {j}");
                    assert!(j < i || found.position == position);
                }
                assert!(follower.next().unwrap().is_none());
                assert_eq!(follower.end(), log.len());
            }
        }
        log.seal().unwrap();
        assert!(follower.next().unwrap().is_none(), "a seal is no record");
    }

    /// A file whose preallocated tail is released once its length was asked for.
    struct ReleasedTail {
        file: Arc<dyn File>,
        tail: AtomicU64,
    }

    impl File for ReleasedTail {
        fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
            self.file.read_at(offset, buf, purpose)
        }

        fn write_at(&self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
            self.file.write_at(offset, bytes, purpose)
        }

        fn sync(&self, purpose: Purpose) -> Result<()> {
            self.file.sync(purpose)
        }

        fn len(&self) -> Result<u64> {
            Ok(self.file.len()? + self.tail.swap(0, Relaxed))
        }

        fn next_data(&self, offset: u64) -> Result<u64> {
            self.file.next_data(offset)
        }

        fn set_len(&self, len: u64) -> Result<()> {
            self.file.set_len(len)
        }

        fn reserve(&self, len: u64) -> Result<()> {
            self.file.reserve(len)
        }

        fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
            self.file.punch_hole(offset, len)
        }
    }

    #[test]
    fn log_that_is_completed_during_a_read_is_read_to_its_end() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let mut log = LogWriter::create(vfs.as_ref(), "log", 7, Purpose::Log).unwrap();
        log.append(&[b"last"]).unwrap();
        log.seal().unwrap();
        let mut follower = LogFollower::open(vfs.as_ref(), "log", 7).unwrap();
        let file = vfs.open("log", Mode::Read).unwrap();
        follower.file = Arc::new(ReleasedTail { file, tail: AtomicU64::new(4096) });
        assert_eq!(follower.next().unwrap().unwrap().bytes, b"last");
    }

    #[test]
    fn record_that_was_read_ahead_and_removed_is_forgotten() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let mut log = LogWriter::create(vfs.as_ref(), "log", 7, Purpose::Log).unwrap();
        log.append(&[b"first"]).unwrap();
        let mark = log.mark();
        log.append(&[b"refused"]).unwrap();
        let mut follower = LogFollower::open(vfs.as_ref(), "log", 7).unwrap();
        assert_eq!(follower.next().unwrap().unwrap().bytes, b"first");
        log.undo_to(mark).unwrap();
        log.append(&[b"written"]).unwrap();
        follower.forget();
        assert_eq!(follower.next().unwrap().unwrap().bytes, b"written");
    }

    #[test]
    fn torn_record_is_not_returned_and_its_replacement_is() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let mut log = LogWriter::create(vfs.as_ref(), "log", 7, Purpose::Log).unwrap();
        log.append(&[b"whole"]).unwrap();
        let mark = log.mark();
        log.append(&[&[1; 50_000]]).unwrap();
        let file = vfs.open("log", Mode::ReadWrite).unwrap();
        let len = file.len().unwrap();
        file.set_len(len - 10).unwrap();
        let mut follower = LogFollower::open(vfs.as_ref(), "log", 7).unwrap();
        assert_eq!(follower.next().unwrap().unwrap().bytes, b"whole");
        assert!(follower.next().unwrap().is_none());
        assert!(!follower.is_blank_after_end().unwrap());
        log.undo_to(mark).unwrap();
        assert!(follower.is_blank_after_end().unwrap());
        log.append(&[&[2; 60_000]]).unwrap();
        assert_eq!(follower.next().unwrap().unwrap().bytes, [2; 60_000]);
    }
}
