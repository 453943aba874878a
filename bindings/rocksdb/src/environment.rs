//! Environments. There is one, the operating system; the number of threads is an option of a
//! database.

use std::ffi::c_int;
use std::fs;

use shim::boundary::Pointer;
use store::Error;

use crate::exports::{exports, ignored};
use crate::scalars::{HasScalars, Scalars, scalars};

/// An environment.
#[derive(Debug, Default)]
pub struct Environment {
    scalars: Scalars,
    /// Databases in it are refused.
    pub is_in_memory: bool,
}

impl HasScalars for Environment {
    fn scalars(&self) -> &Scalars {
        &self.scalars
    }
    fn scalars_mut(&mut self) -> &mut Scalars {
        &mut self.scalars
    }
}

scalars!(Environment, "rocksdb_env" {
    [c_int]:
        background_threads = 1, high_priority_background_threads,
        low_priority_background_threads = 1, bottom_priority_background_threads;
});

exports! {
    /// The operating system.
    fn rocksdb_create_default_env() -> Pointer<Environment> {
        Pointer::new(Environment::default())
    }

    /// An environment in memory. Databases in it are refused.
    fn rocksdb_create_mem_env() -> Pointer<Environment> {
        Pointer::new(Environment { is_in_memory: true, ..Environment::default() })
    }

    /// Frees an environment.
    fn rocksdb_env_destroy(environment: Option<Box<Environment>>) {
        drop(environment)
    }

    /// Creates a directory, and those above it.
    fn rocksdb_create_dir_if_missing(_environment: &Environment, path: text; err) {
        let path = path?;
        Ok(fs::create_dir_all(path).map_err(|error| Error::io("create", path, &error))?)
    }
}

ignored! {
    rocksdb_env_join_all_threads rocksdb_env_lower_thread_pool_io_priority
    rocksdb_env_lower_high_priority_thread_pool_io_priority
    rocksdb_env_lower_thread_pool_cpu_priority
    rocksdb_env_lower_high_priority_thread_pool_cpu_priority
}
