//! A table that a version names, and a row of level 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use siltstone_engine::{Error, Purpose, Result};
use siltstone_media::{Media, Mode};
use siltstone_table::{BlockCache, FileKind, FileNumber, Found, Table};

use super::FileEntry;

/// An open sorted table. When the last version that names it is gone and it is obsolete, its file
/// is removed.
pub(crate) struct TableFile {
    table: Arc<Table>,
    entry: FileEntry,
    media: Arc<dyn Media>,
    obsolete: AtomicBool,
}

impl TableFile {
    /// Opens the table that `entry` names.
    ///
    /// # Errors
    /// Corruption if the file is not what the manifest says it is.
    pub(crate) fn open(
        media: &Arc<dyn Media>,
        entry: FileEntry,
        cache: &Arc<BlockCache>,
    ) -> Result<Arc<Self>> {
        let number = FileNumber(entry.number);
        let name = FileKind::Table.name(number);
        let file = media.open(&name, Mode::Read)?;
        let table = Table::open(file, &name, number, Some(cache.clone()))?;
        let meta = table.meta();
        let told = (entry.bytes, &entry.smallest, &entry.largest);
        if (meta.bytes, &meta.smallest, &meta.largest) != told {
            return Err(Error::corruption(
                name,
                0,
                "the table is not the one that the manifest names",
            ));
        }
        let media = media.clone();
        let table = Arc::new(table);
        Ok(Arc::new(TableFile { table, entry, media, obsolete: AtomicBool::new(false) }))
    }

    /// The version of `key` in this table that a reader at `at` sees.
    pub(crate) fn get(&self, key: &[u8], hash: u64, at: u64) -> Result<Option<Found>> {
        if key < self.smallest() || key > self.largest() {
            return Ok(None);
        }
        self.table.get(key, hash, at, Purpose::Get)
    }

    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    pub(crate) fn entry(&self) -> &FileEntry {
        &self.entry
    }

    pub(crate) fn number(&self) -> u64 {
        self.entry.number
    }

    pub(crate) fn name(&self) -> String {
        FileKind::Table.name(FileNumber(self.entry.number))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.entry.bytes
    }

    pub(crate) fn smallest(&self) -> &[u8] {
        &self.entry.smallest
    }

    pub(crate) fn largest(&self) -> &[u8] {
        &self.entry.largest
    }

    pub(crate) fn max_sequence(&self) -> u64 {
        self.table.meta().max_sequence
    }

    /// No version made from now on names this file.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            // What stays behind by a fault is garbage that the next open removes.
            let _ = self.media.remove(&self.name());
        }
    }
}

/// One row of level 0: what one flush made. Rows may overlap; a newer row hides an older one.
///
/// The seam for TRIAD's CL-SSTable and TriangleKV's RowTable, which are rows of other kinds.
#[derive(Clone)]
pub(crate) enum Row {
    /// A sorted table.
    Sst(Arc<TableFile>),
}

impl Row {
    /// The file that the row is.
    pub(crate) fn file(&self) -> &Arc<TableFile> {
        match self {
            Row::Sst(file) => file,
        }
    }
}
