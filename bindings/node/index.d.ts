import {
  AbstractLevel,
  AbstractBatchOperation,
  AbstractBatchOptions,
  AbstractChainedBatch,
  AbstractClearOptions,
  AbstractDatabaseOptions,
  AbstractDelOptions,
  AbstractOpenOptions,
  AbstractPutOptions,
  AbstractSnapshot
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
  /**
   * Keys of an encrypted store, each of 32 bytes from a secure random number generator: the current
   * one, then those of older files. Default: the store is not encrypted.
   */
  encryptionKeys?: Buffer[]
  /**
   * Reads the store beside the process that writes it, without its lock, as of the opening and of
   * each `catchUp`; writes are refused. Default: false.
   */
  reader?: boolean
}

/** Options of a write. */
export interface WriteOptions {
  /** Whether the write survives a power cut once it has ended. Default: false. */
  sync?: boolean
}

/**
 * When a value expires: a time, or milliseconds since 1970. An operation of a batch has it, too.
 */
export interface ExpiryOptions {
  expiresAt?: Date | number
}

export type PutOptions<K, V> = AbstractPutOptions<K, V> & WriteOptions & ExpiryOptions
export type DelOptions<K> = AbstractDelOptions<K> & WriteOptions
export type BatchOptions<K, V> = AbstractBatchOptions<K, V> & WriteOptions & ExpiryOptions

/** Options of a change feed. */
export interface ChangeOptions {
  /**
   * Shows changes before they are durable. A power cut may take changes that were shown. Default:
   * false.
   */
  includeUnsynced?: boolean
  /** Default: that of the database. */
  keyEncoding?: string
  /** Default: that of the database. */
  valueEncoding?: string
}

/** An operation of a change. Later versions may add types. */
export type ChangeOperation<K = string, V = string> =
  /** `expiresAt` is in milliseconds since 1970; missing: never. */
  | { type: 'put', key: K, value: V, expiresAt?: number }
  | { type: 'del', key: K }
  /** Removes every key from `start` to before `end`; without an `end`, to the last one. */
  | { type: 'delRange', start: K, end: K | undefined }
  /** Merges `operand` into the value of `key`. */
  | { type: 'merge', key: K, operand: Buffer }

/** A committed change: one batch. */
export interface Change<K = string, V = string> {
  /**
   * `cleared`: every key was removed. `ingested`: sorted files were ingested, whose content is not
   * in the feed: read the table. Later versions may add kinds.
   */
  kind: 'write' | 'cleared' | 'ingested'
  /** The sequence number of its last operation: a consumer that has applied it resumes after it. */
  sequence: number
  /** The number of the batch over several tables of which it is a part; 0: none. */
  part: number
  /** The operations of a write, in order. */
  operations: Array<ChangeOperation<K, V>>
}

/** The committed changes of a table. An error ends it: begin again after its `sequence`. */
export interface Changes<K = string, V = string> extends AsyncIterableIterator<Change<K, V>> {
  /** That of the last change that was returned, or the one after which the feed begins. */
  get sequence (): number
  /** Ends the feed; a `next` that waits returns. A loop that is left does so itself. */
  close (): Promise<void>
  [Symbol.asyncDispose] (): Promise<void>
}

/** A table as of the creation of the snapshot. */
export interface SiltstoneSnapshot extends AbstractSnapshot {
  /** The sequence number up to which it shows writes: a change feed resumes after it. */
  get sequence (): number
}

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

  batch (operations: Array<AbstractBatchOperation<typeof this, K, V>>): Promise<void>
  batch<KX = K, VX = V> (
    operations: Array<AbstractBatchOperation<typeof this, KX, VX>>,
    options: BatchOptions<KX, VX>
  ): Promise<void>
  batch (): AbstractChainedBatch<typeof this, K, V>

  snapshot (options?: any): SiltstoneSnapshot

  /**
   * The committed changes after a sequence number, each once it is durable; from the first one on
   * by default. It waits for more and never ends by itself. The table's options `log_retention` and
   * `log_retention_time` say how much of the log is kept: `next` fails with
   * `SILTSTONE_CHANGES_UNAVAILABLE` if that is too little. Copy the table from a snapshot then, and
   * resume after its `sequence`.
   */
  changes<KX = K, VX = V> (since?: number, options?: ChangeOptions): Changes<KX, VX>

  /**
   * Sets a key to a value if its value is `expected`, and returns whether it was. `undefined` is no
   * value: expected, a missing key; as the new value, the key is removed.
   */
  compareAndSwap<KX = K, VX = V> (
    key: KX,
    expected: VX | undefined,
    value: VX | undefined,
    options?: { keyEncoding?: string, valueEncoding?: string }
  ): Promise<boolean>

  /**
   * Shows what the writing process has written since, in later reads, and returns whether there is
   * anything. Iterators and snapshots stay as they are. With the option `reader` only.
   */
  catchUp (): Promise<boolean>

  /** Runs flushes and compactions until none is due. */
  maintain (): Promise<void>

  /**
   * Moves the entries of a range to their deepest level, and drops deleted and overwritten ones.
   */
  compactRange<KX = K> (options?: AbstractClearOptions<KX>): Promise<void>

  /**
   * Moves the table to other options while it is in use, also to those that an open table does not
   * take. It waits for a moment without other operations to switch. Snapshots, iterators and feeds
   * of before fail with `SILTSTONE_CLOSED` afterwards.
   */
  move (tableOptions?: Record<string, string>): Promise<void>

  /** Makes every write that has ended durable against a power cut. */
  sync (): Promise<void>

  /** Copies the store into a new directory while it is in use. */
  checkpoint (directory: string): Promise<void>

  /** Counters and sizes of the table. */
  stats (): Promise<Record<string, unknown>>
}
