/*
 * Calls of libsiltstone in the form that is cheapest for Go: results are returned by value, so that
 * no output argument is allocated on Go's heap, and a step that Go does often is one call. Tables,
 * snapshots and transactions have the same reads, which are one function here.
 */

#ifndef SILTSTONE_GO_BRIDGE_H
#define SILTSTONE_GO_BRIDGE_H

#include <siltstone.h>

#include <stdlib.h>
#include <string.h>

/* The type of the handle that is read. */
typedef enum { OF_TABLE, OF_SNAPSHOT, OF_TRANSACTION } reader;

typedef struct {
  siltstone_error *error;
  void *handle;
} handle_result;

typedef struct {
  siltstone_error *error;
  bool flag;
  char *data; /* NULL, or to be freed with siltstone_free() */
  size_t len;
} result;

/* The entry under a cursor after a move. The key and the value are valid until the next move. */
typedef struct {
  siltstone_error *error;
  bool is_valid;
  const char *key, *value;
  size_t key_len, value_len;
  uint64_t expires_at;
} move_result;

typedef enum { MOVE_FIRST, MOVE_LAST, MOVE_NEXT, MOVE_PREV, MOVE_SEEK, MOVE_SEEK_BACK } move;

/* The names of the functions of one kind of reader. */
#define OF(reader, of, name, ...)                                             \
  ((reader) == OF_TABLE      ? siltstone_table_##name((of), __VA_ARGS__)      \
   : (reader) == OF_SNAPSHOT ? siltstone_snapshot_##name((of), __VA_ARGS__)   \
                             : siltstone_transaction_##name((of), __VA_ARGS__))

static inline result read_get(reader reader, void *of, const char *key, size_t key_len) {
  result r = {0};
  r.error = OF(reader, of, get, key, key_len, &r.data, &r.len);
  return r;
}

static inline result read_contains(reader reader, void *of, const char *key, size_t key_len) {
  result r = {0};
  r.error = OF(reader, of, contains, key, key_len, &r.flag);
  return r;
}

/* The keys are in `text` one after the other. values[i] are freed with free_values(). */
static inline siltstone_error *read_multi_get(reader reader, void *of, size_t count, const char *text,
                                              const size_t *key_lens, char **values,
                                              size_t *value_lens) {
  const char **keys = malloc((count + 1) * sizeof *keys);
  siltstone_error *error;
  if (!keys) abort();
  for (size_t i = 0, at = 0; i < count; at += key_lens[i++]) keys[i] = text ? text + at : "";
  error = OF(reader, of, multi_get, count, keys, key_lens, values, value_lens);
  free(keys);
  return error;
}

static inline void free_values(size_t count, char **values) {
  for (size_t i = 0; i < count; i++) siltstone_free(values[i]);
}

static inline handle_result read_cursor(reader reader, void *of, const char *start, size_t start_len,
                                        const char *end, size_t end_len) {
  siltstone_cursor *cursor = NULL;
  siltstone_error *error = OF(reader, of, cursor, start, start_len, end, end_len, &cursor);
  return (handle_result){error, cursor};
}

static inline handle_result read_cursor_prefix(reader reader, void *of, const char *prefix,
                                               size_t prefix_len) {
  siltstone_cursor *cursor = NULL;
  siltstone_error *error = OF(reader, of, cursor_prefix, prefix, prefix_len, &cursor);
  return (handle_result){error, cursor};
}

static inline move_result cursor_move(siltstone_cursor *cursor, move move, const char *key,
                                      size_t key_len) {
  move_result r = {0};
  switch (move) {
    case MOVE_FIRST: r.error = siltstone_cursor_first(cursor); break;
    case MOVE_LAST: r.error = siltstone_cursor_last(cursor); break;
    case MOVE_NEXT: r.error = siltstone_cursor_next(cursor); break;
    case MOVE_PREV: r.error = siltstone_cursor_prev(cursor); break;
    case MOVE_SEEK: r.error = siltstone_cursor_seek(cursor, key, key_len); break;
    case MOVE_SEEK_BACK: r.error = siltstone_cursor_seek_back(cursor, key, key_len); break;
  }
  if (r.error || !siltstone_cursor_valid(cursor)) return r;
  r.is_valid = true;
  r.key = siltstone_cursor_key(cursor, &r.key_len);
  r.value = siltstone_cursor_value(cursor, &r.value_len);
  r.expires_at = siltstone_cursor_expires_at(cursor);
  return r;
}

static inline handle_result db_open(const char *path, const siltstone_options *options, bool create) {
  siltstone_db *db = NULL;
  siltstone_error *error = create ? siltstone_open_or_create(path, options, &db)
                                  : siltstone_open(path, options, &db);
  return (handle_result){error, db};
}

static inline handle_result reader_open(const char *path, const siltstone_options *options) {
  siltstone_reader *reader = NULL;
  siltstone_error *error = siltstone_reader_open(path, options, &reader);
  return (handle_result){error, reader};
}

static inline result reader_catch_up(const siltstone_reader *reader) {
  result r = {0};
  r.error = siltstone_reader_catch_up(reader, &r.flag);
  return r;
}

static inline handle_result reader_table(const siltstone_reader *reader, const char *name) {
  siltstone_table *table = NULL;
  siltstone_error *error = siltstone_reader_table(reader, name, &table);
  return (handle_result){error, table};
}

static inline handle_result table_open(const siltstone_db *db, const char *name) {
  siltstone_table *table = NULL;
  siltstone_error *error = siltstone_table_open(db, name, &table);
  return (handle_result){error, table};
}

/* Lists of texts are in `text` one after the other, each with its NUL. The result is freed. */
static inline const char **text_list(size_t count, const char *text) {
  const char **list = malloc((count + 1) * sizeof *list);
  if (!list) abort();
  for (size_t i = 0; i < count; text += strlen(text) + 1) list[i++] = text;
  return list;
}

static inline handle_result table_open_or_create(const siltstone_db *db, const char *name,
                                                 const char *engine, size_t count,
                                                 const char *text) {
  siltstone_table *table = NULL;
  const char **options = text_list(count, text);
  siltstone_error *error =
      siltstone_table_open_or_create(db, name, engine, options, count, &table);
  free(options);
  return (handle_result){error, table};
}

static inline handle_result move_begin(const siltstone_db *db, const char *name, const char *engine,
                                       size_t count, const char *text) {
  siltstone_move *moving = NULL;
  const char **options = text_list(count, text);
  siltstone_error *error = siltstone_move_begin(db, name, engine, options, count, &moving);
  free(options);
  return (handle_result){error, moving};
}

static inline result move_copy(const siltstone_move *moving) {
  result r = {0};
  r.error = siltstone_move_copy(moving, &r.flag);
  return r;
}

static inline handle_result move_finish(const siltstone_move *moving) {
  siltstone_table *table = NULL;
  siltstone_error *error = siltstone_move_finish(moving, &table);
  return (handle_result){error, table};
}

static inline handle_result sorted_file_create(const char *path, size_t count, const char *text) {
  siltstone_sorted_file *file = NULL;
  const char **options = text_list(count, text);
  siltstone_error *error = siltstone_sorted_file_create(path, options, count, &file);
  free(options);
  return (handle_result){error, file};
}

static inline handle_result snapshot_create(const siltstone_table *table) {
  siltstone_snapshot *snapshot = NULL;
  siltstone_error *error = siltstone_snapshot_create(table, &snapshot);
  return (handle_result){error, snapshot};
}

static inline handle_result snapshot_create_at(const siltstone_table *table, uint64_t time) {
  siltstone_snapshot *snapshot = NULL;
  siltstone_error *error = siltstone_snapshot_create_at(table, time, &snapshot);
  return (handle_result){error, snapshot};
}

static inline handle_result transaction_begin(const siltstone_table *table) {
  siltstone_transaction *transaction = NULL;
  siltstone_error *error = siltstone_transaction_begin(table, &transaction);
  return (handle_result){error, transaction};
}

/* Text results: `data` is set to JSON. */
static inline result db_tables(const siltstone_db *db) {
  result r = {0};
  r.error = siltstone_tables(db, &r.data);
  return r;
}

static inline result db_disk_usage(const siltstone_db *db) {
  result r = {0};
  r.error = siltstone_disk_usage(db, &r.data);
  return r;
}

static inline result db_verify(const siltstone_db *db) {
  result r = {0};
  r.error = siltstone_verify_open(db, &r.flag, &r.data);
  return r;
}

static inline result verify(const char *path, const siltstone_options *options) {
  result r = {0};
  r.error = siltstone_verify_with(path, options, &r.flag, &r.data);
  return r;
}

static inline result repair(const char *path, const siltstone_options *options) {
  result r = {0};
  r.error = siltstone_repair_with(path, options, &r.flag, &r.data);
  return r;
}

static inline result rekey(const char *path, const siltstone_options *options) {
  result r = {0};
  r.error = siltstone_rekey(path, options, &r.data);
  return r;
}

static inline result table_set_options(const siltstone_table *table, size_t count,
                                       const char *text) {
  result r = {0};
  const char **options = text_list(count, text);
  r.error = siltstone_table_set_options(table, options, count, &r.data);
  free(options);
  return r;
}

static inline result table_ingest(const siltstone_table *table, size_t count, const char *text,
                                  int32_t mode) {
  result r = {0};
  const char **paths = text_list(count, text);
  r.error = siltstone_table_ingest(table, count, paths, mode, &r.data);
  free(paths);
  return r;
}

static inline handle_result table_changes(const siltstone_table *table, uint64_t since,
                                          bool include_unsynced) {
  siltstone_changes *changes = NULL;
  siltstone_error *error = siltstone_table_changes(table, since, include_unsynced, &changes);
  return (handle_result){error, changes};
}

static inline result changes_next(siltstone_changes *changes, uint64_t timeout_ms) {
  result r = {0};
  r.error = siltstone_changes_next(changes, timeout_ms, &r.flag);
  return r;
}

/* The operation is valid until the next move. */
static inline siltstone_change_op changes_op(const siltstone_changes *changes, size_t index) {
  siltstone_change_op op = {0};
  siltstone_changes_op(changes, index, &op);
  return op;
}

/* NULL with a flag is the empty value, and without one it is none. */
static inline result table_compare_and_swap(const siltstone_table *table, const char *key,
                                            size_t key_len, bool has_expected, const char *expected,
                                            size_t expected_len, bool has_value, const char *value,
                                            size_t value_len) {
  result r = {0};
  if (has_expected && !expected) expected = "";
  if (has_value && !value) value = "";
  r.error = siltstone_table_compare_and_swap(table, key, key_len, expected, expected_len, value,
                                             value_len, &r.flag);
  return r;
}

/* Both NULL, or to be freed with siltstone_free(). */
typedef struct {
  siltstone_error *error;
  char *key, *value;
  size_t key_len, value_len;
} pop_result;

static inline pop_result table_pop(const siltstone_table *table, bool is_last) {
  pop_result r = {0};
  r.error = is_last
                ? siltstone_table_pop_last(table, &r.key, &r.key_len, &r.value, &r.value_len)
                : siltstone_table_pop_first(table, &r.key, &r.key_len, &r.value, &r.value_len);
  return r;
}

static inline result table_try_write(const siltstone_table *table, const siltstone_batch *batch) {
  result r = {0};
  r.error = siltstone_table_try_write(table, batch, &r.flag);
  return r;
}

static inline result table_stats(const siltstone_table *table) {
  result r = {0};
  r.error = siltstone_table_stats(table, &r.data);
  return r;
}

/* The arguments of a merge callback. */
typedef struct {
  bool is_partial;
  const char *key, *value;
  size_t key_len, value_len, operand_count;
  const char *const *operands;
  const size_t *operand_lens;
  siltstone_merge_output *output;
} merge_call;

/* Functions in Go. The argument of callbacks is a cgo.Handle: a number, not a pointer. */
extern bool siltstoneGoMerge(uintptr_t operator, merge_call *call);
extern void siltstoneGoEvent(uintptr_t listener, siltstone_event *event);
extern void siltstoneGoForget(uintptr_t handle);

static inline bool go_merge(void *arg, const char *key, size_t key_len, const char *value,
                            size_t value_len, size_t operand_count, const char *const *operands,
                            const size_t *operand_lens, siltstone_merge_output *output) {
  merge_call call = {false, key, value, key_len, value_len, operand_count, operands, operand_lens, output};
  return siltstoneGoMerge((uintptr_t)arg, &call);
}

static inline bool go_partial_merge(void *arg, const char *key, size_t key_len, const char *value,
                                    size_t value_len, size_t operand_count,
                                    const char *const *operands, const size_t *operand_lens,
                                    siltstone_merge_output *output) {
  merge_call call = {true, key, value, key_len, value_len, operand_count, operands, operand_lens, output};
  return siltstoneGoMerge((uintptr_t)arg, &call);
}

static inline void go_event(void *arg, const siltstone_event *event) {
  siltstoneGoEvent((uintptr_t)arg, (siltstone_event *)event);
}

static inline void go_forget(void *arg) {
  siltstoneGoForget((uintptr_t)arg);
}

static inline siltstone_error *options_add_merge_operator(siltstone_options *options,
                                                          const char *table, const char *name,
                                                          bool is_partial, uintptr_t operator) {
  return siltstone_options_add_merge_operator(options, table, name, go_merge,
                                              is_partial ? go_partial_merge : NULL,
                                              (void *)operator, go_forget);
}

static inline siltstone_error *options_add_listener(siltstone_options *options, uintptr_t listener) {
  return siltstone_options_add_listener(options, go_event, (void *)listener, go_forget);
}

#endif
