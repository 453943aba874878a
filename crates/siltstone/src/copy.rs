//! Checkpoints: consistent copies of the whole store in a new directory.
//!
//! Immutable files are linked, not copied, when both directories are on one file system, so a
//! checkpoint of a large store is fast and takes little space. The libraries of functions of a
//! server are part of the copy.

use std::collections::BTreeSet;
use std::fs::File as PlainFile;
use std::io::{self, ErrorKind};
use std::path::Path;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{DirectorySink, Vfs};

use crate::db::refuse_inside;
use crate::encryption::Keys;
use crate::names::is_companion;
use crate::partial_directory::PartialDirectory;
use crate::{Db, engines, trace};

impl Db {
    /// Copies every table that exists at the call, each as of a moment during the call, into the
    /// new directory `dir`. Batches and transactions over several tables are whole in the copy, or
    /// not in it; they wait until it is complete. Other writes go on. A table dropped during the
    /// call is an error. The copy opens as a store with all files in `dir`; a second directory
    /// (`upper` of `trie`) stays exclusive to the original. The copy is made in `dir.partial` and
    /// renamed when it is complete, so `dir` never holds part of one; the next checkpoint removes
    /// an interrupted `dir.partial`. A directory inside a store is refused, because a store
    /// removes unknown files. The libraries of functions of a server are copied, too.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// table.put(b"k", b"v")?;
    /// let copy = scratch.path().join("copy");
    /// db.checkpoint(&copy)?;
    /// let db = Db::open(&copy, DbOptions::default())?;
    /// assert_eq!(db.table("t")?.get(b"k")?.as_deref(), Some(&b"v"[..]));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`] if `dir` exists or is inside a store, or if
    /// `dir.partial` contains unknown files; [`Error::Locked`] if another
    /// process writes it; errors of the tables, and I/O errors.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.checkpoint_with_keys(dir, &self.options().encryption)
    }

    /// As [`checkpoint`](Self::checkpoint), but the copy is encrypted with `keys`, or not encrypted
    /// if there are none. Unless these are the keys of this store, all files are copied, and get
    /// new keys of their own.
    ///
    /// # Errors
    /// As from [`checkpoint`](Self::checkpoint); [`Error::Invalid`] for a table that cannot be
    /// encrypted.
    pub fn checkpoint_with_keys(&self, dir: impl AsRef<Path>, keys: &Keys) -> Result<()> {
        let dir = dir.as_ref();
        trace::span!("checkpoint", to = dir.display());
        refuse_inside(dir)?;
        for (name, spec) in &self.catalogue()?.tables {
            engines::check_encryption(keys, name, &spec.engine, &spec.options)?;
        }
        let partial = PartialDirectory::create(dir)?;
        let target = keys.wrap(partial.vfs().open_dir(partial.path())?);
        // Taken first: a table created later has no files in the copy and must not be listed there.
        let _no_switches = self.hold_switches();
        let mut catalogue = self.catalogue()?;
        let _no_batches = self.open_batches().pause();
        for name in catalogue.tables.keys() {
            let name = name.as_str();
            let table = self.table(name)?;
            let target = target.subdirectory(&format!("table-{name}"))?;
            // A table in memory is empty at every open, and so is its copy.
            if table.engine().capabilities().durable {
                let source = self.existing_table_vfs(name)?;
                let mut sink = DirectorySink::new(source, target.clone());
                table.engine().checkpoint(&mut sink)?;
            }
            target.sync_dir(Purpose::Maintenance)?;
        }
        catalogue.pending.clear();
        catalogue.directories.clear();
        for spec in catalogue.tables.values_mut() {
            engines::remove_exclusive_options(&spec.engine, &mut spec.options);
        }
        // A directory with a catalogue is complete, so the other files come before it.
        if let Some(store) = self.path() {
            copy_companions(store, partial.path())?;
        }
        catalogue.write(target.as_ref())?;
        partial.commit()
    }
}

/// Adds the files beside the tables. They are not encrypted, in the store and in the copy. Their
/// names become durable with the catalogue.
fn copy_companions(store: &Path, copy: &Path) -> Result<()> {
    let failed = |error| Error::io("copy", store.display().to_string(), &error);
    loop {
        let names = companions(store).map_err(failed)?;
        for name in &names {
            match copy_file(&store.join(name), &copy.join(name)) {
                // A newer one has replaced it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                copied => copied.map_err(failed)?,
            }
        }
        if companions(store).map_err(failed)? == names {
            return Ok(());
        }
    }
}

/// The names of the files beside the tables.
fn companions(store: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(store)? {
        names.extend(entry?.file_name().into_string().ok().filter(|name| is_companion(name)));
    }
    Ok(names)
}

/// Copies a file, which may grow meanwhile: a link would grow, too.
fn copy_file(source: &Path, target: &Path) -> io::Result<()> {
    std::fs::copy(source, target)?;
    // Windows syncs only what may be written.
    PlainFile::options().read(true).write(cfg!(windows)).open(target)?.sync_all()
}
