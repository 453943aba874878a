'use strict'

// The C library: its functions, and its errors as exceptions.
//
// A call that may wait for the disk runs on a thread of the pool of koffi ('later'); the others run
// at once ('now'). At most MAX_CALLS run at a time, and the others wait in a queue of their own:
// koffi keeps a stack for each, and refuses calls beyond its limit.
//
// Invariants: memory that the library returns is copied and freed before a call returns. Arguments
// of a call that runs later are not changed meanwhile: callers pass copies. koffi passes the
// addresses of their memory and keeps no reference to it: that is done here until the call returns.

const koffi = require('koffi')

const MAX_CALLS = 32
const STACK_BYTES = 1 << 20

configure()

const library = koffi.load(process.env.SILTSTONE_LIBRARY || 'libsiltstone.so.0.1')

const HANDLE = 'void *'
const BYTES = ['const uint8_t *', 'size_t']
const OUT_HANDLE = koffi.out(koffi.pointer('void *'))
const OUT_SIZE = koffi.out(koffi.pointer('size_t'))
const OUT_BOOL = koffi.out(koffi.pointer('bool'))
const OUT_HANDLES = koffi.pointer('void *')
const READ = [HANDLE, ...BYTES]
const CHANGE_OP = koffi.struct('siltstone_change_op', {
  kind: 'int32_t',
  key: 'void *',
  key_len: 'size_t',
  value: 'void *',
  value_len: 'size_t',
  expires_at: 'uint64_t'
})

// Without a result.
const PROCEDURES = {
  batch_free: [HANDLE],
  changes_free: [HANDLE],
  cursor_free: [HANDLE],
  db_free: [HANDLE],
  error_free: [HANDLE],
  free: [HANDLE],
  move_free: [HANDLE],
  options_free: [HANDLE],
  options_set_cache_bytes: [HANDLE, 'uint64_t'],
  options_set_idle_ms: [HANDLE, 'uint64_t'],
  options_set_max_open_files: [HANDLE, 'size_t'],
  options_set_read_only: [HANDLE, 'bool'],
  options_set_threads: [HANDLE, 'size_t'],
  reader_free: [HANDLE],
  snapshot_free: [HANDLE],
  table_free: [HANDLE]
}

// Functions that return an error, or null.
const FALLIBLE = {
  batch_put: [HANDLE, ...BYTES, ...BYTES],
  batch_put_until: [HANDLE, ...BYTES, ...BYTES, 'uint64_t'],
  batch_delete: [HANDLE, ...BYTES],
  changes_next: [HANDLE, 'uint64_t', OUT_BOOL],
  checkpoint: [HANDLE, 'str'],
  close: [HANDLE],
  cursor_read: [HANDLE, 'bool', 'size_t', 'size_t', OUT_HANDLE, OUT_SIZE, OUT_SIZE],
  cursor_seek: READ,
  cursor_seek_back: READ,
  cursor_skip_values: [HANDLE],
  move_begin: [HANDLE, 'str', 'str', koffi.pointer('str'), 'size_t', OUT_HANDLE],
  move_copy: [HANDLE, OUT_BOOL],
  move_finish: [HANDLE, OUT_HANDLE],
  open: ['str', HANDLE, OUT_HANDLE],
  open_or_create: ['str', HANDLE, OUT_HANDLE],
  options_add_key: READ,
  reader_catch_up: [HANDLE, OUT_BOOL],
  reader_open: ['str', HANDLE, OUT_HANDLE],
  reader_table: [HANDLE, 'str', OUT_HANDLE],
  snapshot_create: [HANDLE, OUT_HANDLE],
  table_changes: [HANDLE, 'uint64_t', 'bool', OUT_HANDLE],
  table_clear: [HANDLE],
  table_compare_and_swap: [HANDLE, ...BYTES, ...BYTES, ...BYTES, OUT_BOOL],
  table_compact_range: [HANDLE, ...BYTES, ...BYTES],
  table_delete_range: [HANDLE, ...BYTES, ...BYTES],
  table_maintain: [HANDLE],
  table_open_or_create: [HANDLE, 'str', 'str', koffi.pointer('str'), 'size_t', OUT_HANDLE],
  table_stats: [HANDLE, OUT_HANDLE],
  table_sync: [HANDLE],
  table_try_write: [HANDLE, HANDLE, OUT_BOOL],
  table_write: [HANDLE, HANDLE, 'bool']
}
for (const of of ['table', 'snapshot']) {
  FALLIBLE[`${of}_get`] = [...READ, OUT_HANDLE, OUT_SIZE]
  FALLIBLE[`${of}_contains`] = [...READ, OUT_BOOL]
  FALLIBLE[`${of}_cursor`] = [HANDLE, ...BYTES, ...BYTES, OUT_HANDLE]
  FALLIBLE[`${of}_multi_get`] =
    [HANDLE, 'size_t', OUT_HANDLES, koffi.pointer('size_t'), OUT_HANDLES, koffi.pointer('size_t')]
}

const errorCode = library.func('siltstone_error_code', 'int32_t', [HANDLE])
const errorMessage = library.func('siltstone_error_message', 'str', [HANDLE])
const memcpy = koffi.load(null).func('memcpy', HANDLE, ['uint8_t *', 'const void *', 'size_t'])
const create = name => library.func(`siltstone_${name}`, HANDLE, [])
const functions = {
  batch_create: create('batch_create'),
  changes_count: library.func('siltstone_changes_count', 'size_t', [HANDLE]),
  changes_kind: library.func('siltstone_changes_kind', 'int32_t', [HANDLE]),
  changes_op: library.func('siltstone_changes_op', 'bool',
    [HANDLE, 'size_t', koffi.out(koffi.pointer(CHANGE_OP))]),
  changes_part: library.func('siltstone_changes_part', 'uint64_t', [HANDLE]),
  changes_sequence: library.func('siltstone_changes_sequence', 'uint64_t', [HANDLE]),
  cursor_key: library.func('siltstone_cursor_key', HANDLE, [HANDLE, OUT_SIZE]),
  cursor_valid: library.func('siltstone_cursor_valid', 'bool', [HANDLE]),
  cursor_value: library.func('siltstone_cursor_value', HANDLE, [HANDLE, OUT_SIZE]),
  options_create: create('options_create'),
  snapshot_sequence: library.func('siltstone_snapshot_sequence', 'uint64_t', [HANDLE]),
  version: library.func('siltstone_version', 'str', [])
}
for (const [name, types] of Object.entries(PROCEDURES)) {
  functions[name] = library.func(`siltstone_${name}`, 'void', types)
}
const fallible = {}
for (const [name, types] of Object.entries(FALLIBLE)) {
  fallible[name] = library.func(`siltstone_${name}`, HANDLE, types)
}

// Gives calls on other threads the stack that the library needs. koffi refuses that once it has
// loaded a library, e.g. for another package.
function configure () {
  try {
    koffi.config({
      async_stack_size: STACK_BYTES,
      async_heap_size: 64 << 10,
      // Mapping a new stack takes longer than most calls.
      resident_async_pools: MAX_CALLS,
      max_async_calls: 256
    })
  } catch (error) {
    if (koffi.config().async_stack_size >= STACK_BYTES) return
    throw new Error("another package uses koffi already: load 'siltstone-level' before it, or " +
      `call koffi.config({ async_stack_size: ${STACK_BYTES} }) first`, { cause: error })
  }
}

// By the numbers of siltstone_code. The names that start with LEVEL are those of other databases.
const CODES = [
  'SILTSTONE_UNKNOWN', 'LEVEL_CORRUPTION', 'LEVEL_IO_ERROR', 'SILTSTONE_TOO_LARGE',
  'LEVEL_NOT_SUPPORTED', 'SILTSTONE_BELOW_WATERMARK', 'SILTSTONE_INVALID_OPTIONS',
  'SILTSTONE_REFUSED', 'LEVEL_LOCKED', 'SILTSTONE_READ_ONLY', 'SILTSTONE_CONFLICT',
  'SILTSTONE_EXPIRED', 'SILTSTONE_CLOSED', 'SILTSTONE_INVALID', 'SILTSTONE_INTERNAL',
  'SILTSTONE_CHANGES_UNAVAILABLE'
]

function check (error) {
  if (error === null) return
  const thrown = new Error(errorMessage(error))
  thrown.code = CODES[errorCode(error)] || CODES[0]
  functions.error_free(error)
  throw thrown
}

// Calls a function that returns an error, and waits for it.
function now (name, ...values) {
  check(fallible[name](...values))
}

let running = 0
const waiting = []

function start () {
  while (running < MAX_CALLS && waiting.length > 0) {
    running++
    const call = waiting.shift()
    const done = (failure, error) => {
      running--
      // Until here the values are reachable from this function, which koffi keeps.
      call.values = null
      try {
        if (failure) throw failure
        check(error)
        call.resolve()
      } catch (thrown) {
        call.reject(thrown)
      }
      start()
    }
    try {
      fallible[call.name].async(...call.values, done)
    } catch (thrown) {
      // E.g. because other packages have used up koffi's calls.
      running--
      call.reject(thrown)
    }
  }
}

// Calls a function that returns an error, on another thread. The values are kept until it returns.
function later (name, ...values) {
  return new Promise((resolve, reject) => {
    waiting.push({ name, values, resolve, reject })
    start()
  })
}

// A copy of memory of the library. A view of it by koffi costs several times as much as this call.
function copy (pointer, length) {
  const bytes = Buffer.allocUnsafe(length)
  if (length > 0) memcpy(bytes, pointer, length)
  return bytes
}

// A copy of memory that the library has allocated, which is freed; undefined for null.
function take (pointer, length) {
  if (pointer === null) return undefined
  const bytes = copy(pointer, length)
  functions.free(pointer)
  return bytes
}

// The same for text.
function takeText (pointer) {
  const text = koffi.decode(pointer, 'char', -1)
  functions.free(pointer)
  return text
}

module.exports = { ...functions, now, later, copy, take, takeText, address: koffi.address }
