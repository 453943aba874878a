//! Files with values outside of the tables: kept logs, and blob files, which have the same format.
//!
//! The log of a full memtable already contains every value. So its L0 run is a table of positions
//! in the log (a CL-SSTable), and no value is written twice. The log is kept while the run needs
//! it, or while tables refer to values in it.
//!
//! Source: TRIAD paper, section 4.3.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use siltstone_engine::varint::read_varint;
use siltstone_engine::{Error, Op, Purpose, Result};
use siltstone_table::log::LogArchive;
use siltstone_table::{BlockCache, FileNumber, Kind, LogAccess, LogMode, LogReader};

use super::blob_files::BlobFileId;
use crate::record::{self, Position};

/// The meta block of a table of positions: the number of the log, the length of the part that the
/// run owns, and [`HAS_EXPIRY`], varints. For tools that find the table without a manifest. Earlier
/// versions leave the last one out.
pub(crate) const LOG_OF_RUN: &str = "log";
/// Positions include the expiry of their values.
pub(crate) const HAS_EXPIRY: u64 = 1;

/// Whether the positions of a table with this meta block include the expiry of their values.
fn has_expiry(mut block: &[u8]) -> bool {
    let mut next = || {
        let (value, used) = read_varint(block)?;
        block = &block[used..];
        Some(value)
    };
    (next(), next(), next()).2 == Some(HAS_EXPIRY)
}

/// A log or blob file that is no longer written. When it is obsolete and the last version that
/// names it is dropped, a log is discarded, and a blob file is removed.
pub(crate) struct LogFile {
    /// Its length is that of the part that is in use; only a seal can follow.
    id: BlobFileId,
    access: LogAccess,
    logs: Arc<LogArchive>,
    obsolete: AtomicBool,
    /// Whether positions include the expiry of their values.
    has_expiry: AtomicBool,
}

/// What a lookup needs of the version that it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Value,
    /// Not the value, which is empty if it lies in a log.
    Expiry,
}

/// A version of a key in a log record.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoggedValue {
    pub(crate) expires_at: u64,
    pub(crate) is_expiring: bool,
    /// The range of the value in the record, or in the buffer that it was read into.
    value: std::ops::Range<usize>,
}

impl LoggedValue {
    /// A put with an expiry and an unknown value.
    pub(crate) fn without_value(expires_at: Option<u64>) -> Self {
        let is_expiring = expires_at.is_some();
        LoggedValue { expires_at: expires_at.unwrap_or(0), is_expiring, value: 0..0 }
    }

    pub(crate) fn kind(&self) -> Kind {
        if self.is_expiring { Kind::PutExpiring } else { Kind::Put }
    }

    /// The value, in its record.
    pub(crate) fn value<'r>(&self, record: &'r [u8]) -> &'r [u8] {
        &record[self.value.clone()]
    }
}

impl LogFile {
    /// Opens the file `id`, of which the manifest names the first bytes.
    pub(crate) fn open(
        logs: &Arc<LogArchive>,
        id: BlobFileId,
        cache: Option<&Arc<BlockCache>>,
    ) -> Result<Arc<Self>> {
        let name = id.kind().name(FileNumber(id.number));
        let access = LogAccess::open_prefix(logs.vfs().as_ref(), &name, id.number, id.bytes)?;
        let access = match cache {
            Some(cache) => access.with_cache(cache),
            None => access,
        };
        let logs = logs.clone();
        let (obsolete, has_expiry) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Arc::new(LogFile { id, access, logs, obsolete, has_expiry }))
    }

    /// Takes the format of positions from the meta block of the run's table.
    pub(crate) fn set_format(&self, block: &[u8]) {
        self.has_expiry.store(has_expiry(block), Ordering::Relaxed);
    }

    /// Whether positions in it include the expiry of their values.
    pub(crate) fn has_expiry(&self) -> bool {
        self.has_expiry.load(Ordering::Relaxed)
    }

    /// Decodes a position in the run's table, with the expiry of its value if the table includes
    /// it.
    ///
    /// # Errors
    /// `Corruption` if they are malformed.
    #[inline]
    pub(crate) fn position(&self, bytes: &[u8]) -> Result<(Position, Option<u64>)> {
        let malformed = "a run names a malformed position in this log";
        Position::decode(bytes).ok_or_else(|| Error::corruption(self.name(), 0, malformed))
    }

    /// Reads the value that (`key`, `sequence`) wrote, from the record at `position`, and appends
    /// it to `out`. Cost: a copy of the value if the record is cached, else a read.
    ///
    /// # Errors
    /// `Corruption` if the record contains anything else.
    pub(crate) fn read_value(
        &self,
        position: Position,
        version: (&[u8], u64),
        out: &mut Vec<u8>,
        purpose: Purpose,
    ) -> Result<LoggedValue> {
        if let Some(value) = self.copy_cached_put(position, version, out) {
            return Ok(value);
        }
        let (offset, expected) = (position.offset(), position.expected_bytes());
        self.access.visit(offset, expected, purpose, |record| {
            let found = self.find(position, version, record)?;
            let start = out.len();
            out.extend_from_slice(found.value(record));
            Ok(LoggedValue { value: start..out.len(), ..found })
        })?
    }

    /// As [`read_value`](Self::read_value), for what most reads find: a batch of one put without an
    /// expiry, in the cache.
    #[inline]
    pub(crate) fn copy_cached_put(
        &self,
        position: Position,
        (key, sequence): (&[u8], u64),
        out: &mut Vec<u8>,
    ) -> Option<LoggedValue> {
        self.access.visit_cached(position.offset(), position.expected_bytes(), |record| {
            let value = record::first_put(record, key, sequence)?;
            let start = out.len();
            out.extend_from_slice(value);
            let value = start..out.len();
            Some(LoggedValue { expires_at: 0, is_expiring: false, value })
        })
    }

    /// Prefetches the start of the record at `position` into the CPU caches, if it is in memory.
    #[inline]
    pub(crate) fn prefetch(&self, position: Position) {
        self.access.prefetch(position.offset());
    }

    /// Starts reading the record at `position` from the device.
    pub(crate) fn begin_read(&self, position: Position) {
        self.access.begin_read(position.offset(), position.expected_bytes());
    }

    /// Finds the operation that wrote (`key`, `sequence`) in the record that was read from
    /// `position`.
    ///
    /// # Errors
    /// `Corruption` if the record contains anything else.
    pub(crate) fn find(
        &self,
        position: Position,
        (key, sequence): (&[u8], u64),
        record: &[u8],
    ) -> Result<LoggedValue> {
        let corruption =
            |reason: String| Err(Error::corruption(self.name(), position.offset(), reason));
        match record::find(record, sequence) {
            Ok(Op::Put { key: found, value, expires_at }) if found == key => {
                let start = value.as_ptr().addr() - record.as_ptr().addr();
                Ok(LoggedValue {
                    value: start..start + value.len(),
                    is_expiring: expires_at.is_some(),
                    expires_at: expires_at.unwrap_or(0),
                })
            }
            Ok(_) => corruption("a run points to another operation".to_owned()),
            Err(reason) => corruption(reason),
        }
    }

    /// Random access to its records.
    pub(crate) fn access(&self) -> &LogAccess {
        &self.access
    }

    /// Reads every record in the part that is in use.
    ///
    /// # Errors
    /// `Corruption` where a record is missing or does not match its checksum.
    pub(crate) fn verify(&self) -> Result<()> {
        let name = self.name();
        let vfs = self.logs.vfs().as_ref();
        let mut reader = LogReader::open(vfs, &name, self.id.number, LogMode::Recover)?;
        while reader.next()?.is_some() {}
        let valid = reader.valid_bytes();
        if valid < self.id.bytes {
            return Err(Error::corruption(name, valid, "the log of a run is truncated"));
        }
        Ok(())
    }

    pub(crate) fn id(&self) -> BlobFileId {
        self.id
    }

    pub(crate) fn number(&self) -> u64 {
        self.id.number
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.id.bytes
    }

    pub(crate) fn name(&self) -> String {
        self.id.kind().name(FileNumber(self.id.number))
    }

    /// Marks the log as obsolete: no later version names it.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            match self.id.is_log {
                true => self.logs.discard(self.id.number),
                // If this fails, the next open removes the file.
                false => drop(self.logs.vfs().remove(&self.name())),
            }
        }
    }
}
