import {
  AbstractLevel,
  AbstractBatchOptions,
  AbstractClearOptions,
  AbstractDatabaseOptions,
  AbstractDelOptions,
  AbstractOpenOptions,
  AbstractPutOptions
} from 'abstract-level'

/** Options of a database; each can be given to `open` as well. */
export interface DatabaseOptions<K, V> extends AbstractDatabaseOptions<K, V>, OpenOptions {}

/** Options of opening. */
export interface OpenOptions extends AbstractOpenOptions {
  /** The table of the store. Default: `level`. */
  table?: string
  /** Options of the table's engine, for example `{ memtable: '8MiB' }`; the book lists them. */
  tableOptions?: Record<string, string>
  /** Nothing in the directory changes, and writes are refused. Default: false. */
  readOnly?: boolean
  /** Threads for background work. Default: one per core, up to 4. */
  threads?: number
  /** The maximum number of open files. Default: 256. */
  maxOpenFiles?: number
  /** Bytes of the block cache, in place of the table's option `cache`. */
  cacheBytes?: number
}

/** Options of a write. */
export interface WriteOptions {
  /** Whether the write survives a power cut once it has ended. Default: false. */
  sync?: boolean
}

export type PutOptions<K, V> = AbstractPutOptions<K, V> & WriteOptions
export type DelOptions<K> = AbstractDelOptions<K> & WriteOptions
export type BatchOptions<K, V> = AbstractBatchOptions<K, V> & WriteOptions

/** A table of a store in a directory. */
export class SiltstoneLevel<K = string, V = string>
  extends AbstractLevel<Buffer, K, V> {
  constructor (location: string, options?: DatabaseOptions<K, V>)

  /** The directory of the store. */
  get location (): string

  open (options?: OpenOptions): Promise<void>
  put (key: K, value: V): Promise<void>
  put<KX = K, VX = V> (key: KX, value: VX, options: PutOptions<KX, VX>): Promise<void>
  del (key: K): Promise<void>
  del<KX = K> (key: KX, options: DelOptions<KX>): Promise<void>

  /** Runs flushes and compactions until none is due. */
  maintain (): Promise<void>

  /** Moves the entries of a range to their deepest level, and drops deleted and overwritten ones. */
  compactRange (options?: AbstractClearOptions<K>): Promise<void>

  /** Makes every write that has ended durable against a power cut. */
  sync (): Promise<void>

  /** Copies the store into a new directory while it is in use. */
  checkpoint (directory: string): Promise<void>

  /** Counters and sizes of the table. */
  stats (): Promise<Record<string, unknown>>
}
