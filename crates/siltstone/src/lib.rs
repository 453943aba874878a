//! An embedded key-value store with several storage engines behind one API.
//!
//! A [`Db`] is a directory with a lock, a catalogue and tables. A [`Table`] is a named keyspace on
//! one engine; `lsm`, an ordered LSM tree, is the default.
//!
//! ```
//! use siltstone::{Db, DbOptions};
//!
//! # let scratch = tempfile::tempdir().unwrap();
//! # let dir = scratch.path().join("fruit");
//! let db = Db::open_or_create(&dir, DbOptions::default())?;
//! let table = db.table_or_create("stock", "lsm", &Default::default())?;
//!
//! table.put(b"apples", b"3")?;
//! table.put(b"pears", b"5")?;
//! assert_eq!(table.get(b"apples")?.as_deref(), Some(&b"3"[..]));
//! table.delete(b"apples")?;
//! assert_eq!(table.get(b"apples")?, None);
//! db.close()?;
//! # Ok::<(), siltstone::Error>(())
//! ```
//!
//! Besides these calls there are batched reads ([`Table::multi_get`]), iteration over ranges,
//! prefixes and keys ([`Table::range`], [`Table::keys_prefix`]), a lending [`Cursor`], atomic
//! updates of one key ([`Table::compare_and_swap`], [`Table::fetch_and_update`]), merges that read
//! nothing ([`Table::merge`]), [`Snapshot`]s and
//! serializable transactions ([`Table::transact`]). The book's page "The library" shows them in the
//! order in which a program needs them; `examples/` has whole programs.
//!
//! # Guarantees
//! * A write that returned under [`Durability::Synced`] survives a power cut. One that returned
//!   under [`Durability::Buffered`] (the default) survives a process crash.
//! * A [`WriteBatch`] is applied atomically, and so is a [`DbBatch`] over several tables.
//! * Damage on disk is reported as [`Error::Corruption`] with the file and the offset, never as a
//!   wrong answer.
//!
//! # Features
//! All but the last two are on by default. A store that needs one that is missing is refused by an
//! error that names it, and stays as it is.
//!
//! | feature | contents |
//! | --- | --- |
//! | `lsm`, `trie`, `silt`, `mica`, `skimpy` | the engines |
//! | `lz4`, `zstd` | the compressions of `lsm` |
//! | `model` | the option `experimental.level_sizes=model` of `lsm` |
//! | `serde` | `Serialize` of statistics and reports |
//! | `suggestions` | suggestions in messages about unknown names |
//! | `encryption` | encryption at rest |
//! | `tracing` | events and spans for `tracing` |
//!
//! `default-features = false, features = ["lsm"]` is the smallest build with the default engine.
//!
//! | module | contents |
//! | --- | --- |
//! | [`db`] | the directory: lock, catalogue, tables |
//! | [`table`] | one keyspace: reads, writes, batches |
//! | [`batch`] | batches over several tables |
//! | [`iter`](mod@iter) | ordered iteration in both directions, over entries or keys |
//! | [`cursor`] | a cursor that lends keys and values |
//! | `read` | the reads of tables, snapshots and transactions |
//! | [`changes`] | the change feed of a table |
//! | [`snapshot`] | reads at a point in time |
//! | [`sorted_file`] | files to be ingested |
//! | [`db_reader`] | a reader process beside the writer |
//! | `pin` | opens the files of a store as of one moment |
//! | [`db_snapshot`] | snapshots of several tables |
//! | [`transaction`] | serializable transactions |
//! | [`db_transaction`] | transactions over several tables |
//! | `observed` | damage in tables, as events |
//! | `read_only` | tables of a store that is open read-only |
//! | `reader` | live snapshots and transactions, and the expiry of idle ones |
//! | `recorded` | records which keys are written while a table moves to another engine |
//! | [`copy`] | checkpoints into a directory |
//! | [`partial_directory`] | a directory that appears when it is complete |
//! | [`maintenance`] | verification and repair of a whole store |
//! | [`catalogue`] | the file that lists the tables |
//! | `trace` | events and spans for `tracing`, with the feature `tracing` |
//! | [`encryption`] | encryption at rest |
//! | [`engines`] | the engines by name |

#![warn(missing_debug_implementations)]

pub mod batch;
pub mod catalogue;
pub mod changes;
pub mod copy;
pub mod cursor;
pub mod db;
pub mod db_reader;
pub mod db_snapshot;
pub mod db_transaction;
pub mod encryption;
pub mod engines;
pub mod iter;
pub mod maintenance;
mod names;
mod observed;
pub mod partial_directory;
mod pin;
mod read;
mod read_only;
mod reader;
mod recorded;
pub mod snapshot;
#[cfg(feature = "lsm")]
pub mod sorted_file;
pub mod table;
mod trace;
pub mod transaction;

pub use batch::DbBatch;
pub use changes::Changes;
pub use cursor::{Cursor, EntryRef};
pub use db::position::{FeedPosition, StorePosition, TablePosition};
pub use db::{Db, DbOptions, MoveProgress, TableMove};
pub use db_reader::DbReader;
pub use db_snapshot::DbSnapshot;
pub use db_transaction::DbTransaction;
pub use iter::{Iter, Keys};
pub use names::{CLUSTER_ORIGIN, NODE_FILES};
pub use partial_directory::PartialDirectory;
pub use siltstone_engine::{
    BatchOp, Capabilities, Change, ChangeBatch, ChangeOptions, ChangePart, Clock, CompactionFilter,
    Damage, Durability, Engine, Entry, Error, Event, EventKind, EventListener, FileInfo,
    FilterContent, FilterDecision, FilterPass, FilterRow, IngestMode, IngestOptions, IngestReport,
    InvalidOption, Job, KeyRange, Loss, LossEffect, MAX_KEY_BYTES, MAX_VALUE_BYTES, ManualClock,
    MergeAppend, MergeCounter, MergeOperator, Op, OptionChange, PrefixChange, RepairReport, Result,
    Stats, SystemClock, Timestamp, VerifyReport, WriteBatch, WriteStall, compaction_filter, events,
    merge_operator, options,
};
pub use siltstone_runtime::Env;
pub use snapshot::Snapshot;
#[cfg(feature = "lsm")]
pub use sorted_file::{SortedFile, SortedFileWriter};
pub use table::{CasMismatch, Table};
#[cfg(feature = "tracing")]
pub use trace::TracingListener;
pub use transaction::{Retry, Transaction, TransactionOptions};
