//! The current version and the manifest behind it.
//!
//! Installing an edit takes two steps in this order: the manifest has it durably, then the next
//! version is made. Only one edit is installed at a time; readers never wait for one.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Error, Result};
use siltstone_table::{BlockCache, FileNumbers, Manifest, parse_file_name};
use siltstone_vfs::{PageClaims, PmemPool, Vfs};

use super::{Edit, FileEntry, FileOpener, L0Run, OpenFile, PmemRuns, Version};
use crate::pool;
use crate::rowtable::RowTable;

/// The engine's name in the manifest.
pub(crate) const ENGINE: &str = "lsm";

/// Installs edits and hands out file numbers.
pub(crate) struct Versions {
    vfs: Arc<dyn Vfs>,
    cache: Arc<BlockCache>,
    numbers: FileNumbers,
    installing: Mutex<Installing>,
}

struct Installing {
    /// `None` once the table is closed.
    manifest: Option<Manifest>,
    version: Arc<Version>,
    /// How often all keys were removed since the opening.
    generation: u64,
    last_sequence: u64,
    first_log: u64,
    synced_log: Option<(u64, u64)>,
    cursors: Vec<(usize, Vec<u8>)>,
    /// Rows of edits of which nobody knows whether the manifest has them: until the next open tells,
    /// their pages are given to no one.
    doubtful: Vec<Arc<RowTable>>,
}

/// What the manifest says, for the rest of recovery.
pub(crate) struct Recovered {
    pub(crate) version: Arc<Version>,
    pub(crate) last_sequence: u64,
    pub(crate) first_log: u64,
    pub(crate) sealed_log: Option<(u64, u64)>,
    pub(crate) synced_log: Option<(u64, u64)>,
    pub(crate) cursors: Vec<(usize, Vec<u8>)>,
    /// The pool, if rows lie in it.
    pub(crate) pool: Option<PmemPool>,
}

impl Versions {
    /// Opens what the manifest names, or makes an empty table if `media` has no manifest. A pool of
    /// persistent memory that rows lie in is to have `pmem_bytes`.
    pub(crate) fn open(
        vfs: &Arc<dyn Vfs>,
        cache: &Arc<BlockCache>,
        levels: usize,
        pmem_bytes: u64,
    ) -> Result<(Self, Recovered)> {
        let (manifest, edits) = if Manifest::exists(vfs.as_ref())? {
            Manifest::open(vfs.clone(), ENGINE).map_err(missing_manifest)?
        } else {
            refuse_remains(vfs.as_ref())?;
            let empty = Edit { next_file: Some(1), ..Edit::default() };
            let snapshot = empty.encode();
            (Manifest::create(vfs.clone(), ENGINE, &snapshot)?, vec![snapshot])
        };
        let state = fold(&edits)?;
        let has_nvm = state.added.iter().any(|file| file.is_in_pmem());
        let claims = has_nvm.then(|| pool::claims(vfs, pmem_bytes)).transpose()?;
        let nvm = claims.as_ref().map_or(PmemRuns::None, PmemRuns::Claimed);
        let cursor = state.cursor.as_deref().unwrap_or_default();
        let opener = FileOpener { vfs, cache, pmem: nvm, cursor };
        let opened = opener.open_all(&state.added).map_err(missing_file)?;
        let version = Arc::new(Version::new(levels).apply(&state, &opened)?);
        let first_log = state.first_log.unwrap_or(0);
        let last_sequence = state.last_sequence.unwrap_or(0);
        let recovered = Recovered {
            version: version.clone(),
            last_sequence,
            first_log,
            sealed_log: state.sealed_log,
            synced_log: state.synced_log,
            cursors: state.cursors.clone(),
            pool: claims.map(PageClaims::ready),
        };
        let installing = Installing {
            manifest: Some(manifest),
            version,
            generation: 0,
            last_sequence,
            first_log,
            synced_log: state.synced_log,
            cursors: state.cursors,
            doubtful: Vec::new(),
        };
        let versions = Versions {
            vfs: vfs.clone(),
            cache: cache.clone(),
            numbers: FileNumbers::of_manifest(state.next_file)?,
            installing: Mutex::new(installing),
        };
        Ok((versions, recovered))
    }

    /// A file number that was never given before.
    pub(crate) fn new_number(&self) -> u64 {
        self.numbers.take()
    }

    /// Makes sure that `number` is not given again.
    pub(crate) fn skip_number(&self, number: u64) {
        self.numbers.skip(number);
    }

    /// Installs `edit`: the manifest first, durably; then `publish` sees the next version while no
    /// other edit can come between. Tables that were removed are retired. `built` is the row in
    /// persistent memory that the edit adds, if it adds one.
    ///
    /// Rows that the edit adds arrive where the cursor over level 0 stands now. If the edit moves
    /// the cursor, rows that are not in `taken` came while the stretch behind it was compacted
    /// without them: they arrive where it moves to.
    ///
    /// `false`: all keys were removed since `generation`, and nothing is installed.
    pub(crate) fn install(
        &self,
        generation: u64,
        mut edit: Edit,
        built: Option<Arc<RowTable>>,
        taken: &[L0Run],
        publish: impl FnOnce(&Arc<Version>),
    ) -> Result<bool> {
        let mut installing = self.installing.lock();
        if installing.generation != generation {
            return Ok(false);
        }
        // Opened before the manifest names them: a table that cannot be read is not installed.
        let nvm = built.as_ref().map_or(PmemRuns::None, PmemRuns::Built);
        let opener = FileOpener { vfs: &self.vfs, cache: &self.cache, pmem: nvm, cursor: &[] };
        let opened = open_added(&installing.version, &edit, &opener)?;
        for row in edit.added.iter_mut().filter_map(|entry| entry.run.as_mut()) {
            row.inserted_at = installing.version.cursor.to_vec();
        }
        if let Some(cursor) = &edit.cursor {
            let was_taken = |number: u64| taken.iter().any(|row| row.number() == number);
            let rows = installing.version.level0.iter().map(L0Run::number);
            let came_since = rows.filter(|&number| !was_taken(number));
            edit.insertions = came_since.map(|number| (number, cursor.clone())).collect();
        }
        let next = Arc::new(installing.version.apply(&edit, &opened)?);
        edit.next_file = Some(self.numbers.next());
        let last_sequence = opened.iter().map(OpenFile::max_sequence).max().unwrap_or(0);
        if last_sequence > installing.last_sequence {
            edit.last_sequence = Some(last_sequence);
        }
        let appended = installing.manifest.as_mut().ok_or(Error::Closed)?.append(&edit.encode());
        if appended.as_ref().is_err_and(|error| !error.is_transient()) {
            installing.doubtful.extend(built);
        }
        appended?;

        installing.last_sequence = installing.last_sequence.max(last_sequence);
        installing.enter(next, &edit, publish);
        installing.shrink_manifest(self.numbers.next(), edit.sealed_log);
        Ok(true)
    }

    /// Removes every table and row, and makes the logs before `first_log` needless: one edit,
    /// durable before `publish` sees the empty version. No write has a sequence number above
    /// `sequence`.
    ///
    /// # Errors
    /// The medium's. Nothing has changed if the disk is full; otherwise the next opening tells.
    pub(crate) fn clear(
        &self,
        first_log: u64,
        sequence: u64,
        publish: impl FnOnce(&Arc<Version>),
    ) -> Result<()> {
        let mut installing = self.installing.lock();
        let entries = installing.version.entries();
        let edit = Edit {
            next_file: Some(self.numbers.next()),
            last_sequence: Some(sequence),
            first_log: Some(first_log),
            removed: entries.iter().map(|entry| (entry.level, entry.number)).collect(),
            cursor: Some(Vec::new()),
            ..Edit::default()
        };
        let next = Arc::new(Version::new(installing.version.levels.len()));
        installing.manifest.as_mut().ok_or(Error::Closed)?.append(&edit.encode())?;
        installing.generation += 1;
        installing.last_sequence = installing.last_sequence.max(sequence);
        installing.enter(next, &edit, publish);
        installing.shrink_manifest(self.numbers.next(), None);
        Ok(())
    }

    /// Makes sure that the medium has the manifest that was opened: files that it does not name may go.
    pub(crate) fn settle(&self) -> Result<()> {
        self.installing.lock().manifest.as_mut().ok_or(Error::Closed)?.persist_recovered()
    }

    /// Seals the manifest: no more edits.
    pub(crate) fn close(&self) -> Result<()> {
        self.installing.lock().manifest.take().map_or(Ok(()), Manifest::close)
    }

    /// Forgets the rows in persistent memory: the table is closed.
    pub(crate) fn let_go_of_nvm(&self) {
        let mut installing = self.installing.lock();
        installing.version = Arc::new(installing.version.without_pmem_runs());
        installing.doubtful.clear();
    }

    /// What the manifest would say if it were written anew now: the edit that makes this version
    /// from nothing. For checkpoints.
    pub(crate) fn snapshot(&self) -> (Arc<Version>, Edit) {
        let installing = self.installing.lock();
        let edit = installing.snapshot(self.numbers.next());
        (installing.version.clone(), edit)
    }
}

/// Opens what an edit adds. A table that it only moves is open already, and shares its file with its old place: who
/// still reads or copies an older version may need it there.
fn open_added(version: &Version, edit: &Edit, opener: &FileOpener<'_>) -> Result<Vec<OpenFile>> {
    let open = |entry: &FileEntry| {
        let is_moved = edit.removed.iter().any(|&(_, number)| number == entry.number);
        let there = version.files().map(|(_, file)| file);
        let there = is_moved.then(|| there.into_iter().find(|file| file.number() == entry.number));
        match there.flatten() {
            Some(file) if entry.level > 0 => Ok(OpenFile::Table(file.moved(entry.clone()))),
            _ => opener.open(entry),
        }
    };
    edit.added.iter().map(open).collect()
}

impl Installing {
    /// Goes on to the version that an edit makes, which the manifest has. What it removes is
    /// retired.
    fn enter(&mut self, next: Arc<Version>, edit: &Edit, publish: impl FnOnce(&Arc<Version>)) {
        self.first_log = edit.first_log.unwrap_or(self.first_log);
        self.synced_log = edit.synced_log.or(self.synced_log);
        merge_cursors(&mut self.cursors, &edit.cursors);
        let before = std::mem::replace(&mut self.version, next);
        publish(&self.version);
        let mut gone: HashSet<u64> = edit.removed.iter().map(|&(_, number)| number).collect();
        edit.added.iter().for_each(|entry| _ = gone.remove(&entry.number));
        let is_gone = |number: u64| gone.contains(&number);
        before.level0.iter().filter(|row| is_gone(row.number())).for_each(L0Run::retire);
        let tables = before.levels.iter().flat_map(|tables| tables.iter());
        tables.filter(|table| is_gone(table.number())).for_each(|table| table.retire());
    }

    fn snapshot(&self, next_file: u64) -> Edit {
        Edit {
            next_file: Some(next_file),
            last_sequence: Some(self.last_sequence),
            first_log: Some(self.first_log),
            synced_log: self.synced_log,
            added: self.version.entries(),
            cursors: self.cursors.clone(),
            cursor: Some(self.version.cursor.to_vec()),
            ..Edit::default()
        }
    }

    /// Rewrites the manifest once it is much longer than what it says; `sealed_log` is what the last edit
    /// says of one. The edit is installed in any case: if this fails, the next one hears of it if it must.
    fn shrink_manifest(&mut self, next_file: u64, sealed_log: Option<(u64, u64)>) {
        if self.manifest.as_ref().is_some_and(Manifest::should_rewrite) {
            let snapshot = Edit { sealed_log, ..self.snapshot(next_file) }.encode();
            let _ = self.manifest.as_mut().map(|manifest| manifest.rewrite(&snapshot));
        }
    }
}

/// Folds all edits into the one that makes their result from nothing.
pub(crate) fn fold(edits: &[Vec<u8>]) -> Result<Edit> {
    let mut state = Edit::default();
    for bytes in edits {
        let edit = Edit::decode(bytes).map_err(|e| Error::corruption("MANIFEST", 0, e))?;
        for &(level, number) in &edit.removed {
            let before = state.added.len();
            state.added.retain(|file| (file.level, file.number) != (level, number));
            if state.added.len() == before {
                let reason = format!("removes table {number} that level {level} lacks");
                return Err(Error::corruption("MANIFEST", 0, reason));
            }
        }
        state.added.extend(edit.added);
        state.next_file = edit.next_file.or(state.next_file);
        state.last_sequence = edit.last_sequence.or(state.last_sequence);
        state.first_log = edit.first_log.or(state.first_log);
        state.synced_log = edit.synced_log.or(state.synced_log);
        // A seal speaks of the close before this open; any edit after it breaks it.
        state.sealed_log = edit.sealed_log;
        merge_cursors(&mut state.cursors, &edit.cursors);
        state.cursor = edit.cursor.or(state.cursor);
        for (number, inserted_at) in edit.insertions {
            let row = state.added.iter_mut().find(|file| (file.level, file.number) == (0, number));
            let row = row.and_then(|file| file.run.as_mut()).ok_or_else(|| {
                let reason = format!("moves row {number}, which level 0 lacks");
                Error::corruption("MANIFEST", 0, reason)
            })?;
            row.inserted_at = inserted_at;
        }
    }
    Ok(state)
}

fn merge_cursors(cursors: &mut Vec<(usize, Vec<u8>)>, newer: &[(usize, Vec<u8>)]) {
    for (level, key) in newer {
        cursors.retain(|(other, _)| other != level);
        cursors.push((*level, key.clone()));
    }
}

/// Tables or logs without a manifest are a store that lost it, not a place for a new one: a new
/// one would remove them.
fn refuse_remains(vfs: &dyn Vfs) -> Result<()> {
    match vfs.list()?.into_iter().find(|name| parse_file_name(name).is_some()) {
        None => Ok(()),
        Some(name) => Err(Manifest::missing(&name)),
    }
}

pub(crate) fn missing_manifest(error: Error) -> Error {
    match &error {
        Error::Io { file, .. } if error.is_not_found() => {
            Error::corruption(file, 0, "CURRENT names this manifest, and it is missing")
        }
        _ => error,
    }
}

/// A file that the manifest names and the directory lacks is damage, not a missing file.
pub(crate) fn missing_file(error: Error) -> Error {
    match &error {
        Error::Io { file, .. } if error.is_not_found() => {
            Error::corruption(file, 0, "the manifest names this file, and it is missing")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use siltstone_faults::{FaultKind, FaultyVfs};

    use super::*;

    /// An edit of many bytes that changes nothing.
    fn long() -> Edit {
        Edit { cursors: vec![(1, vec![b'k'; 100_000])], ..Edit::default() }
    }

    #[test]
    fn is_an_edit_installed_and_a_seal_kept_whether_or_not_the_manifest_can_shrink() {
        let faulty = FaultyVfs::new(1);
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        let cache = Arc::new(BlockCache::new(0));
        let (versions, _) = Versions::open(&vfs, &cache, 2, 0).unwrap();
        let bytes = || {
            let named = |path: &str| path.contains("MANIFEST-");
            faulty.files().iter().filter(|file| named(&file.path)).map(|file| file.len).sum::<u64>()
        };
        // The first copies what was opened.
        versions.install(0, long(), None, &[], |_| ()).unwrap();
        // The others only append; to begin a file is to shrink.
        faulty.fail_next(FaultKind::Names, 100);
        while bytes() < 3 << 19 {
            versions.install(0, long(), None, &[], |_| ()).unwrap();
        }
        faulty.clear_faults();
        let seal = Edit { sealed_log: Some((7, 99)), ..Edit::default() };
        versions.install(0, seal, None, &[], |_| ()).unwrap();
        assert!(bytes() < 1 << 19, "it was not shrunk");
        versions.close().unwrap();
        let (_, edits) = Manifest::open(vfs, ENGINE).unwrap();
        assert_eq!(fold(&edits).unwrap().sealed_log, Some((7, 99)));
    }
}
