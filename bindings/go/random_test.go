package siltstone

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
)

// TestTable_RandomOperationsMatchAMap compares a table, a snapshot of it and transactions on it
// with maps.
func TestTable_RandomOperationsMatchAMap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	const seed = 7
	random := rand.New(rand.NewPCG(seed, 0))
	model := map[string]string{}
	key := func() string { return fmt.Sprintf("k%02d", random.IntN(60)) }
	value := func() string { return fmt.Sprintf("%0*d", random.IntN(300), random.IntN(1000)) }
	batch := NewBatch()
	defer batch.Close()
	for round := range 5 {
		db, err := OpenOrCreate(path, nil)
		ok(t, err)
		table, err := db.TableOrCreate("t", "lsm", map[string]string{"memtable": "64KiB"})
		ok(t, err)
		match(t, table, model, random, key)
		for range 400 {
			switch k := key(); random.IntN(10) {
			case 0, 1, 2, 3:
				v := value()
				ok(t, table.Put([]byte(k), []byte(v)))
				model[k] = v
			case 4:
				ok(t, table.Delete([]byte(k)))
				delete(model, k)
			case 5:
				ok(t, batch.Clear())
				for range random.IntN(5) {
					k, v := key(), value()
					ok(t, batch.Put([]byte(k), []byte(v)))
					model[k] = v
				}
				ok(t, batch.Delete([]byte(k)))
				delete(model, k)
				ok(t, table.Write(batch))
			case 6:
				commit := random.IntN(2) == 0
				changed := maps.Clone(model)
				tx, err := table.Begin()
				ok(t, err)
				for range random.IntN(5) {
					k, v := key(), value()
					ok(t, tx.Put([]byte(k), []byte(v)))
					changed[k] = v
				}
				ok(t, tx.Delete([]byte(k)))
				delete(changed, k)
				match(t, tx, changed, random, key)
				if commit {
					ok(t, tx.Commit())
					model = changed
				}
				tx.Close()
			case 7:
				before := maps.Clone(model)
				snapshot, err := table.Snapshot()
				ok(t, err)
				ok(t, table.Put([]byte(k), []byte("after")))
				model[k] = "after"
				match(t, snapshot, before, random, key)
				snapshot.Close()
			case 8:
				if random.IntN(10) == 0 {
					ok(t, table.Flush())
				}
			case 9:
				match(t, table, model, random, key)
			}
		}
		match(t, table, model, random, key)
		if round == 2 {
			ok(t, table.Clear())
			model = map[string]string{}
		}
		ok(t, db.Close())
	}
}

// match compares a reader with a map: all entries in both directions, gets, and random seeks and
// ranges.
func match(t *testing.T, r Reader, model map[string]string, random *rand.Rand, key func() string) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(model))
	cursor, err := r.Cursor()
	ok(t, err)
	defer cursor.Close()
	var seen []string
	for k, v := range cursor.All() {
		seen = append(seen, string(k))
		equal(t, string(v), model[string(k)])
	}
	ok(t, cursor.Err())
	equal(t, slices.Equal(seen, keys), true)
	seen = nil
	for k := range cursor.Backward() {
		seen = append(seen, string(k))
	}
	slices.Reverse(seen)
	equal(t, slices.Equal(seen, keys), true)

	var wanted [][]byte
	for range 5 {
		wanted = append(wanted, []byte(key()))
	}
	values, err := r.MultiGet(wanted...)
	ok(t, err)
	for i, k := range wanted {
		want, exists := model[string(k)]
		equal(t, values[i] != nil, exists)
		equal(t, string(values[i]), want)
		found, err := r.Has(k)
		ok(t, err)
		equal(t, found, exists)
		if exists {
			equal(t, get(t, r, string(k)), want)
		}
	}

	k := key()
	at, isKey := slices.BinarySearch(keys, k)
	equal(t, cursor.Seek([]byte(k)), at < len(keys))
	if at < len(keys) {
		equal(t, string(cursor.Key()), keys[at])
	}
	if !isKey {
		at--
	}
	equal(t, cursor.SeekBack([]byte(k)), at >= 0)
	if at >= 0 {
		equal(t, string(cursor.Key()), keys[at])
	}
	start, end := key(), key()
	if start > end {
		start, end = end, start
	}
	ranged, err := r.Range([]byte(start), []byte(end))
	ok(t, err)
	defer ranged.Close()
	count := 0
	for range ranged.All() {
		count++
	}
	first, _ := slices.BinarySearch(keys, start)
	last, _ := slices.BinarySearch(keys, end)
	equal(t, count, last-first)
}
