//! Which files make up a table: a snapshot and the edits since, installed one by one.
//!
//! A manifest is a record log whose records are the engine's own bytes, numbered. `CURRENT` names
//! the manifest that counts and is replaced as a whole, so that a crash leaves the old or the new.
//!
//! ```text
// ANCHOR: layout
//! CURRENT         := "MANIFEST-" number  [" closed"]  ' '  crc32c of that in 8 hex digits  '\n'
//! MANIFEST-000012 := record log number 12:  header  snapshot  edit*
//!   header   := magic:"SILTMANI"  version:u32  engine name                       little endian
//!   snapshot := number:u64  bytes          the number of the last edit that is part of it
//!   edit     := number:u64  bytes          each one more than the record before
// ANCHOR_END: layout
//! ```
//!
//! `closed` says that the manifest was sealed by a clean close, so that even one cut off between two
//! records is noticed. The first edit after that names a fresh manifest, without the word.
//!
//! Checksums are the log's; a manifest of a newer version or of another engine is refused by name.
//!
//! A manifest that was opened is never appended to: the first edit copies it, with the edit, to a
//! fresh file and switches `CURRENT`. So nothing is ever written behind a torn tail, and opening
//! writes nothing at all.
//!
//! Invariant: when `append` has returned, the edit survives any crash. After a transient error, as
//! that of a full disk, the edit is not there, and what it names may be removed; after any other
//! error the medium may have it or not, and only a later manifest tells: one that was opened again
//! is [settled](Manifest::settle) before anything is removed that it does not name.
//!
//! Source: LevelDB's MANIFEST and CURRENT; the checks and the copying are ours.

mod current;
mod rescue;

use std::sync::Arc;

use siltstone_engine::{Error, Inspection, Purpose, Result};
use siltstone_vfs::Vfs;

use crate::log::{LogEnd, LogMode, LogReader, LogWriter};
use current::{CURRENT, Current, manifest_name, manifest_number, read_current, write_current};

pub use rescue::Rescued;

const MAGIC: &[u8; 8] = b"SILTMANI";
const VERSION: u32 = 1;

/// A manifest is rewritten when it is over this many times its snapshot …
const GROWTH: u64 = 4;
/// … and at least this many bytes.
const SMALLEST_REWRITE_BYTES: u64 = 1 << 20;

/// The manifest of one engine's directory. One process has it open (see `Vfs::lock`).
pub struct Manifest {
    vfs: Arc<dyn Vfs>,
    engine: String,
    /// The number in the name of the file that `CURRENT` names.
    number: u64,
    /// The number of the last edit.
    last_edit: u64,
    snapshot_bytes: u64,
    state: State,
}

enum State {
    /// Opened and not yet written to.
    Read { bytes: u64, is_closed: bool },
    /// Appending to a file that this process has begun.
    Writing(LogWriter),
    /// A fault left unknown what is on the medium.
    Poisoned(String),
}

impl Manifest {
    /// Whether the directory has a manifest.
    ///
    /// # Errors
    /// The medium's.
    pub fn exists(vfs: &dyn Vfs) -> Result<bool> {
        vfs.exists(CURRENT)
    }

    /// Begins a manifest with the engine's `snapshot`, durably.
    ///
    /// # Errors
    /// `Refused` if the directory has one; the medium's.
    pub fn create(vfs: Arc<dyn Vfs>, engine: &str, snapshot: &[u8]) -> Result<Manifest> {
        Self::create_numbered(vfs, engine, snapshot, 0)
    }

    /// The same with a number above `number`.
    fn create_numbered(
        vfs: Arc<dyn Vfs>,
        engine: &str,
        snapshot: &[u8],
        number: u64,
    ) -> Result<Manifest> {
        if Self::exists(&*vfs)? {
            return Err(refused(&*vfs, "there is a store already".into()));
        }
        let mut manifest = Manifest {
            vfs,
            engine: engine.into(),
            number,
            last_edit: 0,
            snapshot_bytes: 0,
            state: State::Read { bytes: 0, is_closed: false },
        };
        manifest.rewrite(snapshot)?;
        Ok(manifest)
    }

    /// Opens the manifest and gives the snapshot and the edits since, in order. Writes nothing.
    ///
    /// # Errors
    /// `Refused` if there is none, if it is another engine's or of a newer version; `Corruption`;
    /// the medium's.
    pub fn open(vfs: Arc<dyn Vfs>, engine: &str) -> Result<(Manifest, Vec<Vec<u8>>)> {
        let current = read_current(&*vfs)?;
        let number = current.number;
        let mut edits = Vec::new();
        let (last_edit, reader) =
            read_numbered(&*vfs, engine, current, |_, edit| edits.push(edit.to_vec()))?;
        let manifest = Manifest {
            engine: engine.into(),
            number,
            last_edit,
            snapshot_bytes: edits.first().map_or(0, |snapshot| snapshot.len() as u64),
            state: State::Read { bytes: reader.valid_bytes(), is_closed: current.is_closed },
            vfs,
        };
        Ok((manifest, edits))
    }

    /// That `CURRENT` is missing where the file `beside` tells that there was one: a table that lost it is
    /// damaged, and no place for a new one, which would remove its files.
    pub fn missing(beside: &str) -> Error {
        Error::corruption(CURRENT, 0, format!("it is missing, though there is {beside}"))
    }

    /// The engine that wrote the manifest; `None` if there is none, or one that does not hold.
    ///
    /// # Errors
    /// The medium's.
    pub fn engine_of(vfs: &dyn Vfs) -> Result<Option<String>> {
        let header = || {
            let name = manifest_name(read_current(vfs)?.number);
            let number = manifest_number(&name).unwrap_or_default();
            let mut reader = LogReader::open(vfs, &name, number, LogMode::Recover)?;
            Ok(reader.next()?.and_then(|header| {
                let (_version, engine) =
                    header.bytes.strip_prefix(MAGIC)?.split_first_chunk::<4>()?;
                String::from_utf8(engine.to_vec()).ok()
            }))
        };
        match header() {
            Err(Error::Corruption { .. } | Error::Refused { .. }) => Ok(None),
            Err(error) if error.is_not_found() => Ok(None),
            found => found,
        }
    }

    /// Tells what is in the manifest; `describe` puts an edit into words.
    ///
    /// # Errors
    /// As [`open`](Manifest::open); `Corruption` for an edit that makes no sense.
    pub fn inspect(
        vfs: Arc<dyn Vfs>,
        engine: &str,
        limit: usize,
        inspection: &mut Inspection,
        describe: impl Fn(&[u8]) -> std::result::Result<String, String>,
    ) -> Result<()> {
        inspection.kind = "manifest";
        let (manifest, edits) = Manifest::open(vfs, engine)?;
        inspection.property("current file", manifest.file_name());
        inspection.property("bytes", manifest.bytes());
        inspection.property("edits", edits.len());
        for edit in &edits {
            let described = describe(edit)
                .map_err(|reason| Error::corruption(manifest.file_name(), 0, reason))?;
            inspection.item(limit, || described);
        }
        Ok(())
    }

    /// Installs an edit. It is durable when this returns. Cost: one write and one sync; the first
    /// after opening copies the manifest.
    ///
    /// # Errors
    /// Those that are [transient](Error::is_transient): the edit is surely not there, and the
    /// manifest goes on. The medium's, if nothing was written. `ReadOnly` once it is unknown
    /// whether the medium has the edit, until it is opened anew.
    pub fn append(&mut self, edit: &[u8]) -> Result<()> {
        let number = (self.last_edit + 1).to_le_bytes();
        match &mut self.state {
            State::Poisoned(cause) => return Err(Error::ReadOnly { cause: cause.clone() }),
            State::Writing(log) => {
                // The log took the record back and goes on.
                let appended = log.append(&[&number, edit]).map(drop);
                if appended.as_ref().is_err_and(Error::is_transient) {
                    return appended;
                }
                if let Err(error) = appended.and_then(|()| log.sync()) {
                    return Err(
                        self.poison(format!("an edit of {} failed: {error}", self.file_name()))
                    );
                }
            }
            State::Read { .. } => self.copy(|log| log.append(&[&number, edit]).map(drop))?,
        }
        self.last_edit += 1;
        Ok(())
    }

    /// Makes durable what opening read: after a failed sync that may have come from memory, while the medium
    /// has the edit before. Copies the manifest, unless this process has written it or it was closed.
    ///
    /// # Errors
    /// As [`append`](Manifest::append).
    pub fn settle(&mut self) -> Result<()> {
        match self.state {
            State::Read { is_closed: false, .. } => self.copy(|_| Ok(())),
            _ => Ok(()),
        }
    }

    /// Replaces the manifest by a new one that begins with `snapshot`, which must say all that the
    /// snapshot before and the edits since did. Durable when this returns.
    ///
    /// # Errors
    /// As [`append`](Manifest::append); up to the moment `CURRENT` is switched the old manifest
    /// stays in force.
    pub fn rewrite(&mut self, snapshot: &[u8]) -> Result<()> {
        let number = self.last_edit.to_le_bytes();
        self.install(|log| log.append(&[&number, snapshot]).map(|_| ()))?;
        self.snapshot_bytes = snapshot.len() as u64;
        Ok(())
    }

    /// Whether the manifest has grown so far beyond its snapshot that rewriting it pays.
    pub fn wants_rewrite(&self) -> bool {
        self.bytes() > (GROWTH * self.snapshot_bytes).max(SMALLEST_REWRITE_BYTES)
    }

    /// Bytes of the manifest's file.
    pub fn bytes(&self) -> u64 {
        match &self.state {
            State::Read { bytes, .. } => *bytes,
            State::Writing(log) => log.len(),
            State::Poisoned(_) => 0,
        }
    }

    /// The number of the last edit; it never goes back, not by rewriting either.
    pub fn last_edit(&self) -> u64 {
        self.last_edit
    }

    /// The name of the file that `CURRENT` names.
    pub fn file_name(&self) -> String {
        manifest_name(self.number)
    }

    /// Whether `name` is a file of this module: `CURRENT`, its temporary, or any manifest.
    pub fn owns(name: &str) -> bool {
        current::owns(name)
    }

    /// Seals the manifest, so that any later damage to it is found, its last edit included.
    ///
    /// # Errors
    /// The medium's; the manifest is then as durable as before.
    pub fn close(self) -> Result<()> {
        match self.state {
            State::Writing(log) => {
                log.seal()?;
                let current = Current { number: self.number, is_closed: true };
                write_current(&*self.vfs, current).map_err(|(error, _)| error)
            }
            State::Read { .. } | State::Poisoned(_) => Ok(()),
        }
    }

    /// Goes on in a copy of the manifest that was opened, with what `more` appends.
    fn copy(&mut self, more: impl FnOnce(&mut LogWriter) -> Result<()>) -> Result<()> {
        let (vfs, engine) = (self.vfs.clone(), self.engine.clone());
        // Whether it was whole was asked when it was opened.
        let old = Current { number: self.number, is_closed: false };
        self.install(|log| {
            let mut copied = Ok(());
            read_numbered(&*vfs, &engine, old, |number, bytes| {
                if copied.is_ok() {
                    copied = log.append(&[&number.to_le_bytes(), bytes]).map(drop);
                }
            })?;
            copied?;
            more(log)
        })
    }

    /// Refuses further edits: a fault left unknown what is on the medium.
    fn poison(&mut self, cause: String) -> Error {
        self.state = State::Poisoned(cause.clone());
        Error::ReadOnly { cause }
    }

    /// Writes a new manifest file — a header and what `fill` appends — and switches to it.
    fn install(&mut self, fill: impl FnOnce(&mut LogWriter) -> Result<()>) -> Result<()> {
        if let State::Poisoned(cause) = &self.state {
            return Err(Error::ReadOnly { cause: cause.clone() });
        }
        let number = self.number + 1;
        let name = manifest_name(number);
        let log = self.write_file(number, &name, fill).inspect_err(|_| {
            // Half a manifest that nothing names: space that a full medium needs back.
            let _ = self.vfs.remove(&name);
        })?;
        match write_current(&*self.vfs, Current { number, is_closed: false }) {
            Ok(()) => {
                let old = self.number;
                self.number = number;
                self.state = State::Writing(log);
                self.remove_others(old);
                Ok(())
            }
            // Which of the two a crash would leave in force is unknown.
            Err((error, true)) => Err(self.poison(format!("switching to {name} failed: {error}"))),
            Err((error, false)) => {
                let _ = self.vfs.remove(&name);
                Err(error)
            }
        }
    }

    fn write_file(
        &self,
        number: u64,
        name: &str,
        fill: impl FnOnce(&mut LogWriter) -> Result<()>,
    ) -> Result<LogWriter> {
        // Left by a crash before CURRENT named it.
        if self.vfs.exists(name)? {
            self.vfs.remove(name)?;
        }
        let mut log = LogWriter::create(&*self.vfs, name, number, Purpose::Manifest)?;
        log.append(&[MAGIC, &VERSION.to_le_bytes(), self.engine.as_bytes()])?;
        fill(&mut log)?;
        log.sync()?;
        Ok(log)
    }

    /// Removes the manifest before, and what crashes left. A failure only leaves garbage.
    fn remove_others(&self, old: u64) {
        let _ = self.vfs.remove(&manifest_name(old));
        for name in self.vfs.list().unwrap_or_default() {
            if manifest_number(&name).is_some_and(|number| number != self.number) {
                let _ = self.vfs.remove(&name);
            }
        }
    }
}

/// Reads the manifest that `current` names; gives the number of its last edit and the reader at its
/// end.
fn read_numbered(
    vfs: &dyn Vfs,
    engine: &str,
    current: Current,
    mut edit: impl FnMut(u64, &[u8]),
) -> Result<(u64, LogReader)> {
    let name = manifest_name(current.number);
    let mode = if current.is_closed { LogMode::Sealed } else { LogMode::Recover };
    let mut reader = LogReader::open(vfs, &name, current.number, mode)?;
    match reader.next()? {
        Some(header) => check_header(&name, engine, header.bytes)?,
        None => return Err(Error::corruption(&name, 0, "the manifest has no header")),
    }
    let mut last = None;
    while let Some(record) = reader.next()? {
        let bad = |reason| Error::corruption(&name, record.position, reason);
        let (found, bytes) =
            record.bytes.split_first_chunk::<8>().ok_or_else(|| bad("an edit is too short"))?;
        let found = u64::from_le_bytes(*found);
        if last.is_some_and(|last: u64| last.checked_add(1) != Some(found)) {
            return Err(bad("an edit does not follow the one before"));
        }
        last = Some(found);
        edit(found, bytes);
    }
    debug_assert!(matches!(
        reader.end(),
        Some(LogEnd::Sealed | LogEnd::Clean | LogEnd::Torn { .. })
    ));
    match last {
        Some(last) => Ok((last, reader)),
        // CURRENT is switched only to a manifest whose snapshot was synced.
        None => Err(Error::corruption(&name, reader.valid_bytes(), "the manifest has no snapshot")),
    }
}

fn check_header(name: &str, engine: &str, header: &[u8]) -> Result<()> {
    let parsed = header
        .strip_prefix(MAGIC)
        .and_then(|rest| rest.split_first_chunk::<4>())
        .map(|(version, engine)| (u32::from_le_bytes(*version), engine));
    let Some((version, found)) = parsed else {
        return Err(Error::corruption(name, 0, "this is no manifest"));
    };
    let refuse = |reason| Err(Error::Refused { path: name.into(), reason });
    if version > VERSION {
        return refuse(format!(
            "manifest format {version} is newer than {VERSION}, the newest that this program knows; \
             use a newer one"
        ));
    }
    if found != engine.as_bytes() {
        let found = String::from_utf8_lossy(found);
        return refuse(format!("this table belongs to the {found} engine, not to {engine}"));
    }
    Ok(())
}

fn refused(vfs: &dyn Vfs, reason: String) -> Error {
    Error::Refused { path: vfs.name(), reason }
}
