package siltstone

// #include "bridge.h"
import "C"

import (
	"time"
	"unsafe"
)

// A Batch is a list of writes that is applied in order, completely or not at all, by [Table.Write],
// [DB.Write] or [Transaction.Write].
type Batch struct{ *handle }

// NewBatch returns an empty batch.
func NewBatch() *Batch {
	return &Batch{newHandle(unsafe.Pointer(C.siltstone_batch_create()), "batch", false,
		func(batch unsafe.Pointer) { C.siltstone_batch_free((*C.siltstone_batch)(batch)) })}
}

func (b *Batch) c() *C.siltstone_batch { return (*C.siltstone_batch)(b.pointer) }

// use calls the C library while the batch is open.
func (b *Batch) use(call func() *C.siltstone_error) error {
	if err := b.acquire(); err != nil {
		return err
	}
	defer b.release()
	return check(call())
}

// Put adds the assignment of a value to a key.
func (b *Batch) Put(key, value []byte) error {
	return b.use(func() *C.siltstone_error {
		return C.siltstone_batch_put(b.c(), bytes(key), length(key), bytes(value), length(value))
	})
}

// PutUntil adds the assignment of a value that expires at a time.
func (b *Batch) PutUntil(key, value []byte, expiresAt time.Time) error {
	return b.use(func() *C.siltstone_error {
		return C.siltstone_batch_put_until(b.c(), bytes(key), length(key), bytes(value), length(value),
			milliseconds(expiresAt))
	})
}

// PutTTL adds the assignment of a value that expires after a time, counted from now.
func (b *Batch) PutTTL(key, value []byte, ttl time.Duration) error {
	return b.PutUntil(key, value, time.Now().Add(ttl))
}

// Delete adds the removal of a key. Removing a missing key is not an error.
func (b *Batch) Delete(key []byte) error {
	return b.use(func() *C.siltstone_error {
		return C.siltstone_batch_delete(b.c(), bytes(key), length(key))
	})
}

// DeleteRange adds the removal of every key from start to before end; nil is no bound. lsm only.
//
// Errors: [ErrInvalid] for a range that starts after its end.
func (b *Batch) DeleteRange(start, end []byte) error {
	return b.use(func() *C.siltstone_error {
		return C.siltstone_batch_delete_range(b.c(), bytes(start), length(start), bytes(end), length(end))
	})
}

// Merge adds the merge of an operand into a key, with the merge operator of the table. lsm only.
func (b *Batch) Merge(key, operand []byte) error {
	return b.use(func() *C.siltstone_error {
		return C.siltstone_batch_merge(b.c(), bytes(key), length(key), bytes(operand), length(operand))
	})
}

// Clear removes all operations and keeps the memory for later ones.
func (b *Batch) Clear() error {
	return b.use(func() *C.siltstone_error { return C.siltstone_batch_clear(b.c()) })
}

// Len returns the number of operations; 0 for a closed batch.
func (b *Batch) Len() int {
	count := 0
	_ = b.use(func() *C.siltstone_error {
		count = int(C.siltstone_batch_count(b.c()))
		return nil
	})
	return count
}

// Close frees the batch.
func (b *Batch) Close() { b.close() }

// milliseconds returns a time in milliseconds since 1970; 1 for earlier times, since 0 is "never".
func milliseconds(t time.Time) C.uint64_t {
	return C.uint64_t(max(t.UnixMilli(), 1))
}
