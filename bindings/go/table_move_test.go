package siltstone

import (
	"fmt"
	"testing"
)

// fillWords puts 1000 keys into a new table "words".
func fillWords(t *testing.T, db *DB) *Table {
	t.Helper()
	words, err := db.TableOrCreate("words", "lsm", nil)
	ok(t, err)
	for i := range 1000 {
		ok(t, words.Put(fmt.Appendf(nil, "%08d", i), []byte("1")))
	}
	return words
}

func TestTableMove_TableInUseMovesToAnotherEngine(t *testing.T) {
	db := newDB(t)
	words := fillWords(t, db)
	moving, err := db.BeginMove("words", "silt", map[string]string{})
	ok(t, err)
	isCopied, err := moving.Copy()
	ok(t, err)
	equal(t, isCopied, true)
	equal(t, moving.Progress(), MoveProgress{Rows: 1000})
	ok(t, words.Put([]byte("meanwhile"), []byte("2")))
	ok(t, words.Delete([]byte("00000007")))
	moved, err := moving.Finish()
	ok(t, err)
	equal(t, moving.Progress(), MoveProgress{Rows: 1000, Changes: 2})
	equal(t, get(t, moved, "00000008")+get(t, moved, "meanwhile")+get(t, moved, "00000007"), "12<none>")
	tables, err := db.Tables()
	ok(t, err)
	equal(t, tables["words"].Engine, "silt")
	fails(t, words.Put([]byte("k"), []byte("v")), ErrClosed)
	_, err = moving.Finish()
	fails(t, err, ErrInvalid)
	moving.Close()
	_, err = moving.Copy()
	fails(t, err, ErrClosed)
}

func TestTableMove_OneThatIsNotFinishedLeavesTheTable(t *testing.T) {
	db := newDB(t)
	words := fillWords(t, db)
	moving, err := db.BeginMove("words", "trie", nil)
	ok(t, err)
	_, err = db.BeginMove("words", "silt", nil)
	fails(t, err, ErrInvalid)
	moving.Cancel()
	isCopied, err := moving.Copy()
	ok(t, err)
	equal(t, isCopied, false)
	_, err = moving.Finish()
	fails(t, err, ErrInvalid)
	moving.Close()
	moving.Close()
	moving, err = db.BeginMove("words", "silt", nil)
	ok(t, err)
	_, err = moving.Copy()
	ok(t, err)
	moving.Close()
	ok(t, words.Put([]byte("k"), []byte("v")))
	_, err = db.BeginMove("none", "silt", nil)
	fails(t, err, ErrInvalid)
	_, err = db.BeginMove("words", "lsm", map[string]string{"memtable": "many"})
	fails(t, err, ErrInvalidOptions)
}
