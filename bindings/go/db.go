package siltstone

// #include "bridge.h"
import "C"

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"unsafe"
)

// A DB is an open store. One process at a time has a store open for writing.
type DB struct{ *handle }

// Open opens the existing store in the directory path. options may be nil.
//
// Errors: [ErrRefused] if the directory is not a store; [ErrLocked]; [ErrCorruption] of the list of
// tables; [ErrIO].
func Open(path string, options *Options) (*DB, error) {
	return open(path, options, false)
}

// OpenOrCreate opens the store in the directory path, or creates one if the directory is missing or
// empty. With ReadOnly nothing is created. Errors are as of [Open].
func OpenOrCreate(path string, options *Options) (*DB, error) {
	return open(path, options, true)
}

func open(path string, options *Options, create bool) (*DB, error) {
	opened, err := openWith(path, options, func(path *C.char, options *C.siltstone_options) C.handle_result {
		return C.db_open(path, options, C.bool(create))
	})
	if err != nil {
		return nil, err
	}
	return &DB{newHandle(opened, "store", true, func(db unsafe.Pointer) {
		C.siltstone_db_free((*C.siltstone_db)(db))
	})}, nil
}

// openWith calls open with a path and options for the C library.
func openWith(
	path string, options *Options, open func(*C.char, *C.siltstone_options) C.handle_result,
) (unsafe.Pointer, error) {
	var opened C.handle_result
	err := withStore(path, options, func(path *C.char, options *C.siltstone_options) error {
		opened = open(path, options)
		return check(opened.error)
	})
	return opened.handle, err
}

// withStore calls work with a path and options for the C library.
func withStore(
	path string, options *Options, work func(*C.char, *C.siltstone_options) error,
) error {
	if err := checkText(path, "path"); err != nil {
		return err
	}
	text := C.CString(path)
	defer C.free(unsafe.Pointer(text))
	built, err := options.build()
	if err != nil {
		return err
	}
	defer C.siltstone_options_free(built)
	return work(text, built)
}

func (db *DB) c() *C.siltstone_db { return (*C.siltstone_db)(db.pointer) }

// Table opens an existing table.
//
// Errors: [ErrInvalid] if there is no such table; [ErrCorruption]; [ErrIO].
func (db *DB) Table(name string) (*Table, error) {
	return db.openTable([]string{name}, func(names []*C.char) C.handle_result {
		return C.table_open(db.c(), names[0])
	})
}

// TableOrCreate opens a table, or creates it on the engine "lsm", "trie", "silt", "mica" or
// "skimpy" with options, e.g. {"memtable": "8MiB"}, which may be nil. Options of an existing table
// that differ are applied or refused.
//
// Errors: [ErrInvalidOptions] with every mistake; [ErrInvalid] if the table is on another engine;
// [ErrIO].
func (db *DB) TableOrCreate(name, engine string, options map[string]string) (*Table, error) {
	list, err := textList(optionList(options), "options")
	if err != nil {
		return nil, err
	}
	return db.openTable([]string{name, engine}, func(names []*C.char) C.handle_result {
		return C.table_open_or_create(db.c(), names[0], names[1], C.size_t(len(options)), bytes(list))
	})
}

// openTable calls open with the names for the C library.
func (db *DB) openTable(names []string, open func([]*C.char) C.handle_result) (*Table, error) {
	var opened C.handle_result
	err := db.withNames(names, func(names []*C.char) *C.siltstone_error {
		opened = open(names)
		return opened.error
	})
	if err != nil {
		return nil, err
	}
	return newTable(opened.handle), nil
}

// withNames calls the C library with names or paths.
func (db *DB) withNames(names []string, call func([]*C.char) *C.siltstone_error) error {
	texts := make([]*C.char, len(names))
	for i, name := range names {
		if err := checkText(name, "name"); err != nil {
			return err
		}
		texts[i] = C.CString(name)
		defer C.free(unsafe.Pointer(texts[i]))
	}
	if err := db.acquire(); err != nil {
		return err
	}
	defer db.release()
	return check(call(texts))
}

// DropTable removes a table with all of its files. Calls with its other objects fail with
// [ErrClosed].
//
// Errors: [ErrInvalid] if there is no such table; [ErrIO].
func (db *DB) DropTable(name string) error {
	return db.withNames([]string{name}, func(names []*C.char) *C.siltstone_error {
		return C.siltstone_table_drop(db.c(), names[0])
	})
}

// RenameTable renames a table that is not in use: close every [Table] of it first.
//
// Errors: [ErrInvalid] if there is no such table, or if the new name is taken; [ErrRefused] if the
// table is in use.
func (db *DB) RenameTable(name, newName string) error {
	return db.withNames([]string{name, newName}, func(names []*C.char) *C.siltstone_error {
		return C.siltstone_table_rename(db.c(), names[0], names[1])
	})
}

// TableInfo is the engine and the options of a table.
type TableInfo struct {
	Engine  string            `json:"engine"`
	Options map[string]string `json:"options"`
}

// Tables returns the tables by name.
func (db *DB) Tables() (map[string]TableInfo, error) {
	if err := db.acquire(); err != nil {
		return nil, err
	}
	defer db.release()
	text, err := takeText(C.db_tables(db.c()))
	if err != nil {
		return nil, err
	}
	var tables map[string]TableInfo
	return tables, json.Unmarshal(text, &tables)
}

// DiskUsage returns the bytes of the files of each table.
func (db *DB) DiskUsage() (map[string]uint64, error) {
	if err := db.acquire(); err != nil {
		return nil, err
	}
	defer db.release()
	text, err := takeText(C.db_disk_usage(db.c()))
	if err != nil {
		return nil, err
	}
	var usage map[string]uint64
	return usage, json.Unmarshal(text, &usage)
}

// Write applies batches to tables of the store, to all of them or to none. The tables are on lsm,
// trie or silt. The batches stay as they are.
//
// Errors: [ErrInvalid] for a table of another store, and for a batch that is given twice;
// [ErrUnsupported] by other engines; those of all writes.
func (db *DB) Write(batches map[*Table]*Batch) error { return db.write(batches, false) }

// WriteSync is Write, and all of it survives a power cut once it returns.
func (db *DB) WriteSync(batches map[*Table]*Batch) error { return db.write(batches, true) }

func (db *DB) write(batches map[*Table]*Batch, synced C.bool) error {
	// Another call may want the same batches: all calls acquire them in the order of their addresses.
	tables := slices.SortedFunc(maps.Keys(batches), func(a, b *Table) int {
		return cmp.Compare(uintptr(unsafe.Pointer(batches[a])), uintptr(unsafe.Pointer(batches[b])))
	})
	if err := db.acquire(); err != nil {
		return err
	}
	defer db.release()
	for _, table := range tables {
		if err := table.acquire(); err != nil {
			return err
		}
		defer table.release()
	}
	var cTables []*C.siltstone_table
	var cBatches []*C.siltstone_batch
	for i, table := range tables {
		batch := batches[table]
		if i > 0 && batches[tables[i-1]] == batch {
			return &Error{Code: ErrInvalid, Message: "a batch is given for two tables"}
		}
		if err := batch.acquire(); err != nil {
			return err
		}
		defer batch.release()
		cTables, cBatches = append(cTables, table.c()), append(cBatches, batch.c())
	}
	return check(C.siltstone_write(db.c(), C.size_t(len(tables)), unsafe.SliceData(cTables),
		unsafe.SliceData(cBatches), synced))
}

// withTables calls the C library with tables of the store.
func (db *DB) withTables(tables []*Table, call func([]*C.siltstone_table) *C.siltstone_error) error {
	if err := db.acquire(); err != nil {
		return err
	}
	defer db.release()
	acquired := make([]*C.siltstone_table, len(tables))
	for i, table := range tables {
		if slices.Contains(tables[:i], table) {
			return &Error{Code: ErrInvalid, Message: "a table is given twice"}
		}
		if err := table.acquire(); err != nil {
			return err
		}
		defer table.release()
		acquired[i] = table.c()
	}
	return check(call(acquired))
}

// Sync makes every write that has returned, to any table, durable against a power cut.
func (db *DB) Sync() error {
	if err := db.acquire(); err != nil {
		return err
	}
	defer db.release()
	return check(C.siltstone_sync(db.c()))
}

// Checkpoint copies every table, each as of a moment during the call, into the new directory path,
// while the store is in use. Files are linked where both directories are on one file system. The
// copy is a store.
//
// Errors: [ErrRefused] if the directory exists or is inside a store; [ErrIO]. There is no partial
// copy then.
func (db *DB) Checkpoint(path string) error {
	return db.withNames([]string{path}, func(paths []*C.char) *C.siltstone_error {
		return C.siltstone_checkpoint(db.c(), paths[0])
	})
}

// Close finishes background work, makes everything durable and releases the directory. Calls with
// the tables, snapshots and transactions of the store fail with [ErrClosed] from then on. Closing
// again does nothing.
//
// Errors: [ErrIO] and [ErrReadOnly]. The store is closed in any case; some writes may not be
// durable then.
func (db *DB) Close() error {
	if db.acquire() != nil {
		return nil
	}
	err := check(C.siltstone_close(db.c()))
	db.release()
	db.close()
	return err
}
