package siltstone

// #include "bridge.h"
import "C"

import (
	"time"
	"unsafe"
)

// A Snapshot is a table as of the creation of the snapshot. While it lives, the versions that it
// shows stay on disk. One that is not used for Options.Idle expires.
type Snapshot struct{ reads }

// Snapshot returns a view of the table at this moment, unaffected by later writes.
//
// Errors: [ErrUnsupported] on the engines trie, silt and mica; [ErrClosed].
func (t *Table) Snapshot() (*Snapshot, error) {
	if err := t.acquire(); err != nil {
		return nil, err
	}
	defer t.release()
	created := C.snapshot_create(t.c())
	if err := check(created.error); err != nil {
		return nil, err
	}
	return newSnapshot(created.handle), nil
}

// SnapshotAt returns a view of the table at a time, with the writes of that millisecond. The engine
// skimpy only: it keeps history for the time that its option retention says.
//
// Errors: [ErrUnsupported]; [ErrBelowWatermark] if the history does not reach back so far;
// [ErrInvalid] for a time in the future; [ErrClosed].
func (t *Table) SnapshotAt(at time.Time) (*Snapshot, error) {
	if err := t.acquire(); err != nil {
		return nil, err
	}
	defer t.release()
	created := C.snapshot_create_at(t.c(), milliseconds(at))
	if err := check(created.error); err != nil {
		return nil, err
	}
	return newSnapshot(created.handle), nil
}

func newSnapshot(snapshot unsafe.Pointer) *Snapshot {
	return &Snapshot{reads{newHandle(snapshot, "snapshot", true, func(snapshot unsafe.Pointer) {
		C.siltstone_snapshot_free((*C.siltstone_snapshot)(snapshot))
	}), C.OF_SNAPSHOT}}
}

// Snapshots returns snapshots of several tables as of one moment, in the order of the tables. It
// waits for the writes in progress on these tables.
//
// Errors: [ErrUnsupported] unless all tables are on lsm; [ErrInvalid] for a table of another store,
// or one that is there twice; [ErrClosed].
func (db *DB) Snapshots(tables ...*Table) ([]*Snapshot, error) {
	created := make([]*C.siltstone_snapshot, len(tables))
	err := db.withTables(tables, func(tables []*C.siltstone_table) *C.siltstone_error {
		return C.siltstone_snapshot_create_all(db.c(), C.size_t(len(tables)),
			unsafe.SliceData(tables), unsafe.SliceData(created))
	})
	if err != nil {
		return nil, err
	}
	snapshots := make([]*Snapshot, len(tables))
	for i, snapshot := range created {
		snapshots[i] = newSnapshot(unsafe.Pointer(snapshot))
	}
	return snapshots, nil
}

// Sequence returns the sequence number up to which the snapshot shows writes: a change feed resumes
// after it. 0 for a closed snapshot.
func (s *Snapshot) Sequence() uint64 {
	if s.acquire() != nil {
		return 0
	}
	defer s.release()
	return uint64(C.siltstone_snapshot_sequence((*C.siltstone_snapshot)(s.pointer)))
}

// Close releases the snapshot. Its cursors can still be used.
func (s *Snapshot) Close() { s.close() }
