package siltstone

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestTable_WritesAndReads(t *testing.T) {
	table := newTestTable(t, "lsm")
	ok(t, table.Put([]byte("apples"), []byte("3")))
	ok(t, table.Put([]byte("pears"), nil))
	ok(t, table.Put(nil, []byte("empty key")))
	ok(t, table.PutUntil([]byte("stale"), []byte("x"), time.UnixMilli(-5)))
	ok(t, table.PutTTL([]byte("fresh"), []byte("y"), time.Hour))
	equal(t, get(t, table, "apples"), "3")
	equal(t, get(t, table, "pears"), "")
	equal(t, get(t, table, ""), "empty key")
	equal(t, get(t, table, "stale"), "<none>")
	equal(t, get(t, table, "fresh"), "y")
	for key, want := range map[string]bool{"apples": true, "pears": true, "stale": false} {
		found, err := table.Has([]byte(key))
		ok(t, err)
		equal(t, found, want)
	}
	count, err := table.Count()
	ok(t, err)
	equal(t, count, 4)

	values, err := table.MultiGet([]byte("fresh"), nil, []byte("none"), []byte("pears"))
	ok(t, err)
	equal(t, len(values), 4)
	equal(t, string(values[0])+string(values[1]), "yempty key")
	if values[2] != nil || values[3] == nil || len(values[3]) != 0 {
		t.Fatalf("got %q", values)
	}
	values, err = table.MultiGet()
	ok(t, err)
	equal(t, len(values), 0)
	values, err = table.MultiGet([]byte{}, nil)
	ok(t, err)
	equal(t, string(values[1]), "empty key")

	ok(t, table.Delete([]byte("fresh")))
	ok(t, table.Delete([]byte("fresh")))
	equal(t, get(t, table, "fresh"), "<none>")
	ok(t, table.Sync())
	ok(t, table.Flush())
	ok(t, table.Maintain())
	stats, err := table.Stats()
	ok(t, err)
	equal(t, json.Valid(stats), true)
	equal(t, strings.Contains(string(stats), `"engine":"lsm"`), true)
	ok(t, table.Clear())
	equal(t, get(t, table, "apples"), "<none>")
}

func TestTable_ValuesAreCopies(t *testing.T) {
	table := newTestTable(t, "lsm")
	key, value := []byte("k"), []byte("then")
	ok(t, table.Put(key, value))
	key[0], value[0] = 'x', 'x'
	first, err := table.Get([]byte("k"))
	ok(t, err)
	ok(t, table.Put([]byte("k"), []byte("now!")))
	equal(t, string(first), "then")
}

func TestTable_RejectsKeysOverTheLimit(t *testing.T) {
	table := newTestTable(t, "lsm")
	key := make([]byte, 1<<20)
	fails(t, table.Put(key, nil), ErrTooLarge)
	_, err := table.Get(key)
	fails(t, err, ErrTooLarge)
	_, err = table.MultiGet([]byte("k"), key)
	fails(t, err, ErrTooLarge)
	_, err = table.Has(key)
	fails(t, err, ErrTooLarge)
}

func TestTable_EnginesWithoutOrderRefuseByName(t *testing.T) {
	table := newTestTable(t, "mica")
	ok(t, table.Put([]byte("k"), []byte("v")))
	_, err := table.Snapshot()
	equal(t, strings.Contains(fails(t, err, ErrUnsupported).Message, "mica"), true)
	_, err = table.Begin()
	fails(t, err, ErrUnsupported)
	fails(t, table.Transact(func(*Transaction) error { return nil }), ErrUnsupported)
	_, err = table.Range([]byte("a"), nil)
	fails(t, err, ErrUnsupported)
	_, err = table.Prefix([]byte("a"))
	fails(t, err, ErrUnsupported)
	cursor, err := table.Cursor()
	equal(t, list(t, cursor, err), "k=v ")
	cursor, err = table.Cursor()
	ok(t, err)
	defer cursor.Close()
	equal(t, cursor.Last(), false)
	fails(t, cursor.Err(), ErrUnsupported)
	equal(t, cursor.First(), true)
	ok(t, cursor.Err())
}

func TestBatch_AppliesInOrder(t *testing.T) {
	table := newTestTable(t, "lsm")
	ok(t, table.Put([]byte("apples"), []byte("3")))
	batch := NewBatch()
	ok(t, batch.Put([]byte("gone"), []byte("1")))
	ok(t, batch.Clear())
	equal(t, batch.Len(), 0)
	ok(t, batch.Put([]byte("plums"), []byte("1")))
	ok(t, batch.Put([]byte("plums"), []byte("7")))
	ok(t, batch.PutUntil([]byte("stale"), []byte("1"), time.UnixMilli(1)))
	ok(t, batch.PutTTL([]byte("fresh"), []byte("2"), time.Hour))
	ok(t, batch.Delete([]byte("apples")))
	equal(t, batch.Len(), 5)
	ok(t, table.WriteSync(batch))
	ok(t, table.Write(batch))
	cursor, err := table.Cursor()
	equal(t, list(t, cursor, err), "fresh=2 plums=7 ")
	batch.Close()
	batch.Close()
	equal(t, batch.Len(), 0)
	fails(t, batch.Put([]byte("k"), nil), ErrClosed)
	fails(t, batch.Clear(), ErrClosed)
	fails(t, table.Write(batch), ErrClosed)
}

func TestSnapshot_ShowsItsMoment(t *testing.T) {
	table := newTestTable(t, "lsm")
	ok(t, table.Put([]byte("k"), []byte("then")))
	snapshot, err := table.Snapshot()
	ok(t, err)
	ok(t, table.Put([]byte("k"), []byte("now")))
	ok(t, table.Put([]byte("l"), []byte("now")))
	equal(t, get(t, snapshot, "k"), "then")
	equal(t, get(t, snapshot, "l"), "<none>")
	found, err := snapshot.Has([]byte("l"))
	ok(t, err)
	equal(t, found, false)
	values, err := snapshot.MultiGet([]byte("l"), []byte("k"))
	ok(t, err)
	equal(t, string(values[1]), "then")
	cursor, err := snapshot.Prefix([]byte("k"))
	ok(t, err)
	snapshot.Close()
	snapshot.Close()
	equal(t, list(t, cursor, nil), "k=then ")
	_, err = snapshot.Get([]byte("k"))
	fails(t, err, ErrClosed)
	_, err = snapshot.Cursor()
	fails(t, err, ErrClosed)
}
