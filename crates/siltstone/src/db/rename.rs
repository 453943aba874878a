//! Renaming a table, atomically in the catalogue.
//!
//! ```text
//!   CATALOG: from                            table-from/
//!     lists `to` as pending             ──▶  table-to/ gets links to the files of table-from/
//!     to, and `from` as pending  (commit) ─▶ table-from/ is removed, the files stay as table-to/
//!     to
//! ```
//!
//! A directory cannot be renamed together with the catalogue in one step, so both directories exist
//! for a while, with the same files. After a crash the next open removes the pending one.

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Mode, Vfs};

use super::Db;
use super::tables::remove_files;
use crate::names::directory;
use crate::{Table, catalogue, engines};

/// Bytes that are copied at once where files cannot be linked.
const COPY_BYTES: u64 = 1 << 20;

impl Db {
    /// Renames the table `from` to `to`, durably. The files are linked, not copied, where the file
    /// system can; the data is not read. A crash leaves the table under one of the names. A table
    /// on `mica` is empty afterwards, as after every close.
    ///
    /// The table must not be in use: the call closes it, and [`table`](Self::table) opens it again
    /// under its new name.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// let table = db.table_or_create("users_v2", "lsm", &Default::default())?;
    /// table.put(b"alice", b"1")?;
    /// drop(table);
    /// db.rename_table("users_v2", "users")?;
    /// assert_eq!(db.table_names()?, ["users"]);
    /// assert!(db.table("users")?.contains_key(b"alice")?);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no table `from`, if there is a table `to`, or if `to` cannot
    /// name one; [`Error::Refused`] while handles, snapshots or transactions of the table exist,
    /// and for a table with files in another directory (`fast_dir` of `trie`). Nothing has changed
    /// then. I/O errors: `from` or `to` exists, and [`table_names`](Self::table_names) says which.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        self.check_writable()?;
        catalogue::check_name(to)?;
        let mut open = self.state()?;
        let spec = self.spec(&open, from)?;
        if open.catalogue.tables.contains_key(to) {
            return Err(Error::Invalid(format!("cannot rename '{from}': there is a table '{to}'")));
        }
        open.check_not_moving(from)?;
        let directory_name = open.catalogue.directory_of(from).to_owned();
        let vfs = self.inner.vfs.as_ref();
        self.check_not_unlisted(&open, to)?;
        let refuse = |reason: &str| {
            let path = format!("{}/{}", vfs.name(), directory(&directory_name));
            Err(Error::Refused { path, reason: reason.to_owned() })
        };
        let source = vfs.subdirectory(&directory(&directory_name))?;
        if engines::has_external_files(&spec.engine, source.as_ref())? {
            return refuse(
                "a table with files in another directory cannot be renamed; export and import it",
            );
        }
        if open.tables.get(from).is_some_and(Table::is_shared) {
            return refuse(
                "the table is in use; drop its handles, iterators, snapshots and transactions \
                 before it is renamed",
            );
        }
        // Also if that fails: the table opens again then.
        if let Some(table) = open.tables.remove(from) {
            table.engine().close()?;
        }
        let mut catalogue = open.catalogue.clone();
        catalogue.pending.insert(to.to_owned());
        open.replace_catalogue(vfs, catalogue.clone())?;
        // What a dropped table or an interrupted rename left.
        remove_files(vfs, to)?;
        link_files(source.as_ref(), vfs, to)?;
        catalogue.pending.remove(to);
        catalogue.tables.remove(from);
        catalogue.directories.remove(from);
        catalogue.tables.insert(to.to_owned(), spec);
        if let Some(id) = catalogue.ids.remove(from) {
            catalogue.ids.insert(to.to_owned(), id);
        }
        catalogue.rename_place(from, to);
        catalogue.pending.insert(directory_name.clone());
        open.replace_catalogue(vfs, catalogue.clone())?;
        remove_files(vfs, &directory_name)?;
        catalogue.pending.remove(&directory_name);
        open.replace_catalogue(vfs, catalogue)
    }
}

/// Gives every file in `source` the same name in the directory of `to`, durably.
fn link_files(source: &dyn Vfs, vfs: &dyn Vfs, to: &str) -> Result<()> {
    let target = vfs.subdirectory(&directory(to))?;
    for name in source.list()? {
        if !source.link(&name, target.as_ref(), &name)? {
            copy(source, target.as_ref(), &name)?;
        }
    }
    target.sync_dir(Purpose::Maintenance)
}

fn copy(source: &dyn Vfs, target: &dyn Vfs, name: &str) -> Result<()> {
    let (from, to) = (source.open(name, Mode::Read)?, target.create(name)?);
    let (mut offset, len) = (0, from.len()?);
    let mut buffer = vec![0; COPY_BYTES.min(len) as usize];
    while offset < len {
        let bytes = &mut buffer[..COPY_BYTES.min(len - offset) as usize];
        from.read_at(offset, bytes, Purpose::Maintenance)?;
        to.write_at(offset, bytes, Purpose::Maintenance)?;
        offset += bytes.len() as u64;
    }
    to.sync(Purpose::Maintenance)
}
