'use strict'

// Writes or reads a table and prints the seconds and the process's CPU seconds of each part, for
// ../../compare-languages.
//
//   node speed.js write|read STORE COUNT

const { SiltstoneLevel } = require('..')

const REST = Buffer.alloc(84, '.')
const value = key => Buffer.concat([key, REST])

function check (key, value) {
  if (value && value.length === 100 && value.compare(key, 0, 16, 0, 16) === 0) return
  throw new Error(`the value of ${key} is ${value}`)
}

async function fill (table, keys) {
  for (let i = 0; i < keys.length; i += 100) {
    await table.batch(keys.slice(i, i + 100).map(key => ({ type: 'put', key, value: value(key) })))
  }
}

async function put (table, keys) {
  for (const key of keys) await table.put(key, value(key))
}

async function scan (table, keys) {
  let count = 0
  for await (const [key, value] of table.iterator()) {
    check(key, value)
    count++
  }
  if (count !== keys.length) throw new Error(`${count} entries instead of ${keys.length}`)
}

async function get (table, keys) {
  for (const key of keys) check(key, table.getSync(key))
}

function cpuSeconds () {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1e6
}

async function main (mode, store, count) {
  const keys = Array.from({ length: count }, (_, i) =>
    Buffer.from(String(i * 7919 % count).padStart(16, '0')))
  const table = new SiltstoneLevel(store, {
    table: 'speed',
    tableOptions: { cache: '256MiB' },
    keyEncoding: 'buffer',
    valueEncoding: 'buffer'
  })
  await table.open()
  for (const part of { write: [fill, put], read: [scan, get] }[mode]) {
    const [start, cpuStart] = [performance.now(), cpuSeconds()]
    await part(table, keys)
    console.log(part.name, (performance.now() - start) / 1000, cpuSeconds() - cpuStart)
    await table.maintain()
  }
  await table.close()
}

main(process.argv[2], process.argv[3], Number(process.argv[4]))
