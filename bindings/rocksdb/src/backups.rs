//! The backup engine, over the store's own repository of backups.
//!
//! RocksDB numbers backups. Here a number is the place of the backup in the repository, the oldest
//! is 1, so a purge renumbers the others. The repository is not RocksDB's.

use std::ffi::{c_char, c_int};
use std::path::Path;

use backup::Repository;
use shim::boundary::{Pointer, address};
use shim::destroy::destroy;
use store::Error;

use crate::database::Database;
use crate::environment::Environment;
use crate::exports::{exports, give, ignored, owned_text, rejected};
use crate::failure::Failure;
use crate::layout::TABLE;
use crate::options::Options;
use crate::scalars::{HasScalars, Plain, Scalars};

/// Options of a backup engine.
#[derive(Debug, Clone, Default)]
pub struct BackupEngineOptions {
    scalars: Scalars,
    directory: String,
}

impl HasScalars for BackupEngineOptions {
    fn scalars(&self) -> &Scalars {
        &self.scalars
    }
    fn scalars_mut(&mut self) -> &mut Scalars {
        &mut self.scalars
    }
}

/// A repository of backups.
#[derive(Debug)]
pub struct Engine(Repository);

/// A list of backups and their numbers.
#[derive(Debug)]
pub struct Info(Vec<(u32, backup::Backup)>);

impl Engine {
    fn open(path: &str) -> Result<Pointer<Engine>, Failure> {
        Ok(Pointer::new(Engine(Repository::open_or_create(path)?)))
    }

    fn back_up(&self, db: &Database, flush: bool, id: *mut u32) -> Result<(), Failure> {
        if flush {
            db.table().flush()?;
        }
        self.0.back_up(&db.db(), &mut |_, _| ())?;
        let count = self.0.ids()?.len();
        // SAFETY: the caller passes a place for the number, or NULL.
        unsafe { give(id, count as u32) };
        Ok(())
    }

    /// The backups whose manifest can be read, with their numbers.
    fn list(&self) -> Vec<(u32, backup::Backup)> {
        let ids = (1..).zip(self.0.ids().unwrap_or_default());
        ids.filter_map(|(number, id)| Some((number, self.0.backup(&id).ok()?))).collect()
    }

    /// The repository's name of a backup.
    fn name(&self, number: u32) -> Result<String, Failure> {
        let at = (number as usize).checked_sub(1);
        let found = at.and_then(|at| self.0.ids().map(|ids| ids.get(at).cloned()).transpose());
        let found = found.transpose()?;
        found.ok_or_else(|| Failure::NotFound(format!("there is no backup {number}")))
    }

    /// Replaces the database in a directory by a backup of it.
    fn restore(&self, name: &str, directory: &str) -> Result<(), Failure> {
        self.0.backup(name)?;
        destroy(directory, TABLE)?;
        if Path::new(directory).exists() {
            let reason = "has other files, which a restored database does not keep".to_owned();
            return Err(Failure::Store(Error::Refused { path: directory.to_owned(), reason }));
        }
        Ok(self.0.restore(name, directory, &mut |_, _| ())?)
    }
}

exports! {
    /// Opens or creates a repository of backups.
    fn rocksdb_backup_engine_open(_options: Option<&Options>, path: text; err) -> Pointer<Engine> {
        Engine::open(path?)
    }

    /// Opens or creates a repository of backups.
    fn rocksdb_backup_engine_open_opts(
        options: &BackupEngineOptions, _environment: Option<&Environment>; err
    ) -> Pointer<Engine> {
        Engine::open(&options.directory)
    }

    /// Closes a repository.
    fn rocksdb_backup_engine_close(engine: Option<Box<Engine>>) {
        drop(engine)
    }

    /// Adds a backup of a database.
    fn rocksdb_backup_engine_create_new_backup(engine: &Engine, db: &Database; err) {
        engine.back_up(db, false, std::ptr::null_mut())
    }

    /// Adds a backup of a database, after a flush.
    fn rocksdb_backup_engine_create_new_backup_flush(
        engine: &Engine, db: &Database, flush: u8; err
    ) {
        engine.back_up(db, flush != 0, std::ptr::null_mut())
    }

    /// Adds a backup of a database, and returns its number.
    fn rocksdb_backup_engine_create_new_backup_with_options(
        engine: &Engine, db: &Database, options: &Plain, id: *mut u32; err
    ) {
        engine.back_up(db, options.scalars().is_set("flush_before_backup"), id)
    }

    /// Removes all backups but the newest ones.
    fn rocksdb_backup_engine_purge_old_backups(engine: &Engine, keep: u32; err) {
        engine.0.keep_newest(keep as usize)?;
        Ok(())
    }

    /// Reads and checks the whole repository.
    fn rocksdb_backup_engine_verify_backup(engine: &Engine, id: u32; err) {
        let name = engine.name(id)?;
        let report = engine.0.check(&mut |_| ())?;
        match report.damaged.into_iter().find(|damaged| damaged.id == name) {
            None => Ok(()),
            Some(damaged) => Err(Failure::Store(Error::corruption(
                name,
                0,
                damaged.reasons.join("; "),
            ))),
        }
    }

    /// Replaces the database in a directory by the newest backup.
    fn rocksdb_backup_engine_restore_db_from_latest_backup(
        engine: &Engine, directory: text, _wal_directory: *const c_char,
        _options: Option<&Plain>; err
    ) {
        let newest = engine.0.ids()?.pop();
        let newest = newest.ok_or_else(|| Failure::NotFound("there is no backup".to_owned()))?;
        engine.restore(&newest, directory?)
    }

    /// Replaces the database in a directory by a backup.
    fn rocksdb_backup_engine_restore_db_from_backup(
        engine: &Engine, directory: text, _wal_directory: *const c_char,
        _options: Option<&Plain>, id: u32; err
    ) {
        engine.restore(&engine.name(id)?, directory?)
    }

    /// The backups. Damaged ones are left out.
    fn rocksdb_backup_engine_get_backup_info(engine: &Engine) -> Pointer<Info> {
        Pointer::new(Info(engine.list()))
    }

    /// How many there are.
    fn rocksdb_backup_engine_info_count(info: &Info) -> c_int {
        info.0.len() as c_int
    }

    /// When a backup was taken, in seconds since 1970.
    fn rocksdb_backup_engine_info_timestamp(info: &Info, at: c_int) -> i64 {
        info.0.get(at as usize).map_or(0, |(_, backup)| backup.manifest.taken_at as i64)
    }

    /// The number of a backup.
    fn rocksdb_backup_engine_info_backup_id(info: &Info, at: c_int) -> u32 {
        info.0.get(at as usize).map_or(0, |(number, _)| *number)
    }

    /// The bytes of a backup's files.
    fn rocksdb_backup_engine_info_size(info: &Info, at: c_int) -> u64 {
        info.0.get(at as usize).map_or(0, |(_, backup)| backup.manifest.bytes())
    }

    /// The number of a backup's files.
    fn rocksdb_backup_engine_info_number_files(info: &Info, at: c_int) -> u32 {
        info.0.get(at as usize).map_or(0, |(_, backup)| backup.manifest.files.len() as u32)
    }

    /// There are no metadata of the program.
    fn rocksdb_backup_engine_info_app_metadata(
        _info: &Info, _at: c_int, len: *mut usize
    ) -> Pointer<c_char> {
        unsafe { give(len, 0) };
        Pointer(c"".as_ptr().cast_mut())
    }

    /// Frees a list.
    fn rocksdb_backup_engine_info_destroy(info: Option<Box<Info>>) {
        drop(info)
    }

    /// Options of an engine.
    fn rocksdb_backup_engine_options_create(
        directory: *const c_char
    ) -> Pointer<BackupEngineOptions> {
        let directory = unsafe { owned_text(directory) }.unwrap_or_default();
        Pointer::new(BackupEngineOptions { directory, ..BackupEngineOptions::default() })
    }

    /// Frees options.
    fn rocksdb_backup_engine_options_destroy(options: Option<Box<BackupEngineOptions>>) {
        drop(options)
    }

    /// The directory of the repository.
    fn rocksdb_backup_engine_options_set_backup_dir(
        options: &mut BackupEngineOptions, directory: *const c_char
    ) {
        options.directory = unsafe { owned_text(directory) }.unwrap_or_default()
    }

    /// The directory of the repository.
    fn rocksdb_backup_engine_options_get_backup_dir(
        options: &BackupEngineOptions, len: *mut usize
    ) -> Pointer<c_char> {
        unsafe { give(len, options.directory.len()) };
        Pointer(address(options.directory.as_bytes()).cast_mut())
    }
}

ignored! {
    rocksdb_backup_engine_stop_backup rocksdb_backup_engine_options_set_env
    rocksdb_backup_engine_options_set_backup_rate_limiter
    rocksdb_backup_engine_options_set_restore_rate_limiter
    rocksdb_create_backup_options_set_progress_callback
    rocksdb_create_backup_options_set_exclude_files_callback
}

// A manifest has no place for metadata of the program.
rejected! { 6: rocksdb_backup_engine_create_new_backup_with_metadata; }

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::database::Wanted;

    #[test]
    fn list_beside_a_damaged_backup_has_the_others_under_their_numbers() {
        let scratch = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.scalars_mut().set("create_if_missing", 1u8);
        let (path, wanted) = (scratch.path().join("db"), Wanted::default_family(&options));
        let db = Database::open(&options, path.to_str().unwrap(), &wanted, false).unwrap().0;
        let repository = scratch.path().join("backups");
        let engine = Engine(Repository::open_or_create(&repository).unwrap());
        for _ in 0..3 {
            engine.back_up(&db, false, std::ptr::null_mut()).unwrap();
        }
        let ids = engine.0.ids().unwrap();
        let manifest = repository.join("backups").join(&ids[0]);
        let mut bytes = std::fs::read(&manifest).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&manifest, bytes).unwrap();
        let listed = engine.list();
        let listed: Vec<_> = listed.iter().map(|(number, backup)| (*number, &backup.id)).collect();
        assert_eq!(listed, [(2, &ids[1]), (3, &ids[2])]);
        assert!(listed.iter().all(|(number, id)| engine.name(*number).unwrap() == **id));
    }
}
