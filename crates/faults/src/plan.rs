//! The fault plan: which requests fail, and how.
//!
//! [`FaultPlan::admit`] counts every request and returns its verdict. There are two counters:
//! *requests* are all, *operations* are those that change or sync something. Power cuts are planned
//! by operation (cuts between two operations are equivalent), errors by request (reads fail, too).
//!
//! Invariant: a rejected request has no effect beyond the one of its verdict; once power is off it
//! stays off.
//!
//! Source: "How SQLite Is Tested", section 3 (failing each request in turn).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use siltstone_engine::{Error, Result};
use siltstone_structures::SplitMix64;

/// The kind of requests that an injected error affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// Reads of bytes, and `open`, `exists`, `list` and `subdirectories`.
    Read,
    /// `write_at`, `set_len`, `punch_hole`, `reserve`, and stores to a mapping.
    Write,
    /// `File::sync`, and the persists of a mapping.
    Sync,
    /// Creating, renaming, linking and removing files and directories.
    Names,
    /// `Vfs::sync_dir`, and the sync in `Vfs::subdirectory`.
    DirSync,
    /// Requests that need a file descriptor: creating, opening, locking and listing. Each of these
    /// is of another kind, too.
    Descriptors,
    /// All of these.
    Any,
}

impl FaultKind {
    fn hits(self, request: Request) -> bool {
        match self {
            FaultKind::Any => true,
            FaultKind::Descriptors => request.takes_descriptor,
            kind => kind == request.kind,
        }
    }
}

/// The error of planned faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultError {
    /// `EIO`: the device fails.
    Io,
    /// `ENOSPC`: the device is full.
    DiskFull,
    /// `EMFILE`: the process has reached its limit of open files.
    ProcessFiles,
    /// `ENFILE`: the system has reached its limit of open files.
    SystemFiles,
    /// `ENOMEM`: the system is out of memory.
    OutOfMemory,
    /// `EAGAIN`: try again.
    TryAgain,
}

impl FaultError {
    /// The operating system's code.
    fn code(self) -> i32 {
        match self {
            FaultError::Io => codes::IO,
            FaultError::DiskFull => codes::DISK_FULL,
            FaultError::ProcessFiles => codes::PROCESS_FILES,
            FaultError::SystemFiles => codes::SYSTEM_FILES,
            FaultError::OutOfMemory => codes::OUT_OF_MEMORY,
            FaultError::TryAgain => codes::TRY_AGAIN,
        }
    }
}

#[cfg(unix)]
mod codes {
    pub(super) const IO: i32 = libc::EIO;
    pub(super) const DISK_FULL: i32 = libc::ENOSPC;
    pub(super) const PROCESS_FILES: i32 = libc::EMFILE;
    pub(super) const SYSTEM_FILES: i32 = libc::ENFILE;
    pub(super) const OUT_OF_MEMORY: i32 = libc::ENOMEM;
    pub(super) const TRY_AGAIN: i32 = libc::EAGAIN;
}

/// Windows has one error for both kinds of too many files.
#[cfg(windows)]
mod codes {
    pub(super) const IO: i32 = 1117;
    pub(super) const DISK_FULL: i32 = 112;
    pub(super) const PROCESS_FILES: i32 = 4;
    pub(super) const SYSTEM_FILES: i32 = 4;
    pub(super) const OUT_OF_MEMORY: i32 = 14;
    pub(super) const TRY_AGAIN: i32 = 10035;
}

/// A request, as the plan sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// Neither `Any` nor `Descriptors`.
    pub(super) kind: FaultKind,
    pub(super) takes_descriptor: bool,
}

impl From<FaultKind> for Request {
    fn from(kind: FaultKind) -> Self {
        Request { kind, takes_descriptor: false }
    }
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Go,
    /// An I/O error.
    Fail(i32),
    /// Power is cut during the request.
    Cut,
    /// Power is off.
    Off,
}

impl Verdict {
    /// The error of a request that is not admitted.
    pub(super) fn or_fail(self, operation: &'static str, file: &str) -> Result<()> {
        match self {
            Verdict::Go => Ok(()),
            Verdict::Fail(code) => {
                Err(Error::io(operation, file, &io::Error::from_raw_os_error(code)))
            }
            Verdict::Cut | Verdict::Off => {
                Err(Error::io(operation, file, &io::Error::other("power is off")))
            }
        }
    }
}

pub(super) struct FaultPlan {
    pub(super) requests: u64,
    pub(super) operations: u64,
    pub(super) power_is_off: bool,
    pub(super) cut_at: Option<u64>,
    /// Requests so far, by kind; neither `Any` nor `Descriptors`.
    pub(super) requests_by_kind: BTreeMap<FaultKind, u64>,
    /// By request number.
    pub(super) fail_at: Vec<(u64, FaultKind)>,
    /// By number among the requests of the kind.
    pub(super) fail_nth: Vec<(FaultKind, u64)>,
    /// How many more requests of a kind fail.
    pub(super) fail_next: Vec<(FaultKind, u64)>,
    /// The error of planned faults.
    pub(super) error: FaultError,
    pub(super) error_rate: f64,
    pub(super) capacity_bytes: u64,
    pub(super) torn_on_full: bool,
    /// Runs inside a failed sync before it returns.
    pub(super) before_sync_error: Option<Arc<dyn Fn() + Send + Sync>>,
    pub(super) random: SplitMix64,
}

impl FaultPlan {
    pub(super) fn new(seed: u64) -> Self {
        FaultPlan {
            requests: 0,
            operations: 0,
            power_is_off: false,
            cut_at: None,
            requests_by_kind: BTreeMap::new(),
            fail_at: Vec::new(),
            fail_nth: Vec::new(),
            fail_next: Vec::new(),
            error: FaultError::Io,
            error_rate: 0.0,
            capacity_bytes: u64::MAX,
            torn_on_full: false,
            before_sync_error: None,
            random: SplitMix64::new(seed),
        }
    }

    /// Counts a request and decides its outcome.
    pub(super) fn admit(&mut self, request: impl Into<Request>) -> Verdict {
        let request = request.into();
        if self.power_is_off {
            return Verdict::Off;
        }
        let number = self.requests;
        self.requests += 1;
        let of_kind = self.requests_by_kind.entry(request.kind).or_default();
        let nth = (request.kind, *of_kind);
        *of_kind += 1;
        if request.kind != FaultKind::Read {
            let operation = self.operations;
            self.operations += 1;
            if self.cut_at == Some(operation) {
                self.power_is_off = true;
                return Verdict::Cut;
            }
        }
        // All are evaluated each time, so that one plan does not shift another.
        let named = self.fail_at.iter().any(|&(at, kind)| at == number && kind.hits(request));
        let named = named || self.fail_nth.contains(&nth);
        let next = self.use_up(request);
        let unlucky = self.error_rate > 0.0 && self.random.chance(self.error_rate);
        // Names are in a journal; random errors affect only data.
        let unlucky = unlucky && request.kind != FaultKind::Names;
        if named || next || unlucky { Verdict::Fail(self.error.code()) } else { Verdict::Go }
    }

    fn use_up(&mut self, request: Request) -> bool {
        let Some(at) = self.fail_next.iter().position(|&(kind, _)| kind.hits(request)) else {
            return false;
        };
        self.fail_next[at].1 -= 1;
        if self.fail_next[at].1 == 0 {
            self.fail_next.remove(at);
        }
        true
    }
}
