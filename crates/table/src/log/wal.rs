//! Segmented write-ahead log: after any power cut, replay yields a prefix of the writes.
//!
//! ```text
//!   log 7 ──▶ log 9: "after 7, 32 MiB" ──▶ log 12: "after 9, …"
//!
//!   link := 0:u8  previous log:u64 LE  its length:u64 LE       each log's first record; 0, 0: none
//! ```
//!
//! Each segment is a record log. A rotation does not sync the old segment, so writers never wait
//! for it. If a power cut then takes the old segment's tail, the link in the next segment reveals
//! the missing bytes, and the next segment is not replayed ([`replay`]). A synced write first syncs
//! all older segments. The contents of the other records belong to the engine; their kinds start
//! at 1.
//!
//! Invariant: when [`WalWriter::sync`] returns, every record so far and the names of all segments
//! are durable.
//!
//! [`replay`]: super::replay()

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use siltstone_engine::{LogPosition, Purpose, Result};
use siltstone_vfs::Vfs;

use super::{LogAccess, LogMark, LogWriter, SyncHandle};
use crate::{FileKind, FileNumber};

/// The first byte of a link record; engine records start with other bytes.
pub const KIND_LINK: u8 = 0;

/// Header and body of one record.
pub type RecordParts<'a> = [&'a [u8]; 2];

/// The first record of a segment: the previous segment and its length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentLink {
    /// The number of the previous segment; 0 if there is none.
    pub number: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl SegmentLink {
    /// Encodes the record.
    pub fn encode(self) -> [u8; 17] {
        let mut out = [KIND_LINK; 17];
        out[1..9].copy_from_slice(&self.number.to_le_bytes());
        out[9..].copy_from_slice(&self.bytes.to_le_bytes());
        out
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// A message if the record is malformed.
    pub fn decode(record: &[u8]) -> std::result::Result<SegmentLink, String> {
        let body = record.strip_prefix(&[KIND_LINK]).unwrap_or_default();
        let (words, rest) = body.as_chunks::<8>();
        let ([number, bytes], []) = (words, rest) else {
            return Err("a malformed link to the previous log".to_owned());
        };
        Ok(SegmentLink { number: u64::from_le_bytes(*number), bytes: u64::from_le_bytes(*bytes) })
    }
}

impl std::fmt::Display for SegmentLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "follows log {} of {} bytes", self.number, self.bytes)
    }
}

/// Appends to the active segment, and tracks older segments that are not yet synced.
pub struct WalWriter {
    number: u64,
    current: LogWriter,
    older: Vec<(u64, LogWriter)>,
    /// The current segment's name is durable in its directory.
    is_named: Arc<AtomicBool>,
    vfs: Arc<dyn Vfs>,
}

/// An end of the log to which it can be cut back, within its current segment.
#[derive(Debug, Clone, Copy)]
pub struct WalMark {
    number: u64,
    log: LogMark,
}

/// A position in the log, which any thread can make durable while its segments exist.
pub struct WalPosition {
    /// The segments that were not synced, and the lengths that are needed of them; the current one
    /// last, so there is at least one.
    segments: Vec<(SyncHandle, u64)>,
    is_named: Arc<AtomicBool>,
    vfs: Arc<dyn Vfs>,
}

impl LogPosition for WalPosition {
    fn is_durable(&self) -> bool {
        self.is_named.load(Acquire)
            && self.segments.iter().all(|(segment, bytes)| segment.synced_to() >= *bytes)
    }

    fn sync(&self) -> Result<()> {
        let last = self.segments.len() - 1;
        for (at, (segment, bytes)) in self.segments.iter().enumerate() {
            if at == last && !self.is_named.load(Acquire) {
                // A later success would not prove that the name is durable.
                self.vfs
                    .sync_dir(Purpose::Log)
                    .inspect_err(|error| segment.poison(format!("syncing its name: {error}")))?;
                self.is_named.store(true, Release);
            }
            if segment.synced_to() < *bytes {
                segment.sync()?;
            }
        }
        Ok(())
    }
}

impl WalWriter {
    /// Creates the segment `number`, which follows `previous`.
    ///
    /// # Errors
    /// I/O errors; then the segment does not exist.
    pub fn create(vfs: &Arc<dyn Vfs>, number: u64, previous: SegmentLink) -> Result<Self> {
        Self::create_in(vfs, SpareSegment::create(vfs.as_ref(), number)?, previous)
    }

    /// The same in a pre-created segment.
    ///
    /// # Errors
    /// I/O errors; then the segment does not exist.
    pub fn create_in(
        vfs: &Arc<dyn Vfs>,
        next: SpareSegment,
        previous: SegmentLink,
    ) -> Result<Self> {
        let SpareSegment { number, log } = next;
        let current = append_link(vfs.as_ref(), number, log, previous)?;
        let (older, vfs) = (Vec::new(), vfs.clone());
        Ok(WalWriter { number, current, older, is_named: Arc::default(), vfs })
    }

    /// Bytes of the current segment.
    #[expect(clippy::len_without_is_empty, reason = "it always has its link record")]
    pub fn len(&self) -> u64 {
        self.current.len()
    }

    /// The current segment's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A reader of the current segment's records.
    pub fn access(&self) -> LogAccess {
        self.current.access()
    }

    /// A handle to sync the current segment from another thread.
    pub fn sync_handle(&self) -> SyncHandle {
        self.current.sync_handle()
    }

    /// Handles to sync the segments after `number`, the current one last.
    pub fn sync_handles_after(&self, number: u64) -> Vec<SyncHandle> {
        let older = self.older.iter().filter(|&&(older, _)| older > number);
        let older = older.map(|(_, log)| log.sync_handle());
        older.chain((self.number > number).then(|| self.current.sync_handle())).collect()
    }

    /// Appends records atomically with one request and adds their positions to `positions`.
    ///
    /// # Errors
    /// I/O errors. If the disk is full, nothing has changed; otherwise the log's contents are
    /// unknown.
    pub fn append<'r>(
        &mut self,
        records: impl IntoIterator<Item = RecordParts<'r>>,
        positions: &mut Vec<u64>,
    ) -> Result<()> {
        self.current.append_group(records, positions)
    }

    /// The present end.
    pub fn mark(&self) -> WalMark {
        WalMark { number: self.number, log: self.current.mark() }
    }

    /// Durably removes what was appended after `mark`, which nobody may have read. The log must not
    /// have been rotated since. Cost: a sync.
    ///
    /// # Errors
    /// `ReadOnly` if that fails: the records may be in the log after the next open.
    pub fn undo_to(&mut self, mark: WalMark) -> Result<()> {
        debug_assert_eq!(mark.number, self.number, "rotated since");
        self.current.undo_to(mark.log)
    }

    /// The present end, to be made durable later.
    pub fn position(&self) -> WalPosition {
        let older = self.older.iter().map(|(_, log)| log);
        let segments = older.chain([&self.current]).map(|log| (log.sync_handle(), log.len()));
        WalPosition {
            segments: segments.collect(),
            is_named: self.is_named.clone(),
            vfs: self.vfs.clone(),
        }
    }

    /// Makes every record so far durable, those of older segments first.
    ///
    /// # Errors
    /// I/O errors; it is then unknown what is durable.
    pub fn sync(&mut self) -> Result<()> {
        for (_, log) in &mut self.older {
            log.sync()?;
        }
        if !self.is_named.load(Acquire) {
            self.vfs.sync_dir(Purpose::Log)?;
            self.is_named.store(true, Release);
        }
        self.older.clear();
        self.current.sync()
    }

    /// Continues in a new segment `number`, or in the old one if that fails.
    ///
    /// # Errors
    /// I/O errors.
    pub fn rotate(&mut self, number: u64) -> Result<()> {
        let next = SpareSegment::create(self.vfs.as_ref(), number)?;
        let old = self.sync_handle();
        self.rotate_to(next)?;
        // From now on it is read by name, up to the end of the file.
        old.trim_preallocation();
        Ok(())
    }

    /// The same in a pre-created segment. The old segment may keep a preallocated tail of zeros
    /// until its new owner calls [`SyncHandle::trim_preallocation`], which can take longer than a
    /// writer should wait.
    ///
    /// # Errors
    /// I/O errors.
    pub fn rotate_to(&mut self, next: SpareSegment) -> Result<()> {
        let previous = SegmentLink { number: self.number, bytes: self.current.len() };
        let SpareSegment { number, log } = next;
        let log = append_link(self.vfs.as_ref(), number, log, previous)
            .inspect_err(|error| self.current.poison_if_read_only(error))?;
        self.older.push((self.number, std::mem::replace(&mut self.current, log)));
        self.number = number;
        self.is_named = Arc::default();
        Ok(())
    }

    /// Releases the segments below `number`, which are obsolete. Dropping one can take as long as
    /// the system needs to free the file's pages, so a writer should not do it.
    #[must_use]
    pub fn release_before(&mut self, number: u64) -> Vec<LogWriter> {
        let (gone, kept): (Vec<_>, _) =
            std::mem::take(&mut self.older).into_iter().partition(|&(older, _)| older < number);
        self.older = kept;
        gone.into_iter().map(|(_, log)| log).collect()
    }

    /// Syncs and seals the current segment; returns the link for a next one.
    ///
    /// # Errors
    /// I/O errors.
    pub fn seal(mut self) -> Result<SegmentLink> {
        self.sync()?;
        let bytes = self.current.len();
        self.current.seal()?;
        Ok(SegmentLink { number: self.number, bytes })
    }
}

/// A pre-created segment without records, because creating a file takes time. After a crash it is
/// not part of the log.
pub struct SpareSegment {
    number: u64,
    log: LogWriter,
}

impl SpareSegment {
    /// Creates the segment `number`, greater than any existing one.
    ///
    /// # Errors
    /// I/O errors; then the segment does not exist.
    pub fn create(vfs: &dyn Vfs, number: u64) -> Result<Self> {
        let name = FileKind::Log.name(FileNumber(number));
        Ok(SpareSegment {
            number,
            log: LogWriter::create_append(vfs, &name, number, Purpose::Log)?,
        })
    }

    /// Preallocates about `bytes`; the first `now` of them are ready when this returns.
    pub fn preallocate(&self, bytes: u64, now: u64) {
        self.log.preallocate(bytes, now);
    }

    /// The segment's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Removes the segment. If that fails, the next open removes it.
    pub fn remove(self, vfs: &dyn Vfs) {
        drop(self.log);
        remove_logs(vfs, [self.number]);
    }
}

/// Removes obsolete segments. If one cannot be removed, the next open removes it.
pub fn remove_logs(vfs: &dyn Vfs, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        let _ = vfs.remove(&FileKind::Log.name(FileNumber(number)));
    }
}

/// Appends the link to the segment `number`.
fn append_link(
    vfs: &dyn Vfs,
    number: u64,
    mut log: LogWriter,
    previous: SegmentLink,
) -> Result<LogWriter> {
    match log.append(&[&previous.encode()]) {
        Ok(_) => Ok(log),
        Err(error) => {
            // A partial segment would confuse recovery; if it cannot be removed, it has no records.
            remove_logs(vfs, [number]);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_round_trips_and_malformed_link_is_rejected() {
        let link = SegmentLink { number: 3, bytes: 1 << 40 };
        let bytes = link.encode();
        assert_eq!(SegmentLink::decode(&bytes), Ok(link));
        for at in 0..bytes.len() {
            assert!(SegmentLink::decode(&bytes[..at]).is_err());
        }
        assert!(SegmentLink::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
        assert!(SegmentLink::decode(&[1; 17]).is_err());
    }
}
