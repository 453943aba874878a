/*
 * The C interface of Siltstone, an embedded key-value store.
 *
 * Generated from bindings/c/src by `UPDATE=1 cargo test -p siltstone-c --test header`; do not edit.
 *
 * Errors      A function returns NULL for success, or an error object with a code and a message,
 *             which the caller frees with siltstone_error_free(). Panics of the library are errors
 *             with the code SILTSTONE_CODE_INTERNAL. After an error all outputs are NULL, 0 or
 *             false. The comments name the codes without their prefix.
 * Arguments   All are needed, unless the comment says otherwise; one that is NULL is reported as an
 *             error. Keys and values are any bytes, given as pointer and length, and NULL with the
 *             length 0 is the empty string. Names and paths are NUL-terminated UTF-8.
 * Ownership   A function copies its arguments before it returns. Memory that it returns through a
 *             `char **` is freed with siltstone_free(), and a handle with the _free function of its
 *             type, in any order. A handle must not be used after it was freed; the library cannot
 *             detect that. Cursors and callbacks state how long their keys and values are valid.
 * Threads     Handles of stores, tables, snapshots, readers and moves can be used by several threads
 *             at the same time. All others by one thread at a time. Freeing a handle is a use of it.
 *             Do not use a store in a child process after fork(): open it there.
 * Version     Functions stay as they are within one version of the soname.
 */


#ifndef SILTSTONE_H
#define SILTSTONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 What a change does. Later versions may add numbers.
 */
typedef enum {
  /*
   The feed is not on a change.
   */
  SILTSTONE_CHANGE_KIND_NONE = 0,
  /*
   The operations of one batch, which siltstone_changes_op() lends.
   */
  SILTSTONE_CHANGE_KIND_WRITE = 1,
  /*
   Every key was removed.
   */
  SILTSTONE_CHANGE_KIND_CLEARED = 2,
  /*
   Sorted files were ingested. Their content is not in the feed: read the table.
   */
  SILTSTONE_CHANGE_KIND_INGESTED = 3,
} siltstone_change_kind;

/*
 Kinds of errors. Later versions may add numbers.
 */
typedef enum {
  /*
   Stored bytes are damaged. The message names the file and the offset.
   */
  SILTSTONE_CODE_CORRUPTION = 1,
  /*
   An I/O request failed.
   */
  SILTSTONE_CODE_IO = 2,
  /*
   A key, value or batch is over its limit. Nothing has changed.
   */
  SILTSTONE_CODE_TOO_LARGE = 3,
  /*
   The engine of the table does not have this operation.
   */
  SILTSTONE_CODE_UNSUPPORTED = 4,
  /*
   The time is before the watermark of the table's history.
   */
  SILTSTONE_CODE_BELOW_WATERMARK = 5,
  /*
   Invalid options; the message lists every mistake. Nothing was opened.
   */
  SILTSTONE_CODE_INVALID_OPTIONS = 6,
  /*
   The directory is not a store, has a newer format, or is open read-only.
   */
  SILTSTONE_CODE_REFUSED = 7,
  /*
   The store is open already, in this process or in another one.
   */
  SILTSTONE_CODE_LOCKED = 8,
  /*
   An earlier error made the table read-only. Reopen the store.
   */
  SILTSTONE_CODE_READ_ONLY = 9,
  /*
   Another writer changed what the transaction has read. Run it again.
   */
  SILTSTONE_CODE_CONFLICT = 10,
  /*
   The snapshot or transaction was idle for too long. Begin a new one.
   */
  SILTSTONE_CODE_EXPIRED = 11,
  /*
   The store is closed.
   */
  SILTSTONE_CODE_CLOSED = 12,
  /*
   An invalid argument. The message names it.
   */
  SILTSTONE_CODE_INVALID = 13,
  /*
   A defect of the library. Please report it with the message; close the store.
   */
  SILTSTONE_CODE_INTERNAL = 14,
  /*
   A change feed cannot resume there: the log does not have the next change any more. The
   message has the oldest position that is left.
   */
  SILTSTONE_CODE_CHANGES_UNAVAILABLE = 15,
} siltstone_code;

/*
 Kinds of events. Later versions may add numbers.
 */
typedef enum {
  /*
   A kind that this version has no number for.
   */
  SILTSTONE_EVENT_KIND_OTHER = 0,
  /*
   A memtable is being written to files.
   */
  SILTSTONE_EVENT_KIND_FLUSH_BEGUN = 1,
  /*
   A flush has ended; see `is_failed`.
   */
  SILTSTONE_EVENT_KIND_FLUSH_COMPLETED = 2,
  /*
   Files are being compacted.
   */
  SILTSTONE_EVENT_KIND_COMPACTION_BEGUN = 3,
  /*
   A compaction has ended; see `is_failed`.
   */
  SILTSTONE_EVENT_KIND_COMPACTION_COMPLETED = 4,
  /*
   Writers are delayed or wait from now on.
   */
  SILTSTONE_EVENT_KIND_STALL_BEGUN = 5,
  /*
   Writers do not wait for this cause any more.
   */
  SILTSTONE_EVENT_KIND_STALL_ENDED = 6,
  /*
   A background job has failed. It is retried, unless READ_ONLY follows.
   */
  SILTSTONE_EVENT_KIND_BACKGROUND_ERROR = 7,
  /*
   The table rejects writes until the store is reopened.
   */
  SILTSTONE_EVENT_KIND_READ_ONLY = 8,
  /*
   Damage was found. The same damage is reported each time that it is found.
   */
  SILTSTONE_EVENT_KIND_CORRUPTION = 9,
  /*
   The listener was too slow: events were dropped here.
   */
  SILTSTONE_EVENT_KIND_DROPPED = 10,
} siltstone_event_kind;

/*
 What happens to the files of an ingestion.
 */
enum siltstone_ingest_mode
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   They are copied.
   */
  SILTSTONE_INGEST_MODE_COPY = 0,
  /*
   They are linked into the table where the file system can, and copied otherwise. They must
   not be changed afterwards.
   */
  SILTSTONE_INGEST_MODE_LINK = 1,
  /*
   As LINK, and removed from their place once the ingestion is durable.
   */
  SILTSTONE_INGEST_MODE_MOVE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum siltstone_ingest_mode siltstone_ingest_mode;
#else
typedef int32_t siltstone_ingest_mode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 The kind of an operation. Later versions may add numbers.
 */
typedef enum {
  /*
   Sets `key` to `value`.
   */
  SILTSTONE_OP_KIND_PUT = 1,
  /*
   Removes `key`.
   */
  SILTSTONE_OP_KIND_DELETE = 2,
  /*
   Removes every key from `key` to before `value`; to the end if `value` is NULL.
   */
  SILTSTONE_OP_KIND_DELETE_RANGE = 3,
  /*
   Merges the operand `value` into the value of `key`.
   */
  SILTSTONE_OP_KIND_MERGE = 4,
} siltstone_op_kind;

/*
 A list of writes that is applied in order, completely or not at all. One thread at a time may
 use it.
 */
typedef struct siltstone_batch siltstone_batch;

/*
 The committed changes of a table, from one sequence number on. One thread at a time may use it.
 A feed keeps no log: see siltstone_table_changes().
 */
typedef struct siltstone_changes siltstone_changes;

/*
 A position among the entries of a table, as of the creation of the cursor. One thread at a time
 may use it.

 A new cursor is not on an entry: siltstone_cursor_next() moves to the first one, and
 siltstone_cursor_prev() to the last one. A cursor that has left its range stays there until it
 is positioned by first, last, seek or seek_back. On unordered engines only first and next work.
 An open cursor keeps files that compaction has replaced.
 */
typedef struct siltstone_cursor siltstone_cursor;

/*
 An open store. Any thread may use it, several at the same time.
 */
typedef struct siltstone_db siltstone_db;

/*
 An error. A function returns one, or NULL for success. Free it with siltstone_error_free().
 */
typedef struct siltstone_error siltstone_error;

/*
 Receives what a merge callback returns. It is valid during the call.
 */
typedef struct siltstone_merge_output siltstone_merge_output;

/*
 A table on its way to another engine. Any thread may use it, several at the same time: one
 copies, and others read the progress or cancel the move.
 */
typedef struct siltstone_move siltstone_move;

/*
 Options of opening a store. They are copied when a store is opened and can be used again.
 */
typedef struct siltstone_options siltstone_options;

/*
 A store that another process may write at the same time, as of the last catch-up. Any thread may
 use it, several at the same time.
 */
typedef struct siltstone_reader siltstone_reader;

/*
 A table as of the creation of the snapshot. Any thread may use it, several at the same time. One
 that is not used for `idle_ms` (see siltstone_options_set_idle_ms()) expires.
 */
typedef struct siltstone_snapshot siltstone_snapshot;

/*
 A sorted file that is being written. One thread at a time may use it.
 */
typedef struct siltstone_sorted_file siltstone_sorted_file;

/*
 A table of a store. Any thread may use it, several at the same time.
 */
typedef struct siltstone_table siltstone_table;

/*
 A transaction on one table: reads show the table as of its beginning with its own writes, and
 its writes are applied together if nothing that it has read has changed. One thread at a time
 may use it.
 */
typedef struct siltstone_transaction siltstone_transaction;

/*
 An operation of a change. Its bytes belong to the feed.
 */
typedef struct {
  /*
   A siltstone_op_kind.
   */
  int32_t kind;
  /*
   The key, or the start of a range.
   */
  const char *key;
  /*
   Its length.
   */
  size_t key_len;
  /*
   The value, the operand of a merge, or the end of a range; NULL of a deletion.
   */
  const char *value;
  /*
   Its length.
   */
  size_t value_len;
  /*
   When a value expires, in milliseconds since 1970; 0: never.
   */
  uint64_t expires_at;
} siltstone_change_op;

/*
 Something that has happened. It is valid during the call of the listener. Later versions may add
 fields at the end.
 */
typedef struct {
  /*
   A number of siltstone_event_kind.
   */
  int32_t kind;
  /*
   Of a completed job: whether it failed.
   */
  bool is_failed;
  /*
   The name of the table; empty if it is no event of a table.
   */
  const char *table;
  /*
   One line in UTF-8 for a log, with the names of files, without the time.
   */
  const char *message;
  /*
   In milliseconds since 1970.
   */
  uint64_t at;
  /*
   The number of a flush or compaction: both of its events have it. 0 for other events.
   */
  uint64_t job;
  /*
   How long a completed job or a stall took, in microseconds; 0 for other events.
   */
  uint64_t duration_us;
  /*
   The bytes of the files that a job reads.
   */
  uint64_t input_bytes;
  /*
   The bytes of the files that a completed job has written.
   */
  uint64_t output_bytes;
} siltstone_event;

/*
 Receives an event. The store calls its listeners on a thread of its own, one event after the
 other, in the order of the events. The function may take its time, and may use the store; but it
 must not close it, unwind or jump out. `arg` is the argument of siltstone_options_add_listener().
 */
typedef void (*siltstone_event_callback)(void *arg, const siltstone_event *event);

/*
 Frees the argument of callbacks. It is called once, on any thread, when no callback will be
 called with it any more. It must not use the store, unwind or jump out.
 */
typedef void (*siltstone_free_callback)(void *arg);

/*
 Computes the value of a key after `operand_count` operands, at least one, the oldest first.
 `value` is the one before, or NULL if the key was missing. It appends the result to `output`, by
 siltstone_merge_output_append(), and returns true. If the operands do not apply it returns
 false: reads of the key fail then, with what was appended as the reason.

 A partial merge gets at least two operands and no value, and appends one operand with the effect
 of all of them, or returns false if there is none.

 It must depend on its arguments alone: it is called in reads, flushes and compactions, at any
 time, on any thread, on several at the same time. All pointers are valid during the call. It
 must not use the store, unwind or jump out. `arg` is the argument of
 siltstone_options_add_merge_operator().
 */
typedef bool (*siltstone_merge_callback)(void *arg,
                                         const char *key,
                                         size_t key_len,
                                         const char *value,
                                         size_t value_len,
                                         size_t operand_count,
                                         const char *const *operands,
                                         const size_t *operand_lens,
                                         siltstone_merge_output *output);

/*
 Receives a value, which is valid until the function returns. The function must not use the
 store, unwind or jump out. `arg` is the argument of the call that the function is passed to.
 */
typedef void (*siltstone_read_callback)(void *arg, const char *value, size_t value_len);

/*
 Reads and writes of a transaction. Returns whether to commit it. It must not free or keep the
 transaction, and must not unwind or jump out. `arg` is the argument of
 siltstone_table_transact().
 */
typedef bool (*siltstone_work)(siltstone_transaction *transaction, void *arg);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 A new, empty batch. Free it with siltstone_batch_free().
 */
siltstone_batch *siltstone_batch_create(void);

/*
 Frees a batch. NULL is allowed.
 */
void siltstone_batch_free(siltstone_batch *batch);

/*
 Adds the assignment of a value to a key. Both are copied.
 */
siltstone_error *siltstone_batch_put(siltstone_batch *batch,
                                     const char *key,
                                     size_t key_len,
                                     const char *value,
                                     size_t value_len);

/*
 Adds the assignment of a value that expires at `expires_at`, in milliseconds since 1970.
 */
siltstone_error *siltstone_batch_put_until(siltstone_batch *batch,
                                           const char *key,
                                           size_t key_len,
                                           const char *value,
                                           size_t value_len,
                                           uint64_t expires_at);

/*
 Adds the removal of a key. Removing a missing key is not an error.
 */
siltstone_error *siltstone_batch_delete(siltstone_batch *batch, const char *key, size_t key_len);

/*
 Adds the removal of every key from `start` to before `end`; NULL is no bound. lsm only.

 Errors: INVALID for a range that starts after its end.
 */
siltstone_error *siltstone_batch_delete_range(siltstone_batch *batch,
                                              const char *start,
                                              size_t start_len,
                                              const char *end,
                                              size_t end_len);

/*
 Adds the merge of an operand into a key, with the merge operator of the table. lsm only.
 */
siltstone_error *siltstone_batch_merge(siltstone_batch *batch,
                                       const char *key,
                                       size_t key_len,
                                       const char *operand,
                                       size_t operand_len);

/*
 Removes all operations and keeps the memory for later ones.
 */
siltstone_error *siltstone_batch_clear(siltstone_batch *batch);

/*
 The number of operations; 0 for NULL.
 */
size_t siltstone_batch_count(const siltstone_batch *batch);

/*
 Follows the changes of a table after the sequence number `since`; 0: from the first one on. A
 consumer stores the sequence number of the last change that it has applied, with what it has
 made of it, and resumes there, also after a restart. The feed is on no change until
 siltstone_changes_next(). Free it with siltstone_changes_free().

 A change is shown once it is durable: after a write with `synced`, siltstone_sync() or a flush.
 With `include_unsynced` it is shown at once; a power cut may then take changes that were shown.
 The options log_retention and log_retention_time of the table say how much of the log is kept.
 lsm only.

 Errors: CHANGES_UNAVAILABLE if the log does not reach back so far: copy the table from a
 snapshot, and resume after siltstone_snapshot_sequence(). UNSUPPORTED; CORRUPTION; IO; CLOSED.
 */
siltstone_error *siltstone_table_changes(const siltstone_table *table,
                                         uint64_t since,
                                         bool include_unsynced,
                                         siltstone_changes **changes);

/*
 Frees a feed. NULL is allowed.
 */
void siltstone_changes_free(siltstone_changes *changes);

/*
 Moves to the next change, and waits up to `timeout_ms` for one. *is_found is false if none came;
 the feed is on no change then, and a later call may find one.

 Errors: as of siltstone_table_changes(). The feed is on no change then, and its position is the
 same.
 */
siltstone_error *siltstone_changes_next(siltstone_changes *changes,
                                        uint64_t timeout_ms,
                                        bool *is_found);

/*
 What the change does: a siltstone_change_kind. 0 if the feed is on no change, or NULL.
 */
int32_t siltstone_changes_kind(const siltstone_changes *changes);

/*
 The sequence number of the last operation of the change: a consumer that has applied it resumes
 after it. If the feed is on no change, that of the last one. 0 for NULL.
 */
uint64_t siltstone_changes_sequence(const siltstone_changes *changes);

/*
 The number of the batch over several tables of which the change is a part: the same in the feeds
 of all of its tables. 0 if it is none.
 */
uint64_t siltstone_changes_part(const siltstone_changes *changes);

/*
 The number of operations of the change; 0 if it is no write.
 */
size_t siltstone_changes_count(const siltstone_changes *changes);

/*
 Lends the operation number `index` of the change, from 0 on: *op has its kind and pointers to
 its bytes, which are valid until the next move of the feed. False, and *op is unchanged, if
 there is none.
 */
bool siltstone_changes_op(const siltstone_changes *changes, size_t index, siltstone_change_op *op);

/*
 Adds copies of the operations of the change to a batch, e.g. to apply them to another table,
 which must have the same merge operator if there are merges.

 Errors: INVALID if the feed is not on a change with operations.
 */
siltstone_error *siltstone_changes_append_to(const siltstone_changes *changes,
                                             siltstone_batch *batch);

/*
 Frees a cursor. NULL is allowed.
 */
void siltstone_cursor_free(siltstone_cursor *cursor);

/*
 From the next move on, values may be empty where reading them would cost more. For scans of
 keys.
 */
siltstone_error *siltstone_cursor_skip_values(siltstone_cursor *cursor);

/*
 Moves to the first entry.

 Errors of all moves: UNSUPPORTED for a move that needs an order on an unordered engine; EXPIRED
 of a snapshot or transaction; CORRUPTION; IO; CLOSED. The cursor is not on an entry then, and
 can be positioned again.
 */
siltstone_error *siltstone_cursor_first(siltstone_cursor *cursor);

/*
 Moves to the last entry.
 */
siltstone_error *siltstone_cursor_last(siltstone_cursor *cursor);

/*
 Moves to the next entry; from a new cursor, to the first.
 */
siltstone_error *siltstone_cursor_next(siltstone_cursor *cursor);

/*
 Moves to the previous entry; from a new cursor, to the last.
 */
siltstone_error *siltstone_cursor_prev(siltstone_cursor *cursor);

/*
 Moves to the first entry whose key is not less than `key`.
 */
siltstone_error *siltstone_cursor_seek(siltstone_cursor *cursor, const char *key, size_t key_len);

/*
 Moves to the last entry whose key is not greater than `key`.
 */
siltstone_error *siltstone_cursor_seek_back(siltstone_cursor *cursor,
                                            const char *key,
                                            size_t key_len);

/*
 Moves up to `max_entries` times, forwards or backwards, and copies the entry after each move,
 for languages in which a call is expensive. It stops early at the end of the range, and once the
 copies have `max_bytes` bytes or more. `*count` is set to the number of entries. `*entries` gets
 them one after the other, and is freed with siltstone_free():

 key_len (4 bytes), value_len (4 bytes), both little-endian, key, value

 Errors: as of the moves; INVALID if `max_entries` or `max_bytes` is 0. The entries that were
 copied before an error are lost.
 */
siltstone_error *siltstone_cursor_read(siltstone_cursor *cursor,
                                       bool is_backward,
                                       size_t max_entries,
                                       size_t max_bytes,
                                       char **entries,
                                       size_t *entries_len,
                                       size_t *count);

/*
 Whether the cursor is on an entry. False for NULL.
 */
bool siltstone_cursor_valid(const siltstone_cursor *cursor);

/*
 The key under the cursor, valid until the next move. NULL if the cursor is not on an entry.
 */
const char *siltstone_cursor_key(const siltstone_cursor *cursor, size_t *key_len);

/*
 The value under the cursor, valid until the next move. NULL if the cursor is not on an entry. An
 empty value is not NULL.
 */
const char *siltstone_cursor_value(const siltstone_cursor *cursor, size_t *value_len);

/*
 When the entry under the cursor expires, in milliseconds since 1970. 0: never, or the cursor is
 not on an entry.
 */
uint64_t siltstone_cursor_expires_at(const siltstone_cursor *cursor);

/*
 The version of the library, e.g. "0.1.0". It is never freed.
 */
const char *siltstone_version(void);

/*
 Opens the existing store in the directory `path`. `options` may be NULL. *db is set to the
 store, or to NULL after an error. Close it with siltstone_close(), and free it with
 siltstone_db_free().

 Errors: REFUSED if the directory is not a store; LOCKED; CORRUPTION of the list of tables; IO.
 */
siltstone_error *siltstone_open(const char *path,
                                const siltstone_options *options,
                                siltstone_db **db);

/*
 Opens the store in the directory `path`, or creates one if the directory is missing or empty.
 Otherwise as siltstone_open(). With `read_only` nothing is created.
 */
siltstone_error *siltstone_open_or_create(const char *path,
                                          const siltstone_options *options,
                                          siltstone_db **db);

/*
 Finishes background work, makes everything durable and releases the directory. All handles of
 the store stay valid until they are freed, and calls with them fail with CLOSED. Closing a store
 again does nothing.

 Errors: IO and READ_ONLY. The store is closed in any case; some writes may not be durable then.
 */
siltstone_error *siltstone_close(const siltstone_db *db);

/*
 Frees a store. Its other handles stay valid. A store that was not closed is closed when its last
 handle is freed; nothing that was guaranteed is lost. NULL is allowed.
 */
void siltstone_db_free(siltstone_db *db);

/*
 Opens the existing table `name`. Free it with siltstone_table_free(). All handles of a table
 have the same content and transactions.

 Errors: INVALID if there is no such table; CORRUPTION; IO.
 */
siltstone_error *siltstone_table_open(const siltstone_db *db,
                                      const char *name,
                                      siltstone_table **table);

/*
 Opens the table `name`, or creates it on the engine `engine` ("lsm", "trie", "silt", "mica" or
 "skimpy") with `option_count` options of the form "key=value", e.g. "memtable=8MiB". Options
 of an existing table that differ are applied or refused. Free it with siltstone_table_free().

 Errors: INVALID_OPTIONS with every mistake; INVALID if the table is on another engine; IO.
 */
siltstone_error *siltstone_table_open_or_create(const siltstone_db *db,
                                                const char *name,
                                                const char *engine,
                                                const char *const *options,
                                                size_t option_count,
                                                siltstone_table **table);

/*
 Removes the table `name` with all of its files. Calls with its handles fail with CLOSED.

 Errors: INVALID if there is no such table; IO.
 */
siltstone_error *siltstone_table_drop(const siltstone_db *db, const char *name);

/*
 Renames a table of which no handle exists.

 Errors: INVALID if there is no such table, or if the new name is taken; REFUSED if the table is
 in use.
 */
siltstone_error *siltstone_table_rename(const siltstone_db *db,
                                        const char *name,
                                        const char *new_name);

/*
 The tables with their engines and options as a JSON object, e.g.
 {"stock":{"engine":"lsm","options":{"memtable":"8MiB"}}}. Free *json with siltstone_free().
 */
siltstone_error *siltstone_tables(const siltstone_db *db, char **json);

/*
 The bytes of the files of each table as a JSON object, e.g. {"stock":4096}. Free *json with
 siltstone_free().

 Errors: IO; CLOSED.
 */
siltstone_error *siltstone_disk_usage(const siltstone_db *db, char **json);

/*
 Applies batches[i] to tables[i], for all of `count` tables of the store, or none of them. With
 `synced` all survive a power cut once this returns. The batches stay as they are.

 Errors: INVALID for a table of another store; UNSUPPORTED if there are several tables and one is
 not on lsm, trie or silt; those of all writes.
 */
siltstone_error *siltstone_write(const siltstone_db *db,
                                 size_t count,
                                 const siltstone_table *const *tables,
                                 const siltstone_batch *const *batches,
                                 bool synced);

/*
 Makes every write that has returned, to any table, durable against a power cut.
 */
siltstone_error *siltstone_sync(const siltstone_db *db);

/*
 Copies every table, each as of a moment during the call, into the new directory `path`, while
 the store is in use. Files are linked where both directories are on one file system. The copy is
 a store.

 Errors: REFUSED if the directory exists or is inside a store; IO. There is no partial copy then.
 */
siltstone_error *siltstone_checkpoint(const siltstone_db *db, const char *path);

/*
 The kind of an error; 0 for NULL.
 */
int32_t siltstone_error_code(const siltstone_error *error);

/*
 The text of an error in UTF-8: what happened, where, and what to do. It is valid until the error
 is freed. An empty string for NULL.
 */
const char *siltstone_error_message(const siltstone_error *error);

/*
 Whether a transaction that failed with this error may succeed if it is run again from its
 beginning.
 */
bool siltstone_error_is_retryable(const siltstone_error *error);

/*
 Whether a write failed for lack of space. Nothing was written, and writes succeed again when
 there is space.
 */
bool siltstone_error_is_disk_full(const siltstone_error *error);

/*
 Frees an error. NULL is allowed.
 */
void siltstone_error_free(siltstone_error *error);

/*
 Adds a listener for the events of all tables of the stores that are opened with these options:
 flushes, compactions, write stalls, failures and damage. siltstone_close() waits until it has
 received all of them.

 `free_arg`, which may be NULL, is called with `arg` when these options are freed and all stores
 that were opened with them are closed; also after an error.
 */
siltstone_error *siltstone_options_add_listener(siltstone_options *options,
                                                siltstone_event_callback on_event,
                                                void *arg,
                                                siltstone_free_callback free_arg);

/*
 Reads and checks every byte of an open store. *is_intact is set to whether no damage was found,
 and *json, which may be NULL, gets the report: {"catalogue":[],"unlisted":[],"tables":{NAME:
 {"files":1,"bytes":2,"entries":3,"damage":[{"file":F,"offset":0,"reason":R}]}}}. Free *json with
 siltstone_free(). Damage is not an error.

 Errors: IO: a file could not be read.
 */
siltstone_error *siltstone_verify_open(const siltstone_db *db, bool *is_intact, char **json);

/*
 Reads and checks every byte of the store in the directory `path`, which no process has open.
 Changes nothing. Damage to the list of tables is in the report, too. Otherwise as
 siltstone_verify_open().

 Errors: REFUSED if the directory is not a store, or is an encrypted one; LOCKED; IO.
 */
siltstone_error *siltstone_verify(const char *path, bool *is_intact, char **json);

/*
 As siltstone_verify(), for a store that is opened with `options`: with its keys, if it is
 encrypted. NULL is for the default options.
 */
siltstone_error *siltstone_verify_with(const char *path,
                                       const siltstone_options *options,
                                       bool *is_intact,
                                       char **json);

/*
 Repairs the store in the directory `path`, which no process has open, as far as possible.
 Damaged files are kept as *.damaged. *is_lossless is set to whether nothing was lost, and *json,
 which may be NULL, gets the report: {"catalogue":[LINE],"tables":{NAME:{"lines":[LINE],
 "losses":[{"file":F,"bytes":{"start":0,"end":9},"effect":"entries"}]}}}. Free *json with
 siltstone_free().

 Errors: REFUSED if the directory is not a store, or is an encrypted one; LOCKED; IO.
 */
siltstone_error *siltstone_repair(const char *path, bool *is_lossless, char **json);

/*
 As siltstone_repair(), for a store that is opened with `options`: with its keys, if it is
 encrypted. NULL is for the default options.
 */
siltstone_error *siltstone_repair_with(const char *path,
                                       const siltstone_options *options,
                                       bool *is_lossless,
                                       char **json);

/*
 Changes the master key of the encrypted store in the directory `path`, which no process has
 open. The first key of `options` is the new one, and the others are earlier ones (see
 siltstone_options_add_key()). Contents are not encrypted again: each file has a key of its own,
 which the master key encrypts. Earlier master keys are not needed afterwards. The call may be
 repeated after an interruption. *json, which may be NULL, gets the report: {"files":9,
 "rewrapped":9,"damaged":[{"file":F,"offset":0,"reason":R}]}. Free *json with siltstone_free().

 Errors: REFUSED if the store is not encrypted, or with a key that is not among those of
 `options`; LOCKED; IO.
 */
siltstone_error *siltstone_rekey(const char *path, const siltstone_options *options, char **json);

/*
 Frees memory that a function of this library has returned through a `char **`. NULL is allowed.
 The same as free() of the C library that this library is linked with.
 */
void siltstone_free(void *memory);

/*
 Appends bytes, which are copied, to the result of a merge.
 */
siltstone_error *siltstone_merge_output_append(siltstone_merge_output *output,
                                               const char *data,
                                               size_t len);

/*
 Adds a merge operator for the table `table`, which must be on lsm: its first one is recorded in
 it by its name, which stands for the format of the operands, and another name is refused. Add it
 before each open; without it keys with operands cannot be read. The table takes no values that
 expire. Names with the prefix "siltstone." are reserved.

 `merge` is needed; `partial_merge` may be NULL. `arg` is passed to both. `free_arg`, which may be
 NULL, is called with `arg` when these options and all stores that were opened with them are
 freed; also after an error.

 Errors: INVALID for a reserved name, and for a second operator of the table in these options.
 */
siltstone_error *siltstone_options_add_merge_operator(siltstone_options *options,
                                                      const char *table,
                                                      const char *name,
                                                      siltstone_merge_callback merge,
                                                      siltstone_merge_callback partial_merge,
                                                      void *arg,
                                                      siltstone_free_callback free_arg);

/*
 New options with the defaults. Free them with siltstone_options_free().
 */
siltstone_options *siltstone_options_create(void);

/*
 Frees options. NULL is allowed.
 */
void siltstone_options_free(siltstone_options *options);

/*
 Opens the store read-only: nothing in its directory changes, writes fail, and other processes
 may read it at the same time, but none may write it. Default: false.
 */
void siltstone_options_set_read_only(siltstone_options *options, bool read_only);

/*
 Reads bypass the page cache, so that memory holds only the engines' own caches. Default: false.
 */
void siltstone_options_set_direct_reads(siltstone_options *options, bool direct_reads);

/*
 Threads for background work, 1 to 256, besides one for flushes. Default: one per core, up to 4.
 */
void siltstone_options_set_threads(siltstone_options *options, size_t threads);

/*
 The maximum number of files that the store has open. Default: 256.
 */
void siltstone_options_set_max_open_files(siltstone_options *options, size_t files);

/*
 The size of one block cache for all tables, in place of one per table. 0: one per table, which
 is the default.
 */
void siltstone_options_set_cache_bytes(siltstone_options *options, uint64_t bytes);

/*
 The time in milliseconds after which an idle snapshot or transaction expires. 0: never.
 Default: 300000.
 */
void siltstone_options_set_idle_ms(siltstone_options *options, uint64_t milliseconds);

/*
 Memory per table for the keys written while transactions are open, in bytes. Default: 32 MiB.
 */
void siltstone_options_set_transaction_memory_bytes(siltstone_options *options, size_t bytes);

/*
 Adds a key of an encrypted store: 32 bytes from a secure random number generator. The first one
 encrypts a new store and new files; the others are those of existing files, after the key was
 replaced (siltstone_rekey()). A store that is not encrypted is refused with a key, and an
 encrypted one without it. Tables on skimpy, with `pmem.size` or with `fast_dir` cannot be
 encrypted.

 The key is copied, and overwritten when the last copy is freed: that of these options, and of
 each open store.

 Errors: INVALID for a key of another length.
 */
siltstone_error *siltstone_options_add_key(siltstone_options *options,
                                           const char *key,
                                           size_t key_len);

/*
 Opens the store in the directory `path` for reading, also while another process has it open for
 writing. Nothing is locked or written there. `options` may be NULL; the maximum number of open
 files is ignored: a reader keeps all files that it shows open, also those that the writer has
 removed. Free it with siltstone_reader_free().

 A reader shows a prefix of the writes of each table, in whole batches, also those that are not
 durable yet: after a power cut the store may have less than a reader has shown.

 Errors: those of siltstone_open() but LOCKED.
 */
siltstone_error *siltstone_reader_open(const char *path,
                                       const siltstone_options *options,
                                       siltstone_reader **reader);

/*
 Frees a reader. Handles of tables that it has opened stay valid. NULL is allowed.
 */
void siltstone_reader_free(siltstone_reader *reader);

/*
 Reads what the writer has written since, in all tables, and sets *has_changed to whether there
 is anything. Handles of tables stay as they are: open the tables again. Cost: reads the logs, up
 to the size of the memtables, and opens every file.

 Errors: those of siltstone_reader_open(); the reader stays as it is.
 */
siltstone_error *siltstone_reader_catch_up(const siltstone_reader *reader, bool *has_changed);

/*
 Opens the table `name` as of the last catch-up. It does not change; writes to it fail with
 REFUSED. It keeps its files open, so free it with siltstone_table_free() after a catch-up.

 Errors: INVALID if there is no such table; UNSUPPORTED on mica and skimpy, with persistent
 memory (`pmem.size`) and with `fast_dir`.
 */
siltstone_error *siltstone_reader_table(const siltstone_reader *reader,
                                        const char *name,
                                        siltstone_table **table);

/*
 A view of the table at this moment, unaffected by later writes. While it lives, the versions
 that it shows stay on disk. Free it with siltstone_snapshot_free().

 Errors: UNSUPPORTED on trie, silt and mica; CLOSED.
 */
siltstone_error *siltstone_snapshot_create(const siltstone_table *table,
                                           siltstone_snapshot **snapshot);

/*
 A view of the table at `time`, in milliseconds since 1970, with the writes of that millisecond.
 skimpy only: it keeps history for the time that its option `retention` says. Free it with
 siltstone_snapshot_free().

 Errors: UNSUPPORTED; BELOW_WATERMARK if the history does not reach back so far; INVALID for a
 time in the future; CLOSED.
 */
siltstone_error *siltstone_snapshot_create_at(const siltstone_table *table,
                                              uint64_t time,
                                              siltstone_snapshot **snapshot);

/*
 Views of `count` tables of a store, all as of one moment: snapshots[i] is that of tables[i]. It
 waits for the writes in progress on these tables. Free each with siltstone_snapshot_free(), in
 any order. After an error all snapshots are NULL.

 Errors: UNSUPPORTED unless all tables are on lsm; INVALID for a table of another store, or one
 that is there twice; CLOSED.
 */
siltstone_error *siltstone_snapshot_create_all(const siltstone_db *db,
                                               size_t count,
                                               const siltstone_table *const *tables,
                                               siltstone_snapshot **snapshots);

/*
 Frees a snapshot. NULL is allowed.
 */
void siltstone_snapshot_free(siltstone_snapshot *snapshot);

/*
 The sequence number up to which a snapshot shows writes: a change feed resumes after it. 0 for
 NULL.
 */
uint64_t siltstone_snapshot_sequence(const siltstone_snapshot *snapshot);

/*
 As siltstone_table_get(), at a snapshot.
 */
siltstone_error *siltstone_snapshot_get(const siltstone_snapshot *snapshot,
                                        const char *key,
                                        size_t key_len,
                                        char **value,
                                        size_t *value_len);

/*
 As siltstone_table_get_with(), at a snapshot.
 */
siltstone_error *siltstone_snapshot_get_with(const siltstone_snapshot *snapshot,
                                             const char *key,
                                             size_t key_len,
                                             siltstone_read_callback read,
                                             void *arg,
                                             bool *is_found);

/*
 As siltstone_table_contains(), at a snapshot.
 */
siltstone_error *siltstone_snapshot_contains(const siltstone_snapshot *snapshot,
                                             const char *key,
                                             size_t key_len,
                                             bool *is_found);

/*
 As siltstone_table_multi_get(), at a snapshot.
 */
siltstone_error *siltstone_snapshot_multi_get(const siltstone_snapshot *snapshot,
                                              size_t count,
                                              const char *const *keys,
                                              const size_t *key_lens,
                                              char **values,
                                              size_t *value_lens);

/*
 As siltstone_table_cursor(), at a snapshot.
 */
siltstone_error *siltstone_snapshot_cursor(const siltstone_snapshot *snapshot,
                                           const char *start,
                                           size_t start_len,
                                           const char *end,
                                           size_t end_len,
                                           siltstone_cursor **cursor);

/*
 As siltstone_table_cursor_prefix(), at a snapshot.
 */
siltstone_error *siltstone_snapshot_cursor_prefix(const siltstone_snapshot *snapshot,
                                                  const char *prefix,
                                                  size_t prefix_len,
                                                  siltstone_cursor **cursor);

/*
 Creates the sorted file `path`, which must not exist. The options are those of an lsm table, of
 which block size, compression and filters matter. Finish it with siltstone_sorted_file_finish(),
 and free it with siltstone_sorted_file_free().

 Errors: INVALID_OPTIONS; IO.
 */
siltstone_error *siltstone_sorted_file_create(const char *path,
                                              const char *const *options,
                                              size_t option_count,
                                              siltstone_sorted_file **file);

/*
 Frees a sorted file. One that is not finished is removed. NULL is allowed.
 */
void siltstone_sorted_file_free(siltstone_sorted_file *file);

/*
 Adds a key with its value. Each key must be above the one before.

 Errors: INVALID for a key that is not: the file is unchanged. TOO_LARGE. IO: the file cannot be
 finished.
 */
siltstone_error *siltstone_sorted_file_put(siltstone_sorted_file *file,
                                           const char *key,
                                           size_t key_len,
                                           const char *value,
                                           size_t value_len);

/*
 As siltstone_sorted_file_put(), for a value that expires at `expires_at`, in milliseconds since
 1970.
 */
siltstone_error *siltstone_sorted_file_put_until(siltstone_sorted_file *file,
                                                 const char *key,
                                                 size_t key_len,
                                                 const char *value,
                                                 size_t value_len,
                                                 uint64_t expires_at);

/*
 Adds the removal of a key from the table that ingests the file. Otherwise as
 siltstone_sorted_file_put().
 */
siltstone_error *siltstone_sorted_file_delete(siltstone_sorted_file *file,
                                              const char *key,
                                              size_t key_len);

/*
 Completes the file, durably. Only siltstone_sorted_file_free() is allowed after it.

 Errors: INVALID for a file without entries; IO. The file is removed then.
 */
siltstone_error *siltstone_sorted_file_finish(siltstone_sorted_file *file);

/*
 Makes `count` sorted files a part of the table, all at once and durably, without rewriting them.
 Their entries replace older ones of the same keys; the files must not overlap one another.
 `mode` is a siltstone_ingest_mode. *json, which may be NULL, gets {"sequence":1,"entries":2,
 "bytes":3,"copied_bytes":0,"levels":[6],"not_removed":[]}. Free *json with siltstone_free(). lsm
 only.

 Errors: UNSUPPORTED; INVALID for files that overlap or are no complete sorted files; CORRUPTION
 in a file. Nothing has changed then. Otherwise those of all writes.
 */
siltstone_error *siltstone_table_ingest(const siltstone_table *table,
                                        size_t count,
                                        const char *const *paths,
                                        int32_t mode,
                                        char **json);

/*
 Frees a handle of a table. The table itself stays as it is. NULL is allowed.
 */
void siltstone_table_free(siltstone_table *table);

/*
 Sets the value of a key, buffered: it survives a crash of the process, not a power cut. Both are
 copied. Waits while background work is behind.

 Errors of all writes: TOO_LARGE and a full disk: nothing was written; READ_ONLY; REFUSED by a
 store that is open read-only; CLOSED. After another IO error the outcome is unknown until the
 store is reopened.
 */
siltstone_error *siltstone_table_put(const siltstone_table *table,
                                     const char *key,
                                     size_t key_len,
                                     const char *value,
                                     size_t value_len);

/*
 As siltstone_table_put(), for a value that expires at `expires_at`, in milliseconds since 1970.
 */
siltstone_error *siltstone_table_put_until(const siltstone_table *table,
                                           const char *key,
                                           size_t key_len,
                                           const char *value,
                                           size_t value_len,
                                           uint64_t expires_at);

/*
 Removes a key, buffered. Removing a missing key is not an error.
 */
siltstone_error *siltstone_table_delete(const siltstone_table *table,
                                        const char *key,
                                        size_t key_len);

/*
 Removes every key from `start` to before `end`, buffered, at a cost independent of their number;
 NULL is no bound. Earlier snapshots still show the keys. lsm only.

 Errors: UNSUPPORTED; INVALID for a range that starts after its end; those of all writes.
 */
siltstone_error *siltstone_table_delete_range(const siltstone_table *table,
                                              const char *start,
                                              size_t start_len,
                                              const char *end,
                                              size_t end_len);

/*
 Sets the merge operator of the table: "siltstone.counter", which adds integers of 8 bytes,
 little-endian, or "siltstone.append:SEPARATOR", which joins values, with the separator in hex.
 It is recorded, and set again when the table is opened. The table takes no values that expire
 then. lsm only.

 Errors: UNSUPPORTED; INVALID for an unknown operator, for another one than the recorded one, and
 for a table with values that expire.
 */
siltstone_error *siltstone_table_set_merge_operator(const siltstone_table *table, const char *name);

/*
 Merges an operand into a key, buffered, without reading its value. lsm only.

 Errors: UNSUPPORTED; INVALID without a merge operator, or if it refuses the operand; those of
 all writes.
 */
siltstone_error *siltstone_table_merge(const siltstone_table *table,
                                       const char *key,
                                       size_t key_len,
                                       const char *operand,
                                       size_t operand_len);

/*
 Sets the value of a key to `new_value`, or removes the key if that is NULL, if its value is
 `expected`, or if it has none and `expected` is NULL; atomically and buffered. The new value
 does not expire. *is_swapped is set to whether the value was the expected one. The empty value
 is a pointer that is not NULL with the length 0.

 Errors: those of reads and writes.
 */
siltstone_error *siltstone_table_compare_and_swap(const siltstone_table *table,
                                                  const char *key,
                                                  size_t key_len,
                                                  const char *expected,
                                                  size_t expected_len,
                                                  const char *new_value,
                                                  size_t new_value_len,
                                                  bool *is_swapped);

/*
 Removes the entry with the smallest key, buffered, and copies its key and value; *key is NULL if
 the table is empty. Concurrent calls return different entries. Free both with siltstone_free().
 Cost: a seek, and a transaction. lsm only.

 Errors: UNSUPPORTED; those of reads and writes.
 */
siltstone_error *siltstone_table_pop_first(const siltstone_table *table,
                                           char **key,
                                           size_t *key_len,
                                           char **value,
                                           size_t *value_len);

/*
 As siltstone_table_pop_first(), for the greatest key.
 */
siltstone_error *siltstone_table_pop_last(const siltstone_table *table,
                                          char **key,
                                          size_t *key_len,
                                          char **value,
                                          size_t *value_len);

/*
 Applies a batch atomically. With `synced` it survives a power cut once this returns. The batch
 stays as it is, and can be changed and applied again.
 */
siltstone_error *siltstone_table_write(const siltstone_table *table,
                                       const siltstone_batch *batch,
                                       bool synced);

/*
 As siltstone_table_write() without `synced`, unless the write would have to wait: for background
 work, for another writer or beside open transactions. `*is_written` is false then, and nothing
 was written: call siltstone_table_write() on a thread that may wait. For threads that must not,
 such as event loops. lsm, trie and silt; on the other engines nothing is ever written.

 Errors: as siltstone_table_write().
 */
siltstone_error *siltstone_table_try_write(const siltstone_table *table,
                                           const siltstone_batch *batch,
                                           bool *is_written);

/*
 Removes every key, durably. Earlier snapshots still show the keys.
 */
siltstone_error *siltstone_table_clear(const siltstone_table *table);

/*
 Makes every write that has returned durable against a power cut.

 Errors: IO: it is unknown which of these writes are durable, and the table is read-only from
 then on; READ_ONLY; CLOSED.
 */
siltstone_error *siltstone_table_sync(const siltstone_table *table);

/*
 Writes buffered data to the engine's files, durably.
 */
siltstone_error *siltstone_table_flush(const siltstone_table *table);

/*
 Runs background work (flushes, compactions) until none is due.
 */
siltstone_error *siltstone_table_maintain(const siltstone_table *table);

/*
 Compacts the keys from `start` to before `end` down to their deepest level, beside other work;
 NULL is no bound. lsm only.

 Errors: UNSUPPORTED; INVALID for a range that starts after its end; IO; CLOSED.
 */
siltstone_error *siltstone_table_compact_range(const siltstone_table *table,
                                               const char *start,
                                               size_t start_len,
                                               const char *end,
                                               size_t end_len);

/*
 Changes options of the table, given as to siltstone_table_open_or_create(), durably. *json,
 which may be NULL, gets the names of those that take effect at the next open, as a JSON array.
 Free
 *json with siltstone_free().

 Errors: INVALID_OPTIONS with every mistake, among them options that never change; REFUSED; IO.
 Nothing has changed then.
 */
siltstone_error *siltstone_table_set_options(const siltstone_table *table,
                                             const char *const *options,
                                             size_t option_count,
                                             char **json);

/*
 Counters and sizes as a JSON object: bytes of memory by structure in "memory", with
 "block_cache" and "memtable", files per level in "levels", cache hits and jobs in "counters",
 bytes by purpose in "io", waiting times of writers in "stall". Free *json with siltstone_free().
 */
siltstone_error *siltstone_table_stats(const siltstone_table *table, char **json);

/*
 Counts the keys by a scan. The cost grows with their number.
 */
siltstone_error *siltstone_table_count(const siltstone_table *table, uint64_t *count);

/*
 Estimates the number of keys without reading any. Entries that were overwritten or deleted count
 until compaction has removed them; exact on mica.

 Errors: UNSUPPORTED on skimpy.
 */
siltstone_error *siltstone_table_approximate_len(const siltstone_table *table, uint64_t *count);

/*
 Copies the value of a key. *value gets the bytes, followed by a NUL that *value_len does not
 count; free them with siltstone_free(). *value is NULL if the key has no value.

 Errors of all reads: TOO_LARGE for a key that is too long; CORRUPTION; IO; CLOSED.
 */
siltstone_error *siltstone_table_get(const siltstone_table *table,
                                     const char *key,
                                     size_t key_len,
                                     char **value,
                                     size_t *value_len);

/*
 Passes the value of a key to `read`, without a copy where the engine has it in memory, and
 returns in *is_found whether there is one. `read` is called at most once, before this returns.
 */
siltstone_error *siltstone_table_get_with(const siltstone_table *table,
                                          const char *key,
                                          size_t key_len,
                                          siltstone_read_callback read,
                                          void *arg,
                                          bool *is_found);

/*
 Whether a key has a value.
 */
siltstone_error *siltstone_table_contains(const siltstone_table *table,
                                          const char *key,
                                          size_t key_len,
                                          bool *is_found);

/*
 Copies the values of `count` keys. values[i] and value_lens[i] are as from siltstone_table_get()
 for keys[i]; free each value with siltstone_free(). On lsm all values are of one moment. After
 an error all values are NULL.
 */
siltstone_error *siltstone_table_multi_get(const siltstone_table *table,
                                           size_t count,
                                           const char *const *keys,
                                           const size_t *key_lens,
                                           char **values,
                                           size_t *value_lens);

/*
 A cursor over the keys from `start` to before `end`; NULL is no bound. Unordered engines have no
 bounds. Free it with siltstone_cursor_free().

 Errors: INVALID for a range that starts after its end; UNSUPPORTED; CORRUPTION; IO; CLOSED.
 */
siltstone_error *siltstone_table_cursor(const siltstone_table *table,
                                        const char *start,
                                        size_t start_len,
                                        const char *end,
                                        size_t end_len,
                                        siltstone_cursor **cursor);

/*
 A cursor over the keys that start with `prefix`. Ordered engines only. Free it with
 siltstone_cursor_free().
 */
siltstone_error *siltstone_table_cursor_prefix(const siltstone_table *table,
                                               const char *prefix,
                                               size_t prefix_len,
                                               siltstone_cursor **cursor);

/*
 Begins to move the table `name` to the engine `engine`, with `option_count` options of the form
 "key=value", while it is in use. It may be its own engine, with other options. Nothing is copied
 yet. Copy with siltstone_move_copy(), finish with siltstone_move_finish(), and free it with
 siltstone_move_free().

 What does not move: snapshots, the history of skimpy, and change feeds with their positions.

 Errors: INVALID if there is no such table, or if it is moving already; INVALID_OPTIONS with
 every mistake; UNSUPPORTED for a table with a merge operator and an engine without merges;
 REFUSED in a read-only store; IO. Nothing has changed then.
 */
siltstone_error *siltstone_move_begin(const siltstone_db *db,
                                      const char *name,
                                      const char *engine,
                                      const char *const *options,
                                      size_t option_count,
                                      siltstone_move **moving);

/*
 Copies all rows, then those that were written meanwhile, until few are left. Readers and writers
 go on. *is_copied is false if the move was cancelled. Cost: the table is read once and written
 once, with the write amplification of the new engine.

 Errors: REFUSED for a value that the new engine does not take, or if it has no room; those of
 reads and writes. The table is as before, and siltstone_move_free() removes the copy.
 */
siltstone_error *siltstone_move_copy(const siltstone_move *moving, bool *is_copied);

/*
 The rows that were copied since the copy last began. 0 for NULL.
 */
uint64_t siltstone_move_rows(const siltstone_move *moving);

/*
 The rows that were copied again because they were written meanwhile. 0 for NULL.
 */
uint64_t siltstone_move_changes(const siltstone_move *moving);

/*
 How often the copy began again, after a removal of ranges or of all keys. 0 for NULL.
 */
uint64_t siltstone_move_restarts(const siltstone_move *moving);

/*
 Cancels a move that is not finished: the calls that copy end after at most one more batch of
 rows. The table stays as it is. Free the move afterwards. NULL is allowed.
 */
void siltstone_move_cancel(const siltstone_move *moving);

/*
 Copies what is left as siltstone_move_copy() does, puts the copy in the place of the table,
 durably, and removes the old one. Writers wait for the last few rows and the switch. *table is
 the table on its new engine; free it with siltstone_table_free(). Calls with other handles of
 the table fail with CLOSED. A crash leaves the old table or the new one. The move is over in any
 case; after an error from before the switch the table is as it was.

 Errors: those of siltstone_move_copy(); INVALID if the move was cancelled, or is finished; IO of
 the switch, or from removing the old table: the next open has the old or the new table.
 */
siltstone_error *siltstone_move_finish(const siltstone_move *moving, siltstone_table **table);

/*
 Frees a move. One that is not finished is cancelled: the table stays as it is, and the copy is
 removed. NULL is allowed.
 */
void siltstone_move_free(siltstone_move *moving);

/*
 Begins a transaction. End it with siltstone_transaction_commit(), and free it with
 siltstone_transaction_free().

 Errors: UNSUPPORTED on trie, silt and mica; CLOSED.
 */
siltstone_error *siltstone_transaction_begin(const siltstone_table *table,
                                             siltstone_transaction **transaction);

/*
 Applies all writes, or none; with `synced` they survive a power cut once this returns. The
 transaction has ended in any case; the handle is still to be freed.

 Errors: CONFLICT: what it has read has changed, and EXPIRED: nothing was applied, run it again
 from its beginning. Others as of siltstone_table_put(). INVALID if it has ended already, or if
 it is that of siltstone_table_transact() or one of siltstone_transaction_begin_all().
 */
siltstone_error *siltstone_transaction_commit(siltstone_transaction *transaction, bool synced);

/*
 Begins a transaction over `count` tables of a store: transactions[i] reads and writes tables[i].
 All of them read as of one moment. End them with siltstone_transaction_commit_all(), and free
 each with siltstone_transaction_free(), in any order; to free one without a commit discards all.
 Different threads may use different ones. After an error all are NULL.

 Errors: UNSUPPORTED unless all tables are on lsm; INVALID for a table of another store, or one
 that is there twice; REFUSED by a store that is open read-only; CLOSED.
 */
siltstone_error *siltstone_transaction_begin_all(const siltstone_db *db,
                                                 size_t count,
                                                 const siltstone_table *const *tables,
                                                 siltstone_transaction **transactions);

/*
 Commits all `count` transactions of a siltstone_transaction_begin_all(), in any order: applies
 the writes to all tables, or none; with `synced` they survive a power cut once this returns. All
 have ended then; the handles are still to be freed. No other thread may use one meanwhile.

 Errors: as of siltstone_transaction_commit(). INVALID if the array has not exactly these
 transactions: they stay as they are.
 */
siltstone_error *siltstone_transaction_commit_all(size_t count,
                                                  siltstone_transaction *const *transactions,
                                                  bool synced);

/*
 Frees a transaction. One that was not committed is discarded. NULL is allowed.
 */
void siltstone_transaction_free(siltstone_transaction *transaction);

/*
 Runs `work` in a transaction and commits it, again after a conflict, up to 16 times with growing
 pauses. *is_committed is set to whether it was committed: it was not if `work` returned false.

 Errors: CONFLICT of the last attempt; others as of siltstone_transaction_commit().
 */
siltstone_error *siltstone_table_transact(const siltstone_table *table,
                                          siltstone_work work,
                                          void *arg,
                                          bool synced,
                                          bool *is_committed);

/*
 Sets the value of a key at the commit. Both are copied.

 Errors of all writes of a transaction: TOO_LARGE; INVALID if the transaction has ended.
 */
siltstone_error *siltstone_transaction_put(siltstone_transaction *transaction,
                                           const char *key,
                                           size_t key_len,
                                           const char *value,
                                           size_t value_len);

/*
 As siltstone_transaction_put(), for a value that expires at `expires_at`, in milliseconds since
 1970.
 */
siltstone_error *siltstone_transaction_put_until(siltstone_transaction *transaction,
                                                 const char *key,
                                                 size_t key_len,
                                                 const char *value,
                                                 size_t value_len,
                                                 uint64_t expires_at);

/*
 Removes a key at the commit.
 */
siltstone_error *siltstone_transaction_delete(siltstone_transaction *transaction,
                                              const char *key,
                                              size_t key_len);

/*
 Adds all writes of a batch.
 */
siltstone_error *siltstone_transaction_write(siltstone_transaction *transaction,
                                             const siltstone_batch *batch);

/*
 As siltstone_table_get(), in a transaction.
 */
siltstone_error *siltstone_transaction_get(const siltstone_transaction *transaction,
                                           const char *key,
                                           size_t key_len,
                                           char **value,
                                           size_t *value_len);

/*
 As siltstone_table_get_with(), in a transaction.
 */
siltstone_error *siltstone_transaction_get_with(const siltstone_transaction *transaction,
                                                const char *key,
                                                size_t key_len,
                                                siltstone_read_callback read,
                                                void *arg,
                                                bool *is_found);

/*
 As siltstone_table_contains(), in a transaction.
 */
siltstone_error *siltstone_transaction_contains(const siltstone_transaction *transaction,
                                                const char *key,
                                                size_t key_len,
                                                bool *is_found);

/*
 As siltstone_table_multi_get(), in a transaction.
 */
siltstone_error *siltstone_transaction_multi_get(const siltstone_transaction *transaction,
                                                 size_t count,
                                                 const char *const *keys,
                                                 const size_t *key_lens,
                                                 char **values,
                                                 size_t *value_lens);

/*
 As siltstone_table_cursor(), in a transaction.
 */
siltstone_error *siltstone_transaction_cursor(const siltstone_transaction *transaction,
                                              const char *start,
                                              size_t start_len,
                                              const char *end,
                                              size_t end_len,
                                              siltstone_cursor **cursor);

/*
 As siltstone_table_cursor_prefix(), in a transaction.
 */
siltstone_error *siltstone_transaction_cursor_prefix(const siltstone_transaction *transaction,
                                                     const char *prefix,
                                                     size_t prefix_len,
                                                     siltstone_cursor **cursor);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SILTSTONE_H */
