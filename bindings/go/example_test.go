package siltstone_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"

	"siltstone"
)

// scratch opens a table of a new store. done closes the store and removes it.
func scratch() (table *siltstone.Table, done func()) {
	path, err := os.MkdirTemp("", "siltstone")
	if err != nil {
		log.Fatal(err)
	}
	db, err := siltstone.OpenOrCreate(filepath.Join(path, "store"), nil)
	if err != nil {
		log.Fatal(err)
	}
	if table, err = db.TableOrCreate("stock", "lsm", nil); err != nil {
		log.Fatal(err)
	}
	return table, func() {
		if err := db.Close(); err != nil {
			log.Fatal(err)
		}
		os.RemoveAll(path)
	}
}

func ExampleTable_Get() {
	stock, done := scratch()
	defer done()
	if err := stock.Put([]byte("apples"), []byte("3")); err != nil {
		log.Fatal(err)
	}
	apples, err := stock.Get([]byte("apples"))
	fmt.Printf("%s %v\n", apples, err)
	pears, err := stock.Get([]byte("pears"))
	fmt.Println(pears == nil, err)
	// Output:
	// 3 <nil>
	// true <nil>
}

func ExampleTable_Write() {
	stock, done := scratch()
	defer done()
	batch := siltstone.NewBatch()
	defer batch.Close()
	batch.Put([]byte("pears"), []byte("5"))
	batch.Put([]byte("plums"), []byte("7"))
	batch.Delete([]byte("apples"))
	if err := stock.WriteSync(batch); err != nil {
		log.Fatal(err)
	}
	fmt.Println(stock.Count())
	// Output: 2 <nil>
}

func ExampleCursor_All() {
	stock, done := scratch()
	defer done()
	for i, fruit := range []string{"apples", "pears", "plums"} {
		if err := stock.Put([]byte(fruit), []byte(strconv.Itoa(i))); err != nil {
			log.Fatal(err)
		}
	}
	cursor, err := stock.Prefix([]byte("p"))
	if err != nil {
		log.Fatal(err)
	}
	defer cursor.Close()
	for fruit, count := range cursor.All() {
		fmt.Printf("%s %s\n", fruit, count)
	}
	if err := cursor.Err(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// pears 1
	// plums 2
}

func ExampleTable_Snapshot() {
	stock, done := scratch()
	defer done()
	stock.Put([]byte("pears"), []byte("5"))
	before, err := stock.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	defer before.Close()
	stock.Put([]byte("pears"), []byte("4"))
	for _, view := range []siltstone.Reader{before, stock} {
		pears, err := view.Get([]byte("pears"))
		fmt.Printf("%s %v\n", pears, err)
	}
	// Output:
	// 5 <nil>
	// 4 <nil>
}

var errSoldOut = errors.New("sold out")

func ExampleTable_Transact() {
	stock, done := scratch()
	defer done()
	sell := func(tx *siltstone.Transaction) error {
		text, err := tx.Get([]byte("pears"))
		if err != nil {
			return err
		}
		if text == nil {
			return errSoldOut
		}
		left, err := strconv.Atoi(string(text))
		if err != nil {
			return err
		}
		return tx.Put([]byte("pears"), []byte(strconv.Itoa(left-1)))
	}
	fmt.Println(stock.Transact(sell))
	stock.Put([]byte("pears"), []byte("5"))
	fmt.Println(stock.Transact(sell))
	pears, err := stock.Get([]byte("pears"))
	fmt.Printf("%s %v\n", pears, err)
	// Output:
	// sold out
	// <nil>
	// 4 <nil>
}

func ExampleError() {
	_, err := siltstone.Open("/nonexistent", nil)
	fmt.Println(errors.Is(err, siltstone.ErrRefused), errors.Is(err, siltstone.ErrLocked))
	var failed *siltstone.Error
	fmt.Println(errors.As(err, &failed), failed.IsRetryable())
	// Output:
	// true false
	// true false
}
