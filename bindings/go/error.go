package siltstone

// #include "bridge.h"
import "C"

import (
	"fmt"
	"strings"
)

// A Code is a kind of error. The codes are errors themselves, so that errors.Is compares with them.
// Later versions may add codes.
type Code int32

const (
	// ErrCorruption: stored bytes are damaged. The message names the file and the offset.
	ErrCorruption Code = C.SILTSTONE_CODE_CORRUPTION
	// ErrIO: an I/O request failed. See also [Error.IsDiskFull].
	ErrIO Code = C.SILTSTONE_CODE_IO
	// ErrTooLarge: a key, value or batch is over its limit. Nothing has changed.
	ErrTooLarge Code = C.SILTSTONE_CODE_TOO_LARGE
	// ErrUnsupported: the engine of the table does not have this operation.
	ErrUnsupported Code = C.SILTSTONE_CODE_UNSUPPORTED
	// ErrBelowWatermark: the time is before the watermark of the table's history.
	ErrBelowWatermark Code = C.SILTSTONE_CODE_BELOW_WATERMARK
	// ErrInvalidOptions: the message lists every mistake. Nothing was opened.
	ErrInvalidOptions Code = C.SILTSTONE_CODE_INVALID_OPTIONS
	// ErrRefused: the directory is not a store, has a newer format, or is open read-only.
	ErrRefused Code = C.SILTSTONE_CODE_REFUSED
	// ErrLocked: the store is open already, in this process or in another one.
	ErrLocked Code = C.SILTSTONE_CODE_LOCKED
	// ErrReadOnly: an earlier error made the table read-only. Reopen the store.
	ErrReadOnly Code = C.SILTSTONE_CODE_READ_ONLY
	// ErrConflict: another writer changed what the transaction has read. Run it again.
	ErrConflict Code = C.SILTSTONE_CODE_CONFLICT
	// ErrExpired: the snapshot or transaction was idle for too long. Begin a new one.
	ErrExpired Code = C.SILTSTONE_CODE_EXPIRED
	// ErrClosed: the store or the object is closed.
	ErrClosed Code = C.SILTSTONE_CODE_CLOSED
	// ErrInvalid: an invalid argument. The message names it.
	ErrInvalid Code = C.SILTSTONE_CODE_INVALID
	// ErrInternal: a defect of the library. Please report it with the message; close the store.
	ErrInternal Code = C.SILTSTONE_CODE_INTERNAL
	// ErrChangesUnavailable: a change feed cannot resume there. The message has the oldest position
	// that is left.
	ErrChangesUnavailable Code = C.SILTSTONE_CODE_CHANGES_UNAVAILABLE
)

var codeNames = map[Code]string{
	ErrCorruption: "corruption", ErrIO: "I/O error", ErrTooLarge: "too large",
	ErrUnsupported: "unsupported", ErrBelowWatermark: "below the watermark",
	ErrInvalidOptions: "invalid options", ErrRefused: "refused", ErrLocked: "locked",
	ErrReadOnly: "read-only", ErrConflict: "conflict", ErrExpired: "expired", ErrClosed: "closed",
	ErrInvalid: "invalid argument", ErrInternal: "internal error",
	ErrChangesUnavailable: "changes unavailable",
}

// Error returns the name of the kind.
func (c Code) Error() string {
	if name, ok := codeNames[c]; ok {
		return "siltstone: " + name
	}
	return fmt.Sprintf("siltstone: error %d", int32(c))
}

// An Error is an error of the store.
type Error struct {
	// Code is the kind of the error.
	Code Code
	// Message says what happened, where, and what to do.
	Message string

	isRetryable, isDiskFull bool
}

// Error returns the message.
func (e *Error) Error() string { return "siltstone: " + e.Message }

// Unwrap returns the code, so that errors.Is and errors.As find it.
func (e *Error) Unwrap() error { return e.Code }

// IsRetryable reports whether a transaction that failed with this error may succeed if it is run
// again from its beginning.
func (e *Error) IsRetryable() bool { return e.isRetryable }

// IsDiskFull reports whether a write failed for lack of space. Nothing was written, and writes
// succeed again when there is space.
func (e *Error) IsDiskFull() bool { return e.isDiskFull }

// check converts and frees an error of the C library.
func check(failed *C.siltstone_error) error {
	if failed == nil {
		return nil
	}
	defer C.siltstone_error_free(failed)
	return &Error{
		Code:        Code(C.siltstone_error_code(failed)),
		Message:     C.GoString(C.siltstone_error_message(failed)),
		isRetryable: bool(C.siltstone_error_is_retryable(failed)),
		isDiskFull:  bool(C.siltstone_error_is_disk_full(failed)),
	}
}

// checkText refuses text that would be cut off at a NUL.
func checkText(text, name string) error {
	if strings.IndexByte(text, 0) < 0 {
		return nil
	}
	return &Error{Code: ErrInvalid, Message: fmt.Sprintf("the argument '%s' contains a NUL: %q", name, text)}
}
