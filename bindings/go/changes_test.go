package siltstone

import (
	"errors"
	"sync"
	"testing"
	"time"
)

// newRetainingTable opens a table that keeps its log.
func newRetainingTable(t *testing.T) *Table {
	table, err := newDB(t).TableOrCreate("t", "lsm", map[string]string{"log_retention": "64MiB"})
	ok(t, err)
	t.Cleanup(table.Close)
	return table
}

func TestChanges_ShowEveryOperation(t *testing.T) {
	table := newRetainingTable(t)
	ok(t, table.SetMergeOperator(MergeAppend([]byte(","))))
	batch := NewBatch()
	defer batch.Close()
	ok(t, batch.Put([]byte("a"), nil))
	ok(t, batch.Delete([]byte("b")))
	ok(t, batch.DeleteRange([]byte("c"), []byte("d")))
	ok(t, batch.DeleteRange([]byte("x"), nil))
	ok(t, batch.Merge([]byte("e"), []byte("1")))
	ok(t, table.WriteSync(batch))
	ok(t, table.Clear())

	changes, err := table.Changes(ChangeOptions{})
	ok(t, err)
	defer changes.Close()
	change, err := changes.Next(time.Minute)
	ok(t, err)
	equal(t, change.Kind, ChangeWrite)
	equal(t, change.Sequence, 5)
	equal(t, change.Part, 0)
	equal(t, len(change.Ops), 5)
	kinds := []OpKind{OpPut, OpDelete, OpDeleteRange, OpDeleteRange, OpMerge}
	for i, want := range []string{"a=", "b", "c=d", "x", "e=1"} {
		op := change.Ops[i]
		equal(t, op.Kind, kinds[i])
		equal(t, op.ExpiresAt.IsZero(), true)
		text := string(op.Key)
		if op.Value != nil {
			text += "=" + string(op.Value)
		}
		equal(t, text, want)
	}
	equal(t, changes.Position(), change.Sequence)
	copied := NewBatch()
	defer copied.Close()
	ok(t, changes.AppendTo(copied))
	equal(t, copied.Len(), 5)

	cleared, err := changes.Next(time.Minute)
	ok(t, err)
	equal(t, cleared.Kind, ChangeCleared)
	equal(t, len(cleared.Ops), 0)
	fails(t, changes.AppendTo(copied), ErrInvalid)
	none, err := changes.Next(0)
	ok(t, err)
	equal(t, none == nil, true)
}

func TestChanges_ResumeAndWaitForDurability(t *testing.T) {
	table := newRetainingTable(t)
	ok(t, table.PutUntil([]byte("a"), []byte("1"), time.UnixMilli(1<<42)))
	ok(t, table.Put([]byte("b"), []byte("2")))
	durable, err := table.Changes(ChangeOptions{})
	ok(t, err)
	defer durable.Close()
	none, err := durable.Next(0)
	ok(t, err)
	equal(t, none == nil, true)
	all, err := table.Changes(ChangeOptions{IncludeUnsynced: true})
	ok(t, err)
	defer all.Close()
	first, err := all.Next(time.Minute)
	ok(t, err)
	equal(t, first.Ops[0].ExpiresAt.UnixMilli(), int64(1<<42))
	ok(t, table.Sync())
	resumed, err := table.Changes(ChangeOptions{Since: first.Sequence})
	ok(t, err)
	defer resumed.Close()
	second, err := resumed.Next(time.Minute)
	ok(t, err)
	equal(t, string(second.Ops[0].Key), "b")
	snapshot, err := table.Snapshot()
	ok(t, err)
	defer snapshot.Close()
	equal(t, snapshot.Sequence(), second.Sequence)
	_, err = table.Changes(ChangeOptions{Since: 1000})
	fails(t, err, ErrChangesUnavailable)
}

// TestChanges_CloseEndsAWaitingCall closes a feed under a goroutine that waits for a change.
func TestChanges_CloseEndsAWaitingCall(t *testing.T) {
	table := newRetainingTable(t)
	changes, err := table.Changes(ChangeOptions{})
	ok(t, err)
	var waiting sync.WaitGroup
	waiting.Add(1)
	go func() {
		defer waiting.Done()
		if _, err := changes.Next(time.Hour); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}()
	changes.Close()
	waiting.Wait()
	equal(t, changes.Position(), 0)
	fails(t, changes.AppendTo(NewBatch()), ErrClosed)
}
