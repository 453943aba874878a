package siltstone

// #include "bridge.h"
import "C"

import (
	"encoding/hex"
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

// DeleteRange removes every key from start to before end, at a cost independent of their number;
// nil is no bound. Earlier snapshots still show the keys. lsm only.
//
// Errors: [ErrUnsupported]; [ErrInvalid] for a range that starts after its end.
func (t *Table) DeleteRange(start, end []byte) error {
	if err := t.acquire(); err != nil {
		return err
	}
	defer t.release()
	return check(C.siltstone_table_delete_range(t.c(), bytes(start), length(start),
		bytes(end), length(end)))
}

// MergeCounter is the merge operator that adds integers of 8 bytes, little-endian.
const MergeCounter = "siltstone.counter"

// MergeAppend returns the name of the merge operator that joins values with a separator.
func MergeAppend(separator []byte) string {
	return "siltstone.append:" + hex.EncodeToString(separator)
}

// SetMergeOperator sets the merge operator of the table, [MergeCounter] or one of [MergeAppend]. It
// is recorded, and set again when the table is opened. The table takes no values that expire then.
// lsm only.
//
// Errors: [ErrUnsupported]; [ErrInvalid] for an unknown operator, for another one than the recorded
// one, and for a table with values that expire.
func (t *Table) SetMergeOperator(name string) error {
	return t.withText([]string{name}, "name", func(_ C.size_t, text *C.char) error {
		return check(C.siltstone_table_set_merge_operator(t.c(), text))
	})
}

// Merge merges an operand into a key without reading its value. lsm only.
//
// Errors: [ErrUnsupported]; [ErrInvalid] without a merge operator, or if it refuses the operand.
func (t *Table) Merge(key, operand []byte) error {
	if err := t.acquire(); err != nil {
		return err
	}
	defer t.release()
	return check(C.siltstone_table_merge(t.c(), bytes(key), length(key),
		bytes(operand), length(operand)))
}

// CompareAndSwap sets the value of a key to value, or removes the key if that is nil, if its value
// is expected, or if it has none and expected is nil; atomically and buffered. The new value does
// not expire. It reports whether the value was the expected one.
//
// Errors: those of reads and writes.
func (t *Table) CompareAndSwap(key, expected, value []byte) (bool, error) {
	if err := t.acquire(); err != nil {
		return false, err
	}
	defer t.release()
	swapped := C.table_compare_and_swap(t.c(), bytes(key), length(key),
		C.bool(expected != nil), bytes(expected), length(expected),
		C.bool(value != nil), bytes(value), length(value))
	return bool(swapped.flag), check(swapped.error)
}

// PopFirst removes the entry with the smallest key, buffered, and returns its key and value; both
// are nil if the table is empty. Concurrent calls return different entries. lsm only.
//
// Errors: [ErrUnsupported]; those of reads and writes.
func (t *Table) PopFirst() (key, value []byte, err error) { return t.pop(false) }

// PopLast is PopFirst for the greatest key.
func (t *Table) PopLast() (key, value []byte, err error) { return t.pop(true) }

func (t *Table) pop(isLast C.bool) (key, value []byte, err error) {
	if err := t.acquire(); err != nil {
		return nil, nil, err
	}
	defer t.release()
	popped := C.table_pop(t.c(), isLast)
	defer C.siltstone_free(unsafe.Pointer(popped.key))
	defer C.siltstone_free(unsafe.Pointer(popped.value))
	if err := check(popped.error); err != nil || popped.key == nil {
		return nil, nil, err
	}
	return clone(popped.key, popped.key_len), clone(popped.value, popped.value_len), nil
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

// TryWrite is Write, unless the write would have to wait: for background work, for another
// writer, or beside open transactions. Then it reports false, and nothing was written: call Write
// where waiting is allowed. lsm, trie and silt; on the other engines always false.
func (t *Table) TryWrite(batch *Batch) (bool, error) {
	if err := t.acquire(); err != nil {
		return false, err
	}
	defer t.release()
	var written C.result
	err := batch.use(func() *C.siltstone_error {
		written = C.table_try_write(t.c(), batch.c())
		return written.error
	})
	return bool(written.flag), err
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

// CompactRange compacts the keys from start to before end down to their deepest level, beside other
// work; nil is no bound. lsm only.
//
// Errors: [ErrUnsupported]; [ErrInvalid] for a range that starts after its end; [ErrIO].
func (t *Table) CompactRange(start, end []byte) error {
	if err := t.acquire(); err != nil {
		return err
	}
	defer t.release()
	return check(C.siltstone_table_compact_range(t.c(), bytes(start), length(start),
		bytes(end), length(end)))
}

// SetOptions changes options of the table, durably, and returns the names of those that take effect
// when the table is opened next.
//
// Errors: [ErrInvalidOptions] with every mistake, among them options that never change;
// [ErrRefused]; [ErrIO]. Nothing has changed then.
func (t *Table) SetOptions(options map[string]string) ([]string, error) {
	var later []string
	err := t.withText(optionList(options), "options", func(count C.size_t, text *C.char) error {
		names, err := takeText(C.table_set_options(t.c(), count, text))
		if err != nil {
			return err
		}
		return json.Unmarshal(names, &later)
	})
	return later, err
}

// withText calls the C library with a list of texts.
func (t *Table) withText(list []string, name string, call func(C.size_t, *C.char) error) error {
	text, err := textList(list, name)
	if err != nil {
		return err
	}
	if err := t.acquire(); err != nil {
		return err
	}
	defer t.release()
	return call(C.size_t(len(list)), bytes(text))
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

// ApproximateLen estimates the number of keys without reading any. Entries that were overwritten or
// deleted count until compaction has removed them; exact on mica.
//
// Errors: [ErrUnsupported] on skimpy.
func (t *Table) ApproximateLen() (uint64, error) {
	if err := t.acquire(); err != nil {
		return 0, err
	}
	defer t.release()
	var count C.uint64_t
	err := check(C.siltstone_table_approximate_len(t.c(), &count))
	return uint64(count), err
}

// Close releases this Table. The table in the store stays as it is, and snapshots, transactions and
// cursors can still be used.
func (t *Table) Close() { t.close() }
