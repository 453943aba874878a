package siltstone

// #include "bridge.h"
import "C"

import "unsafe"

// A TableMove is a table on its way to another engine. It is safe for use by several goroutines:
// one copies, and others read the progress or cancel the move.
type TableMove struct{ *handle }

// MoveProgress says how far a move is.
type MoveProgress struct {
	// Rows were copied since the copy last began.
	Rows uint64
	// Changes are rows that were copied again because they were written meanwhile.
	Changes uint64
	// Restarts say how often the copy began again, after a removal of ranges or of all keys.
	Restarts uint64
}

// BeginMove begins to move a table to an engine with options, which may be nil, while it is in use.
// It may be its own engine, with other options. Nothing is copied yet. End the move with Finish, or
// with Close, which cancels it. Snapshots, the history of skimpy and change feeds do not move.
//
// Errors: [ErrInvalid] if there is no such table, or if it is moving already; [ErrInvalidOptions];
// [ErrUnsupported] for a table with a merge operator and an engine without merges; [ErrRefused] in
// a read-only store; [ErrIO].
func (db *DB) BeginMove(name, engine string, options map[string]string) (*TableMove, error) {
	list, err := textList(optionList(options), "options")
	if err != nil {
		return nil, err
	}
	var begun C.handle_result
	err = db.withNames([]string{name, engine}, func(names []*C.char) *C.siltstone_error {
		begun = C.move_begin(db.c(), names[0], names[1], C.size_t(len(options)), bytes(list))
		return begun.error
	})
	if err != nil {
		return nil, err
	}
	return &TableMove{newHandle(begun.handle, "move", true, func(moving unsafe.Pointer) {
		C.siltstone_move_free((*C.siltstone_move)(moving))
	})}, nil
}

func (m *TableMove) c() *C.siltstone_move { return (*C.siltstone_move)(m.pointer) }

// Copy copies all rows, then those that were written meanwhile, until few are left. Readers and
// writers go on. It returns false if the move was cancelled.
//
// Errors: [ErrRefused] for a value that the new engine does not take, or if it has no room; those
// of reads and writes. The table is as before.
func (m *TableMove) Copy() (bool, error) {
	if err := m.acquire(); err != nil {
		return false, err
	}
	defer m.release()
	copied := C.move_copy(m.c())
	return bool(copied.flag), check(copied.error)
}

// Progress returns how far the move is, also while another goroutine copies. It is zero after
// Close.
func (m *TableMove) Progress() MoveProgress {
	if m.acquire() != nil {
		return MoveProgress{}
	}
	defer m.release()
	return MoveProgress{
		Rows:     uint64(C.siltstone_move_rows(m.c())),
		Changes:  uint64(C.siltstone_move_changes(m.c())),
		Restarts: uint64(C.siltstone_move_restarts(m.c())),
	}
}

// Cancel cancels a move that is not finished: a Copy or Finish in progress ends after at most one
// more batch of rows, and the table stays as it is. Close the move afterwards.
func (m *TableMove) Cancel() {
	if m.acquire() == nil {
		defer m.release()
		C.siltstone_move_cancel(m.c())
	}
}

// Finish copies what is left, puts the copy in the place of the table, durably, and returns it.
// Writers wait for the last few rows. Calls of other objects of the table fail with [ErrClosed]
// from then on. A crash leaves the old table or the new one. The move is over in any case; after an
// error the table is as it was, or it has moved if only its old files could not be removed.
//
// Errors: those of Copy; [ErrInvalid] if the move was cancelled, or is finished; [ErrIO].
func (m *TableMove) Finish() (*Table, error) {
	if err := m.acquire(); err != nil {
		return nil, err
	}
	defer m.release()
	finished := C.move_finish(m.c())
	if err := check(finished.error); err != nil {
		return nil, err
	}
	return newTable(finished.handle), nil
}

// Close frees the object. A move that is not finished is cancelled: the table stays as it is.
func (m *TableMove) Close() {
	m.Cancel()
	m.close()
}
