package siltstone

// #include "bridge.h"
import "C"

import "unsafe"

// A DBTransaction is a transaction over several tables of a store: all of them are read as of one
// moment, and the writes are applied to all tables or to none.
type DBTransaction struct {
	tables []*Table
	parts  []*Transaction
}

// Begin begins a transaction over several tables. End it with Commit, or with Close, which discards
// its writes.
//
// Errors: [ErrUnsupported] unless all tables are on lsm; [ErrInvalid] for a table of another store,
// or one that is there twice; [ErrClosed].
func (db *DB) Begin(tables ...*Table) (*DBTransaction, error) {
	begun := make([]*C.siltstone_transaction, len(tables))
	err := db.withTables(tables, func(tables []*C.siltstone_table) *C.siltstone_error {
		return C.siltstone_transaction_begin_all(db.c(), C.size_t(len(tables)),
			unsafe.SliceData(tables), unsafe.SliceData(begun))
	})
	if err != nil {
		return nil, err
	}
	tx := &DBTransaction{tables: append([]*Table{}, tables...)}
	for _, part := range begun {
		tx.parts = append(tx.parts, newTransaction(unsafe.Pointer(part)))
	}
	return tx, nil
}

// On returns the transaction on one of the tables, to read and write there; nil for a table that
// was not given to Begin. Neither commit nor close it.
func (tx *DBTransaction) On(table *Table) *Transaction {
	for i, of := range tx.tables {
		if of == table {
			return tx.parts[i]
		}
	}
	return nil
}

// Commit applies all writes to all tables, or none, and ends the transaction in any case. Errors
// are as of [Transaction.Commit].
func (tx *DBTransaction) Commit() error { return tx.commit(false) }

// CommitSync is Commit, and the writes survive a power cut once it returns.
func (tx *DBTransaction) CommitSync() error { return tx.commit(true) }

func (tx *DBTransaction) commit(synced C.bool) error {
	parts := make([]*C.siltstone_transaction, 0, len(tx.parts))
	for _, part := range tx.parts {
		if err := part.acquire(); err != nil {
			return err
		}
		defer part.release()
		parts = append(parts, part.c())
	}
	return check(C.siltstone_transaction_commit_all(C.size_t(len(parts)), unsafe.SliceData(parts), synced))
}

// Close frees the transaction, and discards its writes if it was not committed.
func (tx *DBTransaction) Close() {
	for _, part := range tx.parts {
		part.Close()
	}
}

// Transact runs work in a transaction over several tables and commits it; as [Table.Transact].
func (db *DB) Transact(work func(*DBTransaction) error, tables ...*Table) error {
	return db.transact(work, (*DBTransaction).Commit, tables)
}

// TransactSync is Transact, and the writes survive a power cut once it returns.
func (db *DB) TransactSync(work func(*DBTransaction) error, tables ...*Table) error {
	return db.transact(work, (*DBTransaction).CommitSync, tables)
}

func (db *DB) transact(work, commit func(*DBTransaction) error, tables []*Table) error {
	return retry(func() error {
		tx, err := db.Begin(tables...)
		if err != nil {
			return err
		}
		defer tx.Close()
		if err := work(tx); err != nil {
			return err
		}
		return commit(tx)
	})
}
