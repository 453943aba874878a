//! Operations on every table of a store: sync, and the disk usage of each.

use std::collections::BTreeMap;

use siltstone_engine::Result;
use siltstone_vfs::{Mode, Vfs};

use super::Db;
use crate::Table;

impl Db {
    /// Makes every write that has returned, to any table, durable against a power cut. The tables
    /// are synced one after the other, and each at its own moment: a power cut during the call may
    /// leave the later writes of one table and not the earlier ones of another.
    ///
    /// # Errors
    /// The first error of a table; the others are synced in any case.
    pub fn sync(&self) -> Result<()> {
        let tables: Vec<_> = self.state()?.tables.values().cloned().collect();
        // Tables that were not opened have no unsynced writes of this process.
        let outcomes: Vec<_> = tables.iter().map(Table::sync).collect();
        outcomes.into_iter().collect()
    }

    /// The bytes of each table's files, by the table's name. Nothing is opened or read. Space that
    /// is reserved in advance counts, and so do holes; [`Stats::space_bytes`] is what a table uses.
    /// Files in another directory (`fast_dir` of `trie`) do not count.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// table.put(b"k", &[0; 1000])?;
    /// db.sync()?;
    /// assert!(db.disk_usage()?["t"] >= 1000);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// [`Stats::space_bytes`]: crate::Stats::space_bytes
    ///
    /// # Errors
    /// I/O errors.
    pub fn disk_usage(&self) -> Result<BTreeMap<String, u64>> {
        let mut usage = BTreeMap::new();
        for name in self.table_names()? {
            let files = self.existing_table_vfs(&name).and_then(|vfs| Ok((vfs.list()?, vfs)));
            let bytes = match files {
                Ok((files, vfs)) => {
                    let bytes = files.iter().map(|file| bytes_of(vfs.as_ref(), file));
                    bytes.sum::<Result<u64>>()?
                }
                // It was dropped meanwhile.
                Err(error) if error.is_not_found() => 0,
                Err(error) => return Err(error),
            };
            usage.insert(name, bytes);
        }
        Ok(usage)
    }
}

/// The length of a file; 0 if compaction has removed it meanwhile.
fn bytes_of(vfs: &dyn Vfs, file: &str) -> Result<u64> {
    match vfs.open(file, Mode::Read).and_then(|file| file.len()) {
        Err(error) if error.is_not_found() => Ok(0),
        len => len,
    }
}
