package siltstone

// #include "bridge.h"
import "C"

import (
	"runtime/cgo"
	"time"
	"unsafe"
)

// Options of opening a store. The zero value of each field is the default.
type Options struct {
	// ReadOnly opens the store read-only: nothing in its directory changes, writes fail, and other
	// processes may read it at the same time, but none may write it.
	ReadOnly bool
	// DirectReads makes reads bypass the page cache, so that memory holds only the engines' own
	// caches.
	DirectReads bool
	// Threads for background work, 1 to 256, besides one for flushes. Default: one per core, up to
	// 4.
	Threads int
	// MaxOpenFiles is the maximum number of files that the store has open. Default: 256.
	MaxOpenFiles int
	// CacheBytes is the size of one block cache for all tables. Default: one cache per table.
	CacheBytes uint64
	// Idle is the time after which an idle snapshot or transaction expires, in whole milliseconds.
	// Negative: never. Default: 5 minutes.
	Idle time.Duration
	// TransactionMemoryBytes is the memory per table for the keys that are written while
	// transactions are open. Default: 32 MiB.
	TransactionMemoryBytes int
	// Keys of an encrypted store, each of 32 bytes from a secure random number generator. The first
	// one encrypts a new store and new files; the others are those of existing files, after the key
	// was replaced. Default: the store is not encrypted.
	Keys [][]byte
	// MergeOperators by the name of their table, which must be on lsm. They are needed at each open.
	// An operator may be a [PartialMerger].
	MergeOperators map[string]MergeOperator
	// Listener gets the events of all tables: flushes, compactions, write stalls, failures and
	// damage, one after the other. It may use the store, but must not close it or panic. [DB.Close]
	// waits until it has got all of them.
	Listener func(Event)
}

// build returns the options for the C library, to be freed. nil: the defaults.
//
// Errors: [ErrInvalid] for a key of another length, and for an operator with a reserved name.
func (o *Options) build() (*C.siltstone_options, error) {
	if o == nil {
		return nil, nil
	}
	options := C.siltstone_options_create()
	C.siltstone_options_set_read_only(options, C.bool(o.ReadOnly))
	C.siltstone_options_set_direct_reads(options, C.bool(o.DirectReads))
	if o.Threads > 0 {
		C.siltstone_options_set_threads(options, C.size_t(o.Threads))
	}
	if o.MaxOpenFiles > 0 {
		C.siltstone_options_set_max_open_files(options, C.size_t(o.MaxOpenFiles))
	}
	C.siltstone_options_set_cache_bytes(options, C.uint64_t(o.CacheBytes))
	switch {
	case o.Idle < 0:
		C.siltstone_options_set_idle_ms(options, 0)
	case o.Idle > 0:
		C.siltstone_options_set_idle_ms(options, C.uint64_t(max(o.Idle.Milliseconds(), 1)))
	}
	if o.TransactionMemoryBytes > 0 {
		C.siltstone_options_set_transaction_memory_bytes(options, C.size_t(o.TransactionMemoryBytes))
	}
	if err := o.addObjects(options); err != nil {
		C.siltstone_options_free(options)
		return nil, err
	}
	return options, nil
}

// addObjects adds keys, merge operators and the listener.
func (o *Options) addObjects(options *C.siltstone_options) error {
	for _, key := range o.Keys {
		if err := check(C.siltstone_options_add_key(options, bytes(key), length(key))); err != nil {
			return err
		}
	}
	for table, operator := range o.MergeOperators {
		names := [2]string{table, operator.Name()}
		var texts [2]*C.char
		for i, name := range names {
			if err := checkText(name, "MergeOperators"); err != nil {
				return err
			}
			texts[i] = C.CString(name)
			defer C.free(unsafe.Pointer(texts[i]))
		}
		_, isPartial := operator.(PartialMerger)
		// Also after an error the library lets go of the handle.
		err := check(C.options_add_merge_operator(options, texts[0], texts[1], C.bool(isPartial),
			C.uintptr_t(cgo.NewHandle(operator))))
		if err != nil {
			return err
		}
	}
	if o.Listener == nil {
		return nil
	}
	return check(C.options_add_listener(options, C.uintptr_t(cgo.NewHandle(o.Listener))))
}
