package siltstone

// #include "bridge.h"
import "C"

import (
	"encoding/json"
	"time"
	"unsafe"
)

// A Table is a table of a store. Several can be open of one table: they have the same content and
// transactions.
//
// Writes are buffered: they survive a crash of the process, and a power cut once Sync, WriteSync,
// CommitSync or TransactSync has returned. Errors of all writes: [ErrTooLarge] and a full disk:
// nothing was written; [ErrReadOnly]; [ErrRefused] by a store that is open read-only; [ErrClosed].
// After another [ErrIO] the outcome is unknown until the store is reopened.
type Table struct{ reads }

func newTable(table unsafe.Pointer) *Table {
	return &Table{reads{newHandle(table, "table", true, func(table unsafe.Pointer) {
		C.siltstone_table_free((*C.siltstone_table)(table))
	}), C.OF_TABLE}}
}

func (t *Table) c() *C.siltstone_table { return (*C.siltstone_table)(t.pointer) }

// Put sets the value of a key. It waits while background work is behind.
func (t *Table) Put(key, value []byte) error {
	if err := t.acquire(); err != nil {
		return err
	}
	defer t.release()
	return check(C.siltstone_table_put(t.c(), bytes(key), length(key), bytes(value), length(value)))
}

// PutUntil sets the value of a key, which expires at a time.
func (t *Table) PutUntil(key, value []byte, expiresAt time.Time) error {
	if err := t.acquire(); err != nil {
		return err
	}
	defer t.release()
	return check(C.siltstone_table_put_until(t.c(), bytes(key), length(key),
		bytes(value), length(value), milliseconds(expiresAt)))
}

// PutTTL sets the value of a key, which expires after a time.
func (t *Table) PutTTL(key, value []byte, ttl time.Duration) error {
	return t.PutUntil(key, value, time.Now().Add(ttl))
}

// Delete removes a key. Removing a missing key is not an error.
func (t *Table) Delete(key []byte) error {
	if err := t.acquire(); err != nil {
		return err
	}
	defer t.release()
	return check(C.siltstone_table_delete(t.c(), bytes(key), length(key)))
}

// Write applies a batch atomically. The batch stays as it is, and can be changed and applied again.
func (t *Table) Write(batch *Batch) error { return t.write(batch, false) }

// WriteSync is Write, and the batch survives a power cut once it returns.
func (t *Table) WriteSync(batch *Batch) error { return t.write(batch, true) }

func (t *Table) write(batch *Batch, synced C.bool) error {
	if err := t.acquire(); err != nil {
		return err
	}
	defer t.release()
	return batch.use(func() *C.siltstone_error {
		return C.siltstone_table_write(t.c(), batch.c(), synced)
	})
}

// Clear removes every key, durably. Earlier snapshots still show the keys.
func (t *Table) Clear() error {
	if err := t.acquire(); err != nil {
		return err
	}
	defer t.release()
	return check(C.siltstone_table_clear(t.c()))
}

// Sync makes every write that has returned durable against a power cut.
//
// Errors: [ErrIO]: it is unknown which of these writes are durable, and the table is read-only from
// then on; [ErrReadOnly]; [ErrClosed].
func (t *Table) Sync() error {
	if err := t.acquire(); err != nil {
		return err
	}
	defer t.release()
	return check(C.siltstone_table_sync(t.c()))
}

// Flush writes buffered data to the engine's files, durably.
func (t *Table) Flush() error {
	if err := t.acquire(); err != nil {
		return err
	}
	defer t.release()
	return check(C.siltstone_table_flush(t.c()))
}

// Maintain runs background work (flushes, compactions) until none is due.
func (t *Table) Maintain() error {
	if err := t.acquire(); err != nil {
		return err
	}
	defer t.release()
	return check(C.siltstone_table_maintain(t.c()))
}

// Stats returns counters and sizes as a JSON object.
func (t *Table) Stats() (json.RawMessage, error) {
	if err := t.acquire(); err != nil {
		return nil, err
	}
	defer t.release()
	return takeText(C.table_stats(t.c()))
}

// Count counts the keys by a scan. The cost grows with their number.
func (t *Table) Count() (uint64, error) {
	if err := t.acquire(); err != nil {
		return 0, err
	}
	defer t.release()
	var count C.uint64_t
	err := check(C.siltstone_table_count(t.c(), &count))
	return uint64(count), err
}

// Close releases this Table. The table in the store stays as it is, and snapshots, transactions and
// cursors can still be used.
func (t *Table) Close() { t.close() }
