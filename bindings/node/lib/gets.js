'use strict'

// Reads of keys without a snapshot of the program: those that are called in one go are one call of
// the library, because its way to another thread and back takes longer than a read.
//
// A group begins with a read, which takes a snapshot at once, and is sent when the code that runs
// has ended. A write that has ended closes it, so that later reads see the write.
//
// Invariant: each read has its own end. If the call for all of them fails, each is read alone.

const library = require('./library')

// More than that would keep the other threads from helping.
const MAX_KEYS = 128

class Gets {
  constructor (db) {
    this._db = db
    this._group = null
    // The groups that are not sent yet.
    this.waiting = 0
  }

  // The value of a key as of now.
  get (key) {
    if (this._group === null) this._begin()
    const { reads } = this._group
    const read = new Promise((resolve, reject) => {
      reads.push({ key: Buffer.from(key), resolve, reject })
    })
    if (reads.length === MAX_KEYS) this.close()
    return read
  }

  // Later reads begin another group.
  close () {
    this._group = null
  }

  _begin () {
    const snapshot = [null]
    library.now('snapshot_create', this._db._table, snapshot)
    const group = this._group = { snapshot: snapshot[0], reads: [] }
    this.waiting++
    queueMicrotask(() => {
      if (this._group === group) this.close()
      this._send(group)
      this.waiting--
    })
  }

  async _send ({ snapshot, reads }) {
    const one = ({ key, resolve, reject }) => this._db._getAt(snapshot, key).then(resolve, reject)
    const all = async () => {
      const values = await this._db._getManyAt(snapshot, reads.map(({ key }) => key))
      reads.forEach(({ resolve }, i) => resolve(values[i]))
    }
    try {
      if (reads.length === 1) await one(reads[0])
      else await all().catch(() => Promise.all(reads.map(one)))
    } finally {
      library.snapshot_free(snapshot)
    }
  }
}

module.exports = { Gets }
