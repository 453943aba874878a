'use strict'

// The test suite of abstract-level, and what it does not cover.

const { execFileSync, spawn, spawnSync } = require('child_process')
const crypto = require('crypto')
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

test('read of many keys that fails ends before its snapshot is freed', async t => {
  const db = new SiltstoneLevel(location(), { keyEncoding: 'buffer' })
  await db.put(Buffer.from('k'), 'v')
  const keys = [Buffer.alloc(1 << 20), ...Array.from({ length: 500 }, () => Buffer.from('k'))]
  const before = db._calls
  const error = await db.hasMany(keys).then(() => null, error => error)
  t.is(error.code, 'SILTSTONE_TOO_LARGE')
  t.is(db._calls, before, 'no call uses the snapshot any more')
  t.same(await db.hasMany(keys.slice(1, 3)), [true, true])
  await db.close()
})

test('snapshot that is closed during reads is freed after them', async t => {
  const db = new SiltstoneLevel(location())
  await db.put('k', 'v')
  const snapshot = db.snapshot()
  const names = Array.from({ length: 500 }, () => 'k')
  const reads = db.hasMany(names, { snapshot })
  const has = db.has('k', { snapshot })
  const closed = snapshot.close().then(() => db._calls)
  t.is(await closed, 0, 'no call uses the snapshot any more')
  t.ok((await reads).every(found => found))
  t.is(await has, true)
  await db.close()
})

test('clear ends before the database is closed, or is rejected', async t => {
  const where = location()
  let db = new SiltstoneLevel(where)
  const names = Array.from({ length: 5000 }, (_, i) => `k${String(i).padStart(4, '0')}`)
  await db.batch(names.map(key => ({ type: 'put', key, value: 'v' })))
  const clear = db.clear({ limit: 4000 }).then(() => null, error => error)
  await new Promise(resolve => setImmediate(resolve))
  await db.close()
  const error = await clear
  t.ok(error === null || error.code === 'LEVEL_ITERATOR_NOT_OPEN' ||
    ['LEVEL_DATABASE_NOT_OPEN', 'SILTSTONE_CLOSED'].includes(error.code), error && error.code)
  db = new SiltstoneLevel(where)
  await db.clear({ limit: 10, reverse: true })
  await db.clear({ gt: 'k1000', lte: 'k1004' })
  const left = await db.keys().all()
  t.ok(!left.includes('k4999') && !left.includes('k1001') && !left.includes('k1004'))
  await db.clear({ gte: 'k2000', snapshot: db.snapshot() })
  t.ok((await db.keys().all()).every(key => key < 'k2000'))
  await db.close()
})

test('store is synced, compacted and copied while it is open', async t => {
  const db = new SiltstoneLevel(location())
  await db.batch([{ type: 'put', key: 'a', value: '1' }, { type: 'put', key: 'b', value: '2' }])
  await db.sync()
  await db.compactRange({ gte: 'a', lt: 'b' })
  await db.compactRange()
  const where = location()
  await db.checkpoint(where)
  t.is((await db.checkpoint(where).then(() => null, error => error)).code, 'SILTSTONE_REFUSED')
  await db.close()
  const copy = new SiltstoneLevel(where)
  t.same(await copy.iterator().all(), [['a', '1'], ['b', '2']])
  await copy.close()
})

test('changes are followed from a sequence number on, and applied elsewhere', async t => {
  const tableOptions = { log_retention: '64MiB' }
  const db = new SiltstoneLevel(location(), { tableOptions })
  const copy = new SiltstoneLevel(location())
  const changes = db.changes()
  await db.put('a', '1')
  await db.batch([{ type: 'put', key: 'b', value: '2' }, { type: 'del', key: 'a' }], { sync: true })
  await db.clear({ gte: 'x', lt: 'y' })
  await db.clear({ gte: 'y' })
  await db.sync()
  await db.clear()
  const all = []
  for await (const change of changes) {
    all.push(change)
    if (change.kind === 'cleared') break
  }
  t.same(all.map(change => change.operations), [
    [{ type: 'put', key: 'a', value: '1' }],
    [{ type: 'put', key: 'b', value: '2' }, { type: 'del', key: 'a' }],
    [{ type: 'delRange', start: 'x', end: 'y' }],
    [{ type: 'delRange', start: 'y', end: undefined }],
    []
  ])
  t.same(all.map(change => change.kind), ['write', 'write', 'write', 'write', 'cleared'])
  t.same(all.map(change => change.part), [0, 0, 0, 0, 0])
  t.same(all.slice(0, 4).map(change => change.sequence), [1, 3, 4, 5])
  t.is(changes.sequence, all[4].sequence)
  t.same(await changes.next(), { done: true, value: undefined }, 'the loop has closed the feed')

  await copy.batch([...all[0].operations, ...all[1].operations])
  t.same(await copy.iterator().all(), [['b', '2']])
  const buffers = db.changes(all[0].sequence, { keyEncoding: 'buffer', valueEncoding: 'buffer' })
  const { value: second } = await buffers.next()
  t.same(second.operations[0], { type: 'put', key: Buffer.from('b'), value: Buffer.from('2') })
  const beyond = db.changes(1000)
  const error = await beyond.next().then(() => null, error => error)
  t.is(error.code, 'SILTSTONE_CHANGES_UNAVAILABLE')
  t.is((await beyond.next()).done, true)
  await copy.close()
  await db.close()
})

test('changes wait for durability, and for later writes', async t => {
  const db = new SiltstoneLevel(location(), { tableOptions: { log_retention: '64MiB' } })
  await db.put('a', '1')
  const [durable, all] = [db.changes(), db.changes(0, { includeUnsynced: true })]
  let isShown = false
  const next = durable.next().then(next => { isShown = true; return next })
  const first = (await all.next()).value
  t.is(first.operations[0].value, '1')
  await new Promise(resolve => setTimeout(resolve, 50))
  t.is(isShown, false, 'the change is not durable yet')
  await db.sync()
  t.is((await next).value.sequence, first.sequence)

  // Two calls wait at the same time, and get the changes in order.
  const waiting = [all.next(), all.next()]
  await db.put('b', '2')
  await db.put('c', '3')
  t.same((await Promise.all(waiting)).map(next => next.value.operations[0].key), ['b', 'c'])
  const snapshot = db.snapshot()
  t.is(snapshot.sequence, all.sequence)
  await snapshot.close()
  await db.close()
})

test('feeds that wait end when they or their database are closed', async t => {
  const db = new SiltstoneLevel(location())
  const [own, other] = [db.changes(), db.changes()]
  const [ownNext, otherNext] = [own.next(), other.next().then(() => null, error => error)]
  await new Promise(resolve => setTimeout(resolve, 30))
  await own.close()
  t.is((await ownNext).done, true)
  await db.close()
  t.is((await otherNext).code, 'LEVEL_DATABASE_NOT_OPEN')
  t.is((await other.next()).done, true)
  t.is(db._calls, 0)

  // Before the database is open.
  const early = new SiltstoneLevel(location())
  const earlyNext = early.changes().next().then(() => null, error => error)
  await early.close()
  const error = await earlyNext
  t.ok(error === null || error.code === 'LEVEL_DATABASE_NOT_OPEN', error && error.code)
})

test('package that is loaded behind another user of koffi says so', t => {
  const load = settings => execFileSync(process.execPath, ['-e', `
    const koffi = require('koffi')
    koffi.config(${JSON.stringify(settings)})
    koffi.load(null)
    try { require('./index.js'); console.log('ok') } catch (error) { console.log(error.message) }
  `], { cwd: path.join(__dirname, '..'), encoding: 'utf8' })
  t.ok(load({}).includes("load 'siltstone-level' before it"))
  t.is(load({ async_stack_size: 1 << 20 }), 'ok\n')
  t.end()
})

test('buffered writes are applied at once, in order, and give way to other work', async t => {
  const db = new SiltstoneLevel(location())
  await db.open()
  const put = db.put('a', '1')
  t.is(db.getSync('a'), '1')
  await put

  // A write on another thread is not overtaken.
  const synced = db.put('a', '2', { sync: true })
  t.is(db._writes, 1)
  const buffered = db.put('b', '1')
  t.is(db._writes, 2)
  await Promise.all([synced, buffered])
  t.is(db._writes, 0)
  t.same(await db.getMany(['a', 'b']), ['2', '1'])

  // Nor does a large one keep the event loop for long.
  const large = db.put('large', 'v'.repeat(1 << 20))
  t.is(db._writes, 1)
  await large

  let turns = 0
  let isDone = false
  const turn = () => { turns++; if (!isDone) setImmediate(turn) }
  setImmediate(turn)
  for (let i = 0; i < 1000; i++) await db.put(`k${i}`, 'v')
  isDone = true
  t.ok(turns > 10, `${turns} turns of the event loop`)
  t.is((await db.keys({ gte: 'k' }).all()).length, 1001)
  await db.close()
})

test('reads that are called in one go see the writes before them, and end one by one', async t => {
  const db = new SiltstoneLevel(location(), { keyEncoding: 'buffer' })
  await db.put(Buffer.from('k'), '1')
  const key = Buffer.from('k')
  const reads = [db.get(key), db.get(Buffer.from('none')), db.get(Buffer.alloc(1 << 20))]
  key.fill('x')
  const put = db.put(Buffer.from('k'), '2')
  reads.push(db.get(Buffer.from('k')))
  const ends = await Promise.allSettled(reads)
  t.same(ends.map(end => end.value), ['1', undefined, undefined, '2'])
  t.is(ends[2].reason.code, 'SILTSTONE_TOO_LARGE')
  await put
  const keys = Array.from({ length: 1000 }, (_, i) => Buffer.from(`k${i}`))
  await Promise.all(keys.map(key => db.put(key, String(key))))
  const before = db._calls
  const values = keys.map(key => db.get(key))
  await null
  t.ok(db._calls - before < 10, `${db._calls} calls`)
  t.same(await Promise.all(values), keys.map(String))
  // A write that another thread applies.
  const synced = db.put(Buffer.from('k'), '3', { sync: true })
  const during = db.get(Buffer.from('k'))
  await synced
  t.is(await db.get(Buffer.from('k')), '3')
  t.ok(['2', '3'].includes(await during))
  await db.close()
})

test('writes in a stall wait on another thread', async t => {
  const tableOptions = { memtable: '64KiB', memtables: '2' }
  const db = new SiltstoneLevel(location(), { tableOptions, threads: 1 })
  await db.open()
  let waited = 0
  // A flush of one takes many times as long as its write.
  const value = 'v'.repeat(60000)
  const puts = []
  for (let i = 0; i < 300; i++) {
    puts.push(db.put(`k${i}`, value))
    if (db._writes > 0) waited++
  }
  t.ok(waited > 0, 'some have waited')
  await Promise.all(puts)
  t.is((await db.keys().all()).length, 300)
  await db.close()
})

test('value expires at its time, by put and in a batch', async t => {
  const db = new SiltstoneLevel(location())
  const hour = 3600_000
  await db.put('past', '1', { expiresAt: Date.now() - hour })
  await db.put('future', '2', { expiresAt: new Date(Date.now() + hour) })
  await db.batch([
    { type: 'put', key: 'gone', value: '3', expiresAt: 1 },
    { type: 'put', key: 'kept', value: '4' }
  ])
  t.same(await db.iterator().all(), [['future', '2'], ['kept', '4']])
  const error = await db.put('k', 'v', { expiresAt: NaN }).then(() => null, error => error)
  t.ok(error instanceof TypeError)
  await db.close()
})

test('compare and swap changes a key with the expected value alone', async t => {
  const db = new SiltstoneLevel(location())
  await db.open()
  t.ok(await db.compareAndSwap('k', undefined, ''))
  t.notOk(await db.compareAndSwap('k', undefined, '1'))
  t.ok(await db.compareAndSwap('k', '', '1'))
  t.notOk(await db.compareAndSwap('k', '', '2'))
  const json = db.sublevel('json', { valueEncoding: 'json' })
  await json.put('k', { n: 1 })
  t.is(await db.get('k'), '1')
  t.ok(await db.compareAndSwap('k', '1', undefined))
  t.is(await db.get('k'), undefined)
  await db.close()
})

test('table in use moves to other options', async t => {
  const db = new SiltstoneLevel(location())
  const puts = Array.from({ length: 1000 }, (_, i) => ({ type: 'put', key: `k${i}`, value: '1' }))
  await db.batch(puts)
  const snapshot = db.snapshot()
  const moving = db.move({ memtable: '8MiB' })
  const others = Array.from({ length: 100 }, async (_, i) => {
    await db.put(`k${i}`, '2', { sync: i % 10 === 0 })
    t.is(await db.get(`k${i}`), '2')
  })
  await Promise.all([moving, ...others])
  t.ok(fs.existsSync(path.join(db.location, 'table-level.1')))
  t.notOk(fs.existsSync(path.join(db.location, 'table-level')))
  t.is((await db.values().all()).filter(value => value === '2').length, 100)
  t.is((await db.keys().all()).length, 1000)
  const closed = await db.get('k1', { snapshot }).then(() => null, error => error)
  t.is(closed && closed.code, 'SILTSTONE_CLOSED')
  await snapshot.close()
  const refused = await db.move({ memtable: 'many' }).then(() => null, error => error)
  t.is(refused && refused.code, 'SILTSTONE_INVALID_OPTIONS')
  await db.put('k', 'v')
  await Promise.all([db.move().catch(() => {}), db.close()])
  await db.open()
  t.is(await db.get('k'), 'v')
  await db.close()
})

test('encrypted store opens with its key alone', async t => {
  const where = location()
  const keys = [crypto.randomBytes(32), crypto.randomBytes(32)]
  let db = new SiltstoneLevel(where, { encryptionKeys: [keys[0]] })
  const secret = 'a sentence that is not on the disk'
  await db.put('k', secret, { sync: true })
  await db.close()
  const files = fs.readdirSync(where, { recursive: true }).map(file => path.join(where, file))
  const contents = files.filter(file => fs.statSync(file).isFile())
    .map(file => fs.readFileSync(file))
  t.ok(contents.length > 0 && !contents.some(content => content.includes(secret)))
  for (const encryptionKeys of [undefined, [keys[1]], [Buffer.from('short')]]) {
    db = new SiltstoneLevel(where, { encryptionKeys })
    t.ok(await db.open().then(() => null, error => error.cause.code.startsWith('SILTSTONE_')))
  }
  db = new SiltstoneLevel(where, { encryptionKeys: [keys[1], keys[0]] })
  t.is(await db.get('k'), secret)
  await db.close()
})

test('reader in another process catches up with the writer', async t => {
  const db = new SiltstoneLevel(location())
  await db.put('k', '1')
  const program = `
    const { SiltstoneLevel } = require(${JSON.stringify(path.dirname(__dirname))})
    const db = new SiltstoneLevel(process.argv[1], { reader: true })
    const codeOf = promise => promise.then(() => null, error => error.code)
    async function main () {
      await db.open()
      const iterator = db.iterator()
      console.log(await db.get('k'), await codeOf(db.put('k', '')), await codeOf(db.checkpoint('c')))
      for await (const _ of process.stdin) break
      const caughtUp = [await db.catchUp(), await db.catchUp()]
      console.log(...caughtUp, await db.get('k'), db.getSync('k'), await iterator.all())
      await iterator.close()
      await db.close()
    }
    main()`
  const reading = spawn(process.execPath, ['-e', program, db.location])
  reading.stderr.pipe(process.stderr)
  let output = ''
  for await (const text of reading.stdout) {
    output += text
    if (!output.endsWith('\n')) continue
    if (output.split('\n').length > 2) break
    await db.put('k', '2')
    reading.stdin.write('\n')
  }
  t.is(output, "1 SILTSTONE_REFUSED LEVEL_NOT_SUPPORTED\ntrue false 2 2 [ [ 'k', '1' ] ]\n")
  t.is((await db.catchUp().then(() => null, error => error)).code, 'LEVEL_NOT_SUPPORTED')
  reading.stdin.end()
  await db.close()
  const missing = await new SiltstoneLevel(location(), { reader: true }).open()
    .then(() => null, error => error)
  t.ok(missing.cause.message.includes('is not a store'), missing.cause.message)
})

test('declared types are those of every public call', { skip: !hasTypeScript() }, t => {
  const source = path.join(__dirname, 'types.ts')
  const options = ['--strict', '--noEmit', '--module', 'node16', '--target', 'es2022']
  const tsc = require.resolve('typescript/bin/tsc')
  const settings = { cwd: path.dirname(__dirname), encoding: 'utf8' }
  const check = spawnSync(process.execPath, [tsc, ...options, source], settings)
  t.is(check.stdout, '')
  t.is(check.status, 0)
  const program = fs.readFileSync(source, 'utf8')
  const inherited = ['close', 'get', 'getMany', 'has', 'hasMany', 'del', 'clear', 'keys', 'values']
  const own = Object.getOwnPropertyNames(SiltstoneLevel.prototype)
  const calls = own.filter(name => !name.startsWith('_') && name !== 'constructor')
  t.ok(calls.length > 6, calls)
  for (const name of [...calls, ...inherited]) t.ok(program.includes(`db.${name}`), name)
  t.end()
})

function hasTypeScript () {
  try {
    return Boolean(require.resolve('typescript') && require.resolve('@types/node/package.json'))
  } catch {
    return false
  }
}
