// Every public call, for the type checker alone: a test compiles it by `tsc --strict`.

import {
  SiltstoneLevel, SiltstoneSnapshot, Change, ChangeOperation, ChangeOptions, Changes,
  DatabaseOptions, OpenOptions, WriteOptions, PutOptions, DelOptions, BatchOptions
} from '..'

export async function store (location: string): Promise<void> {
  const options: DatabaseOptions<string, string> = {
    table: 'fruit',
    tableOptions: { memtable: '8MiB' },
    readOnly: false,
    threads: 2,
    maxOpenFiles: 100,
    cacheBytes: 1 << 20,
    encryptionKeys: [Buffer.alloc(32)],
    reader: false,
    createIfMissing: true,
    errorIfExists: false,
    keyEncoding: 'utf8'
  }
  const db = new SiltstoneLevel(location, options)
  const openOptions: OpenOptions = { readOnly: true, passive: false }
  await db.open()
  await db.open(openOptions)
  const where: string = db.location
  const status: 'opening' | 'open' | 'closing' | 'closed' = db.status
  await db.checkpoint(where + status)
  await db.sync()
  await db.maintain()
  const hasChanged: boolean = await db.catchUp()
  const isSwapped: boolean = await db.compareAndSwap('a', undefined, 'b')
  await db.compareAndSwap<Buffer, Buffer>(Buffer.from('a'), Buffer.from('b'), undefined, {
    keyEncoding: 'buffer', valueEncoding: 'buffer'
  })
  await db.put('a', `${hasChanged} ${isSwapped}`, { expiresAt: new Date(), sync: true })
  await db.move({ memtable: '8MiB' })
  await db.compactRange()
  await db.compactRange({ gte: 'a', lt: 'b' })
  await db.compactRange<Buffer>({ gte: Buffer.from('a'), keyEncoding: 'buffer' })
  const stats: Record<string, unknown> = await db.stats()
  console.log(stats.engine)
  await db.close()
  // @ts-expect-error: the location is missing
  console.log(new SiltstoneLevel())
  // @ts-expect-error: values of options are strings
  console.log(new SiltstoneLevel(location, { tableOptions: { memtable: 8 } }))
}

export async function writes (db: SiltstoneLevel): Promise<void> {
  const synced: WriteOptions = { sync: true }
  const put: PutOptions<string, number> = { ...synced, valueEncoding: 'json' }
  const del: DelOptions<string> = synced
  const batch: BatchOptions<string, string> = synced
  await db.put('a', '1')
  await db.put('a', '1', { sync: true })
  await db.put('a', 1, put)
  await db.del('a')
  await db.del('a', del)
  await db.batch([{ type: 'put', key: 'a', value: '1' }, { type: 'del', key: 'b' }])
  await db.batch([{ type: 'put', key: 'a', value: '1' }], { sync: true })
  await db.batch([{ type: 'del', key: 'a' }], batch)
  await db.batch().put('a', '1').del('b').write()
  await db.batch().put('a', '1').write({ sync: true })
  await db.clear()
  await db.clear({ gte: 'a', limit: 10, reverse: true })
  // @ts-expect-error: the value is a string
  await db.put('a', 1)
  // @ts-expect-error: a write is synced or not
  await db.put('a', '1', { sync: 'yes' })
}

export async function reads (db: SiltstoneLevel): Promise<void> {
  const snapshot: SiltstoneSnapshot = db.snapshot()
  const sequence: number = snapshot.sequence
  const one: string | undefined = await db.get('a')
  const now: string | undefined = db.getSync('a', { snapshot })
  const many: Array<string | undefined> = await db.getMany(['a', 'b'], { snapshot })
  const isThere: boolean = await db.has('a')
  const areThere: boolean[] = await db.hasMany(['a'], { snapshot })
  console.log(sequence, one, now, many, isThere, areThere)
  for await (const [key, value] of db.iterator({ gte: 'a', snapshot })) console.log(key + value)
  for await (const key of db.keys({ reverse: true })) console.log(key.length)
  for await (const value of db.values()) console.log(value.length)
  const iterator = db.iterator<Buffer, Buffer>({ keyEncoding: 'buffer', valueEncoding: 'buffer' })
  iterator.seek(Buffer.from('b'))
  const entry: [Buffer, Buffer] | undefined = await iterator.next()
  const entries: Array<[Buffer, Buffer]> = await iterator.nextv(10)
  console.log(entry, entries)
  await iterator.close()
  await snapshot.close()
  const users = db.sublevel<string, { name: string }>('users', { valueEncoding: 'json' })
  await users.put('7', { name: 'Ann' })
  await db.batch([{ type: 'put', sublevel: users, key: '8', value: { name: 'Bob' } }], {})
  // @ts-expect-error: a missing key is undefined
  console.log((await db.get('a')).length)
}

export async function feeds (db: SiltstoneLevel, copy: SiltstoneLevel): Promise<void> {
  const options: ChangeOptions = { includeUnsynced: true, keyEncoding: 'utf8' }
  const changes: Changes = db.changes(7, options)
  for await (const change of changes) {
    const { kind, sequence, part }: Change = change
    console.log(kind === 'ingested', sequence + part, changes.sequence)
    for (const operation of change.operations) await apply(copy, operation)
  }
  await changes.close()
  for await (const { operations } of db.changes<Buffer, Buffer>()) {
    for (const operation of operations) {
      if (operation.type === 'put') console.log(operation.key.length, operation.expiresAt)
    }
  }
}

async function apply (copy: SiltstoneLevel, operation: ChangeOperation): Promise<void> {
  switch (operation.type) {
    case 'put':
    case 'del': return copy.batch([operation])
    case 'delRange': return copy.clear({ gte: operation.start, lt: operation.end })
    case 'merge': console.log(operation.operand.length)
  }
}
