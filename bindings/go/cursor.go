package siltstone

// #include "bridge.h"
import "C"

import (
	"iter"
	"math"
	"time"
)

// A Cursor is a position among the entries of a table, as of the creation of the cursor.
//
// A new cursor is not on an entry: Next moves to the first one, and Prev to the last one. A move
// returns whether the cursor is on an entry; if not, Err tells an error from the end of the range.
// A cursor that has left its range stays there until it is positioned by First, Last, Seek or
// SeekBack. On engines without order only First and Next work. An open cursor keeps files that
// compaction has replaced, so close it.
type Cursor struct {
	*handle
	key, value []byte // nil: not on an entry
	expiresAt  uint64
	err        error
}

// SkipValues makes values empty, from the next move on, where reading them would cost more.
func (c *Cursor) SkipValues() error {
	if err := c.acquire(); err != nil {
		return err
	}
	defer c.release()
	return check(C.siltstone_cursor_skip_values((*C.siltstone_cursor)(c.pointer)))
}

// First moves to the first entry.
func (c *Cursor) First() bool { return c.move(C.MOVE_FIRST, nil) }

// Last moves to the last entry.
func (c *Cursor) Last() bool { return c.move(C.MOVE_LAST, nil) }

// Next moves to the next entry; from a new cursor, to the first.
func (c *Cursor) Next() bool { return c.move(C.MOVE_NEXT, nil) }

// Prev moves to the previous entry; from a new cursor, to the last.
func (c *Cursor) Prev() bool { return c.move(C.MOVE_PREV, nil) }

// Seek moves to the first entry whose key is not less than key.
func (c *Cursor) Seek(key []byte) bool { return c.move(C.MOVE_SEEK, key) }

// SeekBack moves to the last entry whose key is not greater than key.
func (c *Cursor) SeekBack(key []byte) bool { return c.move(C.MOVE_SEEK_BACK, key) }

func (c *Cursor) move(move C.move, key []byte) bool {
	c.key, c.value, c.expiresAt = nil, nil, 0
	if c.err = c.acquire(); c.err != nil {
		return false
	}
	defer c.release()
	moved := C.cursor_move((*C.siltstone_cursor)(c.pointer), move, bytes(key), length(key))
	c.err = check(moved.error)
	if !moved.is_valid {
		return false
	}
	c.key, c.value = clone(moved.key, moved.key_len), clone(moved.value, moved.value_len)
	c.expiresAt = uint64(moved.expires_at)
	return true
}

// Valid reports whether the cursor is on an entry.
func (c *Cursor) Valid() bool { return c.key != nil }

// Key returns the key under the cursor; nil if the cursor is not on an entry.
func (c *Cursor) Key() []byte { return c.key }

// Value returns the value under the cursor; nil if the cursor is not on an entry.
func (c *Cursor) Value() []byte { return c.value }

// ExpiresAt returns when the entry under the cursor expires. The zero time: never, or the cursor is
// not on an entry.
func (c *Cursor) ExpiresAt() time.Time {
	if c.expiresAt == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(min(c.expiresAt, math.MaxInt64)))
}

// Err returns the error of the last move; nil if it has succeeded or left the range. The cursor can
// be positioned again after an error.
func (c *Cursor) Err() error { return c.err }

// All iterates over keys and values from the first entry on. Err returns the error that has ended
// the iteration early, if any.
func (c *Cursor) All() iter.Seq2[[]byte, []byte] {
	return c.iterate(c.First, c.Next)
}

// Backward iterates over keys and values from the last entry backwards. Err is as after All.
func (c *Cursor) Backward() iter.Seq2[[]byte, []byte] {
	return c.iterate(c.Last, c.Prev)
}

func (c *Cursor) iterate(begin, next func() bool) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for ok := begin(); ok && yield(c.key, c.value); ok = next() {
		}
	}
}

// Close frees the cursor. Moves fail with [ErrClosed] from then on.
func (c *Cursor) Close() { c.close() }
