package siltstone

import (
	"fmt"
	"testing"
)

const benchKeys = 100_000

func benchKey(i int) []byte { return []byte(fmt.Sprintf("key%012d", i)) }

// benchTable has benchKeys values of 100 bytes, all in memory.
func benchTable(b *testing.B) (*Table, [][]byte) {
	table := newTestTable(b, "lsm")
	batch := NewBatch()
	defer batch.Close()
	keys := make([][]byte, benchKeys)
	for i := range keys {
		keys[i] = benchKey(i)
		ok(b, batch.Put(keys[i], make([]byte, 100)))
		if batch.Len() == 1000 || i == benchKeys-1 {
			ok(b, table.Write(batch))
			ok(b, batch.Clear())
		}
	}
	return table, keys
}

func BenchmarkGet(b *testing.B) {
	table, keys := benchTable(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		value, err := table.Get(keys[i*7919%benchKeys])
		if err != nil || len(value) != 100 {
			b.Fatal(len(value), err)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	table, keys := benchTable(b)
	value := make([]byte, 100)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		ok(b, table.Put(keys[i*7919%benchKeys], value))
	}
}
