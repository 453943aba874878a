'use strict'

// A table of a store as an abstract-level database.
//
// Each write is one batch: it is built at once, with copies of keys and values. A buffered write
// that need not wait is applied at once, too: a hop to another thread and back takes many times as
// long. After about 60 of these in a row one ends in a later turn of the event loop, so that a loop
// of writes does not keep it from its other work. The other writes are applied on another thread. A
// read without a snapshot takes one for itself at once, so it does not see writes that are called
// after it.
//
// Invariants: a write at once never overtakes a write on another thread. A handle is freed when no
// call uses it any more: `_close` waits for running calls, before and after it closes the store, as
// an operation of several calls may have begun another one meanwhile.

const fs = require('fs')
const path = require('path')
const { AbstractLevel } = require('abstract-level')
const library = require('./library')
const { SiltstoneChanges } = require('./changes')
const { Gets } = require('./gets')
const { SiltstoneIterator, bounds } = require('./iterator')
const { SiltstoneSnapshot } = require('./snapshot')

const ENGINE = 'lsm'
const CLEAR_BATCH = 1000
// A write of more bytes, or those together, would keep the event loop from other work for too long.
const MAX_BYTES_AT_ONCE = 64 << 10
// What a call costs beside its bytes, as bytes.
const CALL_COST = 1 << 10

class SiltstoneLevel extends AbstractLevel {
  constructor (location, options = {}) {
    if (typeof location !== 'string' || location === '') {
      throw new TypeError("The first argument 'location' must be a non-empty string")
    }
    super({
      encodings: { buffer: true },
      seek: true,
      has: true,
      getSync: true,
      implicitSnapshots: true,
      explicitSnapshots: true,
      createIfMissing: true,
      errorIfExists: true,
      additionalMethods: {
        catchUp: true,
        changes: true,
        checkpoint: true,
        compactRange: true,
        compareAndSwap: true,
        maintain: true,
        move: true,
        stats: true,
        sync: true
      }
    }, options)
    this._location = location
    this._calls = 0
    this._gets = new Gets(this)
    // Writes on other threads.
    this._writes = 0
    // That of the writes at once, in bytes, since one of them gave way to the event loop.
    this._costAtOnce = 0
    // Those who wait until no call is running.
    this._whenIdle = []
    // With the option `reader`: `_db` is a reader then. Its tables before the last catch-up are
    // freed when no call is running.
    this._isReader = false
    this._oldTables = []
  }

  get location () {
    return this._location
  }

  async _open (options) {
    const location = path.resolve(this._location)
    const exists = fs.existsSync(path.join(location, 'CATALOG'))
    if (exists && options.errorIfExists) {
      throw new Error(`${location} exists, and errorIfExists is set`)
    }
    if (!exists && !options.createIfMissing) {
      throw new Error(`the store ${location} does not exist, and createIfMissing is not set`)
    }
    if (!exists && options.reader) throw new Error(`${location} is not a store`)
    if (!exists && !options.readOnly) fs.mkdirSync(path.dirname(location), { recursive: true })
    const storeOptions = optionsOf(options)
    const db = [null]
    const open = options.reader ? 'reader_open' : exists ? 'open' : 'open_or_create'
    try {
      for (const key of options.encryptionKeys || []) {
        library.now('options_add_key', storeOptions, key, key.length)
      }
      await library.later(open, location, storeOptions, db)
    } finally {
      library.options_free(storeOptions)
    }
    this._isReader = Boolean(options.reader)
    this._name = options.table || 'level'
    const table = [null]
    if (options.reader) {
      try {
        await library.later('reader_table', db[0], this._name, table)
      } catch (error) {
        library.reader_free(db[0])
        throw error
      }
      this._db = db[0]
      this._table = table[0]
      return
    }
    const tableOptions = optionList(options.tableOptions)
    try {
      await library.later('table_open_or_create', db[0], this._name, ENGINE, tableOptions,
        tableOptions.length, table)
    } catch (error) {
      await library.later('close', db[0]).catch(() => {})
      library.db_free(db[0])
      throw error
    }
    this._db = db[0]
    this._table = table[0]
  }

  async _close () {
    await this._idle()
    try {
      if (!this._isReader) await library.later('close', this._db)
    } finally {
      await this._idle()
      library.table_free(this._table)
      if (this._isReader) library.reader_free(this._db)
      else library.db_free(this._db)
      this._table = this._db = null
    }
  }

  // Waits until no call is running.
  async _idle () {
    while (this._calls > 0) await new Promise(resolve => this._whenIdle.push(resolve))
  }

  // Runs a call on another thread, which `_close` waits for.
  async _later (...call) {
    this._calls++
    try {
      return await library.later(...call)
    } finally {
      // It may have been a write.
      this._gets.close()
      this._calls--
      if (this._calls === 0) {
        this._oldTables.splice(0).forEach(library.table_free)
        this._whenIdle.splice(0).forEach(resolve => resolve())
      }
    }
  }

  // Reads with the given snapshot, or one of this moment.
  async _read (snapshot, read) {
    if (snapshot) return snapshot._use(read)
    const handle = [null]
    library.now('snapshot_create', this._table, handle)
    try {
      return await read(handle[0])
    } finally {
      library.snapshot_free(handle[0])
    }
  }

  _get (key, options) {
    if (!options.snapshot) return this._gets.get(key)
    const copy = Buffer.from(key)
    return options.snapshot._use(snapshot => this._getAt(snapshot, copy))
  }

  async _getAt (snapshot, key) {
    const [value, length] = [[null], [0]]
    await this._later('snapshot_get', snapshot, key, key.length, value, length)
    return library.take(value[0], Number(length[0]))
  }

  _getSync (key, options) {
    const [value, length] = [[null], [0]]
    const [name, of] = options.snapshot
      ? ['snapshot_get', options.snapshot._handle]
      : ['table_get', this._table]
    library.now(name, of, key, key.length, value, length)
    return library.take(value[0], Number(length[0]))
  }

  _getMany (keys, options) {
    const copies = keys.map(key => Buffer.from(key))
    return this._read(options.snapshot, snapshot => this._getManyAt(snapshot, copies))
  }

  async _getManyAt (snapshot, keys) {
    const pointers = BigUint64Array.from(keys, key => library.address(key))
    const lengths = BigUint64Array.from(keys, key => BigInt(key.length))
    const values = new BigUint64Array(keys.length)
    const valueLengths = new BigUint64Array(keys.length)
    await this._later('snapshot_multi_get', snapshot, keys.length, pointers, lengths, values,
      valueLengths)
    // The keys live until here.
    return keys.map((_, i) =>
      library.take(values[i] === 0n ? null : values[i], Number(valueLengths[i])))
  }

  _has (key, options) {
    return this._read(options.snapshot, snapshot => this._contains(snapshot, key))
  }

  _hasMany (keys, options) {
    return this._read(options.snapshot, async snapshot => {
      // All of them end before the snapshot is freed, also if one fails.
      const ends = await Promise.allSettled(keys.map(key => this._contains(snapshot, key)))
      const failed = ends.find(end => end.status === 'rejected')
      if (failed) throw failed.reason
      return ends.map(end => end.value)
    })
  }

  async _contains (snapshot, key) {
    const [copy, found] = [Buffer.from(key), [false]]
    await this._later('snapshot_contains', snapshot, copy, copy.length, found)
    return found[0]
  }

  _put (key, value, options) {
    return this._batch([{ type: 'put', key, value, expiresAt: options.expiresAt }], options)
  }

  _del (key, options) {
    return this._batch([{ type: 'del', key }], options)
  }

  async _batch (operations, options) {
    const batch = library.batch_create()
    try {
      let bytes = 0
      for (const { type, key, value, expiresAt } of operations) {
        if (type === 'put') {
          const entry = [batch, key, key.length, value, value.length]
          if (expiresAt === undefined) library.now('batch_put', ...entry)
          else library.now('batch_put_until', ...entry, milliseconds(expiresAt))
          bytes += key.length + value.length
        } else {
          library.now('batch_delete', batch, key, key.length)
          bytes += key.length
        }
      }
      await this._apply(batch, bytes, options.sync === true)
    } finally {
      library.batch_free(batch)
    }
  }

  // Applies a batch: at once if it need not wait, or else on another thread.
  async _apply (batch, bytes, isSynced) {
    if (!isSynced && bytes <= MAX_BYTES_AT_ONCE && this._writes === 0) {
      const isWritten = [false]
      library.now('table_try_write', this._table, batch, isWritten)
      if (isWritten[0]) {
        this._gets.close()
        this._costAtOnce += bytes + CALL_COST
        if (this._costAtOnce > MAX_BYTES_AT_ONCE) {
          this._costAtOnce = 0
          await new Promise(resolve => setImmediate(resolve))
        }
        return
      }
    }
    this._writes++
    try {
      await this._later('table_write', this._table, batch, isSynced)
    } finally {
      this._writes--
    }
  }

  async _clear (options) {
    if (options.limit === -1 && !options.snapshot) return this._clearRange(bounds(options))
    // By the iterator's public methods: closing the database waits for those.
    const encodings = { keyEncoding: 'buffer', valueEncoding: 'buffer' }
    const iterator = this.iterator({ ...options, ...encodings, keys: true, values: false })
    try {
      while (true) {
        const entries = await iterator.nextv(CLEAR_BATCH)
        if (entries.length === 0) break
        await this._batch(entries.map(([key]) => ({ type: 'del', key })), {})
      }
    } finally {
      await iterator.close()
    }
  }

  async _clearRange ({ start, end, isEmpty }) {
    if (isEmpty) return
    if (start === null && end === null) return this._later('table_clear', this._table)
    await this._callRange('table_delete_range', start, end)
  }

  // Calls a function with a range of keys; null is no bound.
  async _callRange (name, start, end) {
    await this._later(name, this._table, start, start ? start.length : 0, end, end ? end.length : 0)
  }

  _iterator (options) {
    return new SiltstoneIterator(this, options)
  }

  _snapshot (options) {
    return new SiltstoneSnapshot(this, options)
  }

  // The committed changes after a sequence number, from the first one on by default.
  changes (since = 0, options = {}) {
    return new SiltstoneChanges(this, since, options)
  }

  // Sets a key to a value if its value is the expected one, and returns whether it was. `undefined`
  // is no value.
  async compareAndSwap (key, expected, value, options = {}) {
    this._assertOpen()
    const keyEncoding = this.keyEncoding(options.keyEncoding)
    const valueEncoding = this.valueEncoding(options.valueEncoding)
    const encoded = keyEncoding.encode(key)
    const prefixed = Buffer.from(this.prefixKey(encoded, keyEncoding.format, true))
    // Memory of no bytes has no address, which would be no value.
    const bytes = value => {
      if (value === undefined) return [null, 0]
      const content = Buffer.from(valueEncoding.encode(value))
      return [content.length > 0 ? content : Buffer.alloc(1), content.length]
    }
    const isSwapped = [false]
    this._writes++
    try {
      await this._later('table_compare_and_swap', this._table, prefixed, prefixed.length,
        ...bytes(expected), ...bytes(value), isSwapped)
    } finally {
      this._writes--
    }
    return isSwapped[0]
  }

  // Shows what the writing process has written since, in later reads, and returns whether there is
  // anything. With the option `reader` only.
  async catchUp () {
    this._assertOpen()
    if (!this._isReader) throw notSupported('catchUp', 'needs the option reader')
    const hasChanged = [false]
    await this._later('reader_catch_up', this._db, hasChanged)
    if (!hasChanged[0]) return false
    const table = [null]
    await this._later('reader_table', this._db, this._name, table)
    this._oldTables.push(this._table)
    this._table = table[0]
    this._gets.close()
    return true
  }

  // Runs flushes and compactions until none is due.
  async maintain () {
    this._assertOpen()
    await this._later('table_maintain', this._table)
  }

  // Moves entries to their deepest level, and drops deleted, expired and overwritten ones. The
  // range is as of `clear`.
  async compactRange (options = {}) {
    this._assertOpen()
    const encoding = this.keyEncoding(options.keyEncoding)
    const range = {}
    for (const bound of ['gt', 'gte', 'lt', 'lte']) {
      if (options[bound] === undefined) continue
      range[bound] = this.prefixKey(encoding.encode(options[bound]), encoding.format, true)
    }
    const { start, end, isEmpty } = bounds(range)
    if (!isEmpty) await this._callRange('table_compact_range', start, end)
  }

  // Moves the table to other options while it is in use, also to those that an open table does not
  // take. Snapshots, iterators and feeds of before fail with SILTSTONE_CLOSED afterwards.
  async move (tableOptions) {
    this._assertOpen()
    if (this._isReader) throw notSupported('move', 'is not for a reader')
    const options = optionList(tableOptions)
    const [moving, isCopied, table] = [[null], [false], [null]]
    await this._later('move_begin', this._db, this._name, ENGINE, options, options.length, moving)
    try {
      await this._later('move_copy', moving[0], isCopied)
      // The others would read or write the old table.
      while (this._calls > 0 || this._gets.waiting > 0) await this._idle()
      library.now('move_finish', moving[0], table)
    } finally {
      library.move_free(moving[0])
    }
    library.table_free(this._table)
    this._table = table[0]
    this._gets.close()
  }

  // Makes every write that has ended durable against a power cut.
  async sync () {
    this._assertOpen()
    await this._later('table_sync', this._table)
  }

  // Copies the store into a new directory while it is in use.
  async checkpoint (directory) {
    this._assertOpen()
    if (this._isReader) throw notSupported('checkpoint', 'is not for a reader')
    await this._later('checkpoint', this._db, path.resolve(directory))
  }

  // Counters and sizes of the table.
  async stats () {
    this._assertOpen()
    const json = [null]
    await this._later('table_stats', this._table, json)
    return JSON.parse(library.takeText(json[0]))
  }

  _assertOpen () {
    if (this.status === 'open') return
    const error = new Error('Database is not open')
    error.code = 'LEVEL_DATABASE_NOT_OPEN'
    throw error
  }
}

function notSupported (name, reason) {
  const error = new Error(`${name} ${reason}`)
  error.code = 'LEVEL_NOT_SUPPORTED'
  return error
}

// A time for the library: a Date, or milliseconds since 1970.
function milliseconds (time) {
  const number = Number(time)
  if (!(number >= 0)) throw new TypeError(`'expiresAt' is ${time}, which is not a time`)
  return BigInt(Math.max(1, Math.min(Math.floor(number), Number.MAX_SAFE_INTEGER)))
}

// Options of a table for the library.
function optionList (options) {
  return Object.entries(options || {}).map(([key, value]) => `${key}=${value}`)
}

function optionsOf ({ readOnly, threads, maxOpenFiles, cacheBytes }) {
  const options = library.options_create()
  // Snapshots live until they are closed.
  library.options_set_idle_ms(options, 0)
  if (readOnly) library.options_set_read_only(options, true)
  if (threads !== undefined) library.options_set_threads(options, threads)
  if (maxOpenFiles !== undefined) library.options_set_max_open_files(options, maxOpenFiles)
  if (cacheBytes !== undefined) library.options_set_cache_bytes(options, cacheBytes)
  return options
}

module.exports = { SiltstoneLevel }
