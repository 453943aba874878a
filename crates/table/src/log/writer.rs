//! Log writer.
//!
//! An append (or a group of appends) is encoded into one reused buffer and written with one
//! request; a record over 1 MiB takes several. With a [`SyncHandle`], another thread (the leader of
//! a group commit) syncs while this one appends.
//!
//! After an error:
//! * A failed append truncates the file to the last whole record and syncs that, so that no sector
//!   of the failed record can resurface after a later one. Then the log stays usable (a full disk
//!   may get space again). If truncating fails too, the append returns `ReadOnly` instead of its
//!   own error, because its record may exist after the next open, and the log rejects all further
//!   appends.
//! * A failed sync leaves it unknown what is durable: the log rejects all further appends and
//!   syncs.
//!
//! Invariant: the bytes before `len` are whole records in the order of the calls, and `synced_to`
//! never exceeds what a successful sync covered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{File, Vfs};

use super::access::LogAccess;
use super::format::{
    BLOCK_BYTES, FRAGMENT_HEADER_BYTES, LogSum, PREV_SYNCED, Part, fits_fragment, seal_payload,
};
use super::shared::Shared;

/// A buffer of this size is written out even in the middle of a record.
const WRITE_BYTES: usize = 1 << 20;

/// The largest record, in bytes.
pub const MAX_RECORD_BYTES: u64 = u32::MAX as u64;

/// Appends to a log. Dropping it leaves the log unsealed, as after a crash.
pub struct LogWriter {
    shared: Arc<Shared>,
    sum: LogSum,
    /// The log's length including buffered bytes.
    tail: u64,
    /// Encoded bytes not yet written; their offset is `tail - buffer.len()`.
    buffer: Vec<u8>,
    /// Whether any part of the current append has been written to the file.
    reached_file: bool,
    records: u64,
    /// Files of the directory have no holes: the gap before a seal is written.
    has_no_holes: bool,
}

/// An end of a log to which it can be cut back.
#[derive(Debug, Clone, Copy)]
pub struct LogMark {
    tail: u64,
    records: u64,
}

/// Syncs a log from any thread. Clones share the log.
#[derive(Clone)]
pub struct SyncHandle {
    shared: Arc<Shared>,
}

impl LogWriter {
    /// Creates the log `name`, which must not exist. Its *name* is durable only after the caller's
    /// `sync_dir`. Every reader needs the same `number`, which seeds the checksums.
    ///
    /// # Errors
    /// I/O errors.
    pub fn create(vfs: &dyn Vfs, name: &str, number: u64, purpose: Purpose) -> Result<Self> {
        Ok(Self::of(vfs, vfs.create(name)?, name, number, purpose))
    }

    /// The same for a log that will grow by many small appends, which the file system may prepare
    /// for (see [`Vfs::create_append`]).
    ///
    /// # Errors
    /// I/O errors.
    pub fn create_append(vfs: &dyn Vfs, name: &str, number: u64, purpose: Purpose) -> Result<Self> {
        Ok(Self::of(vfs, vfs.create_append(name)?, name, number, purpose))
    }

    fn of(vfs: &dyn Vfs, file: Arc<dyn File>, name: &str, number: u64, purpose: Purpose) -> Self {
        // An idle log needs no open file, and a log whose file cannot be opened again is unchanged.
        file.allow_close();
        let shared = Shared {
            file,
            name: name.into(),
            purpose,
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            fault: OnceLock::new(),
            syncing: Mutex::new(()),
        };
        LogWriter {
            shared: Arc::new(shared),
            sum: LogSum::new(number),
            tail: 0,
            buffer: Vec::new(),
            reached_file: false,
            records: 0,
            has_no_holes: vfs.is_append_only(),
        }
    }

    /// Appends one record, the concatenation of `parts`, and returns its position. It is in the
    /// file but not yet durable. Cost: one write request per MiB.
    ///
    /// # Errors
    /// `TooLarge` over [`MAX_RECORD_BYTES`] and I/O errors: the record is not in the log.
    /// `ReadOnly` after a failure that could not be undone: the record may be in the log if this is
    /// the first such error.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<u64> {
        self.transact(|log| log.stage(parts))
    }

    /// Appends several records in one write, all or none, and adds their positions to `positions`.
    ///
    /// # Errors
    /// As [`append`](LogWriter::append).
    pub fn append_group<'a, R: AsRef<[&'a [u8]]>>(
        &mut self,
        records: impl IntoIterator<Item = R>,
        positions: &mut Vec<u64>,
    ) -> Result<()> {
        let before = positions.len();
        let outcome = self.transact(|log| {
            for record in records {
                positions.push(log.stage(record.as_ref())?);
            }
            Ok(())
        });
        if outcome.is_err() {
            positions.truncate(before);
        }
        outcome
    }

    /// The present end.
    pub fn mark(&self) -> LogMark {
        LogMark { tail: self.tail, records: self.records }
    }

    /// Durably removes what was appended after `mark`, which nobody may have read. Cost: a sync.
    ///
    /// # Errors
    /// `ReadOnly` if that fails: the records may be in the log after the next open, and the log
    /// rejects everything.
    pub fn undo_to(&mut self, mark: LogMark) -> Result<()> {
        (self.tail, self.records) = (mark.tail, mark.records);
        let cause = Error::Invalid("another table of the batch has refused its part".into());
        self.shared.truncate_to(mark.tail, &cause)
    }

    /// Makes all appended records durable. Cost besides the sync: one query of the file's links.
    ///
    /// # Errors
    /// I/O errors, after which the log rejects everything; an error if another process removed the
    /// file (the owner of a log removes it only after its last use).
    pub fn sync(&mut self) -> Result<()> {
        self.shared.sync()?;
        self.shared.check_not_removed()
    }

    /// Rejects further appends if `error` means that the next segment may exist after a reopen.
    pub(super) fn poison_if_read_only(&self, error: &Error) {
        if let Error::ReadOnly { cause } = error {
            self.shared.poison(cause.clone());
        }
    }

    /// A reader for any thread; a record is readable once its append has returned.
    pub fn access(&self) -> LogAccess {
        LogAccess::growing(self.shared.file.clone(), self.sum, self.shared.clone())
    }

    /// A handle to sync from another thread.
    pub fn sync_handle(&self) -> SyncHandle {
        SyncHandle { shared: self.shared.clone() }
    }

    /// Length of the file in bytes.
    pub fn len(&self) -> u64 {
        self.tail
    }

    /// Whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.tail == 0
    }

    /// Number of records appended.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Announces that about `bytes` will be appended to the empty log, so that they can be
    /// preallocated.
    pub(super) fn preallocate(&self, bytes: u64, now: u64) {
        self.shared.file.preallocate(bytes, now);
    }

    /// Closes the log permanently: readers treat any missing byte as corruption. Cost: two syncs
    /// (one if everything is synced already), because a seal must not outlive the sealed data.
    ///
    /// # Errors
    /// I/O errors; the log is then unsealed, as after a crash.
    pub fn seal(mut self) -> Result<()> {
        let data_end = self.tail;
        let block_end = data_end.next_multiple_of(BLOCK_BYTES);
        if self.has_no_holes && block_end > data_end {
            // Torn zeros before a seal would not be zeros: they are durable before it.
            self.shared.file.set_len(block_end)?;
            self.sync()?;
        } else if self.shared.synced.load(Ordering::Acquire) < data_end {
            self.sync()?;
        }
        let records = self.records;
        // The file ends with the seal.
        self.shared.file.trim_preallocation()?;
        self.transact(|log| {
            // The gap up to the next block is left unwritten and reads as zeros.
            log.tail = block_end;
            log.begin_block(data_end);
            log.fragment(Part::Seal as u8 | PREV_SYNCED, |out| {
                out.extend_from_slice(&seal_payload(data_end, records));
            });
            Ok(())
        })?;
        self.sync()
    }

    /// Encodes with `stage` and writes; undoes everything if either fails.
    fn transact<T>(&mut self, stage: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.shared.check_usable()?;
        let (start, records) = (self.tail, self.records);
        self.reached_file = false;
        let outcome = stage(self).and_then(|value| self.write_out().map(|()| value));
        match outcome {
            Ok(value) => {
                self.shared.written.store(self.tail, Ordering::Release);
                Ok(value)
            }
            Err(error) => {
                self.buffer.clear();
                self.tail = start;
                self.records = records;
                if self.reached_file {
                    self.shared.truncate_to(start, &error)?;
                }
                Err(error)
            }
        }
    }

    /// Encodes one record and returns its position.
    fn stage(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let size: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if size > MAX_RECORD_BYTES {
            return Err(Error::TooLarge { what: "record", size, limit: MAX_RECORD_BYTES });
        }
        let synced = self.shared.synced.load(Ordering::Acquire);
        let flag = if synced >= self.tail { PREV_SYNCED } else { 0 };
        if !fits_fragment(self.tail % BLOCK_BYTES) {
            let padding = BLOCK_BYTES - self.tail % BLOCK_BYTES;
            self.buffer.resize(self.buffer.len() + padding as usize, 0);
            self.tail += padding;
        }
        let mut source = Parts { parts, taken: 0 };
        let (mut position, mut left) = (None, size);
        loop {
            if self.tail.is_multiple_of(BLOCK_BYTES) {
                self.begin_block(synced);
            }
            let len = left.min(BLOCK_BYTES - self.tail % BLOCK_BYTES - FRAGMENT_HEADER_BYTES);
            left -= len;
            let part = Part::of(position.is_none(), left == 0);
            let at = self.fragment(part as u8 | flag, |out| source.copy_to(out, len as usize));
            let position = *position.get_or_insert(at);
            if self.buffer.len() >= WRITE_BYTES {
                self.write_out()?;
            }
            if left == 0 {
                self.records += 1;
                return Ok(position);
            }
        }
    }

    fn begin_block(&mut self, synced_to: u64) {
        let header = self.sum.header(self.tail, synced_to);
        self.buffer.extend_from_slice(&header);
        self.tail += header.len() as u64;
    }

    /// Encodes one fragment, whose payload `fill` appends, and returns its offset.
    fn fragment(&mut self, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let (at, head) = (self.tail, self.buffer.len());
        let payload = head + FRAGMENT_HEADER_BYTES as usize;
        self.buffer.resize(payload, 0);
        fill(&mut self.buffer);
        let header = self.sum.fragment(at, kind, &self.buffer[payload..]);
        self.buffer[head..payload].copy_from_slice(&header);
        self.tail += (self.buffer.len() - head) as u64;
        at
    }

    fn write_out(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let at = self.tail - self.buffer.len() as u64;
        let written = self.shared.file.write_at(at, &self.buffer, self.shared.purpose);
        self.reached_file |= !written.as_ref().is_err_and(Error::is_failed_reopen);
        written?;
        self.buffer.clear();
        Ok(())
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.sync_handle().trim_preallocation();
    }
}

impl SyncHandle {
    /// Makes everything appended before the call durable, and returns the durable length in bytes.
    /// Thread-safe, also while the log is appended to.
    ///
    /// # Errors
    /// I/O errors, after which the log rejects everything.
    pub fn sync(&self) -> Result<u64> {
        self.shared.sync()
    }

    /// As [`sync`](SyncHandle::sync), for a segment whose predecessors may not be synced: later
    /// records do not state that what is before them is durable.
    ///
    /// # Errors
    /// The same.
    pub fn sync_alone(&self) -> Result<()> {
        self.shared.sync_alone()
    }

    /// Rejects further appends and syncs, because of `cause`.
    pub(super) fn poison(&self, cause: String) {
        self.shared.poison(cause);
    }

    /// Starts writing back what a [`sync`](SyncHandle::sync) would.
    pub fn start_writeback(&self) {
        self.shared.file.begin_sync();
    }

    /// Releases the preallocated tail, if no appends will follow soon.
    pub fn trim_preallocation(&self) {
        // If this fails, the tail only takes space; it reads as zeros.
        let _ = self.shared.file.trim_preallocation();
    }

    /// The durable length, in bytes.
    pub fn synced_to(&self) -> u64 {
        self.shared.synced.load(Ordering::Acquire)
    }

    /// The length appended so far, in bytes.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Acquire)
    }
}

/// Concatenated slices, consumed from the front.
struct Parts<'a> {
    parts: &'a [&'a [u8]],
    /// Bytes already consumed of the first part.
    taken: usize,
}

impl Parts<'_> {
    fn copy_to(&mut self, out: &mut Vec<u8>, mut len: usize) {
        while len > 0 {
            let rest = &self.parts[0][self.taken..];
            let n = rest.len().min(len);
            out.extend_from_slice(&rest[..n]);
            len -= n;
            self.taken += n;
            if self.taken == self.parts[0].len() {
                self.parts = &self.parts[1..];
                self.taken = 0;
            }
        }
    }
}
