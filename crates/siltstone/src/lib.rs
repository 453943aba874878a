//! A key-value store with several engines behind one interface.
//!
//! A [`Db`] is a directory: its lock, its catalogue, and its tables. A [`Table`] is a named keyspace
//! on one engine; today that is `lsm`, the ordered one.
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
//! # What is promised
//! * A write that returned under [`Durability::Synced`] survives a power cut; one that returned
//!   under [`Durability::Buffered`] (the default) survives the death of the process.
//! * A [`WriteBatch`] is applied whole or not at all.
//! * Damage on the medium is an [`Error::Corruption`] that names the file and the byte, never a
//!   wrong answer.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`db`] | the directory: lock, catalogue, tables |
//! | [`table`] | one keyspace: reads, writes, batches |
//! | [`iter`](mod@iter) | walking keys in order, forwards and backwards |
//! | [`snapshot`] | reading as of a moment |
//! | [`transaction`] | reading as of a moment and writing together, serializably |
//! | `read_only` | a table that is looked at and not changed |
//! | `reader` | who reads at which moment, and when the silent expire |
//! | [`copy`] | checkpoints into a directory |
//! | [`catalogue`] | the file that says which tables there are |
//! | [`engines`] | the engines by name |

pub mod catalogue;
pub mod copy;
pub mod db;
pub mod engines;
pub mod iter;
mod partial_directory;
mod read_only;
mod reader;
pub mod snapshot;
pub mod table;
pub mod transaction;

pub use db::{Db, DbOptions};
pub use iter::Iter;
pub use siltstone_engine::{
    Capabilities, Clock, Damage, Durability, Engine, Entry, Error, InvalidOption, KeyRange, Loss,
    LossEffect, MAX_KEY_BYTES, MAX_VALUE_BYTES, ManualClock, Op, RepairReport, Result, Stats,
    SystemClock, Timestamp, VerifyReport, WriteBatch, options,
};
pub use siltstone_runtime::Env;
pub use snapshot::Snapshot;
pub use table::Table;
pub use transaction::{Retry, Transaction, TransactionOptions};
