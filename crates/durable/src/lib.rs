//! The log-structured core that the engines `lsm`, `trie` and `silt` share.
//!
//! | module | content |
//! | --- | --- |
//! | [`core`](mod@core) | the state of an open table, and the trait that an engine implements |
//! | [`engine`] | an open table as an `Engine`, and the trait of what differs there |
//! | [`commit`] | the write path: group commit, log, memtable |
//! | `log_records` | the records of a group of writes |
//! | [`stall`] | throttling, memtable rotation, write stalls |
//! | `slowdown` | the events of throttling |
//! | [`flush`] | full memtables become files |
//! | [`jobs`] | queueing of background jobs, and their events |
//! | [`clear`](mod@clear) | removing all keys at once |
//! | [`view`] | what a read can see |
//! | `publication` | changes of the view and of the files that it names |
//! | [`version_edit`] | what the edits of all engines have in common, and their replay |
//! | [`version_set`] | the manifest and the current version: one edit at a time |
//! | `missing_files` | the errors of a table that lacks files |
//! | [`recovery`] | opening: logs, obsolete files |
//! | [`checkpoint`] | the files of one version and a manifest of their own |
//! | `part` | batches over several tables: part records, and what must be durable with them |
//! | `prepare` | parts of batches over several tables: prepare, append, undo, commit |
//! | [`part_survey`] | the parts in the log of a table that is not open, and their removal |
//! | [`offline`] | drivers of verification and inspection |
//! | [`repair`] | manifest, logs and damaged files of a table that does not open |
//!
//! An engine supplies the form of its log records, its memtable, its files and its background jobs.
//! It depends on this crate; engines never depend on each other.

pub mod checkpoint;
pub mod clear;
pub mod commit;
pub mod core;
pub mod engine;
pub mod flush;
mod group;
pub mod jobs;
mod log_records;
mod missing_files;
pub mod offline;
mod part;
pub mod part_survey;
mod prepare;
mod publication;
pub mod recovery;
pub mod repair;
mod slowdown;
pub mod stall;
pub mod version_edit;
pub mod version_set;
pub mod view;

pub use self::clear::Clear;
pub use self::core::{
    Core, CoreParts, EditOf, LogStructured, Memtable, State, StateOf, ViewOf, Writer,
};
pub use engine::{LogStructuredEngine, OpenTable};
pub use group::Group;
pub use jobs::{report_compaction, schedule_flush, spawn_job};
pub use log_records::LogRecords;
pub use missing_files::{missing_file, missing_manifest, reject_orphans};
pub use part_survey::{LoggedPart, PartSurvey};
pub use publication::{apply_edit, publish};
pub use version_edit::{EditHeader, VersionEdit, replay_edits};
pub use version_set::{RecoveredManifest, VersionSet, VersionState};
pub use view::View;
