//! One row of level 0: what one flush made. Rows may overlap; a newer row hides an older one.
//!
//! ```text
//!   sorted table       keys and values                         the plain tree's row
//!   CL-SSTable         keys and positions ──▶ a sealed log     TRIAD-LOG: nothing is written twice
//!   RowTable           pages of persistent memory              TriangleKV: freed as the cursor goes
//! ```
//!
//! Of all of them only the keys in its live range count: what the cursor over level 0 has passed is in
//! level 1, and may be newer there. A RowTable is trimmed to its live range in each version; the
//! versions share the pages that both need, and a page is free again when the last version that
//! needs it is gone. That version is kept until the edit that moved the cursor is durable.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::{Found, Kind};

use super::edit::{FileEntry, RowEntry};
use super::opened::{NvmRows, Opener};
use super::{LOG_OF_ROW, LogFile, Logged, TableFile};
use crate::live_range::LiveRange;
use crate::pool::POOL_FILE;
use crate::rowtable::{RowTable, RowVersion, Tally};

/// A row with what is live of it in one version.
#[derive(Clone)]
pub(crate) struct Row {
    body: Body,
    live: LiveRange,
    /// About the keys and values in the live range, in bytes.
    live_bytes: u64,
    /// What it takes of level 0's room: pages held, or what is live where there are none.
    held_bytes: u64,
}

#[derive(Clone)]
enum Body {
    File { file: Arc<TableFile>, log: Option<Arc<LogFile>> },
    Nvm { table: Arc<RowTable>, entry: Arc<FileEntry> },
}

/// A version of a key that a lookup found in a row.
pub(crate) enum InRow {
    Table(Found),
    Log(Logged, Vec<u8>),
    Nvm(RowVersion),
}

impl Row {
    /// Opens the row that `entry` names. Of one in files all is live until
    /// [`with_cursor`](Row::with_cursor) says otherwise; of one in persistent memory what the
    /// manifest says, because the other pages may be another's by now.
    ///
    /// # Errors
    /// Corruption if a file or a page is not what the manifest says it is.
    pub(super) fn open(opener: &Opener<'_>, entry: &FileEntry) -> Result<Self> {
        let row = entry.row.clone().unwrap_or_default();
        if let Some(handle) = row.nvm {
            let number = entry.number;
            let (table, live) = match &opener.nvm {
                NvmRows::Built(table) if table.number() == number && table.handle() == handle => {
                    ((*table).clone(), LiveRange::all())
                }
                NvmRows::Claimed(claims) => {
                    let live = LiveRange::new(opener.cursor, &row.arrival);
                    let table = RowTable::open(claims, handle, number, live.clone())?;
                    if table.bounds() != (&entry.smallest, &entry.largest) {
                        let reason = format!("row {number} is not the one that the manifest names");
                        return Err(Error::corruption(claims.name(), 0, reason));
                    }
                    (Arc::new(table), live)
                }
                _ => {
                    let reason = format!("row {number} is in a pool that is not open");
                    return Err(Error::corruption(POOL_FILE, 0, reason));
                }
            };
            return Ok(Self::new(Body::Nvm { table, entry: Arc::new(entry.clone()) }, live));
        }
        let file = TableFile::open(opener.vfs, entry.clone(), opener.cache)?;
        let log = row.log.map(|(number, bytes)| LogFile::open(opener.vfs, number, bytes));
        let log = log.transpose()?;
        // A block that cannot be read says nothing, and then the log is read for what it would say.
        if let Some(log) = &log
            && let Ok(Some(block)) = file.table().meta_block(LOG_OF_ROW, Purpose::Recovery)
        {
            log.set_form(&block);
        }
        Ok(Self::new(Body::File { file, log }, LiveRange::all()))
    }

    fn new(body: Body, live: LiveRange) -> Self {
        let mut row = Row { body, live, live_bytes: 0, held_bytes: 0 };
        let live = row.live.intervals().map(|(from, to)| row.bytes_between(from, to)).sum();
        row.live_bytes = live;
        row.held_bytes = row.nvm().map_or(live, |table| table.held_bytes().iter().sum());
        row
    }

    /// The row in a version whose cursor stands at `cursor`, arrived when it stood at `arrival`.
    ///
    /// # Errors
    /// Of a row in persistent memory: `Corruption` in what is searched; `Invalid`: it would grow.
    pub(crate) fn with_cursor(&self, cursor: &Arc<[u8]>, arrival: &Arc<[u8]>) -> Result<Self> {
        let live = LiveRange::sharing(cursor, arrival);
        let body = match &self.body {
            // Whole is whole, wherever the cursor stands.
            Body::Nvm { table, .. } if live.is_whole() && table.live().is_whole() => {
                self.body.clone()
            }
            Body::Nvm { table, entry } if *table.live() != live => {
                let table = Arc::new(table.trim(live.clone())?);
                Body::Nvm { table, entry: entry.clone() }
            }
            body => body.clone(),
        };
        Ok(Self::new(body, live))
    }

    /// The newest version of `key` in this row that a reader at `at` sees. Cost: the table's, and
    /// one read if its value is in a log.
    pub(crate) fn get(
        &self,
        key: &[u8],
        hash: u64,
        at: u64,
        tally: &mut Tally,
    ) -> Result<Option<InRow>> {
        // The filter first: most rows have not the key, and it costs less than where the row is live.
        if !self.may_hold(hash) || !self.live.contains(key) {
            return Ok(None);
        }
        let (file, log) = match &self.body {
            Body::File { file, log } => (file, log),
            Body::Nvm { table, .. } => {
                return Ok(table.get(key, at, tally)?.map(InRow::Nvm));
            }
        };
        let Some(found) = file.get(key, hash, at)? else { return Ok(None) };
        match (log, found.kind) {
            (Some(log), Kind::Position) => {
                let ((position, _), mut record) = (log.position(found.value())?, Vec::new());
                let version = (key, found.sequence);
                let logged = log.read(position, version, &mut record, Purpose::Get)?;
                Ok(Some(InRow::Log(logged, record)))
            }
            _ => Ok(Some(InRow::Table(found))),
        }
    }

    /// Whether it may have versions of the key of this hash. Cost: a cache line if a filter knows; where there is
    /// none, `true`.
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        self.file().is_none_or(|file| file.table().may_contain(hash))
    }

    /// Whether a key from `from` to `to`, both counted, may be there. Cost: some three cache lines if a filter
    /// knows; where there is none, `true`.
    pub(crate) fn may_hold_between(&self, from: &[u8], to: &[u8]) -> bool {
        self.file().is_none_or(|file| file.may_hold_between(from, to))
    }

    /// About the bytes of keys and values from `from` to before `to` (`None`: to the end).
    fn bytes_between(&self, from: &[u8], to: Option<&[u8]>) -> u64 {
        let (all, between) = match &self.body {
            Body::File { file, .. } => {
                let table = file.table();
                let end = to.map_or(table.data_bytes(), |to| table.approximate_offset(to));
                (table.data_bytes(), end.saturating_sub(table.approximate_offset(from)))
            }
            // Damage is for whoever reads it to tell; here it only makes a compaction larger.
            Body::Nvm { table, .. } => (table.data_bytes(), table.bytes_in(from, to).unwrap_or(0)),
        };
        (self.data_bytes() as f64 * between as f64 / all.max(1) as f64) as u64
    }

    /// About the bytes of keys and values from the cursor to before `to` (`None`: the last key).
    pub(crate) fn side_bytes(&self, to: Option<&[u8]>) -> u64 {
        let side = self.live.up_to(to);
        side.intervals().map(|(from, to)| self.bytes_between(from, to)).sum()
    }

    /// At most `count` keys that part the row into pieces of about the same size.
    pub(crate) fn anchors(&self, count: usize) -> Vec<Vec<u8>> {
        match &self.body {
            Body::File { file, .. } => file.table().anchors(count),
            Body::Nvm { table, .. } => table.anchors(count).unwrap_or_default(),
        }
    }

    /// Its table, unless it is in persistent memory.
    pub(crate) fn file(&self) -> Option<&Arc<TableFile>> {
        match &self.body {
            Body::File { file, .. } => Some(file),
            Body::Nvm { .. } => None,
        }
    }

    /// Its table, if it holds the values itself.
    pub(crate) fn plain_file(&self) -> Option<&Arc<TableFile>> {
        self.file().filter(|_| self.log().is_none())
    }

    pub(crate) fn log(&self) -> Option<&Arc<LogFile>> {
        match &self.body {
            Body::File { log, .. } => log.as_ref(),
            Body::Nvm { .. } => None,
        }
    }

    /// The row in persistent memory, trimmed to what is live, if it is there.
    pub(crate) fn nvm(&self) -> Option<&Arc<RowTable>> {
        match &self.body {
            Body::File { .. } => None,
            Body::Nvm { table, .. } => Some(table),
        }
    }

    pub(crate) fn live(&self) -> &LiveRange {
        &self.live
    }

    pub(crate) fn number(&self) -> u64 {
        self.told().number
    }

    pub(crate) fn smallest(&self) -> &[u8] {
        &self.told().smallest
    }

    pub(crate) fn largest(&self) -> &[u8] {
        &self.told().largest
    }

    /// About the keys and values in the live range, in bytes.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// What it takes of level 0's room, in bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Keys and values of the whole row, in bytes.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.told().row.as_ref().map_or(0, |row| row.data_bytes)
    }

    /// Bytes of its files on the medium, or of its pages.
    pub(crate) fn medium_bytes(&self) -> u64 {
        match &self.body {
            Body::File { file, log } => file.bytes() + log.as_ref().map_or(0, |log| log.bytes()),
            Body::Nvm { .. } => self.held_bytes,
        }
    }

    /// How many versions it has.
    pub(crate) fn entries(&self) -> u64 {
        match &self.body {
            Body::File { file, .. } => file.table().meta().entries,
            Body::Nvm { table, .. } => table.len() as u64,
        }
    }

    pub(crate) fn max_sequence(&self) -> u64 {
        match &self.body {
            Body::File { file, .. } => file.max_sequence(),
            Body::Nvm { table, .. } => table.sequences().1,
        }
    }

    /// What the manifest has to say of this row now.
    pub(crate) fn entry(&self) -> FileEntry {
        let entry = self.told();
        let arrival = self.live.arrival().to_vec();
        let row = RowEntry { arrival, ..entry.row.clone().unwrap_or_default() };
        FileEntry { row: Some(row), ..entry.clone() }
    }

    /// What the manifest said of it when it came.
    fn told(&self) -> &FileEntry {
        match &self.body {
            Body::File { file, .. } => file.entry(),
            Body::Nvm { entry, .. } => entry,
        }
    }

    /// No version made from now on names this row. Pages are freed by themselves.
    pub(crate) fn retire(&self) {
        if let Body::File { file, log } = &self.body {
            file.retire();
            if let Some(log) = log {
                log.retire();
            }
        }
    }
}
