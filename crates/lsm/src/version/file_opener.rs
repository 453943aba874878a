//! Opens the tables and L0 runs that an edit adds, in files and in persistent memory.
//!
//! A run in persistent memory comes from one of two sources. At open the manifest names it, and it
//! claims its live pages; the others may belong to another run by now. Later a flush has just built
//! it.

use std::sync::Arc;

use siltstone_engine::Result;
use siltstone_table::BlockCache;
use siltstone_table::log::LogArchive;
use siltstone_vfs::PageClaims;

use super::blob_files::BlobOpener;
use super::{FileEntry, L0Run, TableFile};
use crate::rowtable::RowTable;

/// The context for opening the files of an edit.
pub(crate) struct FileOpener<'a> {
    /// The logs with values, and where they go once no file refers to them.
    pub(crate) logs: &'a Arc<LogArchive>,
    pub(crate) cache: &'a Arc<BlockCache>,
    pub(crate) pmem: PmemRuns<'a>,
    /// The L0 cursor in the new version.
    pub(crate) cursor: &'a [u8],
    /// The files with values that are open.
    pub(crate) blobs: BlobOpener<'a>,
}

/// The source of runs in persistent memory.
pub(crate) enum PmemRuns<'a> {
    /// There are none.
    None,
    /// Their pages are named by the manifest.
    Claimed(&'a PageClaims),
    /// It was just built.
    Built(&'a Arc<RowTable>),
}

/// A file or a run that an edit adds.
pub(crate) enum OpenFile {
    L0Run(L0Run),
    Table(Arc<TableFile>),
}

impl FileOpener<'_> {
    /// Opens the file or run of `entry`.
    pub(crate) fn open(&self, entry: &FileEntry) -> Result<OpenFile> {
        Ok(match entry.level {
            0 => OpenFile::L0Run(L0Run::open(self, entry)?),
            _ => {
                OpenFile::Table(TableFile::open(self.logs, entry.clone(), self.cache, &self.blobs)?)
            }
        })
    }

    /// Opens everything that an edit adds.
    pub(crate) fn open_all(&self, entries: &[FileEntry]) -> Result<Vec<OpenFile>> {
        entries.iter().map(|entry| self.open(entry)).collect()
    }
}

impl OpenFile {
    pub(crate) fn max_sequence(&self) -> u64 {
        match self {
            OpenFile::L0Run(run) => run.max_sequence(),
            OpenFile::Table(table) => table.max_sequence(),
        }
    }
}
