//! Opening what an edit adds: tables and rows, from files and from persistent memory.
//!
//! Rows in persistent memory come from two places. When a table is opened, the manifest names them and
//! they claim their pages, and only those that are live: the others may be another row's by now.
//! Later on, a flush brings the row that it has just built.

use std::sync::Arc;

use siltstone_engine::Result;
use siltstone_table::BlockCache;
use siltstone_vfs::{PageClaims, Vfs};

use super::{FileEntry, Row, TableFile};
use crate::rowtable::RowTable;

/// What it takes to open what the manifest names.
pub(crate) struct Opener<'a> {
    pub(crate) vfs: &'a Arc<dyn Vfs>,
    pub(crate) cache: &'a Arc<BlockCache>,
    pub(crate) nvm: NvmRows<'a>,
    /// Where the cursor over level 0 stands in the version that is made.
    pub(crate) cursor: &'a [u8],
}

/// Where rows in persistent memory come from.
pub(crate) enum NvmRows<'a> {
    /// There are none.
    None,
    /// From the pages that the manifest names.
    Claimed(&'a PageClaims),
    /// It was just built.
    Built(&'a Arc<RowTable>),
}

/// What an edit adds, open.
pub(crate) enum Opened {
    Row(Row),
    Table(Arc<TableFile>),
}

impl Opener<'_> {
    /// Opens what `entry` names.
    pub(crate) fn open(&self, entry: &FileEntry) -> Result<Opened> {
        Ok(match entry.level {
            0 => Opened::Row(Row::open(self, entry)?),
            _ => Opened::Table(TableFile::open(self.vfs, entry.clone(), self.cache)?),
        })
    }

    /// Opens all that an edit adds.
    pub(crate) fn open_all(&self, entries: &[FileEntry]) -> Result<Vec<Opened>> {
        entries.iter().map(|entry| self.open(entry)).collect()
    }
}

impl Opened {
    pub(crate) fn max_sequence(&self) -> u64 {
        match self {
            Opened::Row(row) => row.max_sequence(),
            Opened::Table(table) => table.max_sequence(),
        }
    }
}
