//! A write-ahead log as a chain of record logs: what is replayed after any power cut is a prefix.
//!
//! ```text
//!   log 7 ──▶ log 9: "after 7, 32 MiB" ──▶ log 12: "after 9, …"
//!
//!   link := 0:u8  previous log:u64 LE  its length:u64 LE     each log's first record; 0, 0: none before
//! ```
//!
//! A log is left unsynced when the next one begins, so that writers never wait for it. If a power
//! cut then takes its tail, the next log's link tells that something is missing between them, and
//! the next log is not replayed ([`replay`]). A synced write first syncs the logs before. What the
//! other records hold is the engine's affair; their kinds begin at 1.
//!
//! Invariant: when [`WalWriter::sync`] has returned, every record so far is durable and so are the
//! logs' names.
//!
//! Source: ours; see "How a write travels" in ARCHITECTURE.md.
//!
//! [`replay`]: super::replay()

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_vfs::Vfs;

use super::{LogAccess, LogWriter, SyncHandle};
use crate::{FileKind, FileNumber};

/// The first byte of a link; records of the engine begin with others.
pub const KIND_LINK: u8 = 0;

/// Header and body of one record.
pub type RecordParts<'a> = [&'a [u8]; 2];

/// What a log's first record names: the log before it and that log's length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// The number of the log before; 0: there is none.
    pub number: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl Link {
    /// The record's bytes.
    pub fn encode(self) -> [u8; 17] {
        let mut out = [KIND_LINK; 17];
        out[1..9].copy_from_slice(&self.number.to_le_bytes());
        out[9..].copy_from_slice(&self.bytes.to_le_bytes());
        out
    }

    /// Reads a record back.
    ///
    /// # Errors
    /// What is malformed.
    pub fn decode(record: &[u8]) -> std::result::Result<Link, String> {
        let body = record.strip_prefix(&[KIND_LINK]).unwrap_or_default();
        let (words, rest) = body.as_chunks::<8>();
        let ([number, bytes], []) = (words, rest) else {
            return Err("a malformed link to the log before".to_owned());
        };
        Ok(Link { number: u64::from_le_bytes(*number), bytes: u64::from_le_bytes(*bytes) })
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "follows log {} of {} bytes", self.number, self.bytes)
    }
}

/// The log that is being written, and those before it that are not yet synced.
pub struct WalWriter {
    number: u64,
    current: LogWriter,
    older: Vec<(u64, LogWriter)>,
    /// The directory knows the current log's name durably.
    is_named: bool,
    vfs: Arc<dyn Vfs>,
}

impl WalWriter {
    /// Begins the log `number`, which follows `previous`.
    ///
    /// # Errors
    /// Those of the medium; then there is no such log.
    pub fn create(vfs: &Arc<dyn Vfs>, number: u64, previous: Link) -> Result<Self> {
        Self::create_in(vfs, SpareSegment::create(vfs.as_ref(), number)?, previous)
    }

    /// The same in a log that is there already.
    ///
    /// # Errors
    /// Those of the medium; then there is no such log.
    pub fn create_in(vfs: &Arc<dyn Vfs>, next: SpareSegment, previous: Link) -> Result<Self> {
        let SpareSegment { number, log } = next;
        let current = begin(vfs.as_ref(), number, log, previous)?;
        let (older, vfs) = (Vec::new(), vfs.clone());
        Ok(WalWriter { number, current, older, is_named: false, vfs })
    }

    /// Bytes of the current log.
    #[expect(clippy::len_without_is_empty, reason = "it holds its link from the beginning")]
    pub fn len(&self) -> u64 {
        self.current.len()
    }

    /// The current log's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Reads the current log's records.
    pub fn access(&self) -> LogAccess {
        self.current.access()
    }

    /// Makes what is in the current log durable from another thread.
    pub fn sync_handle(&self) -> SyncHandle {
        self.current.sync_handle()
    }

    /// Handles to make the logs after `number` durable, the current one's last.
    pub fn sync_handles_after(&self, number: u64) -> Vec<SyncHandle> {
        let older = self.older.iter().filter(|&&(older, _)| older > number);
        let older = older.map(|(_, log)| log.sync_handle());
        older.chain((self.number > number).then(|| self.current.sync_handle())).collect()
    }

    /// Appends records with one request, all or none, and adds their positions to `positions`.
    ///
    /// # Errors
    /// Those of the medium. If the disk is full nothing has changed; else what the log holds is in
    /// doubt.
    pub fn append(&mut self, records: &[RecordParts<'_>], positions: &mut Vec<u64>) -> Result<()> {
        self.current.append_group(records, positions)
    }

    /// Makes every record so far durable, those of older logs first.
    ///
    /// # Errors
    /// Those of the medium: what is durable is then in doubt.
    pub fn sync(&mut self) -> Result<()> {
        for (_, log) in &mut self.older {
            log.sync()?;
        }
        if !self.is_named {
            self.vfs.sync_dir(Purpose::Log)?;
            self.is_named = true;
        }
        self.older.clear();
        self.current.sync()
    }

    /// Goes on in the new log `number`. If that fails, goes on in the old one.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn rotate(&mut self, number: u64) -> Result<()> {
        let next = SpareSegment::create(self.vfs.as_ref(), number)?;
        let old = self.sync_handle();
        self.rotate_to(next)?;
        // Others will read the old one from now on, by its name and up to the end of the file.
        old.finish();
        Ok(())
    }

    /// The same in a log that is there already. The old one may keep zeros behind its end until whoever
    /// takes it over finishes it ([`SyncHandle::finish`]), which may last longer than a writer should wait.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn rotate_to(&mut self, next: SpareSegment) -> Result<()> {
        let previous = Link { number: self.number, bytes: self.current.len() };
        let SpareSegment { number, log } = next;
        let log = begin(self.vfs.as_ref(), number, log, previous)
            .inspect_err(|error| self.current.give_up(error))?;
        self.older.push((self.number, std::mem::replace(&mut self.current, log)));
        self.number = number;
        self.is_named = false;
        Ok(())
    }

    /// Gives up the logs below `number`, whose writes are elsewhere. To drop one may take the
    /// system as long as freeing the file's pages does: not for a writer to wait for.
    #[must_use]
    pub fn release_before(&mut self, number: u64) -> Vec<LogWriter> {
        let (gone, kept): (Vec<_>, _) =
            std::mem::take(&mut self.older).into_iter().partition(|&(older, _)| older < number);
        self.older = kept;
        gone.into_iter().map(|(_, log)| log).collect()
    }

    /// Syncs and seals the log; returns what a log after it would name.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn seal(mut self) -> Result<Link> {
        self.sync()?;
        let bytes = self.current.len();
        self.current.seal()?;
        Ok(Link { number: self.number, bytes })
    }
}

/// A log without a record: there before it is wanted, since to create a file takes a while. A crash leaves
/// it as one that is not of the chain.
pub struct SpareSegment {
    number: u64,
    log: LogWriter,
}

impl SpareSegment {
    /// Creates the log `number`, greater than any in the chain.
    ///
    /// # Errors
    /// Those of the medium; then there is no such log.
    pub fn create(vfs: &dyn Vfs, number: u64) -> Result<Self> {
        let name = FileKind::Log.name(FileNumber(number));
        Ok(SpareSegment {
            number,
            log: LogWriter::create_append(vfs, &name, number, Purpose::Log)?,
        })
    }

    /// Has the medium make its pages ready: about `bytes` will be appended, and the first `now` of them are
    /// ready when this returns.
    pub fn expect(&self, bytes: u64, now: u64) {
        self.log.expect(bytes, now);
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Removes it again. One that stays behind is removed by the next open.
    pub fn remove(self, vfs: &dyn Vfs) {
        drop(self.log);
        remove_logs(vfs, [self.number]);
    }
}

/// Removes logs whose writes are all elsewhere. One that stays behind is removed by the next open.
pub fn remove_logs(vfs: &dyn Vfs, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        let _ = vfs.remove(&FileKind::Log.name(FileNumber(number)));
    }
}

/// Chains the log `number` to the one before.
fn begin(vfs: &dyn Vfs, number: u64, mut log: LogWriter, previous: Link) -> Result<LogWriter> {
    match log.append(&[&previous.encode()]) {
        Ok(_) => Ok(log),
        Err(error) => {
            // A stump would only confuse the next open; if it cannot be removed it has no records.
            remove_logs(vfs, [number]);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn do_links_come_back_and_hostile_ones_do_no_harm() {
        let link = Link { number: 3, bytes: 1 << 40 };
        let bytes = link.encode();
        assert_eq!(Link::decode(&bytes), Ok(link));
        for at in 0..bytes.len() {
            assert!(Link::decode(&bytes[..at]).is_err());
        }
        assert!(Link::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
        assert!(Link::decode(&[1; 17]).is_err());
    }
}
