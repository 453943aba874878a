package siltstone

import (
	"encoding/binary"
	"path/filepath"
	"testing"
	"time"
)

func TestTable_DeletesAndCompactsRanges(t *testing.T) {
	table := newTestTable(t, "lsm")
	for _, key := range []string{"a", "b", "c", "d"} {
		ok(t, table.Put([]byte(key), []byte("1")))
	}
	ok(t, table.DeleteRange([]byte("b"), []byte("d")))
	equal(t, get(t, table, "b")+get(t, table, "d"), "<none>1")
	batch := NewBatch()
	defer batch.Close()
	ok(t, batch.DeleteRange(nil, []byte("b")))
	ok(t, batch.Put([]byte("e"), []byte("2")))
	fails(t, batch.DeleteRange([]byte("z"), []byte("b")), ErrInvalid)
	ok(t, table.Write(batch))
	equal(t, get(t, table, "a")+get(t, table, "e"), "<none>2")
	ok(t, table.CompactRange(nil, nil))
	fails(t, table.CompactRange([]byte("z"), []byte("b")), ErrInvalid)
	fails(t, newTestTable(t, "mica").DeleteRange(nil, nil), ErrUnsupported)
}

func TestTable_ComparesAndSwaps(t *testing.T) {
	table := newTestTable(t, "lsm")
	key, empty, one := []byte("k"), []byte{}, []byte("1")
	for _, swap := range []struct {
		expected, value []byte
		swapped         bool
		left            string
	}{
		{one, one, false, "<none>"},
		{empty, one, false, "<none>"},
		{nil, empty, true, ""},
		{nil, one, false, ""},
		{empty, one, true, "1"},
		{one, nil, true, "<none>"},
		{nil, nil, true, "<none>"},
	} {
		swapped, err := table.CompareAndSwap(key, swap.expected, swap.value)
		ok(t, err)
		equal(t, swapped, swap.swapped)
		equal(t, get(t, table, "k"), swap.left)
	}
}

func TestTable_PopsTheFirstAndTheLastEntry(t *testing.T) {
	table := newTestTable(t, "lsm")
	for _, entry := range [][2]string{{"b", "2"}, {"a", "1"}, {"c", ""}} {
		ok(t, table.Put([]byte(entry[0]), []byte(entry[1])))
	}
	key, value, err := table.PopFirst()
	ok(t, err)
	equal(t, string(key)+"="+string(value), "a=1")
	key, value, err = table.PopLast()
	ok(t, err)
	equal(t, string(key)+"="+string(value), "c=")
	equal(t, value != nil, true)
	key, _, err = table.PopLast()
	ok(t, err)
	equal(t, string(key), "b")
	key, value, err = table.PopFirst()
	ok(t, err)
	equal(t, key == nil && value == nil, true)
}

func TestTable_SnapshotAtShowsAPastTime(t *testing.T) {
	db := newDB(t)
	table, err := db.TableOrCreate("t", "skimpy", map[string]string{"retention": "1h", "capacity": "16MiB"})
	ok(t, err)
	defer table.Close()
	ok(t, table.Put([]byte("k"), []byte("100")))
	then := time.Now()
	time.Sleep(2 * time.Millisecond)
	ok(t, table.Put([]byte("k"), []byte("120")))
	snapshot, err := table.SnapshotAt(then)
	ok(t, err)
	defer snapshot.Close()
	equal(t, get(t, snapshot, "k"), "100")
	_, err = table.SnapshotAt(time.Now().Add(time.Hour))
	fails(t, err, ErrInvalid)
}

func TestTable_EstimatesSizes(t *testing.T) {
	db := newDB(t)
	table, err := db.TableOrCreate("t", "lsm", nil)
	ok(t, err)
	defer table.Close()
	for _, key := range []string{"a", "b", "c"} {
		ok(t, table.Put([]byte(key), []byte("1")))
	}
	ok(t, table.Flush())
	count, err := table.ApproximateLen()
	ok(t, err)
	equal(t, count >= 3, true)
	usage, err := db.DiskUsage()
	ok(t, err)
	equal(t, len(usage) == 1 && usage["t"] > 0, true)
	flash, err := db.TableOrCreate("flash", "skimpy", nil)
	ok(t, err)
	defer flash.Close()
	_, err = flash.ApproximateLen()
	fails(t, err, ErrUnsupported)
}

func TestTable_ChangesOptions(t *testing.T) {
	table := newTestTable(t, "lsm")
	later, err := table.SetOptions(map[string]string{"cache": "2MiB", "levels": "64MiB:1GiB:10GiB"})
	ok(t, err)
	equal(t, len(later), 1)
	equal(t, later[0], "levels")
	_, err = table.SetOptions(map[string]string{"cache": "many"})
	fails(t, err, ErrInvalidOptions)
}

func TestTable_Merges(t *testing.T) {
	table := newTestTable(t, "lsm")
	three := binary.LittleEndian.AppendUint64(nil, 3)
	fails(t, table.Merge([]byte("k"), three), ErrInvalid)
	fails(t, table.SetMergeOperator("mine"), ErrInvalid)
	ok(t, table.SetMergeOperator(MergeCounter))
	ok(t, table.Merge([]byte("k"), three))
	batch := NewBatch()
	defer batch.Close()
	ok(t, batch.Merge([]byte("k"), three))
	ok(t, table.Write(batch))
	equal(t, binary.LittleEndian.Uint64([]byte(get(t, table, "k"))), 6)

	table = newTestTable(t, "lsm")
	ok(t, table.SetMergeOperator(MergeAppend([]byte(", "))))
	ok(t, table.Merge([]byte("k"), []byte("a")))
	ok(t, table.Merge([]byte("k"), []byte("b")))
	equal(t, get(t, table, "k"), "a, b")
}

func TestDB_WritesOverTables(t *testing.T) {
	db := newDB(t)
	tables, batches := map[*Table]*Batch{}, []*Batch{NewBatch(), NewBatch()}
	for i, name := range []string{"left", "right"} {
		table, err := db.TableOrCreate(name, "lsm", nil)
		ok(t, err)
		defer table.Close()
		ok(t, batches[i].Put([]byte("k"), []byte(name)))
		tables[table] = batches[i]
	}
	ok(t, db.WriteSync(tables))
	for table, batch := range tables {
		equal(t, get(t, table, "k") == "left", batch == batches[0])
		tables[table] = batches[0]
	}
	fails(t, db.Write(tables), ErrInvalid)
	ok(t, db.Write(nil))
	batches[0].Close()
	for table := range tables {
		tables[table] = batches[0]
		break
	}
	fails(t, db.Write(tables), ErrClosed)
}

func TestTable_IngestsSortedFiles(t *testing.T) {
	table := newTestTable(t, "lsm")
	ok(t, table.Put([]byte("gone"), []byte("1")))
	path := filepath.Join(t.TempDir(), "rows.sorted")
	file, err := CreateSortedFile(path, map[string]string{"compression": "none"})
	ok(t, err)
	defer file.Close()
	ok(t, file.PutUntil([]byte("fresh"), []byte("1"), time.Now().Add(time.Hour)))
	ok(t, file.Delete([]byte("gone")))
	ok(t, file.Put([]byte("new"), []byte("3")))
	fails(t, file.Put([]byte("a"), nil), ErrInvalid)
	ok(t, file.Finish())
	fails(t, file.Finish(), ErrInvalid)
	report, err := table.Ingest([]string{path}, IngestMove)
	ok(t, err)
	equal(t, report.Entries, 3)
	equal(t, get(t, table, "fresh")+get(t, table, "gone")+get(t, table, "new"), "1<none>3")
	_, err = table.Ingest([]string{path}, IngestLink)
	fails(t, err, ErrIO)
	_, err = CreateSortedFile("a\x00b", nil)
	fails(t, err, ErrInvalid)
}
