//! How the tree's edits are recorded, opened and applied.
//!
//! The manifest, the current version and the order of steps are those of
//! [`siltstone_durable::version_set`]. This file opens the tables and runs that an edit adds, and
//! completes edits that add runs or move the cursor over level 0: a run records where the cursor
//! stood when it was inserted.

use std::collections::HashSet;
use std::sync::Arc;

use siltstone_durable::{
    EditHeader, Recovered, VersionEdit, VersionSet, VersionState, missing_file, reject_orphans,
};
use siltstone_engine::Result;
use siltstone_table::{BlockCache, parse_file_name};
use siltstone_vfs::{PageClaims, PmemPool, Vfs};

use super::{Edit, FileEntry, FileOpener, L0Run, OpenFile, PmemRuns, Version};
use crate::pool;
use crate::rowtable::RowTable;

/// The engine's name in the manifest.
pub(crate) const ENGINE: &str = "lsm";

impl VersionEdit for Edit {
    fn encode(&self) -> Vec<u8> {
        self.encode()
    }

    fn decode(bytes: &[u8]) -> std::result::Result<Self, String> {
        Edit::decode(bytes)
    }

    fn header(&self) -> EditHeader {
        EditHeader {
            next_file: self.next_file,
            last_sequence: self.last_sequence,
            first_log: self.first_log,
            sealed_log: self.sealed_log,
            synced_log: self.synced_log,
        }
    }

    fn set_header(&mut self, header: EditHeader) {
        self.next_file = header.next_file;
        self.last_sequence = header.last_sequence;
        self.first_log = header.first_log;
        self.sealed_log = header.sealed_log;
        self.synced_log = header.synced_log;
    }

    fn merge_files(&mut self, newer: Edit) -> std::result::Result<(), String> {
        for (level, number) in newer.removed {
            let before = self.added.len();
            self.added.retain(|file| (file.level, file.number) != (level, number));
            if self.added.len() == before {
                return Err(format!("removes table {number} that level {level} lacks"));
            }
        }
        self.added.extend(newer.added);
        merge_cursors(&mut self.cursors, &newer.cursors);
        self.cursor = newer.cursor.or(self.cursor.take());
        for (number, inserted_at) in newer.insertions {
            let run = self.added.iter_mut().find(|file| (file.level, file.number) == (0, number));
            let run = run.and_then(|file| file.run.as_mut());
            let run = run.ok_or_else(|| format!("moves run {number}, which level 0 lacks"))?;
            run.inserted_at = inserted_at;
        }
        Ok(())
    }
}

impl VersionState for Version {
    type Edit = Edit;

    const ENGINE: &'static str = ENGINE;

    fn to_edit(&self) -> Edit {
        Edit {
            added: self.entries(),
            cursors: self.compaction_cursors.clone(),
            cursor: Some(self.cursor.to_vec()),
            ..Edit::default()
        }
    }

    fn retire(&self, edit: &Edit, _: &Version) {
        let mut removed: HashSet<u64> = edit.removed.iter().map(|&(_, number)| number).collect();
        edit.added.iter().for_each(|entry| _ = removed.remove(&entry.number));
        let is_removed = |number: u64| removed.contains(&number);
        self.level0.iter().filter(|run| is_removed(run.number())).for_each(L0Run::retire);
        let tables = self.levels.iter().flat_map(|tables| tables.iter());
        tables.filter(|table| is_removed(table.number())).for_each(|table| table.retire());
    }
}

/// Opens what the manifest names, or creates an empty table if `vfs` has no manifest. Also returns
/// the pool of persistent memory if runs lie in it; it has at least `pmem_bytes`.
pub(crate) fn open_versions(
    vfs: &Arc<dyn Vfs>,
    cache: &Arc<BlockCache>,
    levels: usize,
    pmem_bytes: u64,
) -> Result<(VersionSet<Version>, Recovered<Version>, Option<PmemPool>)> {
    let mut claims = None;
    let open_files = |edit: &Edit| {
        if edit.added.iter().any(FileEntry::is_in_pmem) {
            claims = Some(pool::claims(vfs, pmem_bytes)?);
        }
        let nvm = claims.as_ref().map_or(PmemRuns::None, PmemRuns::Claimed);
        let cursor = edit.cursor.as_deref().unwrap_or_default();
        let opener = FileOpener { vfs, cache, pmem: nvm, cursor };
        let opened = opener.open_all(&edit.added).map_err(missing_file)?;
        Version::new(levels).apply(edit, &opened)
    };
    let check_empty = || reject_orphans(vfs.as_ref(), |name| parse_file_name(name).is_some());
    let (versions, recovered) = VersionSet::open(vfs, Edit::default(), check_empty, open_files)?;
    Ok((versions, recovered, claims.map(PageClaims::ready)))
}

impl Version {
    /// The version after `edit`, and the edit completed. `built` is the run in persistent memory
    /// that the edit adds, if it adds one.
    ///
    /// Rows that the edit adds are inserted where the cursor over level 0 stands now. If the edit
    /// moves the cursor, runs that are not in `merged` were inserted while the range behind it was
    /// compacted without them: they count as inserted where it moves to.
    pub(crate) fn open_and_apply(
        &self,
        vfs: &Arc<dyn Vfs>,
        cache: &Arc<BlockCache>,
        edit: &mut Edit,
        built: Option<&Arc<RowTable>>,
        merged: &[L0Run],
    ) -> Result<Version> {
        let nvm = built.map_or(PmemRuns::None, PmemRuns::Built);
        let opened = self.open_added(edit, &FileOpener { vfs, cache, pmem: nvm, cursor: &[] })?;
        for run in edit.added.iter_mut().filter_map(|entry| entry.run.as_mut()) {
            run.inserted_at = self.cursor.to_vec();
        }
        if let Some(cursor) = &edit.cursor {
            let was_merged = |number: u64| merged.iter().any(|run| run.number() == number);
            let runs = self.level0.iter().map(L0Run::number);
            let inserted_since = runs.filter(|&number| !was_merged(number));
            edit.insertions = inserted_since.map(|number| (number, cursor.clone())).collect();
        }
        edit.last_sequence = opened.iter().map(OpenFile::max_sequence).max();
        self.apply(edit, &opened)
    }

    /// Opens what an edit adds. A table that it only moves is open already and shares its file with
    /// its old place: readers and checkpoints of an older version may need it there.
    fn open_added(&self, edit: &Edit, opener: &FileOpener<'_>) -> Result<Vec<OpenFile>> {
        let open = |entry: &FileEntry| {
            let is_moved = edit.removed.iter().any(|&(_, number)| number == entry.number);
            let file = || self.files().map(|(_, file)| file).find(|it| it.number() == entry.number);
            match is_moved.then(file).flatten() {
                Some(file) if entry.level > 0 => Ok(OpenFile::Table(file.moved(entry.clone()))),
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
            ..Edit::default()
        };
        let compaction_cursors = self.compaction_cursors.clone();
        (edit, Version { compaction_cursors, ..Version::new(self.levels.len()) })
    }
}

/// Replaces the cursors of the levels that `newer` names.
pub(super) fn merge_cursors(cursors: &mut Vec<(usize, Vec<u8>)>, newer: &[(usize, Vec<u8>)]) {
    for (level, key) in newer {
        cursors.retain(|(other, _)| other != level);
        cursors.push((*level, key.clone()));
    }
}
