package siltstone

// #include "bridge.h"
import "C"

import (
	"errors"
	"math/rand/v2"
	"time"
	"unsafe"
)

// A Transaction on one table: reads show the table as of its beginning with its own writes, and its
// writes are applied together if nothing that it has read has changed. One that is not used for
// Options.Idle expires.
//
// Errors of its writes: [ErrTooLarge]; [ErrInvalid] if the transaction was committed; [ErrClosed].
type Transaction struct{ reads }

// Begin begins a transaction. End it with Commit, or with Close, which discards its writes.
//
// Errors: [ErrUnsupported] on the engines trie, silt and mica; [ErrClosed].
func (t *Table) Begin() (*Transaction, error) {
	if err := t.acquire(); err != nil {
		return nil, err
	}
	defer t.release()
	begun := C.transaction_begin(t.c())
	if err := check(begun.error); err != nil {
		return nil, err
	}
	return newTransaction(begun.handle), nil
}

func newTransaction(transaction unsafe.Pointer) *Transaction {
	return &Transaction{reads{newHandle(transaction, "transaction", false, func(tx unsafe.Pointer) {
		C.siltstone_transaction_free((*C.siltstone_transaction)(tx))
	}), C.OF_TRANSACTION}}
}

func (tx *Transaction) c() *C.siltstone_transaction { return (*C.siltstone_transaction)(tx.pointer) }

// Put sets the value of a key at the commit.
func (tx *Transaction) Put(key, value []byte) error {
	if err := tx.acquire(); err != nil {
		return err
	}
	defer tx.release()
	return check(C.siltstone_transaction_put(tx.c(), bytes(key), length(key),
		bytes(value), length(value)))
}

// PutUntil sets the value of a key at the commit. The value expires at a time.
func (tx *Transaction) PutUntil(key, value []byte, expiresAt time.Time) error {
	if err := tx.acquire(); err != nil {
		return err
	}
	defer tx.release()
	return check(C.siltstone_transaction_put_until(tx.c(), bytes(key), length(key),
		bytes(value), length(value), milliseconds(expiresAt)))
}

// PutTTL sets the value of a key at the commit. The value expires after a time, counted from now.
func (tx *Transaction) PutTTL(key, value []byte, ttl time.Duration) error {
	return tx.PutUntil(key, value, time.Now().Add(ttl))
}

// Delete removes a key at the commit.
func (tx *Transaction) Delete(key []byte) error {
	if err := tx.acquire(); err != nil {
		return err
	}
	defer tx.release()
	return check(C.siltstone_transaction_delete(tx.c(), bytes(key), length(key)))
}

// Write adds all writes of a batch.
func (tx *Transaction) Write(batch *Batch) error {
	if err := tx.acquire(); err != nil {
		return err
	}
	defer tx.release()
	return batch.use(func() *C.siltstone_error {
		return C.siltstone_transaction_write(tx.c(), batch.c())
	})
}

// Commit applies all writes, or none, and ends the transaction in any case.
//
// Errors: [ErrConflict]: what it has read has changed, and [ErrExpired]: nothing was applied, run
// it again from its beginning. [ErrInvalid] if it has ended already. Others as of the writes of
// [Table].
func (tx *Transaction) Commit() error { return tx.commit(false) }

// CommitSync is Commit, and the writes survive a power cut once it returns.
func (tx *Transaction) CommitSync() error { return tx.commit(true) }

func (tx *Transaction) commit(synced C.bool) error {
	if err := tx.acquire(); err != nil {
		return err
	}
	defer tx.release()
	return check(C.siltstone_transaction_commit(tx.c(), synced))
}

// Close frees the transaction, and discards its writes if it was not committed.
func (tx *Transaction) Close() { tx.close() }

const (
	maxTries   = 16
	firstPause = 100 * time.Microsecond
	maxPause   = 10 * time.Millisecond
)

// Transact runs work in a transaction and commits it. If work returns an error, the writes are
// discarded and the error is returned. After a conflict work runs again from its beginning, up to
// 16 times with growing pauses; so it does if it returns an error that wraps one that is retryable.
// work must neither commit nor keep the transaction.
//
// Errors: [ErrConflict] of the last try; others as of [Transaction.Commit].
func (t *Table) Transact(work func(*Transaction) error) error {
	return t.transact(work, (*Transaction).Commit)
}

// TransactSync is Transact, and the writes survive a power cut once it returns.
func (t *Table) TransactSync(work func(*Transaction) error) error {
	return t.transact(work, (*Transaction).CommitSync)
}

func (t *Table) transact(work, commit func(*Transaction) error) error {
	return retry(func() error {
		tx, err := t.Begin()
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

// retry runs try again after errors that are retryable.
func retry(try func() error) error {
	limit := firstPause
	for tries := 1; ; tries++ {
		err := try()
		var failed *Error
		if err == nil || tries == maxTries || !errors.As(err, &failed) || !failed.IsRetryable() {
			return err
		}
		time.Sleep(rand.N(limit))
		limit = min(2*limit, maxPause)
	}
}
