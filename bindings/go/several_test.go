package siltstone

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// twoTables returns a new store with the tables "stock" and "orders".
func twoTables(t *testing.T) (*DB, *Table, *Table) {
	t.Helper()
	db := newDB(t)
	stock, err := db.TableOrCreate("stock", "lsm", nil)
	ok(t, err)
	orders, err := db.TableOrCreate("orders", "lsm", nil)
	ok(t, err)
	return db, stock, orders
}

func TestDB_SnapshotsAreOfOneMoment(t *testing.T) {
	db, stock, orders := twoTables(t)
	ok(t, stock.Put([]byte("pears"), []byte("5")))
	before, err := db.Snapshots(orders, stock)
	ok(t, err)
	ok(t, stock.Put([]byte("pears"), []byte("4")))
	ok(t, orders.Put([]byte("1"), []byte("pears")))
	equal(t, get(t, before[0], "1")+get(t, before[1], "pears"), "<none>5")
	before[0].Close()
	equal(t, get(t, before[1], "pears"), "5")
	before[1].Close()

	_, err = db.Snapshots(stock, stock)
	fails(t, err, ErrInvalid)
	silt, err := db.TableOrCreate("s", "silt", nil)
	ok(t, err)
	_, err = db.Snapshots(stock, silt)
	fails(t, err, ErrUnsupported)
	stock.Close()
	_, err = db.Snapshots(stock, orders)
	fails(t, err, ErrClosed)
}

func TestDB_TransactionOverTablesIsWholeOrAbsent(t *testing.T) {
	db, stock, orders := twoTables(t)
	tx, err := db.Begin(stock, orders)
	ok(t, err)
	ok(t, tx.On(orders).Put([]byte("1"), []byte("pears")))
	ok(t, tx.On(stock).Put([]byte("pears"), []byte("4")))
	equal(t, get(t, tx.On(orders), "1")+get(t, orders, "1"), "pears<none>")
	fails(t, tx.On(stock).Commit(), ErrInvalid)
	ok(t, tx.CommitSync())
	equal(t, get(t, orders, "1")+get(t, stock, "pears"), "pears4")
	fails(t, tx.Commit(), ErrInvalid)
	tx.Close()
	fails(t, tx.Commit(), ErrClosed)

	tx, err = db.Begin(orders, stock)
	ok(t, err)
	equal(t, get(t, tx.On(stock), "pears"), "4")
	ok(t, tx.On(orders).Put([]byte("2"), []byte("pears")))
	ok(t, stock.Put([]byte("pears"), []byte("9")))
	fails(t, tx.Commit(), ErrConflict)
	tx.Close()
	equal(t, get(t, orders, "2"), "<none>")

	_, err = db.Begin(stock, stock)
	fails(t, err, ErrInvalid)
	other, err := db.TableOrCreate("other", "lsm", nil)
	ok(t, err)
	equal(t, tx.On(other), nil)
}

func TestDB_TransactRunsAgainAfterConflict(t *testing.T) {
	db, stock, orders := twoTables(t)
	tries := 0
	ok(t, db.Transact(func(tx *DBTransaction) error {
		tries++
		value := get(t, tx.On(stock), "pears")
		if tries == 1 {
			ok(t, stock.Put([]byte("pears"), []byte("7")))
		}
		return tx.On(orders).Put([]byte("1"), []byte(value))
	}, stock, orders))
	equal(t, tries, 2)
	equal(t, get(t, orders, "1"), "7")
	stop := errors.New("stop")
	equal(t, db.TransactSync(func(tx *DBTransaction) error {
		ok(t, tx.On(orders).Put([]byte("2"), nil))
		return stop
	}, orders), stop)
	equal(t, get(t, orders, "2"), "<none>")
}

func TestTable_TryWriteWritesUnlessItWaits(t *testing.T) {
	db, stock, _ := twoTables(t)
	batch := NewBatch()
	defer batch.Close()
	ok(t, batch.Put([]byte("k"), []byte("v")))
	written, err := stock.TryWrite(batch)
	ok(t, err)
	equal(t, written, true)
	equal(t, get(t, stock, "k"), "v")
	// mica cannot say that a write does not wait.
	mica, err := db.TableOrCreate("m", "mica", nil)
	ok(t, err)
	written, err = mica.TryWrite(batch)
	ok(t, err)
	equal(t, written, false)
	equal(t, get(t, mica, "k"), "<none>")
}

func TestDBReader_CatchesUpWithTheWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	db, err := OpenOrCreate(path, nil)
	ok(t, err)
	defer db.Close()
	table, err := db.TableOrCreate("t", "lsm", nil)
	ok(t, err)
	ok(t, table.Put([]byte("k"), []byte("1")))
	reader, err := OpenReader(path, nil)
	ok(t, err)
	before, err := reader.Table("t")
	ok(t, err)
	ok(t, table.Put([]byte("k"), []byte("2")))
	for _, want := range []bool{true, false} {
		hasChanged, err := reader.CatchUp()
		ok(t, err)
		equal(t, hasChanged, want)
	}
	after, err := reader.Table("t")
	ok(t, err)
	equal(t, get(t, before, "k")+get(t, after, "k"), "12")
	fails(t, after.Put([]byte("k"), nil), ErrRefused)
	_, err = reader.Table("u")
	fails(t, err, ErrInvalid)
	reader.Close()
	_, err = reader.CatchUp()
	fails(t, err, ErrClosed)
	equal(t, get(t, after, "k"), "2")
	_, err = OpenReader(t.TempDir(), nil)
	fails(t, err, ErrRefused)
}

// longest keeps the longest of the value and the operands.
type longest struct{}

func (longest) Name() string { return "test.longest" }

func (longest) Merge(key, value []byte, operands [][]byte) ([]byte, error) {
	for _, operand := range operands {
		if string(operand) == "refused" {
			return nil, errors.New("no such operand")
		}
		if len(operand) > len(value) {
			value = operand
		}
	}
	return append([]byte{}, value...), nil
}

// partial is longest that merges operands without a value, and counts how often.
type partial struct {
	longest
	count *atomic.Int64
}

func (p partial) PartialMerge(key []byte, operands [][]byte) ([]byte, bool) {
	p.count.Add(1)
	merged, err := p.Merge(key, nil, operands)
	return merged, err == nil
}

func TestOptions_MergeOperatorMergesInReadsAndCompactions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	var count atomic.Int64
	options := &Options{MergeOperators: map[string]MergeOperator{"t": partial{count: &count}}}
	for _, want := range []string{"ccc", "dddd"} {
		db, err := OpenOrCreate(path, options)
		ok(t, err)
		table, err := db.TableOrCreate("t", "lsm", nil)
		ok(t, err)
		for _, operand := range []string{"a", want, "bb"} {
			ok(t, table.Merge([]byte("k"), []byte(operand)))
		}
		equal(t, get(t, table, "k"), want)
		ok(t, table.CompactRange(nil, nil))
		equal(t, get(t, table, "k"), want)
		ok(t, table.Merge([]byte("l"), []byte("refused")))
		_, err = table.Get([]byte("l"))
		equal(t, strings.Contains(err.Error(), "no such operand"), true)
		ok(t, table.Put([]byte("l"), nil))
		ok(t, db.Close())
	}
	reserved := &Options{MergeOperators: map[string]MergeOperator{"a\x00": longest{}}}
	_, err := Open(path, reserved)
	fails(t, err, ErrInvalid)
}

func TestOptions_ListenerGetsFlushesBeforeTheStoreHasClosed(t *testing.T) {
	var events []Event
	db, err := OpenOrCreate(filepath.Join(t.TempDir(), "store"), &Options{
		Listener: func(event Event) { events = append(events, event) },
	})
	ok(t, err)
	table, err := db.TableOrCreate("t", "lsm", nil)
	ok(t, err)
	ok(t, table.Put([]byte("k"), make([]byte, 1000)))
	ok(t, table.Flush())
	ok(t, db.Close())
	var flushes []Event
	for _, event := range events {
		if event.Kind == EventFlushBegun || event.Kind == EventFlushCompleted {
			flushes = append(flushes, event)
		}
	}
	equal(t, len(flushes), 2)
	begun, completed := flushes[0], flushes[1]
	equal(t, begun.Kind == EventFlushBegun && completed.Kind == EventFlushCompleted, true)
	equal(t, begun.Job, completed.Job)
	equal(t, completed.Table, "t")
	equal(t, completed.IsFailed, false)
	equal(t, completed.OutputBytes > 0 && completed.Duration > 0, true)
	equal(t, time.Since(completed.At) < time.Hour && strings.Contains(completed.Message, "flush"), true)
}

func TestOptions_KeysEncryptTheStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	keys := [][]byte{make([]byte, 32), make([]byte, 32)}
	for _, key := range keys {
		_, err := rand.Read(key)
		ok(t, err)
	}
	secret := "a sentence that is not on the disk"
	db, err := OpenOrCreate(path, &Options{Keys: keys[:1]})
	ok(t, err)
	table, err := db.TableOrCreate("t", "lsm", nil)
	ok(t, err)
	ok(t, table.Put([]byte("k"), []byte(secret)))
	ok(t, table.Flush())
	ok(t, db.Close())
	files := 0
	ok(t, filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(file)
		equal(t, strings.Contains(string(content), secret), false)
		files++
		return err
	}))
	equal(t, files > 0, true)
	for _, keys := range [][][]byte{nil, keys[1:], {[]byte("short")}} {
		if _, err := Open(path, &Options{Keys: keys}); err == nil {
			t.Fatal("the store opens with", len(keys), "keys")
		}
	}
	keys[0], keys[1] = keys[1], keys[0]
	db, err = Open(path, &Options{Keys: keys})
	ok(t, err)
	table, err = db.Table("t")
	ok(t, err)
	equal(t, get(t, table, "k"), secret)
	ok(t, db.Close())

	_, err = Verify(path)
	fails(t, err, ErrRefused)
	_, err = Repair(path)
	fails(t, err, ErrRefused)
	verified, err := VerifyWith(path, &Options{Keys: keys})
	ok(t, err)
	equal(t, verified.IsIntact, true)
	repaired, err := RepairWith(path, &Options{Keys: keys})
	ok(t, err)
	equal(t, repaired.IsLossless, true)
	_, err = Rekey(path, nil)
	fails(t, err, ErrInvalid)
	rekeyed, err := Rekey(path, &Options{Keys: keys})
	ok(t, err)
	equal(t, rekeyed.Rewrapped > 0 && rekeyed.Rewrapped <= rekeyed.Files, true)
	equal(t, len(rekeyed.Damaged), 0)
	db, err = Open(path, &Options{Keys: keys[:1]})
	ok(t, err)
	ok(t, db.Close())
}
