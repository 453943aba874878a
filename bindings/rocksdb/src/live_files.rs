//! Lists of files, as the program reads and makes them.
//!
//! A column family has no files of its own, so the only lists with files are those of exported
//! families and those that the program has made. The store uses directory and name of a file; the
//! program gets the other values back as it has set them.

use std::ffi::{CString, c_char, c_int};

use shim::boundary::{Pointer, address};

use crate::exports::{exports, give, owned_text};

/// A file.
#[derive(Debug, Clone, Default)]
pub struct LiveFile {
    /// The name of the column family.
    pub family: CString,
    /// The name in the directory.
    pub name: CString,
    /// The directory.
    pub directory: CString,
    /// The length of the file.
    pub bytes: usize,
    /// The first key.
    pub smallest_key: Vec<u8>,
    /// The last key.
    pub largest_key: Vec<u8>,
    /// Entries, with deletions.
    pub entries: u64,
    /// Deletions.
    pub deletions: u64,
    /// The level; 0 of an exported file.
    pub level: c_int,
    /// The lowest sequence number; 0 of an exported file.
    pub smallest_sequence: u64,
    /// The highest sequence number; 0 of an exported file.
    pub largest_sequence: u64,
}

/// A list of files.
#[derive(Debug, Clone, Default)]
pub struct LiveFiles(pub Vec<LiveFile>);

impl LiveFiles {
    /// A value of a file; that of an empty file for a wrong number.
    fn of<T>(&self, at: c_int, value: impl FnOnce(&LiveFile) -> T, none: T) -> T {
        let file = usize::try_from(at).ok().and_then(|at| self.0.get(at));
        file.map_or(none, value)
    }

    /// Lends a text of a file; NULL for a wrong number.
    fn text(&self, at: c_int, text: impl FnOnce(&LiveFile) -> &CString) -> Pointer<c_char> {
        self.of(at, |file| Pointer(text(file).as_ptr().cast_mut()), Pointer::null())
    }

    /// Lends a key of a file; NULL for a wrong number.
    ///
    /// # Safety
    /// `size` is valid for a write, or NULL.
    unsafe fn key(
        &self,
        at: c_int,
        key: impl Fn(&LiveFile) -> &Vec<u8>,
        size: *mut usize,
    ) -> Pointer<c_char> {
        let (data, len) = self.of(
            at,
            |file| (Pointer(address(key(file)).cast_mut()), key(file).len()),
            (Pointer::null(), 0),
        );
        // SAFETY: by the contract of this function.
        unsafe { give(size, len) };
        data
    }
}

/// Text of the program; empty for NULL.
///
/// # Safety
/// It is a NUL-terminated string, or NULL.
unsafe fn c_text(text: *const c_char) -> CString {
    // SAFETY: by the contract of this function.
    let text = unsafe { owned_text(text) }.unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

exports! {
    /// A file, to be described and added to a list.
    fn rocksdb_livefile_create() -> Pointer<LiveFile> {
        Pointer::new(LiveFile::default())
    }

    /// Frees a file.
    fn rocksdb_livefile_destroy(file: Option<Box<LiveFile>>) {
        drop(file)
    }

    /// Sets the name of the column family.
    fn rocksdb_livefile_set_column_family_name(file: &mut LiveFile, name: *const c_char) {
        file.family = unsafe { c_text(name) }
    }

    /// Sets the name of the file.
    fn rocksdb_livefile_set_name(file: &mut LiveFile, name: *const c_char) {
        file.name = unsafe { c_text(name) }
    }

    /// Sets the directory.
    fn rocksdb_livefile_set_directory(file: &mut LiveFile, directory: *const c_char) {
        file.directory = unsafe { c_text(directory) }
    }

    /// Remembers the level.
    fn rocksdb_livefile_set_level(file: &mut LiveFile, level: c_int) {
        file.level = level
    }

    /// Remembers the length.
    fn rocksdb_livefile_set_size(file: &mut LiveFile, size: usize) {
        file.bytes = size
    }

    /// Remembers the first key.
    fn rocksdb_livefile_set_smallest_key(file: &mut LiveFile, key: bytes) {
        file.smallest_key = key.to_vec()
    }

    /// Remembers the last key.
    fn rocksdb_livefile_set_largest_key(file: &mut LiveFile, key: bytes) {
        file.largest_key = key.to_vec()
    }

    /// Remembers the lowest sequence number.
    fn rocksdb_livefile_set_smallest_seqno(file: &mut LiveFile, sequence: u64) {
        file.smallest_sequence = sequence
    }

    /// Remembers the highest sequence number.
    fn rocksdb_livefile_set_largest_seqno(file: &mut LiveFile, sequence: u64) {
        file.largest_sequence = sequence
    }

    /// Remembers the number of entries.
    fn rocksdb_livefile_set_num_entries(file: &mut LiveFile, entries: u64) {
        file.entries = entries
    }

    /// Remembers the number of deletions.
    fn rocksdb_livefile_set_num_deletions(file: &mut LiveFile, deletions: u64) {
        file.deletions = deletions
    }

    /// An empty list.
    fn rocksdb_livefiles_create() -> Pointer<LiveFiles> {
        Pointer::new(LiveFiles::default())
    }

    /// Adds a copy of a file to a list.
    fn rocksdb_livefiles_add(files: &mut LiveFiles, file: &LiveFile) {
        files.0.push(file.clone())
    }

    /// Frees a list.
    fn rocksdb_livefiles_destroy(files: Option<Box<LiveFiles>>) {
        drop(files)
    }

    /// The number of files.
    fn rocksdb_livefiles_count(files: &LiveFiles) -> c_int {
        files.0.len() as c_int
    }

    /// The name of the column family, which the list lends.
    fn rocksdb_livefiles_column_family_name(files: &LiveFiles, at: c_int) -> Pointer<c_char> {
        files.text(at, |file| &file.family)
    }

    /// The name of a file, which the list lends.
    fn rocksdb_livefiles_name(files: &LiveFiles, at: c_int) -> Pointer<c_char> {
        files.text(at, |file| &file.name)
    }

    /// The directory of a file, which the list lends.
    fn rocksdb_livefiles_directory(files: &LiveFiles, at: c_int) -> Pointer<c_char> {
        files.text(at, |file| &file.directory)
    }

    /// The level of a file.
    fn rocksdb_livefiles_level(files: &LiveFiles, at: c_int) -> c_int {
        files.of(at, |file| file.level, 0)
    }

    /// The length of a file.
    fn rocksdb_livefiles_size(files: &LiveFiles, at: c_int) -> usize {
        files.of(at, |file| file.bytes, 0)
    }

    /// The first key of a file, which the list lends.
    fn rocksdb_livefiles_smallestkey(
        files: &LiveFiles, at: c_int, size: *mut usize
    ) -> Pointer<c_char> {
        unsafe { files.key(at, |file| &file.smallest_key, size) }
    }

    /// The last key of a file, which the list lends.
    fn rocksdb_livefiles_largestkey(
        files: &LiveFiles, at: c_int, size: *mut usize
    ) -> Pointer<c_char> {
        unsafe { files.key(at, |file| &file.largest_key, size) }
    }

    /// The lowest sequence number.
    fn rocksdb_livefiles_smallest_seqno(files: &LiveFiles, at: c_int) -> u64 {
        files.of(at, |file| file.smallest_sequence, 0)
    }

    /// The highest sequence number.
    fn rocksdb_livefiles_largest_seqno(files: &LiveFiles, at: c_int) -> u64 {
        files.of(at, |file| file.largest_sequence, 0)
    }

    /// The number of entries.
    fn rocksdb_livefiles_entries(files: &LiveFiles, at: c_int) -> u64 {
        files.of(at, |file| file.entries, 0)
    }

    /// The number of deletions.
    fn rocksdb_livefiles_deletions(files: &LiveFiles, at: c_int) -> u64 {
        files.of(at, |file| file.deletions, 0)
    }
}
