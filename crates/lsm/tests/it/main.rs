//! Tests of the engine beside the conformance kit, in one program: it links once, and its tests run
//! beside each other.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic and print")]

mod changes;
mod clear;
mod compact_range;
mod deferred_seeks;
mod hot_key_retention;
mod ingestion;
mod ingestion_recovery;
mod ingestion_threads;
mod key_only_iteration;
mod l0_capacity;
mod l0_filters;
mod live_options;
mod log_rotation;
mod merges;
mod multi_lookup;
mod novelsm;
mod pmem;
mod random_key;
mod range_deletes;
mod read_write;
mod repair;
mod shared_prefixes;
mod subcompactions;
mod value_prefetch;
