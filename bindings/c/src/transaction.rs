//! Serializable transactions.
//!
//! A handle owns its transaction until the commit, also one of several that begin together, which
//! are put together again to be committed. Exception: the callback of [`siltstone_table_transact`]
//! gets a handle that borrows the transaction, which the store's retry loop owns.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use store::{Db, DbTransaction, Error, KeyRange, Retry, Transaction};

use crate::batch::SiltstoneBatch;
use crate::cursor::SiltstoneCursor;
use crate::db::{self, SiltstoneDb};
use crate::error::{SiltstoneError, guard, invalid, release, required};
use crate::memory::{Output, array, bytes, handle_output, handle_outputs, set_handle};
use crate::reads::{self, MultiGet, SiltstoneReadCallback};
use crate::table::{self, SiltstoneTable, durability};

/// A transaction on one table: reads show the table as of its beginning with its own writes, and
/// its writes are applied together if nothing that it has read has changed. One thread at a time
/// may use it.
#[derive(Debug)]
pub struct SiltstoneTransaction(State);

#[derive(Debug)]
enum State {
    Owned(Box<Transaction>),
    /// One of several, which are committed together.
    Joined(Box<Transaction>, Arc<Group>),
    /// During a call of the function that siltstone_table_transact() runs.
    Lent(NonNull<Transaction>),
    Ended,
}

/// The transactions that have begun together.
#[derive(Debug)]
struct Group {
    db: Db,
    count: usize,
}

impl SiltstoneTransaction {
    /// The transaction, if its table is open.
    fn get(&self) -> Result<&Transaction, Error> {
        let transaction = match &self.0 {
            State::Owned(transaction) | State::Joined(transaction, _) => transaction,
            // SAFETY: the handle exists only during the call that lends the transaction, and has
            // its only reference.
            State::Lent(transaction) => unsafe { transaction.as_ref() },
            State::Ended => return Err(ended()),
        };
        transaction.table().check_open()?;
        Ok(transaction)
    }

    fn get_mut(&mut self) -> Result<&mut Transaction, Error> {
        self.get()?;
        match &mut self.0 {
            State::Owned(transaction) | State::Joined(transaction, _) => Ok(transaction),
            // SAFETY: as in `get`.
            State::Lent(transaction) => Ok(unsafe { transaction.as_mut() }),
            State::Ended => Err(ended()),
        }
    }
}

fn ended() -> Error {
    invalid("the transaction has ended; begin a new one".to_owned())
}

fn inner(transaction: Option<&SiltstoneTransaction>) -> Result<&Transaction, Error> {
    required(transaction, "transaction")?.get()
}

fn inner_mut(transaction: Option<&mut SiltstoneTransaction>) -> Result<&mut Transaction, Error> {
    required(transaction, "transaction")?.get_mut()
}

/// Begins a transaction. End it with siltstone_transaction_commit(), and free it with
/// siltstone_transaction_free().
///
/// Errors: UNSUPPORTED on trie, silt and mica; CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_begin(
    table: Option<&SiltstoneTable>,
    transaction: Option<&mut MaybeUninit<*mut SiltstoneTransaction>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let transaction = handle_output(transaction, "transaction")?;
        let begun = Box::new(table::inner(table)?.transaction()?);
        set_handle(transaction, SiltstoneTransaction(State::Owned(begun)));
        Ok(())
    })
}

/// Applies all writes, or none; with `synced` they survive a power cut once this returns. The
/// transaction has ended in any case; the handle is still to be freed.
///
/// Errors: CONFLICT: what it has read has changed, and EXPIRED: nothing was applied, run it again
/// from its beginning. Others as of siltstone_table_put(). INVALID if it has ended already, or if
/// it is that of siltstone_table_transact() or one of siltstone_transaction_begin_all().
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_commit(
    transaction: Option<&mut SiltstoneTransaction>,
    synced: bool,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let transaction = required(transaction, "transaction")?;
        match std::mem::replace(&mut transaction.0, State::Ended) {
            State::Owned(owned) => owned.commit(durability(synced)),
            State::Ended => Err(ended()),
            other => {
                let committer = match other {
                    State::Joined(..) => "siltstone_transaction_commit_all()",
                    _ => "siltstone_table_transact()",
                };
                transaction.0 = other;
                Err(invalid(format!("{committer} commits this transaction")))
            }
        }
    })
}

/// Begins a transaction over `count` tables of a store: transactions[i] reads and writes tables[i].
/// All of them read as of one moment. End them with siltstone_transaction_commit_all(), and free
/// each with siltstone_transaction_free(), in any order; to free one without a commit discards all.
/// Different threads may use different ones. After an error all are NULL.
///
/// Errors: UNSUPPORTED unless all tables are on lsm; INVALID for a table of another store, or one
/// that is there twice; REFUSED by a store that is open read-only; CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_transaction_begin_all(
    db: Option<&SiltstoneDb>,
    count: usize,
    tables: *const Option<&SiltstoneTable>,
    transactions: *mut MaybeUninit<*mut SiltstoneTransaction>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes arrays of `count` elements.
        let (transactions, tables) = unsafe {
            (handle_outputs(transactions, count, "transactions")?, db::tables(tables, count)?)
        };
        let db = &required(db, "db")?.0;
        let group = Arc::new(Group { db: db.clone(), count });
        for part in db.transaction(&tables)?.into_parts() {
            let at = tables.iter().position(|table| table.name() == part.table().name());
            let at = at.ok_or_else(|| invalid("a part of no table".to_owned()))?;
            let state = State::Joined(Box::new(part), group.clone());
            set_handle(&mut transactions[at], SiltstoneTransaction(state));
        }
        Ok(())
    })
}

/// Commits all `count` transactions of a siltstone_transaction_begin_all(), in any order: applies
/// the writes to all tables, or none; with `synced` they survive a power cut once this returns. All
/// have ended then; the handles are still to be freed. No other thread may use one meanwhile.
///
/// Errors: as of siltstone_transaction_commit(). INVALID if the array has not exactly these
/// transactions: they stay as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_transaction_commit_all(
    count: usize,
    transactions: *const *mut SiltstoneTransaction,
    synced: bool,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes an array of `count` handles.
        let handles = unsafe { array(transactions, count, "transactions") }?;
        let mut group: Option<&Arc<Group>> = None;
        for (at, handle) in handles.iter().enumerate() {
            // SAFETY: the caller passes handles, or NULL, that nobody else uses.
            let handle_state = unsafe { handle.as_ref() };
            let State::Joined(_, of) = &required(handle_state, "transactions[]")?.0 else {
                return Err(not_together());
            };
            let is_other = group.is_some_and(|group| !Arc::ptr_eq(group, of));
            if is_other || of.count != count || handles[..at].contains(handle) {
                return Err(not_together());
            }
            group = Some(of);
        }
        let Some(group) = group.cloned() else { return Ok(()) };
        let mut parts = Vec::new();
        for handle in handles {
            // SAFETY: as above; each handle is there once, and no reference to it is left.
            let state = unsafe { &mut (**handle).0 };
            if let State::Joined(part, _) = std::mem::replace(state, State::Ended) {
                parts.push(*part);
            }
        }
        DbTransaction::of_parts(&group.db, parts).commit(durability(synced))
    })
}

fn not_together() -> Error {
    invalid(
        "'transactions' is not all transactions of one siltstone_transaction_begin_all(), each \
         once, or they have ended"
            .to_owned(),
    )
}

/// Frees a transaction. One that was not committed is discarded. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_free(transaction: Option<Box<SiltstoneTransaction>>) {
    release(transaction);
}

/// Reads and writes of a transaction. Returns whether to commit it. It must not free or keep the
/// transaction, and must not unwind or jump out. `arg` is the argument of
/// siltstone_table_transact().
pub type SiltstoneWork =
    Option<unsafe extern "C" fn(transaction: &mut SiltstoneTransaction, arg: *mut c_void) -> bool>;

/// Runs `work` in a transaction and commits it, again after a conflict, up to 16 times with growing
/// pauses. *is_committed is set to whether it was committed: it was not if `work` returned false.
///
/// Errors: CONFLICT of the last attempt; others as of siltstone_transaction_commit().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_transact(
    table: Option<&SiltstoneTable>,
    work: SiltstoneWork,
    arg: *mut c_void,
    synced: bool,
    is_committed: Option<&mut MaybeUninit<bool>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let is_committed = required(is_committed, "is_committed")?;
        is_committed.write(false);
        let work = required(work, "work")?;
        let run = |transaction: &mut Transaction| {
            let mut handle = SiltstoneTransaction(State::Lent(NonNull::from(transaction)));
            // SAFETY: the caller passes a function that takes this argument. It uses the handle
            // only during the call.
            let is_wanted = unsafe { work(&mut handle, arg) };
            if is_wanted { Ok(()) } else { Err(Failure::Aborted) }
        };
        let durability = durability(synced);
        match table::inner(table)?.try_transact_with(Retry::default(), durability, run) {
            Ok(()) => drop(is_committed.write(true)),
            Err(Failure::Aborted) => {}
            Err(Failure::Store(error)) => return Err(error),
        }
        Ok(())
    })
}

/// Why a transaction was not committed.
enum Failure {
    Aborted,
    Store(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(error)
    }
}

/// Sets the value of a key at the commit. Both are copied.
///
/// Errors of all writes of a transaction: TOO_LARGE; INVALID if the transaction has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_transaction_put(
    transaction: Option<&mut SiltstoneTransaction>,
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    value_len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let (key, value) =
            unsafe { (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?) };
        inner_mut(transaction)?.put(key, value)
    })
}

/// As siltstone_transaction_put(), for a value that expires at `expires_at`, in milliseconds since
/// 1970.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_transaction_put_until(
    transaction: Option<&mut SiltstoneTransaction>,
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    value_len: usize,
    expires_at: u64,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let (key, value) =
            unsafe { (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?) };
        inner_mut(transaction)?.put_until(key, value, expires_at)
    })
}

/// Removes a key at the commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_transaction_delete(
    transaction: Option<&mut SiltstoneTransaction>,
    key: *const c_char,
    key_len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let key = unsafe { bytes(key, key_len, "key") }?;
        inner_mut(transaction)?.delete(key)
    })
}

/// Adds all writes of a batch.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_write(
    transaction: Option<&mut SiltstoneTransaction>,
    batch: Option<&SiltstoneBatch>,
) -> Option<Box<SiltstoneError>> {
    guard(|| inner_mut(transaction)?.write(&required(batch, "batch")?.0))
}

/// As siltstone_table_get(), in a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_transaction_get(
    transaction: Option<&SiltstoneTransaction>,
    key: *const c_char,
    key_len: usize,
    value: Option<&mut MaybeUninit<*mut c_char>>,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let value = Output::bytes(value, value_len, "value")?;
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let key = unsafe { bytes(key, key_len, "key") }?;
        reads::get(inner(transaction)?, key, value)
    })
}

/// As siltstone_table_get_with(), in a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_transaction_get_with(
    transaction: Option<&SiltstoneTransaction>,
    key: *const c_char,
    key_len: usize,
    read: SiltstoneReadCallback,
    arg: *mut c_void,
    is_found: Option<&mut MaybeUninit<bool>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let is_found = reads::found_output(is_found)?;
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let key = unsafe { bytes(key, key_len, "key") }?;
        // SAFETY: the caller passes a function that takes this argument.
        unsafe { reads::get_with(inner(transaction)?, key, read, arg, is_found) }
    })
}

/// As siltstone_table_contains(), in a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_transaction_contains(
    transaction: Option<&SiltstoneTransaction>,
    key: *const c_char,
    key_len: usize,
    is_found: Option<&mut MaybeUninit<bool>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let is_found = reads::found_output(is_found)?;
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let key = unsafe { bytes(key, key_len, "key") }?;
        reads::contains(inner(transaction)?, key, is_found)
    })
}

/// As siltstone_table_multi_get(), in a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_transaction_multi_get(
    transaction: Option<&SiltstoneTransaction>,
    count: usize,
    keys: *const *const c_char,
    key_lens: *const usize,
    values: *mut *mut c_char,
    value_lens: *mut usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes arrays of `count` elements.
        let batch = unsafe { MultiGet::new(count, keys, key_lens, values, value_lens) }?;
        batch.read(inner(transaction)?)
    })
}

/// As siltstone_table_cursor(), in a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_transaction_cursor(
    transaction: Option<&SiltstoneTransaction>,
    start: *const c_char,
    start_len: usize,
    end: *const c_char,
    end_len: usize,
    cursor: Option<&mut MaybeUninit<*mut SiltstoneCursor>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let cursor = handle_output(cursor, "cursor")?;
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let range = unsafe { reads::range(start, start_len, end, end_len) }?;
        reads::cursor(inner(transaction)?, range, cursor)
    })
}

/// As siltstone_table_cursor_prefix(), in a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_transaction_cursor_prefix(
    transaction: Option<&SiltstoneTransaction>,
    prefix: *const c_char,
    prefix_len: usize,
    cursor: Option<&mut MaybeUninit<*mut SiltstoneCursor>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let cursor = handle_output(cursor, "cursor")?;
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let prefix = unsafe { bytes(prefix, prefix_len, "prefix") }?;
        reads::cursor(inner(transaction)?, KeyRange::prefix(prefix), cursor)
    })
}
