//! The C interface of Siltstone: `libsiltstone` and `include/siltstone.h`.
//!
//! The header is generated from these files by cbindgen; `tests/header.rs` keeps it up to date. It
//! states the rules for callers: ownership, threads, errors. Here they are types:
//!
//! | C | Rust | who frees it |
//! | --- | --- | --- |
//! | `const siltstone_table *` | `Option<&Table>` | the caller keeps it |
//! | `siltstone_table *` passed to `_free` | `Option<Box<Table>>` | this library |
//! | `siltstone_table **` | `Option<&mut MaybeUninit<*mut Table>>` | the caller, later |
//! | `const char *`, `size_t` | a slice, by [`memory::bytes`] | the caller |
//! | `char **`, `size_t *` | memory allocated with `malloc`, by [`memory::Output`] | the caller, `siltstone_free` |
//!
//! Every function that can fail runs in [`error::guard`], which turns errors and panics into an
//! error object.
//!
//! | module | contents |
//! | --- | --- |
//! | [`error`] | error objects, codes, and the boundary for panics |
//! | [`memory`] | byte strings and handles between C and Rust |
//! | [`options`] | options of opening a store |
//! | [`callback`] | arguments of callbacks that outlive a call |
//! | [`merge_operator`], [`listener`] | merge operators and listeners of the program |
//! | [`db`] | stores: open, close, tables, checkpoint, verification, repair |
//! | [`table`] | tables: reads, writes, statistics |
//! | [`table_move`] | moves of tables to other engines |
//! | [`batch`] | write batches |
//! | [`changes`] | change feeds |
//! | [`sorted_file`] | bulk loading |
//! | [`cursor`] | ordered iteration |
//! | [`snapshot`] | reads at a point in time |
//! | [`transaction`] | serializable transactions |
//! | [`reader`] | a reader beside the process that writes the store |
//! | [`reads`] | the reads that tables, snapshots and transactions have in common |

// The header states the contract of every pointer once; each function adds who owns what.
#![allow(clippy::missing_safety_doc)]

pub mod batch;
pub mod callback;
pub mod changes;
pub mod cursor;
pub mod db;
pub mod error;
pub mod listener;
pub mod maintenance;
pub mod memory;
pub mod merge_operator;
pub mod options;
pub mod reader;
pub mod reads;
pub mod snapshot;
pub mod sorted_file;
pub mod table;
pub mod table_move;
pub mod transaction;
