'use strict'

// Iterates over a cursor of the library, which shows the table as of its creation.
//
// Entries are read many at a time, on another thread, and kept until they are asked for. The number
// grows with each read, so that a short iteration reads little.
//
// Invariant: the kept entries are those that follow the last returned one.

const { AbstractIterator } = require('abstract-level')
const library = require('./library')

const FIRST_READ = 16
const MAX_READ = 1024
const MAX_BYTES = 256 << 10

class SiltstoneIterator extends AbstractIterator {
  constructor (db, options) {
    super(db, options)
    this._db = db
    this._reverse = options.reverse
    const { start, end, isEmpty } = bounds(options)
    this._start = start
    this._end = end
    this._isAtEnd = isEmpty || options.limit === 0
    this._kept = []
    this._next_read = FIRST_READ
    this._target = null
    this._cursor = null
    // abstract-level rejects reads of an iterator over a snapshot that is closed.
    if (isEmpty || (options.snapshot && options.snapshot._handle === null)) return
    const cursor = [null]
    const [name, of] = options.snapshot
      ? ['snapshot_cursor', options.snapshot._handle]
      : ['table_cursor', db._table]
    library.now(name, of, start, start ? start.length : 0, end, end ? end.length : 0, cursor)
    this._cursor = cursor[0]
    if (options.values === false) library.now('cursor_skip_values', this._cursor)
  }

  async _next () {
    if (this._kept.length === 0) await this._fill(Infinity)
    return this._kept.pop()
  }

  async _nextv (size, options) {
    const entries = []
    while (entries.length < size) {
      if (this._kept.length === 0) await this._fill(size - entries.length)
      if (this._kept.length === 0) break
      while (entries.length < size && this._kept.length > 0) entries.push(this._kept.pop())
    }
    return entries
  }

  // Reads entries into `_kept`, the next one last; none at the end.
  async _fill (wanted) {
    if (this._cursor === null) return
    if (this._target !== null) await this._seekNow()
    if (this._kept.length > 0 || this._isAtEnd) return
    const max = Math.min(Math.max(this._next_read, wanted === Infinity ? 1 : wanted), MAX_READ)
    this._next_read = Math.min(this._next_read * 4, MAX_READ)
    const [memory, length, count] = [[null], [0], [0]]
    await this._db._later('cursor_read', this._cursor, this._reverse, max, MAX_BYTES, memory,
      length, count)
    const bytes = library.take(memory[0], Number(length[0]))
    for (let at = 0; at < bytes.length;) {
      const keyEnd = at + 8 + bytes.readUInt32LE(at)
      const valueEnd = keyEnd + bytes.readUInt32LE(at + 4)
      this._kept.push([bytes.subarray(at + 8, keyEnd), bytes.subarray(keyEnd, valueEnd)])
      at = valueEnd
    }
    this._kept.reverse()
    if (Number(count[0]) < max && bytes.length < MAX_BYTES) this._isAtEnd = true
  }

  _seek (target, options) {
    this._kept = []
    // A target outside of the range leads to its end.
    const isOutside = (this._start && Buffer.compare(target, this._start) < 0) ||
      (this._end && Buffer.compare(target, this._end) >= 0)
    this._isAtEnd = Boolean(isOutside)
    this._target = isOutside ? null : Buffer.from(target)
    this._next_read = FIRST_READ
  }

  async _seekNow () {
    const target = this._target
    this._target = null
    const name = this._reverse ? 'cursor_seek_back' : 'cursor_seek'
    await this._db._later(name, this._cursor, target, target.length)
    if (!library.cursor_valid(this._cursor)) {
      this._isAtEnd = true
      return
    }
    const part = name => {
      const length = [0]
      const pointer = library[name](this._cursor, length)
      return library.copy(pointer, Number(length[0]))
    }
    this._kept.push([part('cursor_key'), part('cursor_value')])
  }

  async _close () {
    library.cursor_free(this._cursor)
    this._cursor = null
  }
}

// The range from `start` to before `end`, where null is no bound. The inclusive bounds go first.
function bounds ({ gt, gte, lt, lte }) {
  const after = key => Buffer.concat([key, Buffer.alloc(1)])
  const start = gte !== undefined ? Buffer.from(gte) : gt !== undefined ? after(gt) : null
  const end = lte !== undefined ? after(lte) : lt !== undefined ? Buffer.from(lt) : null
  // No key is before the empty one, and for the library an empty bound is none.
  const isEmpty = end !== null && Buffer.compare(start || Buffer.alloc(0), end) >= 0
  return { start, end, isEmpty }
}

module.exports = { SiltstoneIterator, bounds }
