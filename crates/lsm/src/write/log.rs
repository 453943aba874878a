//! The write-ahead log of the tree: a chain of record logs, whose records `record` draws.
//!
//! Each log begins by naming the one before and its length. This chain is what makes recovery a prefix. A log is left unsynced when the next one begins, so
//! that writers never wait for it; if a power cut then takes its tail, the next log's first record
//! tells that something is missing between them, and the next log is not replayed. A synced write
//! first syncs the logs before.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_media::Media;
use siltstone_table::{FileKind, FileNumber, LogWriter, SyncHandle};

use crate::record;

/// Header and body of one record.
pub(crate) type LogRecord<'a> = [&'a [u8]; 2];

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

    /// The current log's number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Makes what is in the current log durable from another thread.
    pub(crate) fn sync_handle(&self) -> SyncHandle {
        self.current.sync_handle()
    }

    /// Handles to make the logs after `number` durable, the current one's last.
    pub(crate) fn sync_handles_after(&self, number: u64) -> Vec<SyncHandle> {
        let older = self.older.iter().filter(|&&(older, _)| older > number);
        let older = older.map(|(_, log)| log.sync_handle());
        older.chain((self.number > number).then(|| self.current.sync_handle())).collect()
    }

    /// Appends records with one request, all or none, and adds their positions to `positions`.
    pub(crate) fn append(
        &mut self,
        records: &[LogRecord<'_>],
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

    /// Gives up the logs below `number`, whose writes are in tables. To drop one may take the
    /// system as long as freeing the file's pages does: not for a writer to wait for.
    #[must_use]
    pub(crate) fn forget_before(&mut self, number: u64) -> Vec<LogWriter> {
        let (gone, kept): (Vec<_>, _) =
            std::mem::take(&mut self.older).into_iter().partition(|&(older, _)| older < number);
        self.older = kept;
        gone.into_iter().map(|(_, log)| log).collect()
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
    let number = FileNumber(number);
    let name = FileKind::Log.name(number);
    let write = || {
        let mut log = LogWriter::create(media, &name, number.0, Purpose::Log)?;
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
