package siltstone

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestTransaction_ReadsItsWritesAndCommits(t *testing.T) {
	table := newTestTable(t, "lsm")
	ok(t, table.Put([]byte("k"), []byte("1")))
	ok(t, table.Put([]byte("m"), []byte("1")))
	tx, err := table.Begin()
	ok(t, err)
	equal(t, get(t, tx, "k"), "1")
	ok(t, tx.Put([]byte("k"), []byte("22")))
	ok(t, tx.PutUntil([]byte("l"), []byte("3"), time.Now().Add(time.Hour)))
	ok(t, tx.PutTTL([]byte("o"), []byte("4"), time.Hour))
	ok(t, tx.Delete([]byte("m")))
	batch := NewBatch()
	defer batch.Close()
	ok(t, batch.Put([]byte("n"), []byte("5")))
	ok(t, tx.Write(batch))
	found, err := tx.Has([]byte("m"))
	ok(t, err)
	equal(t, found, false)
	values, err := tx.MultiGet([]byte("k"), []byte("m"))
	ok(t, err)
	equal(t, string(values[0]), "22")
	const want = "k=22 l=3 n=5 o=4 "
	cursor, err := tx.Cursor()
	equal(t, list(t, cursor, err), want)
	cursor, err = tx.Prefix([]byte("l"))
	equal(t, list(t, cursor, err), "l=3 ")
	cursor, err = tx.Range([]byte("l"), []byte("o"))
	equal(t, list(t, cursor, err), "l=3 n=5 ")
	equal(t, get(t, table, "k"), "1")
	ok(t, tx.CommitSync())
	cursor, err = table.Cursor()
	equal(t, list(t, cursor, err), want)

	fails(t, tx.Commit(), ErrInvalid)
	fails(t, tx.Put([]byte("k"), nil), ErrInvalid)
	_, err = tx.Get([]byte("k"))
	fails(t, err, ErrInvalid)
	tx.Close()
	tx.Close()
	fails(t, tx.Commit(), ErrClosed)
	fails(t, tx.Delete([]byte("k")), ErrClosed)
	fails(t, tx.Write(batch), ErrClosed)
}

func TestTransaction_ConflictAppliesNothing(t *testing.T) {
	table := newTestTable(t, "lsm")
	tx, err := table.Begin()
	ok(t, err)
	defer tx.Close()
	get(t, tx, "k")
	ok(t, tx.Put([]byte("n"), []byte("1")))
	ok(t, table.Put([]byte("k"), []byte("other")))
	failed := fails(t, tx.Commit(), ErrConflict)
	equal(t, failed.IsRetryable(), true)
	equal(t, failed.IsDiskFull(), false)
	equal(t, strings.Contains(failed.Error(), "'k'"), true)
	equal(t, get(t, table, "n"), "<none>")
}

func TestTransaction_CloseDiscards(t *testing.T) {
	table := newTestTable(t, "lsm")
	tx, err := table.Begin()
	ok(t, err)
	ok(t, tx.Put([]byte("n"), []byte("1")))
	tx.Close()
	equal(t, get(t, table, "n"), "<none>")
}

func TestTransaction_ExpiresWhenIdle(t *testing.T) {
	db, err := OpenOrCreate(t.TempDir(), &Options{Idle: time.Millisecond})
	ok(t, err)
	defer db.Close()
	table, err := db.TableOrCreate("t", "lsm", nil)
	ok(t, err)
	tx, err := table.Begin()
	ok(t, err)
	defer tx.Close()
	for range 10 {
		time.Sleep(5 * time.Millisecond)
		ok(t, table.Put([]byte("k"), nil)) // looks for idle transactions
	}
	_, err = tx.Get([]byte("k"))
	fails(t, err, ErrExpired)
}

// increment adds 1 to the number at a key.
func increment(tx *Transaction, key string) error {
	text, err := tx.Get([]byte(key))
	if err != nil {
		return err
	}
	count, _ := strconv.Atoi(string(text))
	return tx.Put([]byte(key), []byte(strconv.Itoa(count+1)))
}

func TestTransact_CountsEveryIncrementOfManyGoroutines(t *testing.T) {
	const goroutines, increments = 4, 50
	table := newTestTable(t, "lsm")
	var all sync.WaitGroup
	for range goroutines {
		all.Add(1)
		go func() {
			defer all.Done()
			for done := 0; done < increments; {
				err := table.Transact(func(tx *Transaction) error { return increment(tx, "count") })
				if err == nil {
					done++
				} else if !errors.Is(err, ErrConflict) { // else all tries have lost
					t.Error(err)
					return
				}
			}
		}()
	}
	all.Wait()
	equal(t, get(t, table, "count"), strconv.Itoa(goroutines*increments))
}

func TestTransact_RunsAgainAfterConflicts(t *testing.T) {
	table := newTestTable(t, "lsm")
	runs := 0
	disturb := func(times int) error {
		runs = 0
		return table.TransactSync(func(tx *Transaction) error {
			if err := increment(tx, "count"); err != nil {
				return err
			}
			if runs++; runs <= times {
				return table.Put([]byte("count"), []byte("100"))
			}
			return nil
		})
	}
	ok(t, disturb(3))
	equal(t, runs, 4)
	equal(t, get(t, table, "count"), "101")
	fails(t, disturb(1000), ErrConflict)
	equal(t, runs, 16)
}

func TestTransact_ReturnsTheErrorOfWorkAndDiscards(t *testing.T) {
	table := newTestTable(t, "lsm")
	sold := errors.New("sold out")
	runs := 0
	err := table.Transact(func(tx *Transaction) error {
		runs++
		ok(t, tx.Put([]byte("k"), []byte("v")))
		return fmt.Errorf("shop: %w", sold)
	})
	equal(t, errors.Is(err, sold), true)
	equal(t, runs, 1)
	func() {
		defer func() { equal(t, recover(), any("stop")) }()
		_ = table.Transact(func(tx *Transaction) error {
			ok(t, tx.Put([]byte("k"), []byte("v")))
			panic("stop")
		})
	}()
	equal(t, get(t, table, "k"), "<none>")
	fails(t, table.Transact((*Transaction).Commit), ErrInvalid)
}
