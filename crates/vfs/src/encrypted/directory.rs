//! The directory: which files are encrypted, under which identity, and changes of the identity.
//!
//! The identity of a file is its path in the store, e.g. `table-fruit/000007.sst`. A draft
//! (`CATALOG.new`, `CURRENT.tmp`, `000009.log.rewrite`) and a quarantined file
//! (`000007.sst.damaged`) share the identity of the file that they become or were, so those renames
//! change no byte. Other renames change the header, as [`super::header`] describes.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use siltstone_engine::{Error, IoCounters, Purpose, Result};

use super::content::{Content, SlotChange};
use super::header::{self, HEADER_BYTES};
use super::key::{KeyId, KeyProvider};
use super::read::Damage;
use crate::zeros::is_zero;
use crate::{File, LockGuard, Mapping, Mode, OpenFileCounts, Vfs};

/// A [`Vfs`] whose files are encrypted; see the [module](super).
pub struct EncryptedVfs {
    inner: Arc<dyn Vfs>,
    keys: Arc<dyn KeyProvider>,
    /// The path of this directory in the store, empty or ending in `/`.
    prefix: String,
    /// The files that were created here and have handles, by identity and suffix.
    created: Arc<Mutex<BTreeMap<String, Weak<Content>>>>,
    /// Files that were renamed since the last sync of the directory, by their new name, with the
    /// change of the slot for their former name. Locked during renames and syncs.
    renamed: Mutex<BTreeMap<String, RenamedFile>>,
}

type RenamedFile = (Arc<dyn File>, SlotChange);

impl EncryptedVfs {
    /// The store's directory, whose files are encrypted in `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Vfs>, keys: Arc<dyn KeyProvider>) -> Self {
        let (created, renamed) = Default::default();
        EncryptedVfs { inner, keys, prefix: String::new(), created, renamed }
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &Arc<dyn KeyProvider> {
        &self.keys
    }

    /// The directory of the encrypted files.
    #[must_use]
    pub fn inner(&self) -> &Arc<dyn Vfs> {
        &self.inner
    }

    /// As [`subdirectory`](Vfs::subdirectory).
    ///
    /// # Errors
    /// The same.
    pub fn encrypted_subdirectory(&self, name: &str) -> Result<EncryptedVfs> {
        Ok(EncryptedVfs {
            inner: self.inner.subdirectory(name)?,
            keys: self.keys.clone(),
            prefix: format!("{}{name}/", self.prefix),
            created: self.created.clone(),
            renamed: Mutex::default(),
        })
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn identity(&self, name: &str) -> String {
        format!("{}{}", self.prefix, base_name(name))
    }

    fn create_content(&self, name: &str, is_append: bool) -> Result<Arc<dyn File>> {
        let inner = match is_append {
            true => self.inner.create_append(name)?,
            false => self.inner.create(name)?,
        };
        let identity = self.identity(name);
        let keys = self.keys.as_ref();
        let content = Content::created(inner, name.to_owned(), &identity, keys, is_append)?;
        let content = Arc::new(content);
        let mut created = self.created.lock();
        created.retain(|_, content| content.strong_count() > 0);
        created.insert(self.path_of(name), Arc::downgrade(&content));
        Ok(Arc::new(EncryptedFile { content, mode: Mode::ReadWrite }))
    }

    fn content(&self, name: &str, mode: Mode) -> Result<Arc<Content>> {
        let known = self.created.lock().get(&self.path_of(name)).and_then(Weak::upgrade);
        if let Some(known) = known {
            // A missing file is an error as from the directory.
            if self.inner.exists(name)? {
                return Ok(known);
            }
        }
        let inner = self.inner.open(name, mode)?;
        let path = format!("{}/{name}", self.inner.name());
        let identity = self.identity(name);
        Content::opened(inner, name.to_owned(), &path, &identity, self.keys.as_ref()).map(Arc::new)
    }

    /// Checks the header of the file `name`, both of its copies. Returns the master key of the
    /// file; `None` for a file without content, which has no header.
    ///
    /// # Errors
    /// `Corruption` if one is damaged, or if the file is not encrypted; `Refused` if its key is not
    /// known; I/O errors.
    pub fn check_header(&self, name: &str) -> Result<Option<KeyId>> {
        let content = self.content(name, Mode::Read)?;
        let mut page = vec![0; content.inner.len()?.min(HEADER_BYTES) as usize];
        content.inner.read_at(0, &mut page, Purpose::Maintenance)?;
        if is_zero(&page) {
            return Ok(None);
        }
        let key = content.key.as_ref().map_err(|reason| Error::corruption(name, 0, *reason))?;
        for (slot, at) in header::intact_slots(&page).iter().zip(header::SLOT_OFFSETS) {
            if slot.is_none() {
                return Err(Error::corruption(name, at, "a copy of its header is damaged"));
            }
        }
        match header::first_other_byte(&page) {
            Some(at) => Err(Error::corruption(name, at as u64, "its header has other bytes")),
            None => Ok(Some(key.master)),
        }
    }

    /// Wraps the key of the file `name` with the current master key, durably, if it is wrapped with
    /// another one; returns whether it was. The content does not change. The file must not be in
    /// use by another process.
    ///
    /// # Errors
    /// As from [`check_header`](Self::check_header), but one copy of the header suffices.
    pub fn rewrap(&self, name: &str) -> Result<bool> {
        let content = self.content(name, Mode::ReadWrite)?;
        let mut page = vec![0; content.inner.len()?.min(HEADER_BYTES) as usize];
        content.inner.read_at(0, &mut page, Purpose::Maintenance)?;
        // Nothing was written to it yet, or nothing of it was durable.
        if is_zero(&page) {
            return Ok(false);
        }
        if let Err(reason) = content.key {
            return Err(Error::corruption(name, 0, reason));
        }
        let current = self.keys.current().id();
        let is_current = |slot: &Option<&[u8; header::SLOT_BYTES]>| {
            slot.is_some_and(|slot| header::key_id(slot) == current)
        };
        if header::intact_slots(&page).iter().all(is_current) {
            return Ok(false);
        }
        let identity = self.identity(name);
        let file = content.inner.as_ref();
        let change = content.begin_rebind(file, &identity, &identity, self.keys.as_ref())?;
        change.map_or(Ok(true), |change| change.write(file).map(|()| true))
    }

    /// Makes names durable, and binds renamed files to their new names alone.
    fn sync_names(
        &self,
        renamed: &mut BTreeMap<String, RenamedFile>,
        purpose: Purpose,
    ) -> Result<()> {
        let renamed = std::mem::take(renamed);
        // After a failed sync either name may be the durable one.
        self.inner.sync_dir(purpose)?;
        // If this fails, the file has one slot that is valid.
        renamed.values().for_each(|(file, change)| drop(change.write(file.as_ref())));
        Ok(())
    }

    fn set_created(&self, from: &str, to: Option<&str>) {
        let mut created = self.created.lock();
        let content = created.remove(&self.path_of(from));
        if let (Some(content), Some(to)) = (content, to) {
            created.insert(self.path_of(to), content);
        } else if let Some(to) = to {
            created.remove(&self.path_of(to));
        }
    }
}

/// The name of a file without what marks it as a draft or as quarantined.
fn base_name(name: &str) -> &str {
    if let Some((base, number)) = name.rsplit_once(".damaged")
        && (number.is_empty() || number.starts_with('-'))
    {
        return base;
    }
    let drafts = [".new", ".tmp", ".rewrite"];
    drafts.iter().find_map(|draft| name.strip_suffix(draft)).unwrap_or(name)
}

impl Vfs for EncryptedVfs {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.create_content(name, false)
    }

    fn create_append(&self, name: &str) -> Result<Arc<dyn File>> {
        self.create_content(name, true)
    }

    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>> {
        Ok(Arc::new(EncryptedFile { content: self.content(name, mode)?, mode }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)?;
        self.set_created(name, None);
        self.renamed.lock().remove(name);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut renamed = self.renamed.lock();
        let (before, after) = (self.identity(from), self.identity(to));
        if before == after {
            self.inner.rename(from, to)?;
            self.set_created(from, Some(to));
            let change = renamed.remove(from);
            renamed.remove(to);
            renamed.extend(change.map(|change| (to.to_owned(), change)));
            return Ok(());
        }
        if renamed.contains_key(from) {
            // Two slots do not suffice for three names.
            self.sync_names(&mut renamed, Purpose::Maintenance)?;
        }
        let file = self.inner.open(from, Mode::ReadWrite)?;
        let content = self.content(from, Mode::ReadWrite)?;
        let keys = self.keys.as_ref();
        let change = content.begin_rebind(file.as_ref(), &before, &after, keys)?;
        if let Err(error) = self.inner.rename(from, to) {
            if change.is_none() {
                // A header that was not written yet is that of the former name again.
                let _ = content.begin_rebind(file.as_ref(), &after, &before, keys);
            }
            return Err(error);
        }
        self.set_created(from, Some(to));
        renamed.remove(to);
        renamed.extend(change.map(|change| (to.to_owned(), (file, change))));
        Ok(())
    }

    fn sync_dir(&self, purpose: Purpose) -> Result<()> {
        self.sync_names(&mut self.renamed.lock(), purpose)
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        Ok(Arc::new(self.encrypted_subdirectory(name)?))
    }

    fn subdirectories(&self) -> Result<Vec<String>> {
        self.inner.subdirectories()
    }

    fn has_subdirectory(&self, name: &str) -> Result<bool> {
        self.inner.has_subdirectory(name)
    }

    fn remove_subdirectory(&self, name: &str) -> Result<()> {
        self.inner.remove_subdirectory(name)?;
        let prefix = format!("{}{name}/", self.prefix);
        self.created.lock().retain(|path, _| !path.starts_with(&prefix));
        Ok(())
    }

    fn lock(&self, name: &str) -> Result<LockGuard> {
        self.inner.lock(name)
    }

    fn share_lock(&self, name: &str) -> Result<LockGuard> {
        self.inner.share_lock(name)
    }

    /// Links to another directory with the same keys, under the same identity. Otherwise the file
    /// has to be copied.
    fn link(&self, name: &str, target: &dyn Vfs, to_name: &str) -> Result<bool> {
        let any: &dyn Any = target;
        match any.downcast_ref::<EncryptedVfs>() {
            Some(target)
                if Arc::ptr_eq(&self.keys, &target.keys)
                    && self.identity(name) == target.identity(to_name) =>
            {
                self.inner.link(name, target.inner.as_ref(), to_name)
            }
            _ => Ok(false),
        }
    }

    fn map(&self, name: &str, _bytes: u64) -> Result<Mapping> {
        let reason =
            "byte-addressable memory cannot be encrypted; leave the option out (pmem.size of lsm)";
        let source = std::io::Error::new(std::io::ErrorKind::Unsupported, reason);
        Err(Error::io("map", name, &source))
    }

    /// A directory outside of the store is not encrypted.
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Vfs>> {
        self.inner.open_dir(path)
    }

    fn is_append_only(&self) -> bool {
        true
    }

    /// None, so that nobody links or writes a file there past the encryption.
    fn path(&self) -> Option<&Path> {
        None
    }

    fn counters(&self) -> Option<Arc<IoCounters>> {
        self.inner.counters()
    }

    fn open_files(&self) -> Option<OpenFileCounts> {
        self.inner.open_files()
    }
}

/// A handle of an encrypted file.
struct EncryptedFile {
    content: Arc<Content>,
    mode: Mode,
}

impl File for EncryptedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.content.read(offset, buf, purpose, Damage::Reject)
    }

    fn read_lossy_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.content.read(offset, buf, purpose, Damage::Fill)
    }

    fn write_at(&self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.mode.check_change("write", &self.content.name, offset, bytes.len() as u64)?;
        self.content.write(offset, bytes, purpose)
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.content.inner.sync(purpose)
    }

    fn is_removed(&self) -> Result<bool> {
        self.content.inner.is_removed()
    }

    fn allow_close(&self) {
        self.content.inner.allow_close();
    }

    fn begin_sync(&self) {
        self.content.inner.begin_sync();
    }

    fn begin_read(&self, offset: u64, bytes: u64) {
        self.content.begin_read(offset, bytes);
    }

    fn seek_cost_bytes(&self) -> u64 {
        self.content.inner.seek_cost_bytes()
    }

    fn len(&self) -> Result<u64> {
        self.content.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.mode.check_change("set length", &self.content.name, len, 0)?;
        self.content.set_len(len)
    }

    fn preallocate(&self, bytes: u64, now: u64) {
        self.content.preallocate(bytes, now);
    }

    fn trim_preallocation(&self) -> Result<()> {
        self.content.inner.trim_preallocation()
    }

    fn reserve(&self, _len: u64) -> Result<()> {
        Ok(())
    }

    fn punch_hole(&self, _offset: u64, _len: u64) -> Result<()> {
        let reason = "an encrypted file has no holes";
        let source = std::io::Error::new(std::io::ErrorKind::Unsupported, reason);
        Err(Error::io("punch hole in", &*self.content.name, &source))
    }
}
