//! Encryption at rest of a whole store, with the feature `encryption`.
//!
//! ```text
//!   DbOptions::encryption   none             keys
//!   CATALOG is plain        opens            Refused: not encrypted
//!   CATALOG is encrypted    Refused: give    opens; Refused if its key is not among the keys
//! ```
//!
//! In an encrypted store every file but `LOCK` is encrypted. A checkpoint with other keys
//! ([`Db::checkpoint_with_keys`](crate::Db::checkpoint_with_keys)) copies all files, so it
//! encrypts, decrypts or re-encrypts a store. `maintenance::rewrap` replaces the master key and
//! writes headers only.
//!
//! The directory of a node of a replicated table is encrypted in the same way
//! ([`Keys::open_directory`]): every file but its locks, the log of its group included.

use std::fmt;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{ENCRYPTED_MAGIC, ENCRYPTED_MAGIC_OFFSETS, Mode, Vfs};

use crate::names::{CATALOGUE, CATALOGUE_MAGIC};

#[cfg(feature = "encryption")]
pub use siltstone_vfs::encrypted::{EncryptedVfs, KeyId, KeyProvider, KeyRing, MasterKey};

/// The keys of a store, or none. Without the feature `encryption` there are none.
#[derive(Clone, Default)]
pub struct Keys {
    #[cfg(feature = "encryption")]
    provider: Option<Arc<dyn KeyProvider>>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_none() { "Keys(none)" } else { "Keys(…)" })
    }
}

#[cfg(feature = "encryption")]
impl Keys {
    /// The keys of an encrypted store. Files are linked to a checkpoint only with the same keys,
    /// that is, with clones of this value.
    #[must_use]
    pub fn new(provider: Arc<dyn KeyProvider>) -> Self {
        Keys { provider: Some(provider) }
    }

    /// The store's directory, whose files are encrypted.
    pub(crate) fn encrypted(&self, vfs: Arc<dyn Vfs>) -> Option<EncryptedVfs> {
        self.provider.as_ref().map(|provider| EncryptedVfs::new(vfs, provider.clone()))
    }

    /// A directory whose files are encrypted, if there are keys.
    #[must_use]
    pub fn wrap(&self, vfs: Arc<dyn Vfs>) -> Arc<dyn Vfs> {
        match self.encrypted(vfs.clone()) {
            Some(encrypted) => Arc::new(encrypted),
            None => vfs,
        }
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.provider.is_none()
    }
}

#[cfg(not(feature = "encryption"))]
impl Keys {
    /// A directory whose files are encrypted, if there are keys.
    #[must_use]
    pub fn wrap(&self, vfs: Arc<dyn Vfs>) -> Arc<dyn Vfs> {
        vfs
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_none(&self) -> bool {
        true
    }
}

impl Keys {
    /// The directory of an existing store, as its files are read and written. Checks that the store
    /// is encrypted if there are keys, and only then.
    ///
    /// # Errors
    /// [`Error::Refused`]; I/O errors.
    pub(crate) fn open(&self, vfs: Arc<dyn Vfs>) -> Result<Arc<dyn Vfs>> {
        self.open_directory(vfs, "the store", &[(CATALOGUE, CATALOGUE_MAGIC.as_bytes())])
    }

    /// A directory, as its files are read and written. Checks that it is encrypted if there are
    /// keys, and only then, by the first one of some files that it has: their names, and how they
    /// begin if they are not encrypted. Without any of them it is a new directory. `subject` is what
    /// is in it, for messages.
    ///
    /// # Errors
    /// [`Error::Refused`]; I/O errors.
    pub fn open_directory(
        &self,
        vfs: Arc<dyn Vfs>,
        subject: &str,
        files: &[(&str, &[u8])],
    ) -> Result<Arc<dyn Vfs>> {
        let refuse = |reason: &str| {
            Err(Error::Refused { path: vfs.name(), reason: format!("{subject} {reason}") })
        };
        let mut present = None;
        for (name, magic) in files {
            if present.is_none() && vfs.exists(name)? {
                present = Some((vfs.open(name, Mode::Read)?, magic));
            }
        }
        let Some((file, plain_magic)) = present else { return Ok(self.wrap(vfs)) };
        let [first, second] = ENCRYPTED_MAGIC_OFFSETS;
        let end = first.max(second) + ENCRYPTED_MAGIC.len() as u64;
        let mut head = vec![0; file.len()?.min(end) as usize];
        file.read_at(0, &mut head, Purpose::Recovery)?;
        let has = |at: u64, magic: &[u8]| {
            head.get(at as usize..).is_some_and(|rest| rest.starts_with(magic))
        };
        let is_encrypted = [first, second].iter().any(|at| has(*at, ENCRYPTED_MAGIC));
        match (self.is_none(), is_encrypted, has(0, plain_magic)) {
            (true, true, _) if cfg!(feature = "encryption") => {
                refuse("is encrypted: give its key (DbOptions::encryption, or --key-file)")
            }
            (true, true, _) => {
                refuse("is encrypted, and this program was built without the feature 'encryption'")
            }
            (false, false, true) => refuse(
                "is not encrypted: open it without a key. An encrypted copy of a store is made by \
                 siltstone checkpoint --target-key-file; a node of a cluster is replaced by one \
                 that joins with a key",
            ),
            _ => Ok(self.wrap(vfs)),
        }
    }

    /// Refuses a table whose files cannot be encrypted. `options` are present names.
    pub(crate) fn check_table<'o>(
        &self,
        table: &str,
        engine: &str,
        mut options: impl Iterator<Item = &'o str>,
    ) -> Result<()> {
        if self.is_none() {
            return Ok(());
        }
        let reason = match engine {
            "lsm" if options.any(|option| option == "pmem.size") => {
                "the option 'pmem.size' maps a file; leave it out"
            }
            "trie" if options.any(|option| option == "fast_dir") => {
                "the option 'fast_dir' names a directory outside of the store; leave it out"
            }
            // mica has no files.
            "lsm" | "trie" | "silt" | "mica" => return Ok(()),
            _ => "it overwrites its device in place; use lsm, trie or silt",
        };
        Err(Error::Invalid(format!(
            "table '{table}' on {engine} cannot be in an encrypted store: {reason}"
        )))
    }
}
