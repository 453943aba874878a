//! Tests of the store through its public interface, in one program: it links once, and its tests
//! run beside each other. Tests that change limits of their process, and those that documents name,
//! are programs of their own.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic and print")]

mod batch_power_cuts;
mod catalogue_faults;
mod change_feed;
mod changed_options;
mod checkpoint;
mod clear_conflicts;
mod compaction_filters;
mod crash_then_power_cut;
mod drop_table;
mod events;
mod everyday_calls;
mod expired_entries;
mod full_disk;
mod lean_build;
mod malformed_records;
mod merge_operators;
mod mixed_engines;
mod old_transactions;
mod open_errors;
mod over_tables;
mod range_deletions;
mod read_only;
mod reader_expiry;
mod reader_process;
mod rename_table;
mod serializability;
mod support;
mod table_move;
mod table_move_beside;
mod table_move_copy;
mod transaction_power_cuts;
mod transactions;
mod try_write;
mod unlisted_tables;
mod update_atomicity;
