//! The process's limits: the maximum number of open files, and an error in place of a signal when a
//! file would exceed the file size limit.
//!
//! A server has a descriptor per client. The usual soft limit of 1,024 is for programs that use
//! `select`; this one does not, so it raises the limit to the hard one. A store has its own budget
//! of open files, which a lower limit lowers.

use std::sync::Arc;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one. On failure the old limit stays.
pub(crate) fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Makes a write beyond the file size limit (`ulimit -f`) fail with an error, as on a full disk.
/// Without a handler SIGXFSZ ends the process silently.
pub(crate) fn report_file_size_limit() {
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}
