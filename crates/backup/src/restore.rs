//! Restores a backup: makes a store from its blobs, or the directory of the first node of a cluster.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use siltstone::catalogue::Catalogue;
use siltstone::{CLUSTER_ORIGIN, PartialDirectory};
use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Vfs, is_zero};

use crate::blobs;
use crate::manifest::BackupFile;
use crate::repository::Repository;

impl Repository {
    /// Makes a store in the new directory `target` from the backup `id`. Each blob is compared with
    /// its hash. Nobody changes the repository meanwhile. The store is made in `target.partial` and
    /// renamed when it is complete and durable.
    /// `progress` is called with the bytes done so far and those of the backup.
    ///
    /// # Errors
    /// `Locked` if the repository is being changed; `Invalid` if there is no such backup;
    /// `Refused` if `target` exists; `Corruption` if a blob
    /// is missing or damaged, with its path; I/O errors. There is no `target` then.
    pub fn restore(
        &self,
        id: &str,
        target: impl AsRef<Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let _lock = self.share_lock()?;
        self.restore_locked(id, target.as_ref(), progress)
    }

    /// The same. The caller keeps others from changing the repository.
    pub(crate) fn restore_locked(
        &self,
        id: &str,
        target: &Path,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let manifest = self.backup(id)?.manifest;
        let partial = PartialDirectory::create(target)?;
        let root = partial.vfs();
        // By their paths. Parents come before their children.
        let mut directories: BTreeMap<&str, Arc<dyn Vfs>> = BTreeMap::new();
        let (mut done, total) = (0, manifest.bytes());
        // Last what shows that the directory is complete: the catalogue of a store, or the origin
        // of the tables of a cluster.
        let is_last = |file: &&BackupFile| [Catalogue::NAME, CLUSTER_ORIGIN].contains(&&*file.path);
        let (last, others): (Vec<_>, Vec<_>) = manifest.files.iter().partition(is_last);
        let files: Vec<&BackupFile> = others.into_iter().chain(last).collect();
        let hashes = files.iter().flat_map(|file| file.blobs.clone()).collect();
        let mut contents = blobs::read_each(self.storage.as_ref(), hashes);
        for file in files {
            let (directory, name) = file.place();
            for (end, _) in directory.match_indices('/').chain([(directory.len(), "")]) {
                let (path, parent) = (&directory[..end], directory[..end].rsplit_once('/'));
                if end == 0 || directories.contains_key(path) {
                    continue;
                }
                let made = match parent {
                    None => root.subdirectory(path)?,
                    Some((parent, name)) => directories[parent].subdirectory(name)?,
                };
                directories.insert(path, made);
            }
            let created = match directories.get(directory) {
                None => root.create(name)?,
                Some(vfs) => vfs.create(name)?,
            };
            let mut offset = 0;
            for hash in &file.blobs {
                let Some(content) = contents.next() else { break };
                let content = content?.map_err(|reason| {
                    let blob = blobs::display(self.storage.as_ref(), hash);
                    Error::corruption(blob, 0, format!("this blob is {reason}"))
                })?;
                // Holes stay holes.
                if !is_zero(&content) {
                    created.write_at(offset, &content, Purpose::Maintenance)?;
                }
                offset += content.len() as u64;
                done += content.len() as u64;
                progress(done, total);
            }
            if offset != file.bytes {
                let reason = format!("the blobs of {} have {offset} bytes", file.path);
                return Err(Error::corruption(id, 0, reason));
            }
            created.set_len(file.bytes)?;
            created.sync(Purpose::Maintenance)?;
        }
        // Children before their parents.
        for directory in directories.values().rev() {
            directory.sync_dir(Purpose::Maintenance)?;
        }
        root.sync_dir(Purpose::Maintenance)?;
        partial.commit()
    }
}
