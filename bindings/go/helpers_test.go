package siltstone

import (
	"errors"
	"path/filepath"
	"testing"
)

// newDB opens a new store, which is closed at the end of the test.
func newDB(t testing.TB) *DB {
	t.Helper()
	db, err := OpenOrCreate(filepath.Join(t.TempDir(), "store"), nil)
	ok(t, err)
	t.Cleanup(func() { ok(t, db.Close()) })
	return db
}

// newTable opens a table of a new store.
func newTestTable(t testing.TB, engine string) *Table {
	t.Helper()
	table, err := newDB(t).TableOrCreate("t", engine, nil)
	ok(t, err)
	t.Cleanup(table.Close)
	return table
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fails(t testing.TB, err error, code Code) *Error {
	t.Helper()
	var failed *Error
	if !errors.Is(err, code) || !errors.As(err, &failed) || failed.Message == "" {
		t.Fatalf("got %v, want %v", err, code)
	}
	return failed
}

func equal[T comparable](t testing.TB, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// get returns the value of a key as text, and "<none>" if there is none.
func get(t testing.TB, r Reader, key string) string {
	t.Helper()
	value, err := r.Get([]byte(key))
	ok(t, err)
	if value == nil {
		return "<none>"
	}
	return string(value)
}

// list returns the entries of a cursor as text, and closes it.
func list(t testing.TB, cursor *Cursor, err error) string {
	t.Helper()
	ok(t, err)
	defer cursor.Close()
	text := ""
	for key, value := range cursor.All() {
		text += string(key) + "=" + string(value) + " "
	}
	ok(t, cursor.Err())
	return text
}
