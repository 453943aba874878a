package siltstone

// #include "bridge.h"
import "C"

import "unsafe"

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
	return &Snapshot{reads{newHandle(created.handle, "snapshot", true, func(snapshot unsafe.Pointer) {
		C.siltstone_snapshot_free((*C.siltstone_snapshot)(snapshot))
	}), C.OF_SNAPSHOT}}, nil
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
