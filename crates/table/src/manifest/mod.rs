//! Manifest: the files of a keyspace, as a snapshot and the edits since.
//!
//! A manifest is a record log of numbered, engine-defined records. `CURRENT` names the manifest in
//! force and is replaced atomically, so a crash leaves the old or the new one.
//!
//! ```text
// ANCHOR: layout
//! CURRENT         := "MANIFEST-" number  [" closed"]  ' '  crc32c of that in 8 hex digits  '\n'
//! MANIFEST-000012 := record log number 12:  header  snapshot  edit*
//!   header   := magic:"SILTMANI"  version:u32  engine name                       little endian
//!   snapshot := number:u64  bytes          the number of the last edit that is part of it
//!   edit     := number:u64  bytes          each one more than the previous record
// ANCHOR_END: layout
//! ```
//!
//! `closed` states that a clean close sealed the manifest, so that truncation at a record boundary
//! is detected. The first edit after that names a new manifest, without the word.
//!
//! Checksums are the log's; a manifest of a newer version or of another engine is rejected by name.
//!
//! A recovered manifest is never appended to: the first edit copies it, with the edit, to a new
//! file and switches `CURRENT`. So nothing is written after a torn tail, and opening writes
//! nothing.
//!
//! Invariant: when `append` returns, the edit is durable. After a transient error, such as a full
//! disk, the edit is not there, and the files that it names may be removed. After any other error
//! the edit may or may not be durable; it is known only after a reopen and
//! [`Manifest::persist_recovered`], before which no file may be removed.
//!
//! Source: LevelDB's MANIFEST and CURRENT; checksums by position and copying on open are additions.

mod current;
mod salvage;

use std::sync::Arc;

use siltstone_engine::{Error, Inspection, Purpose, Result};
use siltstone_vfs::Vfs;

use crate::log::{LogEnd, LogMode, LogReader, LogWriter};
use current::{CURRENT, Current, manifest_name, manifest_number, read_current, write_current};

pub use salvage::ManifestSalvage;

const MAGIC: &[u8; 8] = b"SILTMANI";
const VERSION: u32 = 1;

/// A manifest is rewritten when it exceeds this multiple of its snapshot …
const REWRITE_FACTOR: u64 = 4;
/// … and this size.
const MIN_REWRITE_BYTES: u64 = 1 << 20;

/// The manifest of an engine's directory, open in one process at a time (see `Vfs::lock`).
pub struct Manifest {
    vfs: Arc<dyn Vfs>,
    engine: String,
    /// The number in the name of the current file.
    number: u64,
    /// The number of the last edit.
    last_edit: u64,
    snapshot_bytes: u64,
    state: State,
}

enum State {
    /// Recovered and not yet written to.
    Read { bytes: u64, is_closed: bool },
    /// Appending to a file that this process created.
    Writing(LogWriter),
    /// After an error that leaves the durable contents unknown.
    Poisoned(String),
}

impl Manifest {
    /// Whether the directory has a manifest.
    ///
    /// # Errors
    /// I/O errors.
    pub fn exists(vfs: &dyn Vfs) -> Result<bool> {
        vfs.exists(CURRENT)
    }

    /// Creates a manifest with the engine's `snapshot`, durably.
    ///
    /// # Errors
    /// `Refused` if the directory has one; I/O errors.
    pub fn create(vfs: Arc<dyn Vfs>, engine: &str, snapshot: &[u8]) -> Result<Manifest> {
        Self::create_numbered(vfs, engine, snapshot, 0)
    }

    /// The same with a number greater than `number`.
    fn create_numbered(
        vfs: Arc<dyn Vfs>,
        engine: &str,
        snapshot: &[u8],
        number: u64,
    ) -> Result<Manifest> {
        if Self::exists(&*vfs)? {
            return Err(refused(&*vfs, "a store already exists".into()));
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

    /// Opens the manifest; also returns the snapshot and the edits since, in order. Writes nothing.
    ///
    /// # Errors
    /// `Refused` if there is none, or it belongs to another engine or has a newer version;
    /// `Corruption`; I/O errors.
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

    /// The error for a missing `CURRENT` where the file `beside` shows that there was one. Creating
    /// a new manifest there would remove the keyspace's files.
    pub fn missing(beside: &str) -> Error {
        Error::corruption(CURRENT, 0, format!("it is missing, though there is {beside}"))
    }

    /// The engine that wrote the manifest; `None` if there is no valid one.
    ///
    /// # Errors
    /// I/O errors.
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

    /// Dumps the manifest; `describe` returns an edit as text.
    ///
    /// # Errors
    /// As [`open`](Manifest::open); `Corruption` for an edit that `describe` rejects.
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

    /// Appends an edit, which is durable when this returns. Cost: one write and one sync; the first
    /// append after an open copies the manifest.
    ///
    /// # Errors
    /// [Transient errors](Error::is_transient) and I/O errors before any write: the edit is not
    /// there, and the manifest stays usable. `ReadOnly` once it is unknown whether the edit is
    /// durable, until a reopen.
    pub fn append(&mut self, edit: &[u8]) -> Result<()> {
        let number = (self.last_edit + 1).to_le_bytes();
        match &mut self.state {
            State::Poisoned(cause) => return Err(Error::ReadOnly { cause: cause.clone() }),
            State::Writing(log) => {
                // The log has undone the append and stays usable.
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

    /// Makes the recovered edits durable: after a failed sync they may have been read from the page
    /// cache while the disk lacks them. Copies the manifest, unless this process created it or a
    /// clean close sealed it.
    ///
    /// # Errors
    /// As [`append`](Manifest::append).
    pub fn persist_recovered(&mut self) -> Result<()> {
        match self.state {
            State::Read { is_closed: false, .. } => self.copy(|_| Ok(())),
            _ => Ok(()),
        }
    }

    /// Replaces the manifest by a new one that starts with `snapshot`, which must include the old
    /// snapshot and all edits since. Durable when this returns.
    ///
    /// # Errors
    /// As [`append`](Manifest::append); until `CURRENT` is switched the old manifest stays in
    /// force.
    pub fn rewrite(&mut self, snapshot: &[u8]) -> Result<()> {
        let number = self.last_edit.to_le_bytes();
        self.install(|log| log.append(&[&number, snapshot]).map(|_| ()))?;
        self.snapshot_bytes = snapshot.len() as u64;
        Ok(())
    }

    /// Whether the manifest is large enough compared with its snapshot to be rewritten.
    pub fn should_rewrite(&self) -> bool {
        self.bytes() > (REWRITE_FACTOR * self.snapshot_bytes).max(MIN_REWRITE_BYTES)
    }

    /// Size of the manifest's file, in bytes.
    pub fn bytes(&self) -> u64 {
        match &self.state {
            State::Read { bytes, .. } => *bytes,
            State::Writing(log) => log.len(),
            State::Poisoned(_) => 0,
        }
    }

    /// The number of the last edit. It never decreases, also not by a rewrite.
    pub fn last_edit(&self) -> u64 {
        self.last_edit
    }

    /// The name of the file that `CURRENT` names.
    pub fn file_name(&self) -> String {
        manifest_name(self.number)
    }

    /// Whether `name` is a file of this module: `CURRENT`, its temporary file, or any manifest.
    pub fn owns(name: &str) -> bool {
        current::owns(name)
    }

    /// Seals the manifest, so that any later damage is detected, also to its last edit.
    ///
    /// # Errors
    /// I/O errors; the manifest is then as durable as before.
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

    /// Continues in a copy of the recovered manifest, to which `more` appends.
    fn copy(&mut self, more: impl FnOnce(&mut LogWriter) -> Result<()>) -> Result<()> {
        let (vfs, engine) = (self.vfs.clone(), self.engine.clone());
        // It was verified when it was opened.
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

    /// Rejects further edits: the durable contents are unknown.
    fn poison(&mut self, cause: String) -> Error {
        self.state = State::Poisoned(cause.clone());
        Error::ReadOnly { cause }
    }

    /// Writes a new manifest file with a header and what `fill` appends, and switches to it.
    fn install(&mut self, fill: impl FnOnce(&mut LogWriter) -> Result<()>) -> Result<()> {
        if let State::Poisoned(cause) = &self.state {
            return Err(Error::ReadOnly { cause: cause.clone() });
        }
        let number = self.number + 1;
        let name = manifest_name(number);
        let log = self.write_file(number, &name, fill).inspect_err(|_| {
            // A partial manifest that nothing names; a full disk needs the space.
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
            // It is unknown which of the two would be in force after a crash.
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

    /// Removes the old manifest and leftovers of crashes. A failure only leaves garbage.
    fn remove_others(&self, old: u64) {
        let _ = self.vfs.remove(&manifest_name(old));
        for name in self.vfs.list().unwrap_or_default() {
            if manifest_number(&name).is_some_and(|number| number != self.number) {
                let _ = self.vfs.remove(&name);
            }
        }
    }
}

/// Reads the manifest that `current` names; returns the number of its last edit and the reader at
/// its end.
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
            return Err(bad("an edit does not follow the previous one"));
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
        return Err(Error::corruption(name, 0, "this is not a manifest"));
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
