'use strict'

// The change feed of a table: its committed changes from one sequence number on.
//
// The first `next` begins the feed of the library, once the database is open. A feed looks for a
// change, and sleeps if there is none: a call that waits would keep one of the few threads of
// calls.
//
// Invariants: calls of `next` run one after the other. `close` frees the feed of the library when
// no call uses it, and does not wait for the database to be opened.

const library = require('./library')

const POLL_MS = 10
// By the numbers of siltstone_change_kind.
const KINDS = ['none', 'write', 'cleared', 'ingested']

class SiltstoneChanges {
  constructor (db, since, options) {
    this._db = db
    this._sequence = since
    this._includeUnsynced = options.includeUnsynced === true
    this._keyEncoding = db.keyEncoding(options.keyEncoding)
    this._valueEncoding = db.valueEncoding(options.valueEncoding)
    this._feed = null
    this._closing = null
    this._pending = Promise.resolve()
    this._search = null
    this._wake = () => {}
    db.attachResource(this)
  }

  // That of the last change that was returned, or the one after which the feed begins.
  get sequence () {
    return this._sequence
  }

  [Symbol.asyncIterator] () {
    return this
  }

  next () {
    const next = this._pending.then(() => this._next())
    this._pending = next.catch(() => {})
    return next
  }

  async return () {
    await this.close()
    return { done: true, value: undefined }
  }

  async _next () {
    // After `deferAsync` the database is open or closed.
    if (this._db.status === 'opening') await this._db.deferAsync(async () => {})
    if (this._closing !== null) return { done: true, value: undefined }
    while (this._closing === null) {
      this._db._assertOpen()
      this._search = this._find()
      const change = await this._search.catch(async error => {
        await this.close()
        throw error
      })
      if (change !== null) return { done: false, value: change }
      if (this._closing === null) await this._sleep()
    }
    // The database closes its feeds too, which is no end of the changes.
    this._db._assertOpen()
    return { done: true, value: undefined }
  }

  async _find () {
    if (this._feed === null) {
      const feed = [null]
      await this._db._later('table_changes', this._db._table, this._sequence,
        this._includeUnsynced, feed)
      this._feed = feed[0]
    }
    const isFound = [false]
    await this._db._later('changes_next', this._feed, 0, isFound)
    return isFound[0] ? this._change() : null
  }

  _sleep () {
    return new Promise(resolve => {
      const timer = setTimeout(resolve, POLL_MS)
      this._wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  _change () {
    this._sequence = library.changes_sequence(this._feed)
    const count = library.changes_count(this._feed)
    return {
      kind: KINDS[library.changes_kind(this._feed)] || 'unknown',
      sequence: this._sequence,
      part: library.changes_part(this._feed),
      operations: Array.from({ length: count }, (_, index) => this._operation(index))
    }
  }

  _operation (index) {
    const op = {}
    library.changes_op(this._feed, index, op)
    const key = this._keyEncoding.decode(library.copy(op.key, op.key_len))
    const value = op.value === null ? undefined : library.copy(op.value, op.value_len)
    switch (op.kind) {
      case 1: {
        const put = { type: 'put', key, value: this._valueEncoding.decode(value) }
        return op.expires_at === 0 ? put : { ...put, expiresAt: op.expires_at }
      }
      case 2: return { type: 'del', key }
      case 3: {
        const end = value === undefined ? undefined : this._keyEncoding.decode(value)
        return { type: 'delRange', start: key, end }
      }
      case 4: return { type: 'merge', key, operand: value }
      default: return { type: 'unknown', key, value }
    }
  }

  close () {
    if (this._closing === null) this._closing = this._close()
    return this._closing
  }

  async _close () {
    this._db.detachResource(this)
    this._wake()
    // Its error is that of `next`.
    if (this._search !== null) await this._search.catch(() => {})
    library.changes_free(this._feed)
    this._feed = null
  }
}

if (typeof Symbol.asyncDispose === 'symbol') {
  SiltstoneChanges.prototype[Symbol.asyncDispose] = function () {
    return this.close()
  }
}

module.exports = { SiltstoneChanges }
