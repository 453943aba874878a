package siltstone

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestVersion_IsThatOfTheLibrary(t *testing.T) {
	equal(t, strings.Count(Version(), "."), 2)
}

func TestOpen_ReportsWhyNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	_, err := Open(path, nil)
	fails(t, err, ErrRefused)
	_, err = Open("nul\x00nul", nil)
	fails(t, err, ErrInvalid)
	_, err = OpenOrCreate("\xff", nil)
	fails(t, err, ErrInvalid)
	db, err := OpenOrCreate(path, &Options{
		DirectReads: true, Threads: 2, MaxOpenFiles: 64, CacheBytes: 1 << 20, Idle: -1,
		TransactionMemoryBytes: 1 << 20,
	})
	ok(t, err)
	_, err = Open(path, nil)
	fails(t, err, ErrLocked)
	_, err = Verify(path)
	fails(t, err, ErrLocked)
	_, err = Repair(path)
	fails(t, err, ErrLocked)
	table, err := db.TableOrCreate("t", "lsm", nil)
	ok(t, err)
	ok(t, table.Put([]byte("k"), []byte("v")))
	ok(t, db.Close())
	ok(t, db.Close())
	db, err = Open(path, &Options{ReadOnly: true})
	ok(t, err)
	defer db.Close()
	table, err = db.Table("t")
	ok(t, err)
	equal(t, get(t, table, "k"), "v")
	fails(t, table.Put([]byte("k"), nil), ErrRefused)
}

func TestDB_ManagesTables(t *testing.T) {
	db := newDB(t)
	table, err := db.TableOrCreate("first", "lsm", map[string]string{"memtable": "8MiB", "triad.log": "off"})
	ok(t, err)
	fails(t, db.RenameTable("first", "second"), ErrRefused)
	fails(t, db.RenameTable("none", "second"), ErrInvalid)
	table.Close()
	table.Close()
	fails(t, table.Put([]byte("k"), nil), ErrClosed)
	ok(t, db.RenameTable("first", "second"))
	tables, err := db.Tables()
	ok(t, err)
	equal(t, len(tables), 1)
	equal(t, tables["second"].Engine, "lsm")
	equal(t, tables["second"].Options["memtable"], "8MiB")

	_, err = db.TableOrCreate("x", "lsm", map[string]string{"memtable": "1X", "nonsense": "1"})
	message := fails(t, err, ErrInvalidOptions).Message
	equal(t, strings.Contains(message, "nonsense") && strings.Contains(message, "memtable"), true)
	_, err = db.TableOrCreate("x", "ism", nil)
	fails(t, err, ErrInvalidOptions)
	_, err = db.TableOrCreate("x", "lsm", map[string]string{"a\x00b": "1"})
	fails(t, err, ErrInvalid)
	_, err = db.Table("secnod")
	equal(t, strings.Contains(fails(t, err, ErrInvalid).Message, "second"), true)
	_, err = db.Table("a\x00b")
	fails(t, err, ErrInvalid)

	table, err = db.Table("second")
	ok(t, err)
	ok(t, db.DropTable("second"))
	fails(t, table.Put([]byte("k"), nil), ErrClosed)
	fails(t, db.DropTable("second"), ErrInvalid)
	ok(t, db.Sync())
}

func TestDB_CheckpointIsAStore(t *testing.T) {
	db := newDB(t)
	table, err := db.TableOrCreate("t", "lsm", nil)
	ok(t, err)
	ok(t, table.Put([]byte("k"), []byte("v")))
	path := filepath.Join(t.TempDir(), "copy")
	ok(t, db.Checkpoint(path))
	fails(t, db.Checkpoint(path), ErrRefused)
	report, err := Verify(path)
	ok(t, err)
	equal(t, report.IsIntact, true)
	repaired, err := Repair(path)
	ok(t, err)
	equal(t, repaired.IsLossless, true)
	report, err = db.Verify()
	ok(t, err)
	equal(t, report.IsIntact && report.Tables["t"].Damage != nil, true)
	duplicate, err := Open(path, nil)
	ok(t, err)
	defer duplicate.Close()
	table, err = duplicate.Table("t")
	ok(t, err)
	equal(t, get(t, table, "k"), "v")
}

func TestDB_AfterCloseEveryCallFails(t *testing.T) {
	db := newDB(t)
	table, err := db.TableOrCreate("t", "lsm", nil)
	ok(t, err)
	snapshot, err := table.Snapshot()
	ok(t, err)
	tx, err := table.Begin()
	ok(t, err)
	ok(t, db.Close())
	key := []byte("k")
	calls := map[string]func() error{
		"Table":          func() error { _, err := db.Table("t"); return err },
		"TableOrCreate":  func() error { _, err := db.TableOrCreate("t", "lsm", nil); return err },
		"DropTable":      func() error { return db.DropTable("t") },
		"RenameTable":    func() error { return db.RenameTable("t", "u") },
		"Tables":         func() error { _, err := db.Tables(); return err },
		"DiskUsage":      func() error { _, err := db.DiskUsage(); return err },
		"Sync":           db.Sync,
		"Checkpoint":     func() error { return db.Checkpoint("x") },
		"Verify":         func() error { _, err := db.Verify(); return err },
		"Get":            func() error { _, err := table.Get(key); return err },
		"Has":            func() error { _, err := table.Has(key); return err },
		"MultiGet":       func() error { _, err := table.MultiGet(key); return err },
		"Put":            func() error { return table.Put(key, key) },
		"PutTTL":         func() error { return table.PutTTL(key, key, time.Hour) },
		"Delete":         func() error { return table.Delete(key) },
		"Write":          func() error { return table.Write(NewBatch()) },
		"Clear":          table.Clear,
		"Table.Sync":     table.Sync,
		"Flush":          table.Flush,
		"Maintain":       table.Maintain,
		"Count":          func() error { _, err := table.Count(); return err },
		"ApproximateLen": func() error { _, err := table.ApproximateLen(); return err },
		"CompareAndSwap": func() error { _, err := table.CompareAndSwap(key, nil, key); return err },
		"PopFirst":       func() error { _, _, err := table.PopFirst(); return err },
		"Snapshot":       func() error { _, err := table.Snapshot(); return err },
		"Begin":          func() error { _, err := table.Begin(); return err },
		"Transact":       func() error { return table.Transact(func(*Transaction) error { return nil }) },
		"Cursor":         func() error { _, err := table.Cursor(); return err },
		"Snapshot.Get":   func() error { _, err := snapshot.Get(key); return err },
		"Tx.Get":         func() error { _, err := tx.Get(key); return err },
	}
	try := func(open string) {
		for name, call := range calls {
			if err := call(); !errors.Is(err, ErrClosed) {
				t.Errorf("%s of a closed %s: %v", name, open, err)
			}
		}
	}
	try("store")
	table.Close()
	snapshot.Close()
	tx.Close()
	try("object")
}

// damageTable overwrites bytes of the largest file of the table t.
func damageTable(t *testing.T, path string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(path, "table-t"))
	ok(t, err)
	name, size := "", int64(20000)
	for _, entry := range entries {
		info, err := entry.Info()
		ok(t, err)
		if info.Size() > size {
			name, size = entry.Name(), info.Size()
		}
	}
	file, err := os.OpenFile(filepath.Join(path, "table-t", name), os.O_WRONLY, 0)
	ok(t, err)
	_, err = file.WriteAt([]byte("damage damage damage"), 10000)
	ok(t, err)
	ok(t, file.Close())
	return name
}

func TestRepair_SavesWhatIsNotDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	db, err := OpenOrCreate(path, nil)
	ok(t, err)
	table, err := db.TableOrCreate("t", "lsm", map[string]string{"triad.log": "off"})
	ok(t, err)
	batch := NewBatch()
	defer batch.Close()
	for i := range 5000 {
		ok(t, batch.Put([]byte(fmt.Sprintf("key%06d", i)), []byte("a value that takes some space")))
	}
	ok(t, table.Write(batch))
	ok(t, table.Flush())
	table.Close()
	ok(t, db.Close())
	name := damageTable(t, path)

	report, err := Verify(path)
	ok(t, err)
	equal(t, report.IsIntact, false)
	damage := report.Tables["t"].Damage
	equal(t, len(damage) > 0 && strings.Contains(damage[0].File, name), true)
	db, err = Open(path, nil)
	ok(t, err)
	table, err = db.Table("t")
	ok(t, err)
	_, err = table.Count()
	equal(t, strings.Contains(fails(t, err, ErrCorruption).Message, name), true)
	ok(t, db.Close())
	repaired, err := Repair(path)
	ok(t, err)
	equal(t, repaired.IsLossless, false)
	equal(t, len(repaired.Tables["t"].Losses) > 0, true)
	db, err = Open(path, nil)
	ok(t, err)
	defer db.Close()
	table, err = db.Table("t")
	ok(t, err)
	count, err := table.Count()
	ok(t, err)
	equal(t, count > 4000 && count < 5000, true)
}
