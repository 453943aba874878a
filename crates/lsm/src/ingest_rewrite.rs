//! Sorted files whose keys get another prefix when they are ingested.
//!
//! ```text
//!   file: from ‖ a, from ‖ b, …  ──▶  000012.ingest: to ‖ a, to ‖ b, …  ──▶  as any staged file
//! ```
//!
//! A program that writes a sorted file need not know in which part of a keyspace its rows will be.
//! The staging name is removed if the ingestion is not completed, also by the next open.
//!
//! Invariant: the entries are those of the file, in the same order, since all keys of it have the
//! prefix. Every byte that is written was checked when it was read.

use std::sync::Arc;

use siltstone_engine::error::display_key;
use siltstone_engine::{Error, PrefixChange, Result};
use siltstone_table::{FileNumber, IterOptions, Kind};
use siltstone_vfs::Mode;

use crate::engine::Tree;
use crate::ingest::{PURPOSE, Source, open_sorted_file};
use crate::sorted_file::SortedFileWriter;

/// The entries between two checks for the end of the table.
const CHECK_INTERVAL: u64 = 1024;

impl Tree {
    /// Writes the entries of the file to a new one, `name`, in the table's directory, durably.
    ///
    /// # Errors
    /// `Invalid` for a file that is no complete sorted file, or has keys without the prefix, or
    /// ones that are too long with the other prefix; `Corruption` in the file; I/O errors.
    pub(crate) fn rewrite_sorted_file(
        &self,
        source: &Source,
        name: &str,
        prefix: &PrefixChange,
    ) -> Result<()> {
        let file = source.directory.open(&source.name, Mode::Read)?;
        // Without a cache the number is not used.
        let (_, table) = open_sorted_file(file, &source.path, FileNumber::default())?;
        let mut entries = Arc::new(table).iter(PURPOSE, IterOptions::COMPACTION);
        let mut writer = SortedFileWriter::create(self.vfs.clone(), name, &self.options.load())?;
        let mut key = prefix.to.clone();
        let mut is_valid = entries.first()?;
        while is_valid {
            let Some(rest) = entries.key().strip_prefix(prefix.from.as_slice()) else {
                return Err(Error::Invalid(format!(
                    "{}: the key {} does not begin with {}",
                    source.path.display(),
                    display_key(entries.key()),
                    display_key(&prefix.from)
                )));
            };
            key.truncate(prefix.to.len());
            key.extend_from_slice(rest);
            match entries.kind() {
                Kind::Delete => writer.delete(&key)?,
                Kind::PutExpiring => {
                    writer.put_until(&key, entries.value(), entries.expires_at())?;
                }
                // The writer of sorted files writes no other kinds.
                _ => writer.put(&key, entries.value())?,
            }
            if writer.entries().is_multiple_of(CHECK_INTERVAL) {
                self.background.check_open()?;
            }
            is_valid = entries.next()?;
        }
        writer.finish().map(drop)
    }
}
