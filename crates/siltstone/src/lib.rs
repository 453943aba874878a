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
//! # What is promised
//! # Guarantees
//! * A write that returned under [`Durability::Synced`] survives a power cut. One that returned
//!   under [`Durability::Buffered`] (the default) survives a process crash.
//! * A [`WriteBatch`] is applied atomically.
//! * Damage on the medium is reported as [`Error::Corruption`] with the file and the offset, never
//!   as a wrong answer.
//!
//! | module | contents |
//! | --- | --- |
//! | [`db`] | the directory: lock, catalogue, tables |
//! | [`table`] | one keyspace: reads, writes, batches |
//! | [`iter`](mod@iter) | ordered iteration in both directions |
//! | [`snapshot`] | reads at a point in time |
//! | [`transaction`] | serializable transactions |
//! | `read_only` | tables of a store that is open read-only |
//! | `reader` | live snapshots and transactions, and the expiry of idle ones |
//! | [`copy`] | checkpoints into a directory |
//! | [`catalogue`] | the file that lists the tables |
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
