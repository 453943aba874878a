// Package siltstone is an embedded key-value store: a store is a directory of tables, and a table
// maps keys to values, both any bytes. It is bound to the C library libsiltstone by cgo; the README
// says how the library is found.
//
// # Reads
//
// A missing key is not an error: its value is nil. The value of a key that was set to no bytes is
// empty and not nil. Values, and the keys and values of a [Cursor], are copies that the caller
// owns. Keys and values that are passed to a function are copied before it returns.
//
// # Errors
//
// Errors of the store are of the type *[Error], and match the codes by errors.Is:
//
//	if errors.Is(err, siltstone.ErrConflict) {
//
// # Closing
//
// A [DB] must be closed. Objects of other types hold memory and versions of the store, which Close
// releases at once; the garbage collector releases those that nobody closes, at some time. Close
// can be called twice, and from another goroutine: it waits for calls in progress, and later calls
// fail with [ErrClosed]. So do calls with a table, snapshot or transaction of a store that was
// closed; its cursors may still show entries that are in memory.
//
// # Goroutines
//
// A [DB], [Table] or [Snapshot] can be used by any number of goroutines at the same time. A
// [Batch], [Transaction], [Cursor] or [Changes] belongs to one goroutine at a time: calls exclude one
// another, but two goroutines would mix their operations. A call occupies a thread until it returns. Do not
// use a store in a child process after a fork: open it there.
package siltstone

// #cgo LDFLAGS: -lsiltstone
// #include "bridge.h"
import "C"

// Version returns the version of the C library, e.g. "0.1.0".
func Version() string {
	return C.GoString(C.siltstone_version())
}
