//! The write-ahead log of the table: a chain of record logs, whose records `record` draws.
//!
//! Each log begins by naming the one before and its length. A log is left unsynced when the next one
//! begins, so that writers never wait for it; if a power cut then takes its tail, the next log's
//! first record tells that something is missing between them, and the next log is not replayed. A
//! synced write first syncs the logs before.
//!
//! Invariant: what is replayed after any power cut is a prefix of what was appended.
//!
//! Source: ours; the chain is that of the house's tree.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_media::Media;
use siltstone_table::{LogAccess, LogWriter};

use crate::names::Kind;
use crate::record;

/// The log that is being written, and those before it that are not yet synced.
pub(crate) struct Log {
    number: u64,
    current: LogWriter,
    older: Vec<(u64, LogWriter)>,
    /// The directory knows the current log's name durably.
    is_named: bool,
    media: Arc<dyn Media>,
}

impl Log {
    /// Begins the log `number`, which follows `previous` (number and length).
    pub(crate) fn create(
        media: &Arc<dyn Media>,
        number: u64,
        previous: (u64, u64),
    ) -> Result<Self> {
        let current = begin(media.as_ref(), number, previous)?;
        Ok(Log { number, current, older: Vec::new(), is_named: false, media: media.clone() })
    }

    /// Bytes of the current log.
    pub(crate) fn len(&self) -> u64 {
        self.current.len()
    }

    /// Reads the current log's records.
    pub(crate) fn access(&self) -> LogAccess {
        self.current.access()
    }

    /// Appends records with one request, all or none, and adds their positions to `positions`.
    pub(crate) fn append(
        &mut self,
        records: &[[&[u8]; 2]],
        positions: &mut Vec<u64>,
    ) -> Result<()> {
        self.current.append_group(records, positions)
    }

    /// Makes every record so far durable, those of older logs first.
    pub(crate) fn sync(&mut self) -> Result<()> {
        for (_, log) in &mut self.older {
            log.sync()?;
        }
        if !self.is_named {
            self.media.sync_dir(Purpose::Log)?;
            self.is_named = true;
        }
        self.older.clear();
        self.current.sync()
    }

    /// Goes on in the new log `number`. If that fails, goes on in the old one.
    pub(crate) fn rotate(&mut self, number: u64) -> Result<()> {
        let previous = (self.number, self.current.len());
        let next = begin(self.media.as_ref(), number, previous)?;
        self.older.push((self.number, std::mem::replace(&mut self.current, next)));
        self.number = number;
        self.is_named = false;
        Ok(())
    }

    /// Logs below `number` are no longer needed: their writes are in stores.
    pub(crate) fn forget_before(&mut self, number: u64) {
        self.older.retain(|&(older, _)| older >= number);
    }

    /// Syncs and seals the log; returns its number and length.
    pub(crate) fn seal(mut self) -> Result<(u64, u64)> {
        self.sync()?;
        let len = self.current.len();
        self.current.seal()?;
        Ok((self.number, len))
    }
}

fn begin(media: &dyn Media, number: u64, previous: (u64, u64)) -> Result<LogWriter> {
    let name = Kind::Log.name(number);
    let write = || {
        let mut log = LogWriter::create(media, &name, number, Purpose::Log)?;
        log.append(&[&record::chain(previous)])?;
        Ok(log)
    };
    let log = write();
    if log.is_err() {
        // A stump would only confuse the next open; if it cannot be removed it has no records.
        let _ = media.remove(&name);
    }
    log
}
