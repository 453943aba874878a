//! The files that contain the values of tables with references: kept logs and blob files.
//!
//! The manifest states per table which of these files it refers to, and about how many bytes of
//! each. So adding and removing tables is all that changes what is alive: a file is removed when no
//! table and no L0 run of the version needs it, and its garbage is what no table refers to.
//!
//! Garbage collection ([`BlobFiles::collectable`]) starts when the garbage of all files exceeds the
//! option `blob_gc_ratio`, and takes the files with most garbage for their size, so that it moves
//! few values for the space. It takes enough of them to fall clearly below the ratio: with keys in
//! random order each file is referred to by most tables, which are all rewritten to free it. A file
//! that level 0 refers to counts as free of garbage: how much of it is obsolete shows when its run
//! is compacted.
//!
//! Invariant: a file is opened once for all tables of all versions, because its owner removes it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::log::LogArchive;
use siltstone_table::{BlockCache, FileKind};

use super::LogFile;
use super::log_file::LoggedValue;
use crate::blob_ref::BlobRef;

/// A collection takes files until this share of the allowed garbage is left.
const COLLECTED_SHARE: f64 = 0.9;

/// A file that a table has references to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobUse {
    pub(crate) file: BlobFileId,
    /// About the bytes of the file that the table refers to.
    pub(crate) used_bytes: u64,
}

/// A kept log or a blob file, as the manifest names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobFileId {
    pub(crate) number: u64,
    /// Whether it is a kept log; else a compaction wrote it.
    pub(crate) is_log: bool,
    /// The length of the part that contains values.
    pub(crate) bytes: u64,
}

impl BlobFileId {
    pub(crate) fn kind(&self) -> FileKind {
        if self.is_log { FileKind::Log } else { FileKind::Blob }
    }
}

/// The open files that a table has references to, in the order of their numbers.
#[derive(Clone, Default)]
pub(crate) struct OpenBlobs(Arc<[Arc<LogFile>]>);

impl OpenBlobs {
    /// Reads the value of (`key`, `sequence`) that `reference` refers to, and appends it to `out`.
    ///
    /// # Errors
    /// `Corruption` if it is not there.
    pub(crate) fn read(
        &self,
        reference: &BlobRef,
        version: (&[u8], u64),
        out: &mut Vec<u8>,
        purpose: Purpose,
    ) -> Result<LoggedValue> {
        self.file(reference.file)?.read_value(reference.position, version, out, purpose)
    }

    /// Starts reading a value from the device.
    pub(crate) fn begin_read(&self, reference: &BlobRef) {
        if let Ok(file) = self.file(reference.file) {
            file.begin_read(reference.position);
        }
    }

    fn file(&self, number: u64) -> Result<&Arc<LogFile>> {
        let at = self.0.binary_search_by_key(&number, |file| file.number());
        at.map(|at| &self.0[at]).map_err(|_| {
            let reason = format!("a table refers to file {number}, which it does not name");
            Error::corruption("MANIFEST", 0, reason)
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<LogFile>> {
        self.0.iter()
    }
}

/// Opens each file once.
#[derive(Default)]
pub(crate) struct BlobOpener<'a> {
    /// Those that a version has open.
    known: Option<&'a BlobFiles>,
    opened: RefCell<BTreeMap<u64, Arc<LogFile>>>,
}

impl<'a> BlobOpener<'a> {
    /// Shares the open files of a version.
    pub(super) fn after(known: &'a BlobFiles) -> Self {
        BlobOpener { known: Some(known), opened: RefCell::default() }
    }

    /// Opens `id`, or shares it.
    ///
    /// # Errors
    /// As from [`LogFile::open`]; `Corruption` if it is open with another kind or length.
    pub(super) fn open(
        &self,
        logs: &Arc<LogArchive>,
        cache: &Arc<BlockCache>,
        id: BlobFileId,
    ) -> Result<Arc<LogFile>> {
        let known = self.known.and_then(|known| known.files.get(&id.number));
        let mut opened = self.opened.borrow_mut();
        let shared = known.map(|known| &known.file).or_else(|| opened.get(&id.number));
        if let Some(file) = shared {
            if file.id() == id {
                return Ok(file.clone());
            }
            let reason = format!("file {} is named with two kinds or lengths", id.number);
            return Err(Error::corruption("MANIFEST", 0, reason));
        }
        let file = LogFile::open(logs, id, Some(cache))?;
        opened.insert(id.number, file.clone());
        Ok(file)
    }

    /// Opens the files that a table refers to.
    ///
    /// # Errors
    /// As from [`open`](Self::open).
    pub(super) fn open_all(
        &self,
        logs: &Arc<LogArchive>,
        cache: &Arc<BlockCache>,
        uses: &[BlobUse],
    ) -> Result<OpenBlobs> {
        let open = |used: &BlobUse| self.open(logs, cache, used.file);
        let mut files = uses.iter().map(open).collect::<Result<Vec<_>>>()?;
        files.sort_by_key(|file| file.number());
        Ok(OpenBlobs(files.into()))
    }
}

/// A file of a version with values.
pub(crate) struct BlobFile {
    pub(crate) file: Arc<LogFile>,
    /// About the bytes that tables refer to; all of it if level 0 needs it.
    pub(crate) live_bytes: u64,
    /// Whether level 0 needs it.
    pub(crate) is_of_level0: bool,
}

/// The files of a version with values, by their numbers.
#[derive(Default)]
pub(crate) struct BlobFiles {
    files: BTreeMap<u64, BlobFile>,
    /// The sum of what is alive in the files that level 0 does not need.
    live_bytes_below: u64,
}

impl BlobFiles {
    /// Counts what an L0 run needs: the log of a CL-SSTable, or a file that its table refers to.
    pub(super) fn add_level0(&mut self, file: &Arc<LogFile>) {
        let live_bytes = file.bytes();
        let new = BlobFile { file: file.clone(), live_bytes, is_of_level0: true };
        let counted = self.files.entry(file.number()).or_insert(new);
        counted.live_bytes = live_bytes;
        counted.is_of_level0 = true;
    }

    /// Counts what a table of a deeper level refers to.
    pub(super) fn add_table(&mut self, files: &OpenBlobs, uses: &[BlobUse]) {
        for used in uses {
            let Ok(file) = files.file(used.file.number) else { continue };
            let new = BlobFile { file: file.clone(), live_bytes: 0, is_of_level0: false };
            let counted = self.files.entry(file.number()).or_insert(new);
            let live_bytes = counted.live_bytes.saturating_add(used.used_bytes);
            counted.live_bytes = live_bytes.min(file.bytes());
        }
    }

    /// Ends the counting.
    pub(super) fn counted(mut self) -> Self {
        let below = self.iter().filter(|blob| !blob.is_of_level0);
        self.live_bytes_below = below.map(|blob| blob.live_bytes).sum();
        self
    }

    /// About the bytes that are alive in the files that level 0 does not need.
    pub(super) fn live_bytes_below(&self) -> u64 {
        self.live_bytes_below
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &BlobFile> {
        self.files.values()
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.files.contains_key(&number)
    }

    /// The file with this number.
    ///
    /// # Errors
    /// `Corruption` if the version lacks it.
    pub(crate) fn get(&self, number: u64) -> Result<&Arc<LogFile>> {
        self.files.get(&number).map(|known| &known.file).ok_or_else(|| {
            let reason = format!("a table refers to file {number}, which no table names");
            Error::corruption("MANIFEST", 0, reason)
        })
    }

    /// The files whose values are to be moved, if more than `ratio` of the bytes of all files is
    /// garbage: those with the largest share of garbage first. Moved values leave garbage behind
    /// until their file is free of references, so this does not end before files are removed.
    pub(crate) fn collectable(&self, ratio: f64) -> BTreeSet<u64> {
        let mut bytes: u64 = self.iter().map(|blob| blob.file.bytes()).sum();
        let mut garbage: u64 = self.iter().map(BlobFile::garbage_bytes).sum();
        let is_too_much = |garbage: u64, bytes: u64| garbage as f64 > ratio * bytes as f64;
        if !is_too_much(garbage, bytes) {
            return BTreeSet::new();
        }
        let share = |blob: &BlobFile| blob.garbage_bytes() as f64 / blob.file.bytes().max(1) as f64;
        let mut by_share: Vec<_> = self.iter().filter(|blob| blob.garbage_bytes() > 0).collect();
        by_share.sort_by(|a, b| share(b).total_cmp(&share(a)));
        let mut taken = BTreeSet::new();
        for blob in by_share {
            if garbage as f64 <= COLLECTED_SHARE * ratio * bytes as f64 {
                break;
            }
            taken.insert(blob.file.number());
            // What is alive is moved, without garbage.
            bytes -= blob.garbage_bytes();
            garbage -= blob.garbage_bytes();
        }
        taken
    }
}

impl BlobFile {
    pub(crate) fn garbage_bytes(&self) -> u64 {
        self.file.bytes() - self.live_bytes
    }
}
