package siltstone

import (
	"testing"
	"time"
)

func TestCursor_MovesInBothDirections(t *testing.T) {
	table := newTestTable(t, "lsm")
	expiry := time.UnixMilli(time.Now().Add(time.Hour).UnixMilli())
	ok(t, table.Put([]byte("a"), []byte("1")))
	ok(t, table.Put([]byte("b1"), nil))
	ok(t, table.Put([]byte("b2"), []byte("3")))
	ok(t, table.PutUntil([]byte("c"), []byte("4"), expiry))
	cursor, err := table.Cursor()
	ok(t, err)
	on := func(moved bool, key string) {
		t.Helper()
		ok(t, cursor.Err())
		equal(t, moved, key != "")
		equal(t, cursor.Valid(), moved)
		equal(t, string(cursor.Key()), key)
		equal(t, cursor.Value() != nil, moved)
	}
	on(cursor.Valid(), "")
	on(cursor.Next(), "a")
	on(cursor.Next(), "b1")
	equal(t, len(cursor.Value()), 0)
	on(cursor.Prev(), "a")
	on(cursor.Prev(), "")
	on(cursor.Next(), "")
	on(cursor.Last(), "c")
	equal(t, cursor.ExpiresAt().Equal(expiry), true)
	equal(t, string(cursor.Value()), "4")
	on(cursor.Seek([]byte("b")), "b1")
	equal(t, cursor.ExpiresAt().IsZero(), true)
	on(cursor.SeekBack([]byte("b")), "a")
	on(cursor.Seek([]byte("d")), "")
	ok(t, table.Put([]byte("a0"), []byte("later")))
	on(cursor.First(), "a")
	key := cursor.Key()
	on(cursor.Next(), "b1") // as of its creation
	equal(t, string(key), "a")
	ok(t, cursor.SkipValues())
	on(cursor.First(), "a")
	cursor.Close()
	cursor.Close()
	equal(t, cursor.First(), false)
	equal(t, cursor.Valid(), false)
	fails(t, cursor.Err(), ErrClosed)
	fails(t, cursor.SkipValues(), ErrClosed)
}

func TestCursor_KeepsToItsRange(t *testing.T) {
	table := newTestTable(t, "lsm")
	for _, key := range []string{"", "a", "b1", "b2", "c"} {
		ok(t, table.Put([]byte(key), []byte(key)))
	}
	for _, c := range []struct {
		start, end []byte
		want       string
	}{
		{nil, nil, "= a=a b1=b1 b2=b2 c=c "},
		{[]byte{}, nil, "= a=a b1=b1 b2=b2 c=c "},
		{nil, []byte{}, ""},
		{[]byte("a0"), []byte("c"), "b1=b1 b2=b2 "},
		{[]byte("b2"), nil, "b2=b2 c=c "},
	} {
		cursor, err := table.Range(c.start, c.end)
		equal(t, list(t, cursor, err), c.want)
	}
	_, err := table.Range([]byte("z"), []byte("a"))
	fails(t, err, ErrInvalid)
	cursor, err := table.Prefix([]byte("b"))
	equal(t, list(t, cursor, err), "b1=b1 b2=b2 ")
	cursor, err = table.Prefix(nil)
	equal(t, list(t, cursor, err), "= a=a b1=b1 b2=b2 c=c ")

	cursor, err = table.Cursor()
	ok(t, err)
	defer cursor.Close()
	backward := ""
	for key := range cursor.Backward() {
		backward += string(key) + " "
		if string(key) == "b1" {
			break
		}
	}
	equal(t, backward, "c b2 b1 ")
	equal(t, string(cursor.Key()), "b1")
}

// A cursor of a closed store shows entries that are in memory, and fails where it would read files.
func TestCursor_OutlivesItsStore(t *testing.T) {
	db := newDB(t)
	table, err := db.TableOrCreate("t", "lsm", nil)
	ok(t, err)
	ok(t, table.Put([]byte("a"), []byte("1")))
	cursor, err := table.Cursor()
	ok(t, err)
	defer cursor.Close()
	ok(t, db.Close())
	table.Close()
	for key, value := range cursor.All() {
		equal(t, string(key)+string(value), "a1")
	}
	if cursor.Err() != nil {
		fails(t, cursor.Err(), ErrClosed)
	}
	_, err = table.Cursor()
	fails(t, err, ErrClosed)
}

// atDepth calls use with a number of frames below it.
func atDepth(depth int, use func()) {
	if depth == 0 {
		use()
		return
	}
	atDepth(depth-1, use)
}

// TestCursor_EmptyValueSurvivesGrowthOfTheStack moves onto an empty value at many depths of new
// stacks, of which some grow during the move: the runtime then looks at the pointers of the C library.
func TestCursor_EmptyValueSurvivesGrowthOfTheStack(t *testing.T) {
	table := newTestTable(t, "lsm")
	ok(t, table.Put([]byte("k"), nil))
	cursor, err := table.Cursor()
	ok(t, err)
	defer cursor.Close()
	for depth := range 600 {
		done := make(chan bool)
		go func() {
			atDepth(depth, func() { done <- cursor.First() && len(cursor.Value()) == 0 })
		}()
		equal(t, <-done, true)
	}
}
