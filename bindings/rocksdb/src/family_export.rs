//! Export of a column family into files, and its import as a new family, also of another database.
//!
//! ```text
//!   snapshot of the family ─▶ DIRECTORY/export-000001.sst, export-000002.sst, … ─▶ list of files
//!   list of files ─▶ new family: one ingestion of all of them
//! ```
//!
//! Column families share the files of the store, so an export reads and writes the entries, where
//! RocksDB links files. The files are as those of [`sst_files`](crate::sst_files): keys have the
//! prefix of the default family. Entries keep the times at which they expire. An export or import
//! that fails leaves no directory and no family behind.

use std::ffi::{CStr, CString, c_char};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use shim::boundary::{Pointer, copy};
use store::{Error, IngestMode, SortedFileWriter};

use crate::database::Database;
use crate::exports::{exports, owned_text};
use crate::failure::Failure;
use crate::families::{DEFAULT, DEFAULT_NAME, Handle};
use crate::layout;
use crate::live_files::{LiveFile, LiveFiles};
use crate::maintenance::Checkpoint;
use crate::options::Options;
use crate::scalars::{HasScalars, Plain};

/// The length of files.
const FILE_BYTES: u64 = 64 << 20;
/// The only order of keys.
const COMPARATOR: &str = "leveldb.BytewiseComparator";

/// What an import needs.
#[derive(Debug)]
pub struct Metadata {
    comparator: String,
    files: LiveFiles,
}

/// The files of an export.
struct Export<'a> {
    db: &'a Database,
    family: &'a str,
    directory: &'a Path,
    /// A file ends when it is as long.
    file_bytes: u64,
    files: Vec<LiveFile>,
}

impl Export<'_> {
    /// The name of the next file. A bare number is the name of a table's own file.
    fn name(&self) -> String {
        format!("export-{:06}.sst", self.files.len() + 1)
    }

    /// Writes all entries of a family.
    fn write(&mut self, family: u32) -> Result<(), Failure> {
        let (table, range) = (self.db.table(), layout::range(family));
        let options = table.options();
        let mut cursor = table.snapshot()?.cursor_range((range.start, range.end))?;
        let mut open: Option<SortedFileWriter> = None;
        while let Some(entry) = cursor.next()? {
            let key = layout::split(entry.key).map_or(entry.key, |(_, key)| key);
            let key = layout::entry_key(DEFAULT.id, key);
            let mut file = match open.take() {
                Some(file) => file,
                None => SortedFileWriter::create(self.directory.join(self.name()), &options)?,
            };
            match entry.expires_at {
                Some(at) => file.put_until(&key, entry.value, at)?,
                None => file.put(&key, entry.value)?,
            }
            if file.estimated_bytes() < self.file_bytes {
                open = Some(file);
            } else {
                self.finish(file)?;
            }
        }
        open.map_or(Ok(()), |file| self.finish(file))
    }

    fn finish(&mut self, file: SortedFileWriter) -> Result<(), Failure> {
        let file = file.finish()?;
        let key = |key: &[u8]| layout::split(key).map_or(Vec::new(), |(_, key)| key.to_vec());
        self.files.push(LiveFile {
            family: c_text(self.family),
            name: c_text(&self.name()),
            directory: c_text(&self.directory.to_string_lossy()),
            bytes: file.bytes as usize,
            smallest_key: key(&file.first_key),
            largest_key: key(&file.last_key),
            entries: file.entries,
            deletions: file.deletions,
            ..LiveFile::default()
        });
        Ok(())
    }
}

fn c_text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

fn text(text: &CStr) -> Result<&str, Failure> {
    text.to_str().map_err(|_| Failure::invalid("a path is not UTF-8"))
}

/// Exports a column family into a new directory.
fn export(
    db: &Database,
    family: &Handle,
    directory: &str,
    file_bytes: u64,
) -> Result<Metadata, Failure> {
    db.families.check(family.id)?;
    let path = Path::new(directory);
    std::fs::create_dir(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Failure::invalid(format!("the directory of an export is a new one: {directory} exists"))
        }
        _ => Error::io("create", directory, &error).into(),
    })?;
    let name = if family.name.is_empty() { DEFAULT_NAME } else { &family.name };
    let mut export = Export { db, family: name, directory: path, file_bytes, files: Vec::new() };
    let written = export.write(family.id);
    let files = LiveFiles(export.files);
    if let Err(error) = written {
        // The error of the export is the one that counts.
        drop(std::fs::remove_dir_all(path));
        return Err(error);
    }
    Ok(Metadata { comparator: COMPARATOR.to_owned(), files })
}

/// Creates a column family with the entries of files.
fn import(
    db: &Database,
    name: &str,
    options: &Options,
    is_move: bool,
    metadata: &Metadata,
) -> Result<Handle, Failure> {
    if metadata.comparator != COMPARATOR {
        let other = &metadata.comparator;
        let text =
            format!("Comparator name mismatch: the files have '{other}', not '{COMPARATOR}'");
        return Err(Failure::invalid(text));
    }
    if metadata.files.0.is_empty() {
        return Err(Failure::invalid("The list of files is empty"));
    }
    let path = |file: &LiveFile| -> Result<PathBuf, Failure> {
        // RocksDB's own names begin with a slash.
        let name = text(&file.name)?.trim_start_matches('/');
        Ok(Path::new(text(&file.directory)?).join(name))
    };
    let paths = metadata.files.0.iter().map(path).collect::<Result<Vec<_>, _>>()?;
    let handle = db.create_family(name, options)?;
    let mode = if is_move { IngestMode::Move } else { IngestMode::Copy };
    if let Err(error) = db.ingest(handle.id, &paths, mode, true) {
        db.families.drop_family(&db.table(), &handle)?;
        return Err(error);
    }
    Ok(handle)
}

exports! {
    /// Writes the entries of a column family, as of now, into files in a new directory.
    fn rocksdb_checkpoint_export_column_family(
        checkpoint: &Checkpoint, family: &Handle, directory: text; err
    ) -> Pointer<Metadata> {
        Ok(Pointer::new(export(&checkpoint.0, family, directory?, FILE_BYTES)?))
    }

    /// Creates a column family with the entries of exported files.
    fn rocksdb_create_column_family_with_import(
        db: &Database, options: &Options, name: text, import_options: &Plain,
        metadata: &Metadata; err
    ) -> Pointer<Handle> {
        let is_move = import_options.scalars().is_set("move_files");
        Ok(Pointer::new(import(db, name?, options, is_move, metadata)?))
    }

    /// A list without files, to be filled by the program.
    fn rocksdb_export_import_files_metadata_create() -> Pointer<Metadata> {
        Pointer::new(Metadata { comparator: String::new(), files: LiveFiles::default() })
    }

    /// Frees a list.
    fn rocksdb_export_import_files_metadata_destroy(metadata: Option<Box<Metadata>>) {
        drop(metadata)
    }

    /// The name of the order of keys, to be freed.
    fn rocksdb_export_import_files_metadata_get_db_comparator_name(
        metadata: &Metadata
    ) -> Pointer<c_char> {
        Pointer(copy(metadata.comparator.as_bytes()))
    }

    /// Sets the name of the order of keys.
    fn rocksdb_export_import_files_metadata_set_db_comparator_name(
        metadata: &mut Metadata, name: *const c_char
    ) {
        metadata.comparator = unsafe { owned_text(name) }.unwrap_or_default()
    }

    /// A copy of the files, to be freed.
    fn rocksdb_export_import_files_metadata_get_files(metadata: &Metadata) -> Pointer<LiveFiles> {
        Pointer::new(metadata.files.clone())
    }

    /// Sets the files, which are copied.
    fn rocksdb_export_import_files_metadata_set_files(
        metadata: &mut Metadata, files: &LiveFiles
    ) {
        metadata.files = files.clone()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use store::{Durability, WriteBatch};

    use super::*;
    use crate::database::Wanted;

    #[test]
    fn family_of_several_files_is_imported_with_its_times_of_expiry() {
        let scratch = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.scalars_mut().set("create_if_missing", 1u8);
        let wanted = Wanted::default_family(&options).remove(0).with_ttl(3600);
        let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
        let db = Database::open(&options, &path("db"), &[wanted], false).unwrap().0;
        let mut batch = WriteBatch::new();
        for number in 0..300u32 {
            batch.put(&layout::entry_key(0, &number.to_be_bytes()), &[number as u8; 1000]);
        }
        db.write(&batch, &[0], Durability::Buffered).unwrap();

        let metadata = export(&db, &DEFAULT, &path("export"), 50_000).unwrap();
        let files = &metadata.files.0;
        assert!((4..9).contains(&files.len()), "{}", files.len());
        assert_eq!(files.iter().map(|file| file.entries).sum::<u64>(), 300);
        assert!(files.windows(2).all(|pair| pair[0].largest_key < pair[1].smallest_key));
        let handle = import(&db, "copy", &options, false, &metadata).unwrap();
        for number in 0..300u32 {
            let entry = |family| {
                let key = layout::entry_key(family, &number.to_be_bytes());
                db.table().get_entry(&key).unwrap().unwrap()
            };
            assert!(entry(0).expires_at.is_some());
            assert_eq!(entry(handle.id), entry(0));
        }
    }
}
