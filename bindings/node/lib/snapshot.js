'use strict'

// A table as of the creation of the snapshot.

const { AbstractSnapshot } = require('abstract-level')
const library = require('./library')

class SiltstoneSnapshot extends AbstractSnapshot {
  constructor (db, options) {
    super(options)
    const handle = [null]
    library.now('snapshot_create', db._table, handle)
    this._handle = handle[0]
  }

  // The sequence number up to which the snapshot shows writes: a change feed resumes after it.
  get sequence () {
    return library.snapshot_sequence(this._handle)
  }

  // Reads, and keeps the snapshot from being closed until then: abstract-level does so only until
  // `has` and `hasMany` have begun.
  async _use (read) {
    this.ref()
    try {
      return await read(this._handle)
    } finally {
      this.unref()
    }
  }

  async _close () {
    library.snapshot_free(this._handle)
    this._handle = null
  }
}

module.exports = { SiltstoneSnapshot }
