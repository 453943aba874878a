//! How the tree's edits are recorded, opened and applied.
//!
//! The manifest, the current version and the order of steps are those of
//! [`siltstone_durable::version_set`]. This file opens the tables and runs that an edit adds, and
//! completes edits that add runs or move the cursor over level 0: a run records the position of the
//! cursor at its insertion.

use std::collections::HashSet;
use std::sync::Arc;

use siltstone_durable::{
    RecoveredManifest, VersionSet, VersionState, missing_file, reject_orphans,
};
use siltstone_engine::{Error, Result};
use siltstone_table::log::LogArchive;
use siltstone_table::{BlockCache, parse_file_name};
use siltstone_vfs::{PageClaims, PmemPool};

use super::{BlobOpener, Edit, FileEntry, FileOpener, L0Run, OpenFile, PmemRuns, Version};
use crate::pool;
use crate::rowtable::RowTable;

/// The engine's name in the manifest.
pub(crate) const ENGINE: &str = "lsm";

impl VersionState for Version {
    type Edit = Edit;

    const ENGINE: &'static str = ENGINE;

    fn to_edit(&self) -> Edit {
        Edit {
            added: self.entries(),
            cursors: self.compaction_cursors.clone(),
            cursor: Some(self.cursor.to_vec()),
            range_deletes: self.range_deletes.iter().cloned().collect(),
            merge_operator: self.merge_operator.clone(),
            ..Edit::default()
        }
    }

    fn retire(&self, edit: &Edit, next: &Version) {
        let mut removed: HashSet<u64> = edit.removed.iter().map(|&(_, number)| number).collect();
        edit.added.iter().for_each(|entry| _ = removed.remove(&entry.number));
        let is_removed = |number: u64| removed.contains(&number);
        self.level0.iter().filter(|run| is_removed(run.number())).for_each(L0Run::retire);
        let tables = self.levels.iter().flat_map(|tables| tables.iter());
        tables.filter(|table| is_removed(table.number())).for_each(|table| table.retire());
        self.logs().filter(|log| !next.blobs.contains(log.number())).for_each(|log| log.retire());
    }
}

/// Opens what the manifest names, or creates an empty table if there is no manifest. Also returns
/// the pool of persistent memory if runs lie in it; it has at least `pmem_bytes`.
pub(crate) fn open_versions(
    logs: &Arc<LogArchive>,
    cache: &Arc<BlockCache>,
    levels: usize,
    pmem_bytes: u64,
) -> Result<(VersionSet<Version>, RecoveredManifest<Version>, Option<PmemPool>)> {
    let (vfs, mut claims) = (logs.vfs(), None);
    let open_files = |edit: &Edit| {
        check_range_deletes(edit)?;
        if edit.added.iter().any(FileEntry::is_in_pmem) {
            claims = Some(pool::claims(vfs, pmem_bytes)?);
        }
        let nvm = claims.as_ref().map_or(PmemRuns::None, PmemRuns::Claimed);
        let cursor = edit.cursor.as_deref().unwrap_or_default();
        let blobs = BlobOpener::default();
        let opener = FileOpener { logs, cache, pmem: nvm, cursor, blobs };
        let opened = opener.open_all(&edit.added).map_err(missing_file)?;
        Version::new(levels).apply(edit, &opened)
    };
    let check_empty = || reject_orphans(vfs.as_ref(), |name| parse_file_name(name).is_some());
    let (versions, recovered) = VersionSet::open(vfs, Edit::default(), check_empty, open_files)?;
    Ok((versions, recovered, claims.map(PageClaims::ready)))
}

/// Rejects a range deletion that is newer than every write, because it would hide later writes.
fn check_range_deletes(edit: &Edit) -> Result<()> {
    let newest = edit.header.last_sequence.unwrap_or(0);
    match edit.range_deletes.iter().find(|delete| delete.sequence > newest) {
        None => Ok(()),
        Some(delete) => {
            let reason =
                format!("range deletion {} is newer than all writes, {newest}", delete.sequence);
            Err(Error::corruption("MANIFEST", 0, reason))
        }
    }
}

impl Version {
    /// The version after `edit`, and the edit completed. `built` is the run in persistent memory
    /// that the edit adds, if it adds one.
    ///
    /// L0 runs that the edit adds are inserted at the present position of the L0 cursor. If the
    /// edit moves the cursor, runs that are not in `merged` were inserted while the range behind it
    /// was compacted without them, so they count as inserted at its new position.
    pub(crate) fn open_and_apply(
        &self,
        logs: &Arc<LogArchive>,
        cache: &Arc<BlockCache>,
        edit: &mut Edit,
        built: Option<&Arc<RowTable>>,
        merged: &[L0Run],
    ) -> Result<Version> {
        let nvm = built.map_or(PmemRuns::None, PmemRuns::Built);
        let blobs = BlobOpener::after(&self.blobs);
        let opener = FileOpener { logs, cache, pmem: nvm, cursor: &[], blobs };
        let opened = self.open_added(edit, &opener)?;
        for run in edit.added.iter_mut().filter_map(|entry| entry.run.as_mut()) {
            run.inserted_at = self.cursor.to_vec();
        }
        if let Some(cursor) = &edit.cursor {
            let was_merged = |number: u64| merged.iter().any(|run| run.number() == number);
            let runs = self.level0.iter().map(L0Run::number);
            let inserted_since = runs.filter(|&number| !was_merged(number));
            edit.insertions = inserted_since.map(|number| (number, cursor.clone())).collect();
        }
        let of_deletes = edit.range_deletes.iter().map(|delete| delete.sequence);
        let of_files = opened.iter().map(OpenFile::max_sequence);
        edit.header.last_sequence =
            of_files.chain(of_deletes).chain(edit.header.last_sequence).max();
        self.apply(edit, &opened)
    }

    /// Opens what an edit adds. A table that it only moves is open already and shares its file with
    /// its old place: readers and checkpoints of an older version may need it there.
    fn open_added(&self, edit: &Edit, opener: &FileOpener<'_>) -> Result<Vec<OpenFile>> {
        let open = |entry: &FileEntry| {
            let is_moved = edit.removed.iter().any(|&(_, number)| number == entry.number);
            let file = || self.files().map(|(_, file)| file).find(|it| it.number() == entry.number);
            match is_moved.then(file).flatten() {
                Some(file) if entry.level > 0 => Ok(OpenFile::Table(file.moved(entry.clone())?)),
                _ => opener.open(entry),
            }
        };
        edit.added.iter().map(open).collect()
    }

    /// The edit that removes every table and run, and the version after it.
    pub(crate) fn cleared(&self) -> (Edit, Version) {
        let entries = self.entries();
        let edit = Edit {
            removed: entries.iter().map(|entry| (entry.level, entry.number)).collect(),
            cursor: Some(Vec::new()),
            forgotten: self.range_deletes.iter().map(|delete| delete.sequence).collect(),
            ..Edit::default()
        };
        let compaction_cursors = self.compaction_cursors.clone();
        let merge_operator = self.merge_operator.clone();
        let empty = Version::new(self.levels.len());
        (edit, Version { compaction_cursors, merge_operator, ..empty })
    }
}
