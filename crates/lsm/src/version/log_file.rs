//! A log that was kept as part of a row: the values of a CL-SSTable.
//!
//! When a memtable is full, its log already holds every value in it. The row is then a table of
//! positions in that log, and nothing is written twice.
//!
//! Source: TRIAD paper, section 4.3.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use siltstone_engine::{Error, Op, Purpose, Result};
use siltstone_media::Media;
use siltstone_table::{FileKind, FileNumber, Kind, LogAccess, LogMode, LogReader};

use crate::record::{self, Position};

/// The meta block of a table of positions: the number of the log and how many of its bytes are the
/// row's, varints. For tools that find the table without a manifest.
pub(crate) const LOG_OF_ROW: &str = "log";

/// A log that is no longer written. When the last version that names its row is gone and the row
/// is obsolete, the file is removed.
pub(crate) struct LogFile {
    number: u64,
    /// The bytes that the row owns; what lies behind is a seal at most.
    bytes: u64,
    access: LogAccess,
    media: Arc<dyn Media>,
    obsolete: AtomicBool,
}

/// What a log says of one version of a key, copied out of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Logged {
    pub(crate) expires_at: u64,
    pub(crate) is_expiring: bool,
    /// The record as it was read; the value lies in it.
    record: Vec<u8>,
    value: std::ops::Range<usize>,
}

impl Logged {
    pub(crate) fn kind(&self) -> Kind {
        if self.is_expiring { Kind::PutExpiring } else { Kind::Put }
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.record[self.value.clone()]
    }

    pub(crate) fn into_value(mut self) -> Vec<u8> {
        self.record.truncate(self.value.end);
        self.record.drain(..self.value.start);
        self.record
    }
}

impl LogFile {
    /// Opens the log `number`, of which the manifest names the first `bytes`.
    pub(crate) fn open(media: &Arc<dyn Media>, number: u64, bytes: u64) -> Result<Arc<Self>> {
        let name = FileKind::Log.name(FileNumber(number));
        let access = LogAccess::open(media.as_ref(), &name, number)?;
        if access.file_bytes() < bytes {
            let reason = format!("the manifest names {bytes} bytes of this log");
            return Err(Error::corruption(name, access.file_bytes(), reason));
        }
        let media = media.clone();
        Ok(Arc::new(LogFile { number, bytes, access, media, obsolete: AtomicBool::new(false) }))
    }

    /// Replaces `out` by the operation that wrote (`key`, `sequence`), found by the bytes of its
    /// position. Cost: one read.
    ///
    /// # Errors
    /// `Corruption` if anything else is there.
    pub(crate) fn read(
        &self,
        position: &[u8],
        key: &[u8],
        sequence: u64,
        out: &mut Logged,
        purpose: Purpose,
    ) -> Result<()> {
        let wrong = |at: u64, reason: String| Err(Error::corruption(self.name(), at, reason));
        let Some(position) = Position::decode(position) else {
            return wrong(0, "a row names a malformed position in this log".to_owned());
        };
        let at = position.offset();
        self.access.read(at, position.expected_bytes(), &mut out.record, purpose)?;
        match record::find(&out.record, sequence) {
            Ok(Op::Put { key: found, value, expires_at }) if found == key => {
                let start = value.as_ptr().addr() - out.record.as_ptr().addr();
                out.value = start..start + value.len();
                out.is_expiring = expires_at.is_some();
                out.expires_at = expires_at.unwrap_or(0);
                Ok(())
            }
            Ok(_) => wrong(at, "another operation stands where a row points".to_owned()),
            Err(reason) => wrong(at, reason),
        }
    }

    /// Reads every record of the row's bytes.
    ///
    /// # Errors
    /// `Corruption` where anything is missing or does not hold.
    pub(crate) fn verify(&self) -> Result<()> {
        let name = self.name();
        let mut reader =
            LogReader::open(self.media.as_ref(), &name, self.number, LogMode::Recover)?;
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
            let _ = self.media.remove(&self.name());
        }
    }
}
