//! A reader process beside the process that writes a store.
//!
//! ```text
//!   writer    LOCK, writes              reader    no lock, writes nothing
//!     │                                   │ catch_up
//!     ▼                                   ▼
//!   DIR ─ manifests, logs, SSTables ────▶ pinned: open files, as of one moment ─▶ read-only Db
//! ```
//!
//! Each catch-up pins the store (see `pin`) and opens a read-only [`Db`] on what it has pinned, as
//! after a process crash of the writer at that moment. The [`Db`]s of earlier catch-ups, and their
//! iterators, stay as they are until they are dropped.
//!
//! What a reader shows is a prefix of the writes of each table, in whole batches, also over tables,
//! and a later catch-up never shows less. It shows writes that are not durable: after a power cut
//! the store may have less than a reader showed.
//!
//! Compare RocksDB's secondary instance (`OpenAsSecondary`, `TryCatchUpWithPrimary`).

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use siltstone_engine::{Error, Result};
use siltstone_vfs::Vfs;

use crate::encryption::Keys;
use crate::engines;
use crate::pin::{self, PinnedStore, StoreState};
use crate::{Db, DbOptions, Table};

/// Attempts to pin and open a store. The writer may remove files, or append to them, meanwhile.
const MAX_ATTEMPTS: u32 = 9;
/// The pause before the second attempt; doubled before each later one.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// Files stay open as long as they are pinned.
const MAX_OPEN_FILES: usize = 1 << 20;

/// A store that another process may have open for writing; see [`Db::open_reader`].
pub struct DbReader {
    vfs: Arc<dyn Vfs>,
    options: DbOptions,
    current: Mutex<Current>,
}

struct Current {
    db: Db,
    state: StoreState,
    /// The tables that a reader cannot open, with their engines.
    refused: BTreeMap<String, &'static str>,
}

impl fmt::Debug for DbReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DbReader").field("directory", &self.vfs.name()).finish_non_exhaustive()
    }
}

impl Db {
    /// Opens the store in `dir` for reading, also while another process has it open for writing.
    /// Nothing is locked or written in the directory. [`DbReader::catch_up`] shows later writes.
    ///
    /// Only tables on `lsm` without persistent memory (`pmem.size`), on `trie` without `fast_dir`,
    /// and on `silt`; others are refused by [`DbReader::table`]. The reader keeps the files that it
    /// shows open, also those that the writer has removed, whose space is free only then. With
    /// fewer descriptors than files, a read may fail because its file was removed: catch up then.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let dir = scratch.path().join("s");
    /// // In the process of the writer:
    /// let db = Db::open_or_create(&dir, DbOptions::default())?;
    /// let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// table.put(b"k", b"1")?;
    ///
    /// // In another process:
    /// let reader = Db::open_reader(&dir, DbOptions::default())?;
    /// assert_eq!(reader.table("t")?.get(b"k")?.as_deref(), Some(&b"1"[..]));
    /// # table.put(b"k", b"2")?;
    /// assert!(reader.catch_up()?, "the writer has written meanwhile");
    /// assert_eq!(reader.table("t")?.get(b"k")?.as_deref(), Some(&b"2"[..]));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`open`](Self::open) but `Locked`.
    pub fn open_reader(dir: impl AsRef<Path>, options: DbOptions) -> Result<DbReader> {
        let options = DbOptions { max_open_files: MAX_OPEN_FILES, ..options };
        Self::open_reader_vfs(Self::directory_of(dir.as_ref(), &options)?, options)
    }

    /// The same on any file system; for tests.
    ///
    /// # Errors
    /// Those of [`open_reader`](Self::open_reader).
    pub fn open_reader_vfs(vfs: Arc<dyn Vfs>, options: DbOptions) -> Result<DbReader> {
        let options = DbOptions { read_only: true, ..options };
        let (db, state, refused) = retry(|| open(&vfs, &options, None))?
            .ok_or_else(|| Error::Invalid("a first catch-up opens the store".to_owned()))?;
        Ok(DbReader { vfs, options, current: Mutex::new(Current { db, state, refused }) })
    }
}

impl DbReader {
    /// The store as of the last catch-up. It does not change; drop it to release its files. Closing
    /// it closes the tables of this reader until the next catch-up that finds new writes.
    pub fn db(&self) -> Db {
        self.current.lock().db.clone()
    }

    /// A table as of the last catch-up.
    ///
    /// # Errors
    /// `Invalid` if there is none; `Unsupported` if a reader cannot open it; `Refused` if this
    /// build lacks its engine.
    pub fn table(&self, name: &str) -> Result<Table> {
        let current = self.current.lock();
        match current.refused.get(name) {
            Some(&engine) => {
                if let Some(reason) = engines::missing(engine) {
                    return Err(Error::Refused { path: self.vfs.name(), reason });
                }
                let operation = "a reader beside the writer";
                Err(Error::Unsupported { engine, operation })
            }
            None => current.db.table(name),
        }
    }

    /// Reads what the writer has written since, in all tables; returns whether there is anything.
    ///
    /// Cost: reads the logs that recovery would replay, up to the size of the memtables, and opens
    /// every file. Tables whose writes are not flushed take memory for them.
    ///
    /// # Errors
    /// Errors of opening that stay when the store is read again; the reader stays as it is.
    pub fn catch_up(&self) -> Result<bool> {
        let mut current = self.current.lock();
        let Some((db, state, refused)) =
            retry(|| open(&self.vfs, &self.options, Some(&current.state)))?
        else {
            return Ok(false);
        };
        let before = std::mem::replace(&mut *current, Current { db, state, refused });
        drop(current);
        drop(before);
        Ok(true)
    }
}

/// Pins and opens the store; `None` if it is in the state `known`.
#[expect(clippy::type_complexity, reason = "private; a type alias would not help")]
fn open(
    vfs: &Arc<dyn Vfs>,
    options: &DbOptions,
    known: Option<&StoreState>,
) -> Result<Option<(Db, StoreState, BTreeMap<String, &'static str>)>> {
    let vfs = options.encryption.open(vfs.clone())?;
    let PinnedStore { directory, state, refused } = pin::pin(vfs.as_ref())?;
    if known == Some(&state) {
        return Ok(None);
    }
    // What is pinned is decrypted.
    let options = DbOptions { encryption: Keys::default(), ..options.clone() };
    let db = Db::open_vfs(Arc::new(directory), options)?;
    // Now: what the writer has removed is found before anyone reads.
    for name in db.table_names()? {
        db.table(&name)?;
    }
    Ok(Some((db, state, refused)))
}

/// Tries again after errors that a concurrent writer can cause.
fn retry<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..MAX_ATTEMPTS {
        match attempt() {
            Err(
                Error::Corruption { .. }
                | Error::Refused { .. }
                | Error::Io {
                    kind: std::io::ErrorKind::NotFound | std::io::ErrorKind::UnexpectedEof,
                    ..
                },
            ) => {
                std::thread::sleep(pause);
                pause *= 2;
            }
            done => return done,
        }
    }
    attempt()
}
