//! Logs that a table does not need any more, kept for readers of its changes.
//!
//! ```text
//!   000012.log ─ its writes are in other files ─▶ 000012.archive ─ over a limit ─▶ removed
//!                                                 000012-1764213987123.archive
//!                                                        └ archived at, in milliseconds since 1970
//! ```
//!
//! An archived log has the same content under another name, so recovery, verification and repair
//! do not take it for a log of the table. The oldest archived logs are removed when all of them
//! together are over the limit of bytes, and when they are older than the limit of age. Without
//! limits a discarded log is removed at once.
//!
//! A table may need a log longer than later ones, e.g. for large values in it, and archive it after
//! them. A reader needs every log after the one where it begins, so a log that is over the limit of
//! age takes those before it along, however lately they were archived.
//!
//! With a limit of age the names have the time of archiving, which outlives restarts and copies. A
//! log without it, from before the limit was set, counts from then on; without the limit the times
//! are removed from the names, which earlier versions do not know.
//!
//! Compare RocksDB's `archive` directory, `WAL_size_limit_MB` and `WAL_ttl_seconds`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use siltstone_engine::{Clock, Result, SystemClock, Timestamp};
use siltstone_vfs::{Mode, Vfs};

use super::remove_logs;
use crate::{FileKind, FileNumber, parse_number};

const EXTENSION: &str = "archive";

/// How much is kept. The default: nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// At most this many bytes; 0: no limit if there is one of age.
    pub max_bytes: u64,
    /// No log that was archived longer ago; zero: no limit.
    pub max_age: Duration,
}

impl ArchiveLimits {
    fn is_enabled(&self) -> bool {
        self.max_bytes > 0 || self.has_max_age()
    }

    fn has_max_age(&self) -> bool {
        !self.max_age.is_zero()
    }

    /// Whether the oldest of logs with `bytes` bytes in total is to be removed.
    fn is_over_bytes(&self, bytes: u64) -> bool {
        !self.is_enabled() || (self.max_bytes > 0 && bytes > self.max_bytes)
    }

    /// Whether a log that was archived `at` is to be removed.
    fn is_over_age(&self, at: Option<Timestamp>, now: Timestamp) -> bool {
        // A clock that went back makes no log older.
        let age = at.map_or(0, |at| now.saturating_sub(at));
        self.has_max_age() && u128::from(age) >= self.max_age.as_millis()
    }
}

/// The archived logs of one table.
pub struct LogArchive {
    vfs: Arc<dyn Vfs>,
    clock: Arc<dyn Clock>,
    limits: Mutex<ArchiveLimits>,
    /// By number; read from the directory on first use.
    logs: Mutex<Option<BTreeMap<u64, ArchivedLog>>>,
}

#[derive(Clone, Copy)]
struct ArchivedLog {
    bytes: u64,
    /// When it was archived; `None` without a limit of age.
    at: Option<Timestamp>,
}

impl LogArchive {
    /// The archive of the table in `vfs`.
    pub fn new(vfs: Arc<dyn Vfs>, clock: Arc<dyn Clock>, limits: ArchiveLimits) -> Self {
        LogArchive { vfs, clock, limits: limits.into(), logs: Mutex::default() }
    }

    /// An archive that keeps nothing.
    pub fn disabled(vfs: Arc<dyn Vfs>) -> Self {
        Self::new(vfs, Arc::new(SystemClock), ArchiveLimits::default())
    }

    /// The directory of the table.
    pub fn vfs(&self) -> &Arc<dyn Vfs> {
        &self.vfs
    }

    /// Whether discarded logs are kept.
    pub fn is_enabled(&self) -> bool {
        self.limits().is_enabled()
    }

    fn limits(&self) -> ArchiveLimits {
        *self.limits.lock()
    }

    /// Changes the limits, and removes what is over them.
    pub fn set_limits(&self, limits: ArchiveLimits) {
        *self.limits.lock() = limits;
        self.trim();
    }

    /// Archives the log `number`, of which the table needs nothing any more, or removes it. If that
    /// fails, the next open does it.
    pub fn discard(&self, number: u64) {
        let limits = self.limits();
        if !limits.is_enabled() {
            return remove_logs(self.vfs.as_ref(), [number]);
        }
        let archived = || -> Result<()> {
            let at = limits.has_max_age().then(|| self.clock.now());
            let (name, kept) = (FileKind::Log.name(FileNumber(number)), archive_name(number, at));
            let mut logs = self.logs.lock();
            let logs = self.loaded(&mut logs)?;
            // After a crash it may have its preallocated tail.
            let bytes = self.vfs.open(&name, Mode::Read)?.len()?;
            self.vfs.rename(&name, &kept)?;
            logs.insert(number, ArchivedLog { bytes, at });
            Ok(())
        };
        let _ = archived();
        self.trim();
    }

    /// Removes the oldest archived logs that are over the limits.
    pub fn trim(&self) {
        let (limits, now) = (self.limits(), self.clock.now());
        let mut logs = self.logs.lock();
        let Ok(logs) = self.loaded(&mut logs) else { return };
        let mut bytes: u64 = logs.values().map(|log| log.bytes).sum();
        let over_age = logs.iter().rfind(|(_, log)| limits.is_over_age(log.at, now));
        let last_over_age = over_age.map(|(&number, _)| number);
        while let Some(oldest) = logs.first_entry()
            && (limits.is_over_bytes(bytes) || Some(*oldest.key()) <= last_over_age)
        {
            let (number, log) = oldest.remove_entry();
            // If this fails, the next open tries again.
            let _ = self.vfs.remove(&archive_name(number, log.at));
            bytes -= log.bytes;
        }
        for (&number, log) in logs.iter_mut() {
            let at = limits.has_max_age().then(|| log.at.unwrap_or(now));
            let (from, to) = (archive_name(number, log.at), archive_name(number, at));
            if at != log.at && self.vfs.rename(&from, &to).is_ok() {
                log.at = at;
            }
        }
    }

    /// The bytes of all archived logs.
    pub fn bytes(&self) -> u64 {
        let mut logs = self.logs.lock();
        self.loaded(&mut logs).map_or(0, |logs| logs.values().map(|log| log.bytes).sum())
    }

    fn loaded<'a>(
        &self,
        logs: &'a mut Option<BTreeMap<u64, ArchivedLog>>,
    ) -> Result<&'a mut BTreeMap<u64, ArchivedLog>> {
        if logs.is_none() {
            let mut found = BTreeMap::new();
            for name in self.vfs.list()? {
                if let Some((number, at)) = parse_archive_name(&name) {
                    let bytes = self.vfs.open(&name, Mode::Read)?.len()?;
                    found.insert(number, ArchivedLog { bytes, at });
                }
            }
            *logs = Some(found);
        }
        Ok(logs.get_or_insert_default())
    }
}

/// The name of the log `number` that was archived `at` a time.
fn archive_name(number: u64, at: Option<Timestamp>) -> String {
    let number = FileNumber(number);
    match at {
        None => format!("{number}.{EXTENSION}"),
        Some(at) => format!("{number}-{at}.{EXTENSION}"),
    }
}

/// The number in the name of an archived log, and when it was archived; `None` for any other name.
pub fn parse_archive_name(name: &str) -> Option<(u64, Option<Timestamp>)> {
    let name = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    let Some((digits, at)) = name.split_once('-') else {
        return Some((parse_number(name)?.0, None));
    };
    let time: Timestamp = at.parse().ok()?;
    // No sign, no leading zeros: a name that this module writes.
    (time.to_string() == at).then_some((parse_number(digits)?.0, Some(time)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use siltstone_engine::{ManualClock, Purpose};
    use siltstone_vfs::Ram;

    fn add_log(vfs: &Arc<dyn Vfs>, number: u64) {
        let file = vfs.create(&FileKind::Log.name(FileNumber(number))).unwrap();
        file.write_at(0, &[1; 100], Purpose::Log).unwrap();
    }

    fn bytes(max_bytes: u64) -> ArchiveLimits {
        ArchiveLimits { max_bytes, ..ArchiveLimits::default() }
    }

    #[test]
    fn oldest_logs_over_the_limit_are_removed() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let clock = Arc::new(ManualClock::at(5));
        let archive = LogArchive::new(vfs.clone(), clock.clone(), bytes(250));
        for number in 3..7 {
            add_log(&vfs, number);
            archive.discard(number);
        }
        assert_eq!(vfs.list().unwrap(), ["000005.archive", "000006.archive"]);
        // As after the next open.
        let archive = LogArchive::new(vfs.clone(), clock, bytes(250));
        assert_eq!(archive.bytes(), 200);
        archive.set_limits(bytes(150));
        assert_eq!(vfs.list().unwrap(), ["000006.archive"]);
        archive.set_limits(bytes(0));
        add_log(&vfs, 7);
        archive.discard(7);
        assert!(vfs.list().unwrap().is_empty());
    }

    #[test]
    fn logs_over_the_limit_of_age_are_removed_also_after_a_restart() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let clock = Arc::new(ManualClock::at(1000));
        let limits = ArchiveLimits { max_age: Duration::from_millis(500), ..bytes(250) };
        let open = || LogArchive::new(vfs.clone(), clock.clone(), limits);
        let archive = open();
        for number in 3..6 {
            add_log(&vfs, number);
            archive.discard(number);
            clock.advance(100);
        }
        // The first one is over the limit of bytes.
        assert_eq!(vfs.list().unwrap(), ["000004-1100.archive", "000005-1200.archive"]);
        let archive = open();
        clock.set(1599);
        archive.trim();
        assert_eq!(archive.bytes(), 200);
        clock.set(1600);
        archive.trim();
        assert_eq!(vfs.list().unwrap(), ["000005-1200.archive"]);
        // A clock that goes back removes nothing.
        clock.set(3);
        archive.trim();
        assert_eq!(archive.bytes(), 100);
    }

    /// As logs whose large values the table has needed longer.
    #[test]
    fn old_log_archived_lately_does_not_keep_later_ones_over_the_limit_of_age() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let clock = Arc::new(ManualClock::at(1000));
        let limits = ArchiveLimits { max_age: Duration::from_millis(500), ..bytes(0) };
        let archive = LogArchive::new(vfs.clone(), clock.clone(), limits);
        for (number, at) in [(20, 1000), (21, 1100), (3, 1400)] {
            clock.set(at);
            add_log(&vfs, number);
            archive.discard(number);
        }
        clock.set(1499);
        archive.trim();
        assert_eq!(archive.bytes(), 300);
        clock.set(1500);
        archive.trim();
        assert_eq!(vfs.list().unwrap(), ["000021-1100.archive"]);
        clock.set(1600);
        archive.trim();
        assert!(vfs.list().unwrap().is_empty());
    }

    #[test]
    fn age_alone_has_no_limit_of_bytes() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let clock = Arc::new(ManualClock::at(1000));
        let limits = ArchiveLimits { max_age: Duration::from_secs(1), ..bytes(0) };
        let archive = LogArchive::new(vfs.clone(), clock.clone(), limits);
        assert!(archive.is_enabled());
        for number in 3..9 {
            add_log(&vfs, number);
            archive.discard(number);
        }
        assert_eq!(archive.bytes(), 600);
        clock.advance(1000);
        archive.trim();
        assert!(vfs.list().unwrap().is_empty());
    }

    #[test]
    fn names_have_times_as_long_as_there_is_a_limit_of_age() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let clock = Arc::new(ManualClock::at(1000));
        let archive = LogArchive::new(vfs.clone(), clock.clone(), bytes(1000));
        add_log(&vfs, 3);
        archive.discard(3);
        clock.advance(7);
        archive.set_limits(ArchiveLimits { max_age: Duration::from_secs(1), ..bytes(1000) });
        assert_eq!(vfs.list().unwrap(), ["000003-1007.archive"]);
        clock.advance(5);
        archive.trim();
        assert_eq!(vfs.list().unwrap(), ["000003-1007.archive"]);
        archive.set_limits(bytes(1000));
        assert_eq!(vfs.list().unwrap(), ["000003.archive"]);
    }

    #[test]
    fn only_names_of_archived_logs_are_parsed() {
        for at in [None, Some(0), Some(u64::MAX)] {
            assert_eq!(parse_archive_name(&archive_name(12, at)), Some((12, at)));
        }
        for name in [
            "000012.log",
            "12.archive",
            "archive",
            ".archive",
            "000012archive",
            "000012-.archive",
            "000012-+1.archive",
            "000012-01.archive",
            "12-1.archive",
            "000012-1-1.archive",
        ] {
            assert_eq!(parse_archive_name(name), None, "{name}");
        }
    }
}
