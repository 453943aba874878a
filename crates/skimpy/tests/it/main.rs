//! Tests of the engine beside the conformance kit, in one program: it links once, and its tests run
//! beside each other.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic and print")]

mod buffer_journal;
mod clears;
mod collection_pace;
mod copy_durability;
mod crash_during_open;
mod damaged_page_collection;
mod discarded_versions;
mod format_versions;
mod history;
mod hot_channels;
mod read_compaction_during_sweep;
mod repair;
mod write_buffer;
