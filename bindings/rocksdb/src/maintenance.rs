//! Flushes, compactions, checks, checkpoints, and options that change while a database is open.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::ops::Bound;
use std::path::Path;

use shim::boundary::{Pointer, bytes};
use store::Error;

use crate::batch::count;
use crate::database::Database;
use crate::db_option_table::NAMES;
use crate::exports::{array, exports, ignored};
use crate::failure::Failure;
use crate::families::{DEFAULT, Handle};
use crate::layout::{self, entry_key};
use crate::options::Options;
use crate::read_options::ReadOptions;
use crate::scalars::{HasScalars, Plain};

/// Compacts the keys from one to another, both included; a null key is the first or the last one.
///
/// # Safety
/// The keys are strings of the caller, or NULL.
unsafe fn compact(
    db: &Database,
    family: u32,
    start: (*const c_char, usize),
    end: (*const c_char, usize),
) {
    let all = layout::range(family);
    let key = |(data, len): (*const c_char, usize)| {
        // SAFETY: by the contract of this function.
        (!data.is_null()).then(|| unsafe { entry_key(family, bytes(data, len)) })
    };
    let range =
        (key(start).map_or(all.start, Bound::Included), key(end).map_or(all.end, Bound::Included));
    // RocksDB reports no error here, either. The next write does.
    drop(db.table().compact_range(range));
}

/// A checkpoint to be made of a database.
#[derive(Debug)]
pub struct Checkpoint(pub(crate) Database);

/// Checks every byte of a database.
fn verify(db: &Database) -> Result<(), Failure> {
    let report = db.db().verify()?;
    let damage = report.tables.into_values().flat_map(|table| table.damage).next();
    match damage {
        None => Ok(()),
        Some(damage) => Err(Error::corruption(damage.file, damage.offset, damage.reason).into()),
    }
}

/// The value of an option as text, if it is one of its type.
fn parse(kind: &str, value: &str) -> Option<f64> {
    let is_flag = !kind.contains("f64");
    match value {
        "true" if is_flag => return Some(1.0),
        "false" if is_flag => return Some(0.0),
        _ => {}
    }
    let (digits, unit) = match value.chars().last()? {
        'k' | 'K' => (&value[..value.len() - 1], 1u64 << 10),
        'm' | 'M' => (&value[..value.len() - 1], 1 << 20),
        'g' | 'G' => (&value[..value.len() - 1], 1 << 30),
        _ => (value, 1),
    };
    digits.parse::<f64>().ok().map(|number| number * unit as f64)
}

/// Sets an option that is a number by its name.
fn set_option(options: &mut Options, name: &str, value: &str) -> Result<(), Failure> {
    let known = NAMES.iter().find(|(known, _)| *known == name);
    let Some((known, kind)) = known else {
        return Err(Failure::invalid(format!("Unrecognized option: {name}")));
    };
    let Some(parsed) = parse(kind, value) else {
        return Err(Failure::invalid(format!("Error parsing: {name}: {value}")));
    };
    match kind.contains("f64") {
        true => options.scalars_mut().set(known, parsed),
        // Negative numbers keep their bits.
        false => options.scalars_mut().set(known, parsed as i64),
    }
    Ok(())
}

/// Changes options: those that the store has are put in force, others are only checked.
///
/// # Safety
/// The arrays have `number` strings.
unsafe fn set_options(
    db: &Database,
    number: c_int,
    names: *const *const c_char,
    values: *const *const c_char,
) -> Result<(), Failure> {
    // SAFETY: by the contract of this function.
    let (names, values) = unsafe { (array(names, count(number)), array(values, count(number))) };
    if names.is_empty() {
        return Err(Failure::invalid("empty input"));
    }
    let mut options = Options::default();
    for (name, value) in names.iter().zip(values) {
        // SAFETY: as above.
        let (name, value) = unsafe { (CStr::from_ptr(*name), CStr::from_ptr(*value)) };
        set_option(&mut options, &name.to_string_lossy(), &value.to_string_lossy())?;
    }
    let changes: BTreeMap<String, String> = options.to_table_options();
    if !changes.is_empty() {
        let changes: Vec<(&str, &str)> =
            changes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        db.table().set_options(&changes)?;
    }
    Ok(())
}

exports! {
    /// Writes what is in memory to files. All column families are flushed together.
    fn rocksdb_flush | rocksdb_flush_cf(db: &Database, _options: &Plain, ?family,; err) {
        db.families.check(family.id)?;
        Ok(db.table().flush()?)
    }

    /// As rocksdb_flush().
    fn rocksdb_flush_cfs(
        db: &Database, _options: &Plain, _families: *const *const Handle, _count: c_int; err
    ) {
        Ok(db.table().flush()?)
    }

    /// Makes all writes durable, if `sync` is not 0. They are in the log already.
    fn rocksdb_flush_wal(db: &Database, sync: u8; err) {
        if sync != 0 {
            db.table().sync()?;
        }
        Ok(())
    }

    /// The same.
    fn rocksdb_flush_wal_with_options(db: &Database, options: &Plain; err) {
        if options.scalars().is_set("sync") {
            db.table().sync()?;
        }
        Ok(())
    }

    /// As rocksdb_flush().
    fn rocksdb_transactiondb_flush | rocksdb_transactiondb_flush_cf(
        db: &Database, _options: &Plain, ?family,; err
    ) {
        db.families.check(family.id)?;
        Ok(db.table().flush()?)
    }

    /// As rocksdb_flush().
    fn rocksdb_transactiondb_flush_cfs(
        db: &Database, _options: &Plain, _families: *const *const Handle, _count: c_int; err
    ) {
        Ok(db.table().flush()?)
    }

    /// As rocksdb_flush_wal().
    fn rocksdb_transactiondb_flush_wal(db: &Database, sync: u8; err) {
        if sync != 0 {
            db.table().sync()?;
        }
        Ok(())
    }

    /// As rocksdb_flush_wal_with_options().
    fn rocksdb_transactiondb_flush_wal_with_options(db: &Database, options: &Plain; err) {
        if options.scalars().is_set("sync") {
            db.table().sync()?;
        }
        Ok(())
    }

    /// Compacts the keys from one to another, both included; NULL is the first or the last one.
    fn rocksdb_compact_range | rocksdb_compact_range_cf(
        db: &Database, ?family, start: *const c_char, start_len: usize, end: *const c_char,
        end_len: usize
    ) {
        unsafe { compact(db, family.id, (start, start_len), (end, end_len)) }
    }

    /// The same. The options are ignored.
    fn rocksdb_compact_range_opt(
        db: &Database, _options: Option<&Plain>, start: *const c_char, start_len: usize,
        end: *const c_char, end_len: usize
    ) {
        unsafe { compact(db, DEFAULT.id, (start, start_len), (end, end_len)) }
    }

    /// The same. The options are ignored.
    fn rocksdb_compact_range_cf_opt(
        db: &Database, family: &Handle, _options: Option<&Plain>, start: *const c_char,
        start_len: usize, end: *const c_char, end_len: usize
    ) {
        unsafe { compact(db, family.id, (start, start_len), (end, end_len)) }
    }

    /// Compacts the keys now.
    fn rocksdb_suggest_compact_range | rocksdb_suggest_compact_range_cf(
        db: &Database, ?family, start: *const c_char, start_len: usize, end: *const c_char,
        end_len: usize; err
    ) {
        unsafe { compact(db, family.id, (start, start_len), (end, end_len)) }
        Ok(())
    }

    /// Waits until no compaction is due.
    fn rocksdb_wait_for_compact(db: &Database, options: Option<&Plain>; err) {
        let is_set = |name| options.is_some_and(|options| options.scalars().is_set(name));
        if is_set("flush") {
            db.table().flush()?;
        }
        db.table().maintain()?;
        if is_set("close_db") {
            db.db().close()?;
        }
        Ok(())
    }

    /// Does nothing. RocksDB removes files that are in the range as a whole, so that any part of
    /// the range may stay: so may all.
    fn rocksdb_delete_file_in_range | rocksdb_delete_file_in_range_cf(
        db: &Database, ?family, start: bytes, end: bytes; err
    ) {
        let _ = (start, end);
        db.families.check(family.id)
    }

    /// Reads and checks every byte.
    fn rocksdb_verify_checksum(db: &Database; err) {
        verify(db)
    }

    /// Reads and checks every byte.
    fn rocksdb_verify_file_checksums(db: &Database; err) {
        verify(db)
    }

    /// Reads and checks every byte. The options are ignored.
    fn rocksdb_verify_checksum_with_options(db: &Database, _options: Option<&ReadOptions>; err) {
        verify(db)
    }

    /// Reads and checks every byte. The options are ignored.
    fn rocksdb_verify_file_checksums_with_options(
        db: &Database, _options: Option<&ReadOptions>; err
    ) {
        verify(db)
    }

    /// A checkpoint to be made.
    fn rocksdb_checkpoint_object_create(db: &Database; err) -> Pointer<Checkpoint> {
        Ok(Pointer::new(Checkpoint(db.clone())))
    }

    /// A checkpoint to be made.
    fn rocksdb_transactiondb_checkpoint_object_create(db: &Database; err) -> Pointer<Checkpoint> {
        Ok(Pointer::new(Checkpoint(db.clone())))
    }

    /// A checkpoint to be made.
    fn rocksdb_optimistictransactiondb_checkpoint_object_create(
        db: &Database; err
    ) -> Pointer<Checkpoint> {
        Ok(Pointer::new(Checkpoint(db.clone())))
    }

    /// Copies the database to a new directory.
    fn rocksdb_checkpoint_create(
        checkpoint: &Checkpoint, directory: text, _log_size_for_flush: u64; err
    ) {
        Ok(checkpoint.0.db().checkpoint(Path::new(directory?))?)
    }

    /// Frees it. The copy stays.
    fn rocksdb_checkpoint_object_destroy(checkpoint: Option<Box<Checkpoint>>) {
        drop(checkpoint)
    }

    /// Changes options of the open database. Unknown names are an error; see README.md for those
    /// that have an effect.
    fn rocksdb_set_options(
        db: &Database, count: c_int, names: *const *const c_char, values: *const *const c_char; err
    ) {
        unsafe { set_options(db, count, names, values) }
    }

    /// The same: options are those of the database.
    fn rocksdb_set_options_cf(
        db: &Database, _family: &Handle, count: c_int, names: *const *const c_char,
        values: *const *const c_char; err
    ) {
        unsafe { set_options(db, count, names, values) }
    }

    /// The same.
    fn rocksdb_set_db_options(
        db: &Database, count: c_int, names: *const *const c_char, values: *const *const c_char; err
    ) {
        unsafe { set_options(db, count, names, values) }
    }

    /// Sets options of a copy by a text: `name=value;name=value`. Options that are not numbers are
    /// an error.
    fn rocksdb_get_options_from_string(
        base: &Options, text: text, options: &mut Options; err
    ) {
        let mut changed = base.clone();
        for part in text?.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            set_option(&mut changed, name.trim(), value.trim())?;
        }
        *options = changed;
        Ok(())
    }

    /// Does nothing: files that are not needed are removed when nobody reads them.
    fn rocksdb_disable_file_deletions(_db: &Database; err) {
        Ok(())
    }

    /// Does nothing.
    fn rocksdb_enable_file_deletions(_db: &Database; err) {
        Ok(())
    }
}

ignored! {
    rocksdb_cancel_all_background_work rocksdb_disable_manual_compaction
    rocksdb_enable_manual_compaction
}
