package siltstone

// #include "bridge.h"
import "C"

import "time"

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
}

// build returns the options for the C library, to be freed. nil: the defaults.
func (o *Options) build() *C.siltstone_options {
	if o == nil {
		return nil
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
	return options
}
