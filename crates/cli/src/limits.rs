//! The process's limits: as many open files as the system allows, and an error instead of a signal where a file
//! would grow beyond the limit of file sizes.
//!
//! An engine keeps every table open. The usual soft limit of 1,024 files is there for programs that
//! use `select`; this one does not, so it asks for the hard limit.

use std::sync::Arc;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one. If that fails the old limit stays.
pub(crate) fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Has a write beyond the limit of file sizes (`ulimit -f`) fail with an error, as on a full disk. Without a
/// handler for SIGXFSZ it ends the process without a word.
pub(crate) fn report_file_size_limit() {
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}
