package siltstone

// #include "bridge.h"
import "C"

import (
	"math"
	"time"
	"unsafe"
)

// ChangeOptions say where a feed begins, and what it shows.
type ChangeOptions struct {
	// Since is the sequence number after which the feed begins; 0: from the first change on. A
	// consumer stores the Sequence of the last change that it has applied, and resumes there.
	Since uint64
	// IncludeUnsynced shows changes before they are durable. A power cut may take changes that were
	// shown.
	IncludeUnsynced bool
}

// A ChangeKind says what a change does. Later versions may add kinds.
type ChangeKind int32

// The kinds of changes.
const (
	// ChangeWrite: the operations of one batch.
	ChangeWrite ChangeKind = C.SILTSTONE_CHANGE_KIND_WRITE
	// ChangeCleared: every key was removed.
	ChangeCleared ChangeKind = C.SILTSTONE_CHANGE_KIND_CLEARED
	// ChangeIngested: sorted files were ingested. Their content is not in the feed: read the table.
	ChangeIngested ChangeKind = C.SILTSTONE_CHANGE_KIND_INGESTED
)

// An OpKind is the kind of an operation. Later versions may add kinds.
type OpKind int32

// The kinds of operations.
const (
	// OpPut sets Key to Value.
	OpPut OpKind = C.SILTSTONE_OP_KIND_PUT
	// OpDelete removes Key.
	OpDelete OpKind = C.SILTSTONE_OP_KIND_DELETE
	// OpDeleteRange removes every key from Key to before Value; to the end if Value is nil.
	OpDeleteRange OpKind = C.SILTSTONE_OP_KIND_DELETE_RANGE
	// OpMerge merges the operand Value into the value of Key.
	OpMerge OpKind = C.SILTSTONE_OP_KIND_MERGE
)

// An Op is an operation of a change.
type Op struct {
	Kind OpKind
	// Key is the key, or the start of a range.
	Key []byte
	// Value is the value, the operand of a merge, or the end of a range; nil for a deletion.
	Value []byte
	// ExpiresAt is when a value expires. The zero time: never.
	ExpiresAt time.Time
}

// A Change is one committed change of a table.
type Change struct {
	Kind ChangeKind
	// Sequence is the sequence number of its last operation: a consumer that has applied the change
	// resumes after it.
	Sequence uint64
	// Part is the number of the batch over several tables of which the change is a part, the same in
	// the feeds of all of its tables; 0: none.
	Part uint64
	// Ops are the operations of a ChangeWrite, in order.
	Ops []Op
}

// Changes are the committed changes of a table, from one sequence number on. A feed keeps no log:
// the options log_retention and log_retention_time of the table say how much of it is kept.
type Changes struct{ *handle }

// Changes follows the changes of the table. A change is shown once it is durable, unless the options
// say otherwise. lsm only.
//
// Errors: [ErrChangesUnavailable] if the log does not reach back so far: copy the table from a
// snapshot, and resume after [Snapshot.Sequence]. [ErrUnsupported]; [ErrCorruption]; [ErrIO].
func (t *Table) Changes(options ChangeOptions) (*Changes, error) {
	if err := t.acquire(); err != nil {
		return nil, err
	}
	defer t.release()
	opened := C.table_changes(t.c(), C.uint64_t(options.Since), C.bool(options.IncludeUnsynced))
	if err := check(opened.error); err != nil {
		return nil, err
	}
	return &Changes{newHandle(opened.handle, "change feed", false, func(changes unsafe.Pointer) {
		C.siltstone_changes_free((*C.siltstone_changes)(changes))
	})}, nil
}

// waitSlice is the longest time for which a call waits in the C library: Close waits for it.
const waitSlice = 50 * time.Millisecond

// Next returns the next change, and waits up to a time for one; nil if none came. A later call may
// find one.
//
// Errors: as of [Table.Changes], and [ErrClosed], also if the feed is closed meanwhile. The position
// is the same then.
func (c *Changes) Next(timeout time.Duration) (*Change, error) {
	began := time.Now()
	for {
		left := max(timeout-time.Since(began), 0)
		change, err := c.next(min(left, waitSlice))
		if change != nil || err != nil || left == 0 {
			return change, err
		}
	}
}

func (c *Changes) next(timeout time.Duration) (*Change, error) {
	if err := c.acquire(); err != nil {
		return nil, err
	}
	defer c.release()
	// Part of a millisecond counts as one, so that the rest of a time is waited for.
	milliseconds := (timeout + time.Millisecond - 1) / time.Millisecond
	found := C.changes_next(c.c(), C.uint64_t(milliseconds))
	if err := check(found.error); err != nil || !found.flag {
		return nil, err
	}
	change := &Change{
		Kind:     ChangeKind(C.siltstone_changes_kind(c.c())),
		Sequence: uint64(C.siltstone_changes_sequence(c.c())),
		Part:     uint64(C.siltstone_changes_part(c.c())),
		Ops:      make([]Op, C.siltstone_changes_count(c.c())),
	}
	for i := range change.Ops {
		change.Ops[i] = newOp(C.changes_op(c.c(), C.size_t(i)))
	}
	return change, nil
}

func newOp(op C.siltstone_change_op) Op {
	copied := Op{Kind: OpKind(op.kind), Key: clone(op.key, op.key_len)}
	if op.value != nil {
		copied.Value = clone(op.value, op.value_len)
	}
	if op.expires_at != 0 {
		copied.ExpiresAt = time.UnixMilli(int64(min(uint64(op.expires_at), math.MaxInt64)))
	}
	return copied
}

// Position returns the sequence number of the last change that was returned, or the one after which
// the feed begins; 0 for a closed feed.
func (c *Changes) Position() uint64 {
	if c.acquire() != nil {
		return 0
	}
	defer c.release()
	return uint64(C.siltstone_changes_sequence(c.c()))
}

// AppendTo adds copies of the operations of the last change to a batch, e.g. to apply them to
// another table, which must have the same merge operator if there are merges.
//
// Errors: [ErrInvalid] if the last change has no operations, or Next has found none.
func (c *Changes) AppendTo(batch *Batch) error {
	if err := c.acquire(); err != nil {
		return err
	}
	defer c.release()
	return batch.use(func() *C.siltstone_error {
		return C.siltstone_changes_append_to(c.c(), batch.c())
	})
}

// Close releases the feed.
func (c *Changes) Close() { c.close() }

func (c *Changes) c() *C.siltstone_changes { return (*C.siltstone_changes)(c.pointer) }
