//! One row of level 0: what one flush made. Rows may overlap; a newer row hides an older one.
//!
//! ```text
//!   sorted table       keys and values                         the plain tree's row
//!   CL-SSTable         keys and positions ──▶ a sealed log     TRIAD-LOG: nothing is written twice
//! ```
//!
//! Of either only the keys in its live range count: what the cursor over level 0 has passed is in
//! level 1, and may be newer there.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_media::Media;
use siltstone_table::{BlockCache, Found, Kind};

use super::edit::{FileEntry, RowEntry};
use super::{LogFile, Logged, TableFile};
use crate::live_range::LiveRange;

/// A row with what is live of it in one version.
#[derive(Clone)]
pub(crate) struct Row {
    file: Arc<TableFile>,
    log: Option<Arc<LogFile>>,
    live: LiveRange,
    /// About the keys and values in the live range, in bytes.
    live_bytes: u64,
}

/// A version of a key that a lookup found in a row.
pub(crate) enum InRow {
    Table(Found),
    Log(Logged),
}

impl Row {
    /// Opens the files of the row that `entry` names. All of it is live until
    /// [`with_cursor`](Row::with_cursor) says otherwise.
    ///
    /// # Errors
    /// Corruption if a file is not what the manifest says it is.
    pub(crate) fn open(
        media: &Arc<dyn Media>,
        entry: &FileEntry,
        cache: &Arc<BlockCache>,
    ) -> Result<Self> {
        let file = TableFile::open(media, entry.clone(), cache)?;
        let log = entry.row.as_ref().and_then(|row| row.log);
        let log = log.map(|(number, bytes)| LogFile::open(media, number, bytes)).transpose()?;
        let row = Row { file, log, live: LiveRange::all(), live_bytes: 0 };
        let live_bytes = row.data_bytes();
        Ok(Row { live_bytes, ..row })
    }

    /// The row in a version whose cursor stands at `cursor`, arrived when it stood at `arrival`.
    pub(crate) fn with_cursor(&self, cursor: &Arc<[u8]>, arrival: &Arc<[u8]>) -> Self {
        let live = LiveRange::sharing(cursor, arrival);
        let live_bytes = live.intervals().map(|(from, to)| self.bytes_between(from, to)).sum();
        Row { live, live_bytes, ..self.clone() }
    }

    /// The newest version of `key` in this row that a reader at `at` sees. Cost: the table's, and
    /// one read if its value is in a log.
    pub(crate) fn get(&self, key: &[u8], hash: u64, at: u64) -> Result<Option<InRow>> {
        if !self.live.contains(key) {
            return Ok(None);
        }
        let Some(found) = self.file.get(key, hash, at)? else { return Ok(None) };
        match (&self.log, found.kind) {
            (Some(log), Kind::Position) => {
                let mut logged = Logged::default();
                log.read(found.value(), key, found.sequence, &mut logged, Purpose::Get)?;
                Ok(Some(InRow::Log(logged)))
            }
            _ => Ok(Some(InRow::Table(found))),
        }
    }

    /// About the bytes of keys and values from `from` to before `to` (`None`: to the end).
    pub(crate) fn bytes_between(&self, from: &[u8], to: Option<&[u8]>) -> u64 {
        let table = self.file.table();
        let end = to.map_or(table.data_bytes(), |to| table.approximate_offset(to));
        let between = end.saturating_sub(table.approximate_offset(from));
        (self.data_bytes() as f64 * between as f64 / table.data_bytes().max(1) as f64) as u64
    }

    /// About the bytes of keys and values from the cursor to before `to` (`None`: the last key).
    pub(crate) fn side_bytes(&self, to: Option<&[u8]>) -> u64 {
        let side = self.live.up_to(to);
        side.intervals().map(|(from, to)| self.bytes_between(from, to)).sum()
    }

    pub(crate) fn file(&self) -> &Arc<TableFile> {
        &self.file
    }

    pub(crate) fn log(&self) -> Option<&Arc<LogFile>> {
        self.log.as_ref()
    }

    pub(crate) fn live(&self) -> &LiveRange {
        &self.live
    }

    pub(crate) fn number(&self) -> u64 {
        self.file.number()
    }

    /// About the keys and values in the live range, in bytes.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Keys and values of the whole row, in bytes.
    fn data_bytes(&self) -> u64 {
        self.file.entry().row.as_ref().map_or(0, |row| row.data_bytes)
    }

    /// Bytes of its files on the medium.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file.bytes() + self.log.as_ref().map_or(0, |log| log.bytes())
    }

    pub(crate) fn max_sequence(&self) -> u64 {
        self.file.max_sequence()
    }

    /// What the manifest has to say of this row now.
    pub(crate) fn entry(&self) -> FileEntry {
        let entry = self.file.entry();
        let arrival = self.live.arrival().to_vec();
        let row = RowEntry { arrival, ..entry.row.clone().unwrap_or_default() };
        FileEntry { row: Some(row), ..entry.clone() }
    }

    /// No version made from now on names this row.
    pub(crate) fn retire(&self) {
        self.file.retire();
        if let Some(log) = &self.log {
            log.retire();
        }
    }
}
