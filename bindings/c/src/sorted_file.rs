//! Bulk loading: sorted files, and their ingestion.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use store::{Error, IngestMode, IngestOptions, SortedFileWriter};

use crate::error::{SiltstoneError, guard, invalid, release, required};
use crate::memory::{Output, array, bytes, handle_output, set_handle, text};
use crate::options::table_options;
use crate::table::{SiltstoneTable, inner};

/// A sorted file that is being written. One thread at a time may use it.
#[derive(Debug)]
pub struct SiltstoneSortedFile(Option<SortedFileWriter>);

/// What happens to the files of an ingestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum SiltstoneIngestMode {
    /// They are copied.
    Copy = 0,
    /// They are linked into the table where the file system can, and copied otherwise. They must
    /// not be changed afterwards.
    Link = 1,
    /// As LINK, and removed from their place once the ingestion is durable.
    Move = 2,
}

fn writer(file: Option<&mut SiltstoneSortedFile>) -> Result<&mut SortedFileWriter, Error> {
    let finished = || invalid("the sorted file is finished".to_owned());
    required(file, "file")?.0.as_mut().ok_or_else(finished)
}

/// Creates the sorted file `path`, which must not exist. The options are those of an lsm table, of
/// which block size, compression and filters matter. Finish it with siltstone_sorted_file_finish(),
/// and free it with siltstone_sorted_file_free().
///
/// Errors: INVALID_OPTIONS; IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_sorted_file_create(
    path: *const c_char,
    options: *const *const c_char,
    option_count: usize,
    file: Option<&mut MaybeUninit<*mut SiltstoneSortedFile>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let file = handle_output(file, "file")?;
        // SAFETY: the caller passes NUL-terminated strings, and an array of `option_count` of them.
        let (path, options) =
            unsafe { (text(path, "path")?, table_options(options, option_count)?) };
        set_handle(file, SiltstoneSortedFile(Some(SortedFileWriter::create(path, &options)?)));
        Ok(())
    })
}

/// Frees a sorted file. One that is not finished is removed. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_sorted_file_free(file: Option<Box<SiltstoneSortedFile>>) {
    release(file);
}

/// Adds a key with its value. Each key must be above the one before.
///
/// Errors: INVALID for a key that is not: the file is unchanged. TOO_LARGE. IO: the file cannot be
/// finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_sorted_file_put(
    file: Option<&mut SiltstoneSortedFile>,
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    value_len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let (key, value) =
            unsafe { (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?) };
        writer(file)?.put(key, value)
    })
}

/// As siltstone_sorted_file_put(), for a value that expires at `expires_at`, in milliseconds since
/// 1970.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_sorted_file_put_until(
    file: Option<&mut SiltstoneSortedFile>,
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    value_len: usize,
    expires_at: u64,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let (key, value) =
            unsafe { (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?) };
        writer(file)?.put_until(key, value, expires_at)
    })
}

/// Adds the removal of a key from the table that ingests the file. Otherwise as
/// siltstone_sorted_file_put().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_sorted_file_delete(
    file: Option<&mut SiltstoneSortedFile>,
    key: *const c_char,
    key_len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let key = unsafe { bytes(key, key_len, "key") }?;
        writer(file)?.delete(key)
    })
}

/// Completes the file, durably. Only siltstone_sorted_file_free() is allowed after it.
///
/// Errors: INVALID for a file without entries; IO. The file is removed then.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_sorted_file_finish(
    file: Option<&mut SiltstoneSortedFile>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let finished = || invalid("the sorted file is finished".to_owned());
        required(file, "file")?.0.take().ok_or_else(finished)?.finish()?;
        Ok(())
    })
}

/// Makes `count` sorted files a part of the table, all at once and durably, without rewriting them.
/// Their entries replace older ones of the same keys; the files must not overlap one another.
/// `mode` is a siltstone_ingest_mode. *json, which may be NULL, gets {"sequence":1,"entries":2,
/// "bytes":3,"copied_bytes":0,"levels":[6],"not_removed":[]}. Free *json with siltstone_free(). lsm
/// only.
///
/// Errors: UNSUPPORTED; INVALID for files that overlap or are no complete sorted files; CORRUPTION
/// in a file. Nothing has changed then. Otherwise those of all writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_ingest(
    table: Option<&SiltstoneTable>,
    count: usize,
    paths: *const *const c_char,
    mode: i32,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let mut json = json.map(|json| Output::text(Some(json), "json")).transpose()?;
        // SAFETY: the caller passes an array of `count` strings.
        let paths = unsafe { array(paths, count, "paths") }?.iter();
        // SAFETY: the caller passes NUL-terminated strings.
        let paths = paths.map(|path| unsafe { text(*path, "paths[]") });
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        let modes = [
            (SiltstoneIngestMode::Copy, IngestMode::Copy),
            (SiltstoneIngestMode::Link, IngestMode::Link),
            (SiltstoneIngestMode::Move, IngestMode::Move),
        ];
        let known = modes.into_iter().find(|(number, _)| *number as i32 == mode);
        let unknown = || invalid(format!("there is no mode {mode} of ingestions"));
        let mode = known.ok_or_else(unknown)?.1;
        let report =
            inner(table)?.ingest(&paths, IngestOptions { mode, ..IngestOptions::default() })?;
        json.as_mut().map_or(Ok(()), |json| json.set_json(&report))
    })
}
