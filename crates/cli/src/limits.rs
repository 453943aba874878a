//! Lets the process open as many files as the system allows.
//!
//! An engine keeps every table open. The usual soft limit of 1,024 files is there for programs that
//! use `select`; this one does not, so it asks for the hard limit.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one. If that fails the old limit stays.
pub(crate) fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
