//! Appending records to a log.
//!
//! Each append (or group) is laid out in one buffer that is kept between appends, and goes out in
//! one write; a record of more than a mebibyte goes out in several. A [`SyncHandle`] lets another
//! thread (the leader of a group commit) sync while this one appends.
//!
//! After a fault:
//! * A failed append cuts the file back to the last whole record and syncs that, so that no sector
//!   of the failed record can surface behind a later one. Then the log goes on (a full disk may have
//!   space again). If cutting back fails too, the append is `ReadOnly` instead of what failed, since its record
//!   may be there after the next opening, and the log refuses all further appends.
//! * A failed sync leaves unknown what it covered: the log refuses all further appends and syncs.
//!
//! Invariant: the bytes before `len` are whole records in the order of the calls, and `synced_to`
//! never exceeds what a successful sync covered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{File, Vfs, removed};

use super::LogAccess;
use super::format::{BLOCK, FRAGMENT, LogSum, PREV_SYNCED, Part, fits_fragment, seal_payload};

/// More than this many buffered bytes are written out even amid a record.
const PIECE_BYTES: usize = 1 << 20;

/// The largest record, in bytes.
pub const MAX_RECORD_BYTES: u64 = u32::MAX as u64;

/// The writing end of a log. Dropping it leaves the log unsealed, as a crash would.
pub struct LogWriter {
    shared: Arc<Shared>,
    sum: LogSum,
    /// Where the next byte goes, buffered bytes counted.
    tail: u64,
    /// Bytes laid out and not yet written; they belong at `tail - buffer.len()`.
    buffer: Vec<u8>,
    /// Whether the append under way has gone to the medium, in part or whole.
    reached_medium: bool,
    records: u64,
}

/// Syncs a log from any thread. Clones share the log.
#[derive(Clone)]
pub struct SyncHandle {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    file: Arc<dyn File>,
    pub(super) name: String,
    purpose: Purpose,
    /// The file's length up to the last append that succeeded.
    written: AtomicU64,
    /// How much of it is durable.
    synced: AtomicU64,
    /// Why the log takes no more.
    fault: OnceLock<String>,
}

impl LogWriter {
    /// Creates the log `name`, which must not be there. Its *name* is durable only after the
    /// caller's `sync_dir`. `number` is told to every reader again: it seeds the checksums.
    ///
    /// # Errors
    /// The medium's.
    pub fn create(vfs: &dyn Vfs, name: &str, number: u64, purpose: Purpose) -> Result<Self> {
        Ok(Self::of(vfs.create(name)?, name, number, purpose))
    }

    /// The same for a log that will grow by many small appends: the medium may make it ready ahead
    /// (see [`Vfs::create_append`]).
    ///
    /// # Errors
    /// The medium's.
    pub fn create_append(vfs: &dyn Vfs, name: &str, number: u64, purpose: Purpose) -> Result<Self> {
        Ok(Self::of(vfs.create_append(name)?, name, number, purpose))
    }

    fn of(file: Arc<dyn File>, name: &str, number: u64, purpose: Purpose) -> Self {
        let shared = Shared {
            file,
            name: name.into(),
            purpose,
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            fault: OnceLock::new(),
        };
        LogWriter {
            shared: Arc::new(shared),
            sum: LogSum::new(number),
            tail: 0,
            buffer: Vec::new(),
            reached_medium: false,
            records: 0,
        }
    }

    /// Appends one record, given in `parts` to spare the caller a copy, and returns its position.
    /// It is in the file, not yet durable. Cost: one write request up to a mebibyte.
    ///
    /// # Errors
    /// `TooLarge` over [`MAX_RECORD_BYTES`]; the medium's: the record is not in the log. `ReadOnly`
    /// after a fault that could not be undone: it may be in the log if this is the first such
    /// error.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<u64> {
        self.transact(|log| log.stage(parts))
    }

    /// Appends several records in one write and adds their positions to `positions`: all of them,
    /// or none after an error.
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

    /// Makes all that was appended durable.
    ///
    /// # Errors
    /// The medium's, after which the log refuses everything; that the file was removed meanwhile,
    /// by somebody else: whoever owns the log removes it last of all. Cost beside the sync's: a
    /// request for the file's links.
    pub fn sync(&mut self) -> Result<()> {
        self.shared.sync()?;
        self.shared.check_present()
    }

    /// Takes no more if `error` says that the log which was to follow may be there after the next
    /// opening.
    pub(super) fn give_up(&self, error: &Error) {
        if let Error::ReadOnly { cause } = error {
            self.shared.poison(cause.clone());
        }
    }

    /// Reads its records from any thread, each from the moment its append has returned.
    pub fn access(&self) -> LogAccess {
        LogAccess::growing(self.shared.file.clone(), self.sum, self.shared.clone())
    }

    /// A handle to sync from another thread.
    pub fn sync_handle(&self) -> SyncHandle {
        SyncHandle { shared: self.shared.clone() }
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.tail
    }

    /// Whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.tail == 0
    }

    /// Records appended.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// About `bytes` will be appended to the log, which is empty: the medium may make them ready.
    pub(super) fn expect(&self, bytes: u64, now: u64) {
        self.shared.file.preallocate(bytes, now);
    }

    /// Closes the log for good: a reader will take anything missing from it for corruption.
    /// Cost: two syncs (one if all is synced already), since a seal must not outlive what it seals.
    ///
    /// # Errors
    /// The medium's; the log is then as unsealed as after a crash.
    pub fn seal(mut self) -> Result<()> {
        let data_end = self.tail;
        if self.shared.synced.load(Ordering::Acquire) < data_end {
            self.sync()?;
        }
        let records = self.records;
        // The seal is the file's end.
        self.shared.file.trim_preallocation()?;
        self.transact(|log| {
            // The gap up to the next block is left unwritten and reads as zeros.
            log.tail = data_end.next_multiple_of(BLOCK);
            log.begin_block(data_end);
            log.fragment(Part::Seal as u8 | PREV_SYNCED, |out| {
                out.extend_from_slice(&seal_payload(data_end, records));
            });
            Ok(())
        })?;
        self.sync()
    }

    /// Lays out with `stage` and writes; undoes everything if either fails.
    fn transact<T>(&mut self, stage: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.shared.check_usable()?;
        let (start, records) = (self.tail, self.records);
        self.reached_medium = false;
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
                if self.reached_medium {
                    self.shared.cut_back(start, &error)?;
                }
                Err(error)
            }
        }
    }

    /// Lays out one record and returns its position.
    fn stage(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let size: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if size > MAX_RECORD_BYTES {
            return Err(Error::TooLarge { what: "record", size, limit: MAX_RECORD_BYTES });
        }
        let synced = self.shared.synced.load(Ordering::Acquire);
        let flag = if synced >= self.tail { PREV_SYNCED } else { 0 };
        if !fits_fragment(self.tail % BLOCK) {
            let padding = BLOCK - self.tail % BLOCK;
            self.buffer.resize(self.buffer.len() + padding as usize, 0);
            self.tail += padding;
        }
        let mut source = Parts { parts, taken: 0 };
        let (mut position, mut left) = (None, size);
        loop {
            if self.tail.is_multiple_of(BLOCK) {
                self.begin_block(synced);
            }
            let len = left.min(BLOCK - self.tail % BLOCK - FRAGMENT);
            left -= len;
            let part = Part::of(position.is_none(), left == 0);
            let at = self.fragment(part as u8 | flag, |out| source.copy_to(out, len as usize));
            let position = *position.get_or_insert(at);
            if self.buffer.len() >= PIECE_BYTES {
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

    /// Lays out one fragment whose payload `fill` appends, and returns where it starts.
    fn fragment(&mut self, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let (at, head) = (self.tail, self.buffer.len());
        let payload = head + FRAGMENT as usize;
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
        self.reached_medium = true;
        self.shared.file.write_at(at, &self.buffer, self.shared.purpose)?;
        self.buffer.clear();
        Ok(())
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.sync_handle().finish();
    }
}

impl SyncHandle {
    /// Makes durable all that was appended before the call, and returns the length that is durable
    /// now, in bytes. Any number of threads may call it while the log is appended to.
    ///
    /// # Errors
    /// The medium's, after which the log refuses everything.
    pub fn sync(&self) -> Result<u64> {
        self.shared.sync()
    }

    /// Has the medium begin with what a [`sync`](SyncHandle::sync) would do.
    pub fn begin(&self) {
        self.shared.file.begin_sync();
    }

    /// Gives back what the medium has ready behind the end, where nothing more will come for now.
    pub fn finish(&self) {
        // It reads as zeros and does no harm; it only takes space.
        let _ = self.shared.file.trim_preallocation();
    }

    /// The length known durable, in bytes.
    pub fn synced_to(&self) -> u64 {
        self.shared.synced.load(Ordering::Acquire)
    }

    /// The length appended so far, in bytes.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Acquire)
    }
}

impl Shared {
    /// The file's length up to the last append that succeeded.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    fn check_usable(&self) -> Result<()> {
        match self.fault.get() {
            None => Ok(()),
            Some(cause) => Err(Error::ReadOnly { cause: cause.clone() }),
        }
    }

    fn sync(&self) -> Result<u64> {
        self.check_usable()?;
        let written = self.written.load(Ordering::Acquire);
        if let Err(error) = self.file.sync(self.purpose) {
            self.poison(format!("a sync of {} failed: {error}", self.name));
            return Err(error);
        }
        // Another thread's sync may have failed meanwhile and ours passed: that proves nothing.
        self.check_usable()?;
        self.synced.fetch_max(written, Ordering::AcqRel);
        Ok(written)
    }

    /// Refuses to take for durable what nobody will find.
    fn check_present(&self) -> Result<()> {
        if !self.file.is_removed()? {
            return Ok(());
        }
        let error = removed(&self.name);
        self.poison(error.to_string());
        Err(error)
    }

    /// Removes what a failed append may have left behind `len`, durably. That is no claim that what
    /// is before `len` was synced: in a chain of logs it would say that the logs before this one
    /// were, too.
    fn cut_back(&self, len: u64, cause: &Error) -> Result<()> {
        let cut = self.file.set_len(len).and_then(|()| self.file.sync(self.purpose));
        match cut {
            Ok(()) => Ok(()),
            Err(error) => {
                self.poison(format!(
                    "an append to {} failed ({cause}) and could not be undone ({error})",
                    self.name
                ));
                self.check_usable()
            }
        }
    }

    fn poison(&self, cause: String) {
        // The first cause is the one to tell.
        let _ = self.fault.set(cause);
    }
}

/// Bytes in several pieces, taken from the front.
struct Parts<'a> {
    parts: &'a [&'a [u8]],
    /// Bytes already taken of the first part.
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
