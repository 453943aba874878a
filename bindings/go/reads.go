package siltstone

// #include "bridge.h"
import "C"

import "unsafe"

// A Reader is what can be read: a [Table], a [Snapshot] of it, or a [Transaction] on it.
//
// Errors of all reads: [ErrTooLarge] for a key that is too long; [ErrCorruption]; [ErrIO];
// [ErrClosed]; and [ErrExpired] of snapshots and transactions.
type Reader interface {
	// Get returns the value of a key; nil if the key has no value.
	Get(key []byte) ([]byte, error)
	// Has reports whether a key has a value.
	Has(key []byte) (bool, error)
	// MultiGet returns the values of keys in their order; nil for each that has no value. On the
	// engine lsm all values are of one moment.
	MultiGet(keys ...[]byte) ([][]byte, error)
	// Cursor returns a cursor over all entries.
	Cursor() (*Cursor, error)
	// Range returns a cursor over the keys from start to before end; nil is no bound. Engines
	// without order have no bounds.
	Range(start, end []byte) (*Cursor, error)
	// Prefix returns a cursor over the keys that start with prefix. Engines with an order only.
	Prefix(prefix []byte) (*Cursor, error)
}

var (
	_ Reader = (*Table)(nil)
	_ Reader = (*Snapshot)(nil)
	_ Reader = (*Transaction)(nil)
)

// reads implements Reader for a handle of the type that reader names.
type reads struct {
	*handle
	reader C.reader
}

// Get returns the value of a key; nil if the key has no value. An empty value is not nil.
func (r reads) Get(key []byte) ([]byte, error) {
	if err := r.acquire(); err != nil {
		return nil, err
	}
	defer r.release()
	return take(C.read_get(r.reader, r.pointer, bytes(key), length(key)))
}

// Has reports whether a key has a value.
func (r reads) Has(key []byte) (bool, error) {
	if err := r.acquire(); err != nil {
		return false, err
	}
	defer r.release()
	found := C.read_contains(r.reader, r.pointer, bytes(key), length(key))
	return bool(found.flag), check(found.error)
}

// MultiGet returns the values of keys in their order; nil for each that has no value. On the engine
// lsm all values are of one moment.
func (r reads) MultiGet(keys ...[]byte) ([][]byte, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	if err := r.acquire(); err != nil {
		return nil, err
	}
	defer r.release()
	// One slice of all keys: an argument must not point to Go memory that points to Go memory.
	var text []byte
	keyLengths := make([]C.size_t, len(keys))
	for i, key := range keys {
		text = append(text, key...)
		keyLengths[i] = length(key)
	}
	found := make([]*C.char, len(keys))
	foundLengths := make([]C.size_t, len(keys))
	err := check(C.read_multi_get(r.reader, r.pointer, C.size_t(len(keys)), bytes(text),
		&keyLengths[0], &found[0], &foundLengths[0]))
	if err != nil {
		return nil, err
	}
	values := make([][]byte, len(keys))
	for i, value := range found {
		if value != nil {
			values[i] = clone(value, foundLengths[i])
		}
	}
	C.free_values(C.size_t(len(keys)), &found[0])
	return values, nil
}

// Cursor returns a cursor over all entries.
func (r reads) Cursor() (*Cursor, error) {
	return r.Range(nil, nil)
}

// Range returns a cursor over the keys from start to before end; nil is no bound. Engines without
// order have no bounds.
//
// Errors: [ErrInvalid] for a range that starts after its end; [ErrUnsupported].
func (r reads) Range(start, end []byte) (*Cursor, error) {
	if err := r.acquire(); err != nil {
		return nil, err
	}
	defer r.release()
	return newCursor(C.read_cursor(r.reader, r.pointer,
		bytes(start), length(start), bytes(end), length(end)))
}

// Prefix returns a cursor over the keys that start with prefix. Engines with an order only.
func (r reads) Prefix(prefix []byte) (*Cursor, error) {
	if err := r.acquire(); err != nil {
		return nil, err
	}
	defer r.release()
	return newCursor(C.read_cursor_prefix(r.reader, r.pointer, bytes(prefix), length(prefix)))
}

func newCursor(opened C.handle_result) (*Cursor, error) {
	if err := check(opened.error); err != nil {
		return nil, err
	}
	return &Cursor{handle: newHandle(opened.handle, "cursor", false, func(cursor unsafe.Pointer) {
		C.siltstone_cursor_free((*C.siltstone_cursor)(cursor))
	})}, nil
}
