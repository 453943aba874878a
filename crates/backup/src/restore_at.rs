//! Restores a store to a point in time: a backup, and the changes after it.
//!
//! ```text
//!   DIR.restoring/store     a backup is restored, opened, changed up to the mark and closed
//!   rename to DIR           the store appears when it is complete and durable
//! ```
//!
//! A process that ends early leaves `DIR.restoring`, and the next one removes it. Nothing else has
//! directories of that name with these contents.

use std::path::{Path, PathBuf};

use siltstone::{Db, DbOptions, Timestamp};
use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Disk, LockGuard, Vfs};

use crate::moments::Plan;
use crate::replay::Replay;
use crate::repository::Repository;
use crate::segment::{self, ArchivedState, Segment};

const LOCK: &str = "LOCK";
const STORE: &str = "store";

/// The result of [`Repository::restore_at`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredMoment {
    /// The moment whose state was restored, in milliseconds since 1970.
    pub moment: Timestamp,
    /// The backup from which it was restored.
    pub backup: String,
    /// The segments that were read.
    pub segments: u64,
    /// The changes that were applied.
    pub changes: u64,
    /// Tables that are as of the backup, because their engine has no change feed.
    pub as_of_backup: Vec<String>,
}

/// How far [`Repository::restore_at`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreProgress {
    /// Bytes of the backup, and all of them.
    Backup(u64, u64),
    /// Segments, and all of them.
    Segments(u64, u64),
}

impl Repository {
    /// Makes a store in the new directory `target` as it was at `time`, in milliseconds since 1970:
    /// from the newest backup at or before it, and the changes after that up to the last mark at or
    /// before `time`. All tables with a change feed are as of that mark. Values that have expired
    /// since are gone.
    ///
    /// `store` names the store if the repository has archives of several. `options` are those with
    /// which the store is opened meanwhile: the key of an encrypted store, and merge operators of
    /// the program.
    ///
    /// # Errors
    /// `Invalid` for a moment that cannot be restored, with those that can; `Refused` if `target`
    /// exists; `Corruption` if a blob or a segment is damaged or missing, with its path; `Locked`
    /// if the repository is being changed; errors of the store, and I/O errors. There is no
    /// `target` then.
    pub fn restore_at(
        &self,
        store: Option<&str>,
        time: Timestamp,
        target: impl AsRef<Path>,
        options: &DbOptions,
        progress: &mut dyn FnMut(RestoreProgress),
    ) -> Result<RestoredMoment> {
        let target = target.as_ref();
        let _lock = self.share_lock()?;
        let plans = self.plans(store, time)?;
        let scratch = Scratch::create(target)?;
        for plan in &plans {
            if let Some(restored) = self.restore_plan(plan, &scratch.store(), options, progress)? {
                scratch.commit(target)?;
                return Ok(restored);
            }
            // The backup has changes after the mark, which was taken at nearly the same time.
            remove(&scratch.store())?;
        }
        Err(Error::Invalid(
            "the backup was taken at that moment: name one a few seconds later, or restore the \
             backup itself (--id)"
                .to_owned(),
        ))
    }

    /// Restores in the directory `path`. `None` if the backup is later than the mark.
    fn restore_plan(
        &self,
        plan: &Plan,
        path: &Path,
        options: &DbOptions,
        progress: &mut dyn FnMut(RestoreProgress),
    ) -> Result<Option<RestoredMoment>> {
        self.restore_locked(&plan.backup, path, &mut |done, total| {
            progress(RestoreProgress::Backup(done, total));
        })?;
        let db = Db::open(path, options.clone())?;
        let replayed = replay(&db, plan, options, progress);
        let closed = db.close();
        let restored = replayed?;
        closed?;
        Ok(restored)
    }
}

/// Applies the changes of a plan.
fn replay(
    db: &Db,
    plan: &Plan,
    options: &DbOptions,
    progress: &mut dyn FnMut(RestoreProgress),
) -> Result<Option<RestoredMoment>> {
    let mut replay = Replay::new(db, options)?;
    let total = plan.segments.len() as u64;
    let mut last: Option<(Segment, segment::Hash)> = None;
    for (index, name) in (1..).zip(&plan.segments) {
        let path = plan.series.path(*name);
        let (segment, hash) =
            segment::decode(&path, &plan.series.read(*name)?, &options.encryption)?;
        let is_next = |(before, hash): &(Segment, segment::Hash)| {
            (before.header.number + 1, *hash) == (segment.header.number, segment.header.previous)
        };
        if segment.header.number != name.number || !last.as_ref().is_none_or(is_next) {
            return Err(Error::corruption(path, 0, "it does not follow the segment before it"));
        }
        replay.apply(&path, &segment)?;
        progress(RestoreProgress::Segments(index, total));
        last = Some((segment, hash));
    }
    let changes = replay.changes;
    let as_of_backup = match &last {
        Some((segment, _)) if replay.is_beyond(&segment.state) => return Ok(None),
        Some((segment, _)) => {
            let name = plan.segments.last().map(|name| plan.series.path(*name));
            replay.finish(&name.unwrap_or_default(), &segment.state)?
        }
        // Nothing has changed since the backup.
        None => {
            let feedless = ArchivedState::of(&db.position()?).tables.into_iter();
            feedless.filter(|table| table.feed.is_none()).map(|table| table.name).collect()
        }
    };
    let (moment, backup) = (plan.moment, plan.backup.clone());
    Ok(Some(RestoredMoment { moment, backup, segments: total, changes, as_of_backup }))
}

/// The directory in which a store is made. Removed when it is dropped.
struct Scratch {
    path: PathBuf,
    lock: Option<LockGuard>,
}

impl Scratch {
    fn create(target: &Path) -> Result<Self> {
        let refused = |path: &Path, reason: String| {
            Err(Error::Refused { path: path.display().to_string(), reason })
        };
        if target.symlink_metadata().is_ok() {
            return refused(target, "a restored store needs a new directory".to_owned());
        }
        let Some(name) = target.file_name() else {
            return refused(target, "it does not end with the name of a directory".to_owned());
        };
        let mut scratch_name = name.to_owned();
        scratch_name.push(".restoring");
        let path = target.with_file_name(scratch_name);
        let vfs = Disk::create(&path)?;
        let lock = vfs.lock(LOCK)?;
        let is_unknown = |name: &String| ![LOCK, STORE, "store.partial"].contains(&name.as_str());
        let names = vfs.list()?.into_iter().chain(vfs.subdirectories()?);
        if let Some(unknown) = names.into_iter().find(is_unknown) {
            return refused(&path, format!("it is in the way and holds {unknown:?}; move it away"));
        }
        let scratch = Scratch { path, lock: Some(lock) };
        for remainder in [scratch.store(), scratch.path.join("store.partial")] {
            if remainder.is_dir() {
                remove(&remainder)?;
            }
        }
        Ok(scratch)
    }

    fn store(&self) -> PathBuf {
        self.path.join(STORE)
    }

    /// Gives the store its name, durably.
    fn commit(self, target: &Path) -> Result<()> {
        std::fs::rename(self.store(), target)
            .map_err(|error| Error::io("rename", self.path.display().to_string(), &error))?;
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        Disk::open(parent.unwrap_or(Path::new(".")))?.sync_dir(Purpose::Maintenance)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.lock = None;
        // If it fails, the next attempt removes it.
        let _ = remove(&self.path);
    }
}

fn remove(path: &Path) -> Result<()> {
    std::fs::remove_dir_all(path)
        .map_err(|error| Error::io("remove directory", path.display().to_string(), &error))
}
