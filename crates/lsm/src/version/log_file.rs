//! A log that was kept as part of a row: the values of a CL-SSTable.
//!
//! When a memtable is full, its log already holds every value in it. The row is then a table of
//! positions in that log, and nothing is written twice.
//!
//! Source: TRIAD paper, section 4.3.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use siltstone_engine::batch::read_varint;
use siltstone_engine::{Error, Op, Purpose, Result};
use siltstone_table::{FileKind, FileNumber, Kind, LogAccess, LogMode, LogReader};
use siltstone_vfs::Vfs;

use crate::record::{self, Position};

/// The meta block of a table of positions: the number of the log, how many of its bytes are the
/// row's, and [`TELLS_EXPIRY`], varints. For tools that find the table without a manifest. Earlier
/// versions leave the last out.
pub(crate) const LOG_OF_ROW: &str = "log";
/// Positions say when the values there expire.
pub(crate) const TELLS_EXPIRY: u64 = 1;

/// Whether the positions of a table with this meta block say when the values there expire.
fn tells_expiry(mut block: &[u8]) -> bool {
    let mut next = || {
        let (value, used) = read_varint(block)?;
        block = &block[used..];
        Some(value)
    };
    (next(), next(), next()).2 == Some(TELLS_EXPIRY)
}

/// A log that is no longer written. When the last version that names its row is gone and the row
/// is obsolete, the file is removed.
pub(crate) struct LogFile {
    number: u64,
    /// The bytes that the row owns; what lies behind is a seal at most.
    bytes: u64,
    access: LogAccess,
    vfs: Arc<dyn Vfs>,
    obsolete: AtomicBool,
    /// The positions in it say when values expire.
    tells_expiry: AtomicBool,
}

/// What a log says of one version of a key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Logged {
    pub(crate) expires_at: u64,
    pub(crate) is_expiring: bool,
    /// Where in the record the value lies.
    value: std::ops::Range<usize>,
}

impl Logged {
    /// A put of which nothing but this is known.
    pub(crate) fn without_value(expires_at: Option<u64>) -> Self {
        let is_expiring = expires_at.is_some();
        Logged { expires_at: expires_at.unwrap_or(0), is_expiring, value: 0..0 }
    }

    pub(crate) fn kind(&self) -> Kind {
        if self.is_expiring { Kind::PutExpiring } else { Kind::Put }
    }

    /// The value, in the record that it was found in.
    pub(crate) fn value<'r>(&self, record: &'r [u8]) -> &'r [u8] {
        &record[self.value.clone()]
    }

    /// The value alone.
    pub(crate) fn cut_out(self, mut record: Vec<u8>) -> Vec<u8> {
        record.truncate(self.value.end);
        record.drain(..self.value.start);
        record
    }
}

impl LogFile {
    /// Opens the log `number`, of which the manifest names the first `bytes`.
    pub(crate) fn open(vfs: &Arc<dyn Vfs>, number: u64, bytes: u64) -> Result<Arc<Self>> {
        let name = FileKind::Log.name(FileNumber(number));
        let access = LogAccess::open(vfs.as_ref(), &name, number)?;
        if access.file_bytes() < bytes {
            let reason = format!("the manifest names {bytes} bytes of this log");
            return Err(Error::corruption(name, access.file_bytes(), reason));
        }
        let vfs = vfs.clone();
        let (obsolete, tells_expiry) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Arc::new(LogFile { number, bytes, access, vfs, obsolete, tells_expiry }))
    }

    /// Takes from the meta block of the row's table whether positions say when values expire.
    pub(crate) fn set_form(&self, block: &[u8]) {
        self.tells_expiry.store(tells_expiry(block), Ordering::Relaxed);
    }

    /// Whether positions in it say when values expire.
    pub(crate) fn tells_expiry(&self) -> bool {
        self.tells_expiry.load(Ordering::Relaxed)
    }

    /// The position of which a row's table has these bytes, and when what is there expires, if the
    /// table says so.
    ///
    /// # Errors
    /// `Corruption` if they are none.
    pub(crate) fn position(&self, bytes: &[u8]) -> Result<(Position, Option<u64>)> {
        let malformed = "a row names a malformed position in this log";
        Position::decode(bytes).ok_or_else(|| Error::corruption(self.name(), 0, malformed))
    }

    /// Replaces `record` by the one at `position`, and finds in it the operation that wrote (`key`,
    /// `sequence`). Cost: one read.
    ///
    /// # Errors
    /// `Corruption` if anything else is there.
    pub(crate) fn read(
        &self,
        position: Position,
        version: (&[u8], u64),
        record: &mut Vec<u8>,
        purpose: Purpose,
    ) -> Result<Logged> {
        self.access.read(position.offset(), position.expected_bytes(), record, purpose)?;
        self.find(position, version, record)
    }

    /// Finds the operation that wrote (`key`, `sequence`) in the record that was read at `position`.
    ///
    /// # Errors
    /// `Corruption` if anything else is there.
    pub(crate) fn find(
        &self,
        position: Position,
        (key, sequence): (&[u8], u64),
        record: &[u8],
    ) -> Result<Logged> {
        let wrong = |reason: String| Err(Error::corruption(self.name(), position.offset(), reason));
        match record::find(record, sequence) {
            Ok(Op::Put { key: found, value, expires_at }) if found == key => {
                let start = value.as_ptr().addr() - record.as_ptr().addr();
                Ok(Logged {
                    value: start..start + value.len(),
                    is_expiring: expires_at.is_some(),
                    expires_at: expires_at.unwrap_or(0),
                })
            }
            Ok(_) => wrong("another operation stands where a row points".to_owned()),
            Err(reason) => wrong(reason),
        }
    }

    /// To read its records.
    pub(crate) fn access(&self) -> &LogAccess {
        &self.access
    }

    /// Reads every record of the row's bytes.
    ///
    /// # Errors
    /// `Corruption` where anything is missing or does not hold.
    pub(crate) fn verify(&self) -> Result<()> {
        let name = self.name();
        let mut reader = LogReader::open(self.vfs.as_ref(), &name, self.number, LogMode::Recover)?;
        while reader.next()?.is_some() {}
        let valid = reader.valid_bytes();
        if valid < self.bytes {
            return Err(Error::corruption(name, valid, "the log of a row ends before its time"));
        }
        Ok(())
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn name(&self) -> String {
        FileKind::Log.name(FileNumber(self.number))
    }

    /// No version made from now on names this log.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            // What stays behind by a fault is garbage that the next open removes.
            let _ = self.vfs.remove(&self.name());
        }
    }
}
