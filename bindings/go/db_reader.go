package siltstone

// #include "bridge.h"
import "C"

import "unsafe"

// A DBReader is a store that another process may write at the same time, as of the last catch-up.
// It shows a prefix of the writes of each table, in whole batches, also those that are not
// durable yet.
type DBReader struct{ *handle }

// OpenReader opens the store in the directory path for reading, also while another process has it
// open for writing. Nothing is locked or written there. options may be nil; MaxOpenFiles is
// ignored: a reader keeps all files that it shows open, also those that the writer has removed.
//
// Errors: those of [Open] but [ErrLocked].
func OpenReader(path string, options *Options) (*DBReader, error) {
	opened, err := openWith(path, options, func(path *C.char, options *C.siltstone_options) C.handle_result {
		return C.reader_open(path, options)
	})
	if err != nil {
		return nil, err
	}
	return &DBReader{newHandle(opened, "reader", true, func(reader unsafe.Pointer) {
		C.siltstone_reader_free((*C.siltstone_reader)(reader))
	})}, nil
}

// CatchUp reads what the writer has written since, in all tables, and reports whether there is
// anything. Open tables stay as they are: open them again. Cost: reads the logs, up to the size of
// the memtables, and opens every file.
//
// Errors: those of [OpenReader]; the reader stays as it is.
func (r *DBReader) CatchUp() (bool, error) {
	if err := r.acquire(); err != nil {
		return false, err
	}
	defer r.release()
	caughtUp := C.reader_catch_up((*C.siltstone_reader)(r.pointer))
	return bool(caughtUp.flag), check(caughtUp.error)
}

// Table opens a table as of the last catch-up. It does not change; writes to it fail with
// [ErrRefused]. Close it after a catch-up: it keeps its files open.
//
// Errors: [ErrInvalid] if there is no such table; [ErrUnsupported] on mica and skimpy, with
// persistent memory (pmem.size) and with fast_dir.
func (r *DBReader) Table(name string) (*Table, error) {
	if err := checkText(name, "name"); err != nil {
		return nil, err
	}
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	if err := r.acquire(); err != nil {
		return nil, err
	}
	defer r.release()
	opened := C.reader_table((*C.siltstone_reader)(r.pointer), text)
	if err := check(opened.error); err != nil {
		return nil, err
	}
	return newTable(opened.handle), nil
}

// Close releases the reader. Its tables can still be used.
func (r *DBReader) Close() { r.close() }
