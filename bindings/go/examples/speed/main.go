// Writes or reads a table and prints the seconds of each part, and those of CPU time of the thread,
// for ../../../compare-languages.
//
//	speed write|read STORE COUNT
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"siltstone"
)

var rest = bytes.Repeat([]byte("."), 84)

// setValue puts the value of a key into a buffer.
func setValue(buffer, key []byte) []byte {
	return append(append(buffer[:0], key...), rest...)
}

func check(key, value []byte) error {
	if len(value) != 100 || !bytes.HasPrefix(value, key) {
		return fmt.Errorf("the value of %s is %s", key, value)
	}
	return nil
}

func fill(table *siltstone.Table, keys [][]byte) error {
	batch := siltstone.NewBatch()
	defer batch.Close()
	var value []byte
	for i, key := range keys {
		value = setValue(value, key)
		if err := batch.Put(key, value); err != nil {
			return err
		}
		if batch.Len() == 100 || i == len(keys)-1 {
			if err := table.Write(batch); err != nil {
				return err
			}
			batch.Clear()
		}
	}
	return nil
}

func put(table *siltstone.Table, keys [][]byte) error {
	var value []byte
	for _, key := range keys {
		value = setValue(value, key)
		if err := table.Put(key, value); err != nil {
			return err
		}
	}
	return nil
}

func scan(table *siltstone.Table, keys [][]byte) error {
	cursor, err := table.Cursor()
	if err != nil {
		return err
	}
	defer cursor.Close()
	count := 0
	for key, value := range cursor.All() {
		if err := check(key, value); err != nil {
			return err
		}
		count++
	}
	if count != len(keys) {
		return fmt.Errorf("%d entries instead of %d: %v", count, len(keys), cursor.Err())
	}
	return nil
}

func get(table *siltstone.Table, keys [][]byte) error {
	for _, key := range keys {
		value, err := table.Get(key)
		if err == nil {
			err = check(key, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cpuSeconds returns the CPU time of this thread, without that of the garbage collector's threads.
func cpuSeconds() float64 {
	const thisThread = 1
	var usage syscall.Rusage
	if err := syscall.Getrusage(thisThread, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

type part struct {
	name string
	run  func(*siltstone.Table, [][]byte) error
}

func run(parts []part, store string, count int) error {
	keys := make([][]byte, count)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "%016d", i*7919%count)
	}
	db, err := siltstone.OpenOrCreate(store, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	table, err := db.TableOrCreate("speed", "lsm", map[string]string{"cache": "256MiB"})
	if err != nil {
		return err
	}
	for _, part := range parts {
		start, cpuStart := time.Now(), cpuSeconds()
		if err := part.run(table, keys); err != nil {
			return err
		}
		seconds, cpu := time.Since(start).Seconds(), cpuSeconds()-cpuStart
		fmt.Printf("%s %f %f\n", part.name, seconds, cpu)
		if err := table.Maintain(); err != nil {
			return err
		}
	}
	return db.Close()
}

func main() {
	parts := map[string][]part{
		"write": {{"fill", fill}, {"put", put}},
		"read":  {{"scan", scan}, {"get", get}},
	}[os.Args[1]]
	runtime.LockOSThread()
	count, err := strconv.Atoi(os.Args[3])
	if err == nil {
		err = run(parts, os.Args[2], count)
	}
	if err != nil {
		log.Fatal(err)
	}
}
