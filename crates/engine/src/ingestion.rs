//! Ingestion: sorted files that were written outside of a table become a part of it.
//!
//! ```text
//!   sorted files ── prepare: link or copy, check ──▶ commit: one write, durable ──▶ report
//! ```
//!
//! All entries of all files become visible at once, like one batch: a reader sees all of them or
//! none, and every write comes before or after them. They replace older entries of the same keys.
//!
//! Invariant: an ingestion that has returned survives a power cut, and one that failed or was
//! interrupted is wholly there or absent.

use std::path::PathBuf;

#[cfg(feature = "serde")]
use serde::Serialize;

use crate::Result;

/// What happens to the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum IngestMode {
    /// They are copied.
    #[default]
    Copy,
    /// They are linked into the table, where the file system can, and copied otherwise. They must
    /// not be changed afterwards.
    Link,
    /// As `Link`, and removed from their place once the ingestion is durable.
    Move,
}

/// Another prefix for the keys of files.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct PrefixChange {
    /// The prefix of every key in the files.
    pub from: Vec<u8>,
    /// The prefix that takes its place.
    pub to: Vec<u8>,
}

/// How files are ingested.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct IngestOptions {
    /// What happens to the files.
    pub mode: IngestMode,
    /// Whether every byte is read and checked first. Without it the end of each file and its index
    /// and filters are checked, and damage elsewhere is found when it is read.
    pub verify: bool,
    /// Gives the keys another prefix, e.g. because the part of a keyspace that takes them is chosen
    /// at the ingestion. The files are rewritten then, not linked or copied.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub prefix: Option<PrefixChange>,
}

impl Default for IngestOptions {
    fn default() -> Self {
        IngestOptions { mode: IngestMode::Copy, verify: true, prefix: None }
    }
}

/// The result of an ingestion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct IngestReport {
    /// The sequence number of all entries.
    pub sequence: u64,
    /// Entries, deletions among them.
    pub entries: u64,
    /// The length of the files.
    pub bytes: u64,
    /// The bytes that were copied; the others were linked.
    pub copied_bytes: u64,
    /// The level of each file, in the order in which they were given.
    pub levels: Vec<usize>,
    /// Files that were to be moved and could not be removed from their place.
    pub not_removed: Vec<PathBuf>,
}

/// Files that are ready to be ingested.
pub trait PreparedIngestion {
    /// The first and the last key of each file.
    fn ranges(&self) -> Vec<(Vec<u8>, Vec<u8>)>;

    /// Ingests the files, durably.
    ///
    /// # Errors
    /// `Invalid` if the table takes no such entries, `ReadOnly`, `Closed`; errors of the flush of
    /// what is in memory. Nothing has changed then. After any other `Io` error the outcome is
    /// unknown until the engine is reopened.
    fn commit(self: Box<Self>) -> Result<IngestReport>;
}
