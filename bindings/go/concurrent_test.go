package siltstone

import (
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// number returns the 8 bytes of a number.
func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// TestTable_ReadersSeeWholeBatchesOfWriters has writers that set four keys to one number,
// atomically.
func TestTable_ReadersSeeWholeBatchesOfWriters(t *testing.T) {
	table := newTestTable(t, "lsm")
	keys := [][]byte{[]byte("a"), []byte("b"), []byte("c"), []byte("d")}
	var writers, readers sync.WaitGroup
	var done atomic.Bool
	for writer := range 2 {
		writers.Add(1)
		go func() {
			defer writers.Done()
			batch := NewBatch()
			defer batch.Close()
			for i := range 300 {
				err := batch.Clear()
				for _, key := range keys {
					err = errors.Join(err, batch.Put(key, number(uint64(2*i+writer))))
				}
				if err = errors.Join(err, table.Write(batch)); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	for range 2 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for !done.Load() {
				values, err := table.MultiGet(keys...)
				if err != nil {
					t.Error(err)
					return
				}
				snapshot, err := table.Snapshot()
				if err != nil {
					t.Error(err)
					return
				}
				var seen []string
				cursor, err := snapshot.Cursor()
				if err != nil {
					t.Error(err)
					return
				}
				for _, value := range cursor.All() {
					seen = append(seen, string(value))
				}
				cursor.Close()
				snapshot.Close()
				for i := range values {
					if string(values[i]) != string(values[0]) || len(seen) > 0 && seen[i] != seen[0] {
						t.Errorf("a part of a batch: %q %q", values, seen)
						return
					}
				}
			}
		}()
	}
	writers.Wait()
	done.Store(true)
	readers.Wait()
}

// TestDB_ClosedWhileInUse closes a store and its objects under goroutines that use them: each call
// succeeds or fails with ErrClosed.
func TestDB_ClosedWhileInUse(t *testing.T) {
	for round := range 10 {
		db := newDB(t)
		table, err := db.TableOrCreate("t", "lsm", nil)
		ok(t, err)
		ok(t, table.Put([]byte("k"), []byte("v")))
		snapshot, err := table.Snapshot()
		ok(t, err)
		cursor, err := table.Cursor()
		ok(t, err)
		tx, err := table.Begin()
		ok(t, err)
		batch := NewBatch()
		uses := []func() error{
			func() error { _, err := table.Get([]byte("k")); return err },
			func() error { return table.Put([]byte("k"), []byte("w")) },
			func() error { _, err := snapshot.MultiGet([]byte("k"), []byte("l")); return err },
			func() error { cursor.First(); return cursor.Err() },
			func() error { return tx.Put([]byte("l"), []byte("w")) },
			func() error { return errors.Join(batch.Put([]byte("m"), nil), table.Write(batch)) },
			func() error { _, err := db.Tables(); return err },
			func() error { return table.Transact(func(tx *Transaction) error { return increment(tx, "n") }) },
		}
		var all, started sync.WaitGroup
		for _, use := range uses {
			all.Add(1)
			started.Add(1)
			go func() {
				defer all.Done()
				var err error
				for i := 0; err == nil; i++ {
					err = use()
					if i == 0 {
						started.Done()
					}
				}
				for _, part := range strings.Split(err.Error(), "\n") {
					if !errors.Is(err, ErrClosed) || !strings.Contains(part, "closed") {
						t.Error(err)
					}
				}
			}()
		}
		started.Wait()
		closes := []func(){
			func() { ok(t, db.Close()) }, table.Close, snapshot.Close, cursor.Close, tx.Close, batch.Close,
		}
		for i := range closes {
			closes[(i+round)%len(closes)]()
		}
		all.Wait()
	}
}

// TestHandle_CollectorFreesWhatNobodyClosed drops objects without closing them; a table that is
// still in use could not be renamed.
func TestHandle_CollectorFreesWhatNobodyClosed(t *testing.T) {
	db := newDB(t)
	func() {
		table, err := db.TableOrCreate("t", "lsm", nil)
		ok(t, err)
		_, err = table.Cursor()
		ok(t, err)
		_, err = table.Begin()
		ok(t, err)
	}()
	for range 1000 {
		runtime.GC()
		if db.RenameTable("t", "u") == nil {
			return
		}
		runtime.Gosched()
	}
	ok(t, db.RenameTable("t", "u"))
}
