'use strict'

// The test suite of abstract-level, and what it does not cover.

const fs = require('fs')
const os = require('os')
const path = require('path')
const test = require('tape')
const suite = require('abstract-level/test')
const { SiltstoneLevel } = require('..')

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'siltstone-node-'))
test.onFinish(() => fs.rmSync(scratch, { recursive: true, force: true }))

let stores = 0
const location = () => path.join(scratch, String(stores++))

suite({ test, factory: options => new SiltstoneLevel(location(), options) })

test('store keeps its entries', async t => {
  const where = location()
  let db = new SiltstoneLevel(where, { table: 'fruit', tableOptions: { memtable: '1MiB' } })
  await db.put('a', '1', { sync: true })
  await db.batch().put('b', '2').del('a').write()
  await db.close()
  db = new SiltstoneLevel(where, { table: 'fruit' })
  t.same(await db.iterator().all(), [['b', '2']])
  t.is((await db.stats()).live_keys, undefined)
  await db.maintain()
  await db.close()
})

test('store that is open is locked', async t => {
  const db = new SiltstoneLevel(location())
  await db.open()
  const error = await new SiltstoneLevel(db.location).open().then(() => null, error => error)
  t.is(error.code, 'LEVEL_DATABASE_NOT_OPEN')
  t.is(error.cause.code, 'LEVEL_LOCKED')
  await db.close()
})

test('mistakes in options are refused by name', async t => {
  const db = new SiltstoneLevel(location(), { tableOptions: { memtabel: '1MiB' } })
  const error = await db.open().then(() => null, error => error)
  t.is(error.cause.code, 'SILTSTONE_INVALID_OPTIONS')
  t.ok(error.cause.message.includes('memtabel'), error.cause.message)
})

test('store that is open read-only refuses writes', async t => {
  const where = location()
  const db = new SiltstoneLevel(where)
  await db.put('k', 'v')
  await db.close()
  const reader = new SiltstoneLevel(where, { readOnly: true })
  t.is(await reader.get('k'), 'v')
  const error = await reader.put('k', 'w').then(() => null, error => error)
  t.is(error.code, 'SILTSTONE_REFUSED')
  await reader.close()
})

test('long iteration returns every entry once', async t => {
  const db = new SiltstoneLevel(location(), { keyEncoding: 'buffer', valueEncoding: 'buffer' })
  const key = i => { const b = Buffer.alloc(4); b.writeUInt32BE(i); return b }
  for (let i = 0; i < 20000; i += 1000) {
    const puts = Array.from({ length: 1000 }, (_, j) => i + j)
    await db.batch(puts.map(n => ({ type: 'put', key: key(n), value: Buffer.alloc(n % 300, n) })))
  }
  let next = 0
  for await (const [k, v] of db.iterator()) {
    if (k.readUInt32BE() !== next || v.length !== next % 300) break
    next++
  }
  t.is(next, 20000)
  for await (const k of db.keys({ reverse: true, lte: key(15000) })) {
    if (next === 20000) next = 15000
    if (k.readUInt32BE() !== next) break
    next--
  }
  t.is(next, -1)
  await db.clear({ gte: key(10) })
  t.is((await db.keys().all()).length, 10)
  await db.close()
})

test('thousands of calls at once all end', async t => {
  const db = new SiltstoneLevel(location())
  const names = Array.from({ length: 3000 }, (_, i) => `k${i}`)
  await Promise.all(names.map(name => db.put(name, name)))
  t.same(await Promise.all(names.map(name => db.get(name))), names)
  t.same(await db.getMany(names), names)
  const reads = names.map(name => db.get(name))
  await db.close()
  const ends = await Promise.allSettled(reads)
  t.ok(ends.every(end => end.status === 'rejected' || end.value !== undefined))
})
