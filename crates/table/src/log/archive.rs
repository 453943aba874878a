//! Logs that a table does not need any more, kept for readers of its changes.
//!
//! ```text
//!   000012.log ─ its writes are in other files ─▶ 000012.archive ─ over the limit ─▶ removed
//! ```
//!
//! An archived log has the same content under another name, so recovery, verification and repair
//! do not take it for a log of the table. The oldest archived logs are removed when all of them
//! together are over the limit. With a limit of 0 a discarded log is removed at once.
//!
//! Compare RocksDB's `archive` directory and `WAL_size_limit_MB`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use siltstone_engine::Result;
use siltstone_vfs::{Mode, Vfs};

use super::remove_logs;
use crate::{FileKind, FileNumber, parse_number};

const EXTENSION: &str = "archive";

/// The archived logs of one table.
pub struct LogArchive {
    vfs: Arc<dyn Vfs>,
    max_bytes: AtomicU64,
    /// The bytes of each archived log; read from the directory on first use.
    logs: Mutex<Option<BTreeMap<u64, u64>>>,
}

impl LogArchive {
    /// The archive of the table in `vfs`, with at most `max_bytes` bytes.
    pub fn new(vfs: Arc<dyn Vfs>, max_bytes: u64) -> Self {
        LogArchive { vfs, max_bytes: max_bytes.into(), logs: Mutex::default() }
    }

    /// The directory of the table.
    pub fn vfs(&self) -> &Arc<dyn Vfs> {
        &self.vfs
    }

    /// Whether discarded logs are kept.
    pub fn is_enabled(&self) -> bool {
        self.max_bytes.load(Relaxed) > 0
    }

    /// Changes the limit, and removes what is over it.
    pub fn set_max_bytes(&self, max_bytes: u64) {
        self.max_bytes.store(max_bytes, Relaxed);
        self.trim();
    }

    /// Archives the log `number`, of which the table needs nothing any more, or removes it. If that
    /// fails, the next open does it.
    pub fn discard(&self, number: u64) {
        if !self.is_enabled() {
            return remove_logs(self.vfs.as_ref(), [number]);
        }
        let archived = || -> Result<()> {
            let (name, kept) = (FileKind::Log.name(FileNumber(number)), archive_name(number));
            let mut logs = self.logs.lock();
            let logs = self.loaded(&mut logs)?;
            // After a crash it may have its preallocated tail.
            let bytes = self.vfs.open(&name, Mode::Read)?.len()?;
            self.vfs.rename(&name, &kept)?;
            logs.insert(number, bytes);
            Ok(())
        };
        let _ = archived();
        self.trim();
    }

    /// Removes the oldest archived logs that are over the limit.
    pub fn trim(&self) {
        let max_bytes = self.max_bytes.load(Relaxed);
        let mut logs = self.logs.lock();
        let Ok(logs) = self.loaded(&mut logs) else { return };
        let mut bytes: u64 = logs.values().sum();
        while bytes > max_bytes
            && let Some((number, freed)) = logs.pop_first()
        {
            // If this fails, the next open tries again.
            let _ = self.vfs.remove(&archive_name(number));
            bytes -= freed;
        }
    }

    /// The bytes of all archived logs.
    pub fn bytes(&self) -> u64 {
        let mut logs = self.logs.lock();
        self.loaded(&mut logs).map_or(0, |logs| logs.values().sum())
    }

    fn loaded<'a>(
        &self,
        logs: &'a mut Option<BTreeMap<u64, u64>>,
    ) -> Result<&'a mut BTreeMap<u64, u64>> {
        if logs.is_none() {
            let mut found = BTreeMap::new();
            for name in self.vfs.list()? {
                if let Some(number) = parse_archive_name(&name) {
                    found.insert(number, self.vfs.open(&name, Mode::Read)?.len()?);
                }
            }
            *logs = Some(found);
        }
        Ok(logs.get_or_insert_default())
    }
}

/// The name of the archived log `number`.
pub fn archive_name(number: u64) -> String {
    format!("{}.{EXTENSION}", FileNumber(number))
}

/// The number in the name of an archived log; `None` for any other name.
pub fn parse_archive_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    Some(parse_number(digits)?.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use siltstone_engine::Purpose;
    use siltstone_vfs::Ram;

    fn add_log(vfs: &Arc<dyn Vfs>, number: u64) {
        let file = vfs.create(&FileKind::Log.name(FileNumber(number))).unwrap();
        file.write_at(0, &[1; 100], Purpose::Log).unwrap();
    }

    #[test]
    fn oldest_logs_over_the_limit_are_removed() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let archive = LogArchive::new(vfs.clone(), 250);
        for number in 3..7 {
            add_log(&vfs, number);
            archive.discard(number);
        }
        assert_eq!(vfs.list().unwrap(), ["000005.archive", "000006.archive"]);
        // As after the next open.
        let archive = LogArchive::new(vfs.clone(), 250);
        assert_eq!(archive.bytes(), 200);
        archive.set_max_bytes(150);
        assert_eq!(vfs.list().unwrap(), ["000006.archive"]);
        archive.set_max_bytes(0);
        add_log(&vfs, 7);
        archive.discard(7);
        assert!(vfs.list().unwrap().is_empty());
    }

    #[test]
    fn only_names_of_archived_logs_are_parsed() {
        assert_eq!(parse_archive_name(&archive_name(12)), Some(12));
        for name in ["000012.log", "12.archive", "archive", ".archive", "000012archive"] {
            assert_eq!(parse_archive_name(name), None, "{name}");
        }
    }
}
