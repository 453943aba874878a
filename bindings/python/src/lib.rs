//! Siltstone for Python: the extension module `siltstone._siltstone`.
//!
//! The package `siltstone` (in `python/`) re-exports it, registers its classes as mappings, and has
//! the type stubs, which say what each method does.
//!
//! Every call of the store runs detached from the interpreter, so that other threads run Python
//! meanwhile. Objects hold clones of the store's handles, so they can be freed in any order.
//! Objects that change in place (batches) or end (transactions, iterators) check that one thread at
//! a time uses them, or serialize their users.
//!
//! | module | contents |
//! | --- | --- |
//! | [`errors`] | exceptions by kind |
//! | [`bytes`] | keys, values and times as arguments |
//! | [`db`] | stores |
//! | [`table`] | tables |
//! | [`batch`] | write batches |
//! | [`snapshot`] | reads at a point in time |
//! | [`transaction`] | transactions and their retries |
//! | [`db_transaction`] | transactions over several tables |
//! | [`reader`] | readers beside the writing process |
//! | [`options`], [`merge_operator`], [`listener`] | what a store is opened with |
//! | [`reads`] | the reads that tables, snapshots and transactions have in common |
//! | [`iterate`] | iterators over entries, keys and values |
//! | [`changes`] | change feeds |
//! | [`sorted_file`] | bulk loading |
//! | [`table_move`] | moves of tables to other engines |
//! | [`context`] | context managers |
//! | [`detached`] | handles that are dropped without the interpreter |

mod batch;
mod bytes;
mod changes;
mod context;
mod db;
mod db_transaction;
mod detached;
mod errors;
mod iterate;
mod listener;
mod merge_operator;
mod options;
mod reader;
mod reads;
mod snapshot;
mod sorted_file;
mod table;
mod table_move;
mod transaction;

/// The store.
#[pyo3::pymodule]
mod _siltstone {
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::changes::{Change, Changes};
    #[pymodule_export]
    use crate::db::{Db, open, repair, verify};
    #[pymodule_export]
    use crate::db_transaction::DbTransaction;
    #[pymodule_export]
    use crate::errors::{
        BelowWatermarkError, ChangesUnavailableError, ClosedError, ConflictError, CorruptionError,
        Error, ExpiredError, InvalidError, IoError, LockedError, OptionsError, ReadOnlyError,
        RefusedError, TooLargeError, UnsupportedError,
    };
    #[pymodule_export]
    use crate::iterate::Entries;
    #[pymodule_export]
    use crate::listener::Event;
    #[pymodule_export]
    use crate::reader::{DbReader, open_reader};
    #[pymodule_export]
    use crate::snapshot::Snapshot;
    #[pymodule_export]
    use crate::sorted_file::SortedFile;
    #[pymodule_export]
    use crate::table::Table;
    #[pymodule_export]
    use crate::table_move::{MoveProgress, TableMove};
    #[pymodule_export]
    use crate::transaction::Transaction;
}
