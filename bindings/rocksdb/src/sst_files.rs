//! Writers of SST files, and their ingestion.
//!
//! ```text
//!   keys in ascending order ─▶ file: keys of the default family ─▶ linked or copied into it
//!                                                               ─▶ rewritten for another family
//! ```
//!
//! A file is a sorted file of the store. It does not know the family that will take it, so its keys
//! have the prefix of the default one, which the ingestion replaces. Files of RocksDB itself are
//! refused. Entries of files do not expire, whatever the times to live of their family.

use std::ffi::{CStr, c_char, c_void};
use std::io::ErrorKind;
use std::path::Path;

use shim::boundary::Pointer;
use store::{IngestMode, IngestOptions, PrefixChange, SortedFileWriter};

use crate::callbacks::Comparator;
use crate::database::Database;
use crate::exports::{array, exports, give};
use crate::failure::Failure;
use crate::families::{DEFAULT, Handle};
use crate::layout;
use crate::options::Options;
use crate::scalars::{HasScalars, Plain};

/// A writer of one file after the other.
#[derive(Debug)]
pub struct FileWriter {
    options: Options,
    /// The file that is open.
    file: Option<SortedFileWriter>,
    /// The length of the file that was finished last.
    finished_bytes: u64,
}

impl FileWriter {
    fn new(options: &Options) -> Self {
        FileWriter { options: options.clone(), file: None, finished_bytes: 0 }
    }

    /// Begins a file, in place of one that exists, as in RocksDB.
    fn open(&mut self, path: &str) -> Result<(), Failure> {
        self.options.check(path)?;
        // One that was not finished is removed.
        self.file = None;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(store::Error::io("remove", path, &error).into());
            }
            _ => {}
        }
        self.file = Some(SortedFileWriter::create(path, &self.options.to_table_options())?);
        Ok(())
    }

    fn file(&mut self) -> Result<&mut SortedFileWriter, Failure> {
        self.file.as_mut().ok_or_else(not_open)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        Ok(self.file()?.put(&layout::entry_key(DEFAULT.id, key), value)?)
    }

    fn bytes(&self) -> u64 {
        self.file.as_ref().map_or(self.finished_bytes, SortedFileWriter::estimated_bytes)
    }
}

fn not_open() -> Failure {
    Failure::invalid("File is not opened")
}

impl Database {
    /// Makes files a part of a column family, as the program's options say.
    fn ingest_with(&self, family: u32, paths: &[&str], options: &Plain) -> Result<(), Failure> {
        let is_set = |name| options.scalars().is_set(name);
        if is_set("ingest_behind") {
            let text = "ingest_behind: the entries of files are newer than all others".to_owned();
            return Err(Failure::NotImplemented(text));
        }
        let mode = match (is_set("move_files"), is_set("link_files")) {
            (true, _) => IngestMode::Move,
            (false, true) => IngestMode::Link,
            (false, false) => IngestMode::Copy,
        };
        self.ingest(family, paths, mode, is_set("verify_checksums_before_ingest"))
    }

    /// Makes files a part of a column family, all at once.
    pub(crate) fn ingest<P: AsRef<Path>>(
        &self,
        family: u32,
        paths: &[P],
        mode: IngestMode,
        verify: bool,
    ) -> Result<(), Failure> {
        self.families.check(family)?;
        let prefix = (family != DEFAULT.id)
            .then(|| PrefixChange { from: layout::prefix(DEFAULT.id), to: layout::prefix(family) });
        self.table().ingest(paths, IngestOptions { mode, verify, prefix })?;
        Ok(())
    }
}

/// The paths of the caller.
///
/// # Safety
/// The array has `count` NUL-terminated strings.
unsafe fn paths<'a>(list: *const *const c_char, count: usize) -> Result<Vec<&'a str>, Failure> {
    // SAFETY: by the contract of this function.
    let paths = unsafe { array(list, count) }.iter().map(|path| unsafe { CStr::from_ptr(*path) });
    let text = |path: &'a CStr| path.to_str().map_err(|_| Failure::invalid("a path is not UTF-8"));
    paths.map(text).collect()
}

exports! {
    /// A writer of files. Of the options the compression, the size of blocks and the filter matter.
    fn rocksdb_sstfilewriter_create(
        _environment: *const c_void, options: &Options
    ) -> Pointer<FileWriter> {
        Pointer::new(FileWriter::new(options))
    }

    /// The same. The comparator is that of the options: another order than the bytewise one is
    /// refused when a file is opened.
    fn rocksdb_sstfilewriter_create_with_comparator(
        _environment: *const c_void, options: &Options, comparator: Option<&Comparator>
    ) -> Pointer<FileWriter> {
        let mut options = options.clone();
        options.set_comparator(comparator);
        Pointer::new(FileWriter::new(&options))
    }

    /// Frees a writer. A file that is not finished is removed.
    fn rocksdb_sstfilewriter_destroy(writer: Option<Box<FileWriter>>) {
        drop(writer)
    }

    /// Begins a file. One that exists is replaced.
    fn rocksdb_sstfilewriter_open(writer: &mut FileWriter, path: text; err) {
        writer.open(path?)
    }

    /// Adds the assignment of a value to a key, which is above the one before.
    fn rocksdb_sstfilewriter_add(writer: &mut FileWriter, key: bytes, value: bytes; err) {
        writer.put(key, value)
    }

    /// As rocksdb_sstfilewriter_add().
    fn rocksdb_sstfilewriter_put(writer: &mut FileWriter, key: bytes, value: bytes; err) {
        writer.put(key, value)
    }

    /// Adds the removal of a key, which is above the one before.
    fn rocksdb_sstfilewriter_delete(writer: &mut FileWriter, key: bytes; err) {
        Ok(writer.file()?.delete(&layout::entry_key(DEFAULT.id, key))?)
    }

    /// Completes the file, durably. A file without entries is an error.
    fn rocksdb_sstfilewriter_finish(writer: &mut FileWriter; err) {
        let file = writer.file.take().ok_or_else(not_open)?;
        writer.finished_bytes = file.finish()?.bytes;
        Ok(())
    }

    /// The length of the file; while it is written about that.
    fn rocksdb_sstfilewriter_file_size(writer: &FileWriter, size: *mut u64) {
        unsafe { give(size, writer.bytes()) }
    }

    /// Makes files a part of the default column family, all at once and durably. They must not
    /// overlap one another. Their entries replace older ones.
    fn rocksdb_ingest_external_file(
        db: &Database, files: *const *const c_char, count: usize, options: &Plain; err
    ) {
        db.ingest_with(DEFAULT.id, &unsafe { paths(files, count) }?, options)
    }

    /// The same for any column family.
    fn rocksdb_ingest_external_file_cf(
        db: &Database, family: &Handle, files: *const *const c_char, count: usize,
        options: &Plain; err
    ) {
        db.ingest_with(family.id, &unsafe { paths(files, count) }?, options)
    }
}
