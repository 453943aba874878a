/*
 * Calls every function of the interface, with right and with wrong arguments.
 *
 *   api DIR    DIR is an empty directory, in which it makes stores
 */

#include "check.h"

#include <pthread.h>

static char path[2][4096];

/* Wrong arguments: each is reported by name, and outputs are NULL, 0 or false. */
static void reject_null(void) {
  siltstone_db *db = (siltstone_db *)1;
  siltstone_table *table = (siltstone_table *)1;
  char *value = (char *)1;
  size_t len = 1;
  bool flag = true;
  FAILS(siltstone_open(NULL, NULL, &db), SILTSTONE_CODE_INVALID, "'path'");
  CHECK(db == NULL);
  FAILS(siltstone_open("x", NULL, NULL), SILTSTONE_CODE_INVALID, "'db'");
  FAILS(siltstone_open_or_create("\xff", NULL, &db), SILTSTONE_CODE_INVALID, "UTF-8");
  FAILS(siltstone_close(NULL), SILTSTONE_CODE_INVALID, "'db'");
  FAILS(siltstone_table_open(NULL, "t", &table), SILTSTONE_CODE_INVALID, "'db'");
  CHECK(table == NULL);
  FAILS(siltstone_table_open_or_create(NULL, "t", NULL, NULL, 0, &table), SILTSTONE_CODE_INVALID,
        "'engine'");
  FAILS(siltstone_table_open_or_create(NULL, "t", "lsm", NULL, 1, &table), SILTSTONE_CODE_INVALID,
        "'options'");
  FAILS(siltstone_table_drop(NULL, "t"), SILTSTONE_CODE_INVALID, "'db'");
  FAILS(siltstone_table_rename(NULL, "t", NULL), SILTSTONE_CODE_INVALID, "'new_name'");
  FAILS(siltstone_tables(NULL, &value), SILTSTONE_CODE_INVALID, "'db'");
  CHECK(value == NULL);
  FAILS(siltstone_sync(NULL), SILTSTONE_CODE_INVALID, "'db'");
  FAILS(siltstone_checkpoint(NULL, "x"), SILTSTONE_CODE_INVALID, "'db'");
  FAILS(siltstone_verify(NULL, &flag, NULL), SILTSTONE_CODE_INVALID, "'path'");
  FAILS(siltstone_verify("x", NULL, NULL), SILTSTONE_CODE_INVALID, "'is_intact'");
  FAILS(siltstone_verify_open(NULL, &flag, NULL), SILTSTONE_CODE_INVALID, "'db'");
  CHECK(!flag);
  FAILS(siltstone_repair("x", NULL, NULL), SILTSTONE_CODE_INVALID, "'is_lossless'");

  value = (char *)1;
  FAILS(siltstone_table_get(NULL, "k", 1, &value, &len), SILTSTONE_CODE_INVALID, "'table'");
  CHECK(value == NULL && len == 0);
  FAILS(siltstone_table_get(NULL, "k", 1, &value, NULL), SILTSTONE_CODE_INVALID, "'value_len'");
  FAILS(siltstone_table_get(NULL, "k", 1, NULL, &len), SILTSTONE_CODE_INVALID, "'value'");
  FAILS(siltstone_table_get(NULL, NULL, 1, &value, &len), SILTSTONE_CODE_INVALID, "'key'");
  FAILS(siltstone_table_put(NULL, "k", 1, NULL, 1), SILTSTONE_CODE_INVALID, "'value'");
  FAILS(siltstone_table_put(NULL, "k", (size_t)-1, "v", 1), SILTSTONE_CODE_INVALID, "'key'");
  FAILS(siltstone_table_put_until(NULL, "k", 1, "v", 1, 1), SILTSTONE_CODE_INVALID, "'table'");
  FAILS(siltstone_table_delete(NULL, "k", 1), SILTSTONE_CODE_INVALID, "'table'");
  FAILS(siltstone_table_write(NULL, NULL, true), SILTSTONE_CODE_INVALID, "'table'");
  FAILS(siltstone_table_try_write(NULL, NULL, &flag), SILTSTONE_CODE_INVALID, "'table'");
  FAILS(siltstone_table_try_write(NULL, NULL, NULL), SILTSTONE_CODE_INVALID, "'is_written'");
  FAILS(siltstone_table_multi_get(NULL, 1, NULL, NULL, NULL, NULL), SILTSTONE_CODE_INVALID, "'keys'");
  FAILS(siltstone_table_transact(NULL, NULL, NULL, false, &flag), SILTSTONE_CODE_INVALID, "'work'");
  FAILS(siltstone_snapshot_create(NULL, NULL), SILTSTONE_CODE_INVALID, "'snapshot'");
  FAILS(siltstone_transaction_begin(NULL, NULL), SILTSTONE_CODE_INVALID, "'transaction'");
  FAILS(siltstone_transaction_commit(NULL, false), SILTSTONE_CODE_INVALID, "'transaction'");
  FAILS(siltstone_transaction_write(NULL, NULL), SILTSTONE_CODE_INVALID, "'transaction'");
  FAILS(siltstone_cursor_first(NULL), SILTSTONE_CODE_INVALID, "'cursor'");
  FAILS(siltstone_cursor_seek(NULL, NULL, 1), SILTSTONE_CODE_INVALID, "'cursor'");
  FAILS(siltstone_batch_put(NULL, "k", 1, "v", 1), SILTSTONE_CODE_INVALID, "'batch'");
  FAILS(siltstone_batch_put_until(NULL, "k", 1, "v", 1, 1), SILTSTONE_CODE_INVALID, "'batch'");
  FAILS(siltstone_batch_delete(NULL, "k", 1), SILTSTONE_CODE_INVALID, "'batch'");
  FAILS(siltstone_batch_clear(NULL), SILTSTONE_CODE_INVALID, "'batch'");

  /* Outputs are set, whichever argument is wrong. */
  siltstone_cursor *cursor = (siltstone_cursor *)1;
  FAILS(siltstone_table_cursor(NULL, NULL, 1, NULL, 0, &cursor), SILTSTONE_CODE_INVALID, "'start'");
  CHECK(cursor == NULL);
  cursor = (siltstone_cursor *)1;
  FAILS(siltstone_table_cursor_prefix(NULL, "k", 1, &cursor), SILTSTONE_CODE_INVALID, "'table'");
  CHECK(cursor == NULL);
  cursor = (siltstone_cursor *)1;
  FAILS(siltstone_transaction_cursor(NULL, NULL, 0, NULL, 0, &cursor), SILTSTONE_CODE_INVALID,
        "'transaction'");
  CHECK(cursor == NULL);
  cursor = (siltstone_cursor *)1;
  FAILS(siltstone_snapshot_cursor_prefix(NULL, NULL, 1, &cursor), SILTSTONE_CODE_INVALID,
        "'prefix'");
  CHECK(cursor == NULL);
  flag = true;
  FAILS(siltstone_table_contains(NULL, "k", 1, &flag), SILTSTONE_CODE_INVALID, "'table'");
  CHECK(!flag);
  flag = true;
  FAILS(siltstone_snapshot_get_with(NULL, NULL, 1, NULL, NULL, &flag), SILTSTONE_CODE_INVALID,
        "'key'");
  CHECK(!flag);
  flag = true;
  FAILS(siltstone_table_transact(NULL, NULL, NULL, false, &flag), SILTSTONE_CODE_INVALID, "'work'");
  CHECK(!flag);
  flag = true;
  FAILS(siltstone_verify(NULL, &flag, NULL), SILTSTONE_CODE_INVALID, "'path'");
  CHECK(!flag);
  value = (char *)1;
  len = 1;
  FAILS(siltstone_table_multi_get(NULL, 1, NULL, NULL, &value, &len), SILTSTONE_CODE_INVALID,
        "'keys'");
  CHECK(value == NULL && len == 0);

  CHECK(siltstone_batch_count(NULL) == 0);
  CHECK(!siltstone_cursor_valid(NULL));
  CHECK(siltstone_cursor_key(NULL, &len) == NULL && len == 0);
  CHECK(siltstone_cursor_value(NULL, NULL) == NULL);
  CHECK(siltstone_cursor_expires_at(NULL) == 0);
  CHECK(siltstone_error_code(NULL) == 0 && !*siltstone_error_message(NULL));
  CHECK(!siltstone_error_is_retryable(NULL) && !siltstone_error_is_disk_full(NULL));
  siltstone_options_set_read_only(NULL, true);
  siltstone_options_free(NULL);
  siltstone_db_free(NULL);
  siltstone_table_free(NULL);
  siltstone_batch_free(NULL);
  siltstone_cursor_free(NULL);
  siltstone_snapshot_free(NULL);
  siltstone_transaction_free(NULL);
  siltstone_error_free(NULL);
  siltstone_free(NULL);
}

static void add_lengths(void *arg, const char *value, size_t value_len) {
  CHECK(value != NULL);
  *(size_t *)arg += value_len;
}

static void read_and_write(siltstone_table *table) {
  char *value;
  size_t len;
  bool is_found;
  uint64_t count;

  OK(siltstone_table_put(table, S("apples"), S("3")));
  OK(siltstone_table_put(table, S("pears"), S("5")));
  OK(siltstone_table_put(table, NULL, 0, NULL, 0));
  OK(siltstone_table_put_until(table, S("stale"), S("x"), 1));
  OK(siltstone_table_put_until(table, S("fresh"), S("y"), UINT64_MAX));
  OK(siltstone_table_get(table, S("apples"), &value, &len));
  CHECK(take_equal(value, len, "3"));
  OK(siltstone_table_get(table, "", 0, &value, &len));
  CHECK(take_equal(value, len, ""));
  OK(siltstone_table_get(table, S("stale"), &value, &len));
  CHECK(value == NULL && len == 0);
  OK(siltstone_table_contains(table, S("fresh"), &is_found));
  CHECK(is_found);
  OK(siltstone_table_count(table, &count));
  CHECK(count == 4);

  size_t sum = 0;
  OK(siltstone_table_get_with(table, S("pears"), add_lengths, &sum, &is_found));
  CHECK(is_found && sum == 1);
  OK(siltstone_table_get_with(table, S("stale"), add_lengths, &sum, &is_found));
  CHECK(!is_found && sum == 1);
  FAILS(siltstone_table_get_with(table, S("pears"), NULL, NULL, &is_found), SILTSTONE_CODE_INVALID,
        "'read'");

  const char *keys[] = {"pears", "none", "apples"};
  size_t key_lens[] = {5, 4, 6};
  char *values[3];
  size_t value_lens[3];
  OK(siltstone_table_multi_get(table, 3, keys, key_lens, values, value_lens));
  CHECK(values[1] == NULL && value_lens[1] == 0);
  CHECK(take_equal(values[0], value_lens[0], "5") && take_equal(values[2], value_lens[2], "3"));
  OK(siltstone_table_multi_get(table, 0, NULL, NULL, NULL, NULL));
  values[0] = (char *)1;
  keys[2] = NULL;
  FAILS(siltstone_table_multi_get(table, 3, keys, key_lens, values, value_lens),
        SILTSTONE_CODE_INVALID, "keys[]");
  CHECK(values[0] == NULL && values[2] == NULL);

  OK(siltstone_table_delete(table, S("fresh")));
  OK(siltstone_table_delete(table, S("fresh")));
  OK(siltstone_table_contains(table, S("fresh"), &is_found));
  CHECK(!is_found);

  char *long_key = calloc(1, 1 << 20);
  FAILS(siltstone_table_put(table, long_key, 1 << 20, "v", 1), SILTSTONE_CODE_TOO_LARGE, "limit");
  free(long_key);

  OK(siltstone_table_sync(table));
  OK(siltstone_table_flush(table));
  OK(siltstone_table_maintain(table));
  OK(siltstone_table_stats(table, &value));
  CHECK(strstr(value, "\"engine\":\"lsm\""));
  siltstone_free(value);
}

static void write_batches(siltstone_table *table) {
  char *value;
  size_t len;
  siltstone_batch *batch = siltstone_batch_create();
  OK(siltstone_batch_put(batch, S("gone"), S("1")));
  OK(siltstone_batch_clear(batch));
  CHECK(siltstone_batch_count(batch) == 0);
  OK(siltstone_batch_put(batch, S("plums"), S("1")));
  OK(siltstone_batch_put(batch, S("plums"), S("7")));
  OK(siltstone_batch_put_until(batch, S("stale"), S("1"), 1));
  OK(siltstone_batch_delete(batch, S("apples")));
  CHECK(siltstone_batch_count(batch) == 4);
  FAILS(siltstone_batch_put(batch, NULL, 1, "v", 1), SILTSTONE_CODE_INVALID, "'key'");
  OK(siltstone_table_write(table, batch, true));
  OK(siltstone_table_write(table, batch, false));
  bool is_written = false;
  OK(siltstone_table_try_write(table, batch, &is_written));
  CHECK(is_written);
  /* Beside a transaction a write waits for others. */
  siltstone_transaction *transaction;
  OK(siltstone_transaction_begin(table, &transaction));
  OK(siltstone_table_try_write(table, batch, &is_written));
  CHECK(!is_written);
  siltstone_transaction_free(transaction);
  siltstone_batch_free(batch);
  FAILS(siltstone_table_write(table, NULL, false), SILTSTONE_CODE_INVALID, "'batch'");
  OK(siltstone_table_get(table, S("plums"), &value, &len));
  CHECK(take_equal(value, len, "7"));
  OK(siltstone_table_get(table, S("apples"), &value, &len));
  CHECK(value == NULL);
}

static bool is_on(siltstone_cursor *cursor, const char *key) {
  size_t len;
  const char *found = siltstone_cursor_key(cursor, &len);
  CHECK(siltstone_cursor_valid(cursor) == (found != NULL));
  return key ? found && len == strlen(key) && !memcmp(found, key, len) : !found;
}

static void iterate(siltstone_table *table) {
  siltstone_cursor *cursor;
  size_t len;
  OK(siltstone_table_clear(table));
  OK(siltstone_table_put(table, S("a"), S("1")));
  OK(siltstone_table_put(table, S("b1"), S("")));
  OK(siltstone_table_put(table, S("b2"), S("3")));
  OK(siltstone_table_put_until(table, S("c"), S("4"), UINT64_MAX));

  OK(siltstone_table_cursor(table, NULL, 0, NULL, 0, &cursor));
  CHECK(is_on(cursor, NULL));
  OK(siltstone_cursor_next(cursor));
  CHECK(is_on(cursor, "a"));
  OK(siltstone_cursor_next(cursor));
  /* The address of no bytes can be read. */
  CHECK(is_on(cursor, "b1") && *siltstone_cursor_value(cursor, &len) == 0 && len == 0);
  OK(siltstone_cursor_prev(cursor));
  CHECK(is_on(cursor, "a"));
  OK(siltstone_cursor_prev(cursor));
  CHECK(is_on(cursor, NULL));
  OK(siltstone_cursor_next(cursor));
  CHECK(is_on(cursor, NULL));
  OK(siltstone_cursor_last(cursor));
  CHECK(is_on(cursor, "c") && siltstone_cursor_expires_at(cursor) == UINT64_MAX);
  CHECK(*siltstone_cursor_value(cursor, &len) == '4' && len == 1);
  OK(siltstone_cursor_seek(cursor, S("b")));
  CHECK(is_on(cursor, "b1") && siltstone_cursor_expires_at(cursor) == 0);
  OK(siltstone_cursor_seek_back(cursor, S("b")));
  CHECK(is_on(cursor, "a"));
  FAILS(siltstone_cursor_seek(cursor, NULL, 1), SILTSTONE_CODE_INVALID, "'key'");
  OK(siltstone_table_put(table, S("a0"), S("later")));
  OK(siltstone_cursor_first(cursor));
  OK(siltstone_cursor_next(cursor));
  CHECK(is_on(cursor, "b1")); /* as of its creation */
  siltstone_cursor_free(cursor);

  OK(siltstone_table_cursor(table, S("a0"), S("b2"), &cursor));
  OK(siltstone_cursor_skip_values(cursor));
  OK(siltstone_cursor_first(cursor));
  CHECK(is_on(cursor, "a0"));
  OK(siltstone_cursor_last(cursor));
  CHECK(is_on(cursor, "b1"));
  siltstone_cursor_free(cursor);

  OK(siltstone_table_cursor_prefix(table, S("b"), &cursor));
  OK(siltstone_cursor_last(cursor));
  CHECK(is_on(cursor, "b2"));
  siltstone_cursor_free(cursor);

  char *entries;
  size_t count;
  OK(siltstone_table_cursor_prefix(table, S("b"), &cursor));
  OK(siltstone_cursor_read(cursor, false, 9, 9, &entries, &len, &count)); /* at the limit of bytes */
  CHECK(count == 1 && len == 10 && memcmp(entries, "\2\0\0\0\0\0\0\0b1", 10) == 0);
  siltstone_free(entries);
  OK(siltstone_cursor_read(cursor, false, 9, 1000, &entries, &len, &count)); /* at the end */
  CHECK(count == 1 && len == 11 && memcmp(entries, "\2\0\0\0\1\0\0\0b23", 11) == 0);
  siltstone_free(entries);
  OK(siltstone_cursor_read(cursor, false, 9, 1000, &entries, &len, &count));
  CHECK(count == 0 && len == 0 && entries != NULL && !siltstone_cursor_valid(cursor));
  siltstone_free(entries);
  OK(siltstone_cursor_seek(cursor, S("b2")));
  OK(siltstone_cursor_read(cursor, true, 1, 1000, &entries, &len, &count)); /* at the limit of entries */
  CHECK(count == 1 && is_on(cursor, "b1"));
  siltstone_free(entries);
  FAILS(siltstone_cursor_read(cursor, true, 0, 1, &entries, &len, &count), SILTSTONE_CODE_INVALID,
        "'max_entries'");
  FAILS(siltstone_cursor_read(NULL, true, 1, 1, &entries, &len, &count), SILTSTONE_CODE_INVALID,
        "'cursor'");
  CHECK(entries == NULL && len == 0 && count == 0);
  siltstone_cursor_free(cursor);
  FAILS(siltstone_table_cursor(table, S("z"), S("a"), &cursor), SILTSTONE_CODE_INVALID, "inverted");
  CHECK(cursor == NULL);
  FAILS(siltstone_table_cursor(table, NULL, 0, NULL, 0, NULL), SILTSTONE_CODE_INVALID, "'cursor'");
}

static void take_snapshots(siltstone_table *table) {
  siltstone_snapshot *snapshot;
  siltstone_cursor *cursor;
  char *value;
  size_t len, sum = 0;
  bool is_found;
  OK(siltstone_table_put(table, S("k"), S("then")));
  OK(siltstone_snapshot_create(table, &snapshot));
  OK(siltstone_table_put(table, S("k"), S("now!!")));
  OK(siltstone_snapshot_get(snapshot, S("k"), &value, &len));
  CHECK(take_equal(value, len, "then"));
  OK(siltstone_snapshot_get_with(snapshot, S("k"), add_lengths, &sum, &is_found));
  CHECK(is_found && sum == 4);
  OK(siltstone_snapshot_contains(snapshot, S("none"), &is_found));
  CHECK(!is_found);
  const char *key = "k";
  size_t key_len = 1;
  OK(siltstone_snapshot_multi_get(snapshot, 1, &key, &key_len, &value, &len));
  CHECK(take_equal(value, len, "then"));
  OK(siltstone_snapshot_cursor(snapshot, S("k"), NULL, 0, &cursor));
  OK(siltstone_cursor_first(cursor));
  CHECK(*siltstone_cursor_value(cursor, &len) == 't');
  siltstone_cursor_free(cursor);
  OK(siltstone_snapshot_cursor_prefix(snapshot, S("k"), &cursor));
  siltstone_snapshot_free(snapshot);
  OK(siltstone_cursor_first(cursor)); /* a cursor outlives its snapshot */
  CHECK(*siltstone_cursor_value(cursor, NULL) == 't');
  siltstone_cursor_free(cursor);
}

static void run_transactions(siltstone_table *table) {
  siltstone_transaction *tx;
  siltstone_cursor *cursor;
  char *value;
  size_t len, sum = 0;
  bool is_found;
  OK(siltstone_table_put(table, S("k"), S("1")));
  OK(siltstone_transaction_begin(table, &tx));
  OK(siltstone_transaction_get(tx, S("k"), &value, &len));
  CHECK(take_equal(value, len, "1"));
  OK(siltstone_transaction_put(tx, S("k"), S("22")));
  OK(siltstone_transaction_put_until(tx, S("l"), S("3"), UINT64_MAX));
  OK(siltstone_transaction_delete(tx, S("m")));
  OK(siltstone_transaction_get_with(tx, S("k"), add_lengths, &sum, &is_found));
  CHECK(is_found && sum == 2);
  OK(siltstone_transaction_contains(tx, S("l"), &is_found));
  CHECK(is_found);
  const char *key = "k";
  size_t key_len = 1;
  OK(siltstone_transaction_multi_get(tx, 1, &key, &key_len, &value, &len));
  CHECK(take_equal(value, len, "22"));
  OK(siltstone_transaction_cursor(tx, S("k"), S("z"), &cursor));
  OK(siltstone_cursor_last(cursor));
  CHECK(is_on(cursor, "l"));
  siltstone_cursor_free(cursor);
  OK(siltstone_transaction_cursor_prefix(tx, S("k"), &cursor));
  OK(siltstone_cursor_first(cursor));
  CHECK(is_on(cursor, "k"));
  siltstone_cursor_free(cursor);
  OK(siltstone_transaction_commit(tx, true));
  FAILS(siltstone_transaction_commit(tx, true), SILTSTONE_CODE_INVALID, "has ended");
  FAILS(siltstone_transaction_get(tx, S("k"), &value, &len), SILTSTONE_CODE_INVALID, "has ended");
  FAILS(siltstone_transaction_put(tx, S("k"), S("v")), SILTSTONE_CODE_INVALID, "has ended");
  siltstone_transaction_free(tx);
  OK(siltstone_table_get(table, S("k"), &value, &len));
  CHECK(take_equal(value, len, "22"));

  OK(siltstone_transaction_begin(table, &tx));
  OK(siltstone_transaction_contains(tx, S("k"), &is_found));
  siltstone_batch *batch = siltstone_batch_create();
  OK(siltstone_batch_put(batch, S("n"), S("1")));
  OK(siltstone_transaction_write(tx, batch));
  FAILS(siltstone_transaction_write(tx, NULL), SILTSTONE_CODE_INVALID, "'batch'");
  siltstone_batch_free(batch);
  OK(siltstone_table_put(table, S("k"), S("other")));
  siltstone_error *conflict = siltstone_transaction_commit(tx, false);
  CHECK(siltstone_error_code(conflict) == SILTSTONE_CODE_CONFLICT);
  CHECK(siltstone_error_is_retryable(conflict) && !siltstone_error_is_disk_full(conflict));
  CHECK(strstr(siltstone_error_message(conflict), "'k'"));
  siltstone_error_free(conflict);
  siltstone_transaction_free(tx);
  OK(siltstone_table_contains(table, S("n"), &is_found));
  CHECK(!is_found);

  OK(siltstone_transaction_begin(table, &tx)); /* discarded */
  OK(siltstone_transaction_put(tx, S("n"), S("1")));
  siltstone_transaction_free(tx);
  OK(siltstone_table_contains(table, S("n"), &is_found));
  CHECK(!is_found);
}

static bool increment(siltstone_transaction *tx, void *arg) {
  char *value, text[32];
  size_t len;
  OK(siltstone_transaction_get(tx, S("count"), &value, &len));
  snprintf(text, sizeof text, "%d", value ? atoi(value) + 1 : 1);
  siltstone_free(value);
  OK(siltstone_transaction_put(tx, S("count"), S(text)));
  FAILS(siltstone_transaction_commit(tx, false), SILTSTONE_CODE_INVALID, "siltstone_table_transact");
  return arg == NULL;
}

static void *increment_often(void *table) {
  bool is_committed;
  for (int i = 0; i < 50; i++) {
    siltstone_error *error = siltstone_table_transact(table, increment, NULL, false, &is_committed);
    if (error) { /* all attempts lost */
      CHECK(siltstone_error_code(error) == SILTSTONE_CODE_CONFLICT && !is_committed);
      siltstone_error_free(error);
      i--;
      continue;
    }
    CHECK(is_committed);
  }
  return NULL;
}

static void retry_transactions(siltstone_table *table) {
  pthread_t threads[4];
  char *value;
  size_t len;
  bool is_committed;
  for (int i = 0; i < 4; i++) CHECK(!pthread_create(&threads[i], NULL, increment_often, table));
  for (int i = 0; i < 4; i++) CHECK(!pthread_join(threads[i], NULL));
  OK(siltstone_table_transact(table, increment, table, false, &is_committed));
  CHECK(!is_committed);
  OK(siltstone_table_get(table, S("count"), &value, &len));
  CHECK(take_equal(value, len, "200"));
}

static void manage_tables(siltstone_db *db) {
  siltstone_table *table;
  siltstone_snapshot *snapshot;
  siltstone_cursor *cursor;
  char *json;
  const char *good[] = {"memtable=8MiB"}, *bad[] = {"memtable=1X", "nonsense=1"}, *none[] = {"cache"};
  OK(siltstone_table_open_or_create(db, "first", "lsm", good, 1, &table));
  siltstone_table_free(table);
  FAILS(siltstone_table_open_or_create(db, "x", "lsm", bad, 2, &table),
        SILTSTONE_CODE_INVALID_OPTIONS, "nonsense");
  FAILS(siltstone_table_open_or_create(db, "x", "lsm", none, 1, &table),
        SILTSTONE_CODE_INVALID_OPTIONS, "key=value");
  FAILS(siltstone_table_open_or_create(db, "x", "ism", NULL, 0, &table),
        SILTSTONE_CODE_INVALID_OPTIONS, "lsm");
  FAILS(siltstone_table_open(db, "frist", &table), SILTSTONE_CODE_INVALID, "first");
  OK(siltstone_table_rename(db, "first", "second"));
  OK(siltstone_tables(db, &json));
  CHECK(strstr(json, "\"second\":{\"engine\":\"lsm\",\"options\":{\"memtable\":\"8MiB\"}}"));
  siltstone_free(json);
  OK(siltstone_table_open(db, "second", &table));
  OK(siltstone_table_drop(db, "second"));
  FAILS(siltstone_table_put(table, S("k"), S("v")), SILTSTONE_CODE_CLOSED, "closed");
  siltstone_table_free(table);
  FAILS(siltstone_table_drop(db, "second"), SILTSTONE_CODE_INVALID, "second");

  OK(siltstone_table_open_or_create(db, "memory", "mica", NULL, 0, &table));
  OK(siltstone_table_put(table, S("k"), S("v")));
  FAILS(siltstone_snapshot_create(table, &snapshot), SILTSTONE_CODE_UNSUPPORTED, "mica");
  CHECK(snapshot == NULL);
  FAILS(siltstone_table_cursor(table, S("a"), NULL, 0, &cursor), SILTSTONE_CODE_UNSUPPORTED, "mica");
  OK(siltstone_table_cursor(table, NULL, 0, NULL, 0, &cursor));
  OK(siltstone_cursor_next(cursor));
  CHECK(is_on(cursor, "k"));
  siltstone_cursor_free(cursor);
  siltstone_table_free(table);
}

/* After the store was closed, every call fails, also where the library has what it asks for in memory. */
static void use_after_close(siltstone_table *table, siltstone_snapshot *snapshot,
                            siltstone_transaction *tx, siltstone_cursor **cursors, size_t count) {
  siltstone_cursor *cursor;
  siltstone_changes *changes;
  siltstone_batch *batch = siltstone_batch_create();
  char *value;
  size_t len, read;
  bool is_found;
  FAILS(siltstone_table_get(table, S("k"), &value, &len), SILTSTONE_CODE_CLOSED, "closed");
  FAILS(siltstone_table_put(table, S("k"), S("v")), SILTSTONE_CODE_CLOSED, "closed");
  FAILS(siltstone_table_cursor(table, NULL, 0, NULL, 0, &cursor), SILTSTONE_CODE_CLOSED, "closed");
  FAILS(siltstone_snapshot_get(snapshot, S("k"), &value, &len), SILTSTONE_CODE_CLOSED, "closed");
  FAILS(siltstone_snapshot_contains(snapshot, S("k"), &is_found), SILTSTONE_CODE_CLOSED, "closed");
  FAILS(siltstone_snapshot_cursor(snapshot, NULL, 0, NULL, 0, &cursor), SILTSTONE_CODE_CLOSED,
        "closed");
  FAILS(siltstone_transaction_get(tx, S("own"), &value, &len), SILTSTONE_CODE_CLOSED, "closed");
  FAILS(siltstone_transaction_put(tx, S("k"), S("v")), SILTSTONE_CODE_CLOSED, "closed");
  FAILS(siltstone_transaction_delete(tx, S("k")), SILTSTONE_CODE_CLOSED, "closed");
  FAILS(siltstone_transaction_write(tx, batch), SILTSTONE_CODE_CLOSED, "closed");
  FAILS(siltstone_transaction_cursor(tx, NULL, 0, NULL, 0, &cursor), SILTSTONE_CODE_CLOSED,
        "closed");
  FAILS(siltstone_transaction_commit(tx, false), SILTSTONE_CODE_CLOSED, "closed");
  FAILS(siltstone_table_changes(table, 0, false, &changes), SILTSTONE_CODE_CLOSED, "closed");
  siltstone_batch_free(batch);
  for (size_t i = 0; i < count; i++) {
    /* What was lent before the close stays until the next move. */
    CHECK(siltstone_cursor_valid(cursors[i]) && siltstone_cursor_key(cursors[i], &len));
    FAILS(siltstone_cursor_skip_values(cursors[i]), SILTSTONE_CODE_CLOSED, "closed");
    FAILS(siltstone_cursor_next(cursors[i]), SILTSTONE_CODE_CLOSED, "closed");
    CHECK(!siltstone_cursor_valid(cursors[i]) && !siltstone_cursor_key(cursors[i], &len));
    FAILS(siltstone_cursor_first(cursors[i]), SILTSTONE_CODE_CLOSED, "closed");
    FAILS(siltstone_cursor_seek(cursors[i], S("k")), SILTSTONE_CODE_CLOSED, "closed");
    FAILS(siltstone_cursor_read(cursors[i], false, 1, 1, &value, &len, &read),
          SILTSTONE_CODE_CLOSED, "closed");
    CHECK(value == NULL && len == 0 && read == 0);
  }
}

static void open_and_close(siltstone_options *options) {
  siltstone_db *db, *other;
  siltstone_table *table;
  siltstone_snapshot *snapshot;
  siltstone_cursor *cursors[3];
  siltstone_transaction *tx;
  char *value;
  bool is_intact;
  uint64_t count;
  FAILS(siltstone_open(path[0], options, &db), SILTSTONE_CODE_REFUSED, "no such directory");
  OK(siltstone_open_or_create(path[0], options, &db));
  FAILS(siltstone_open(path[0], NULL, &other), SILTSTONE_CODE_LOCKED, "in use");
  manage_tables(db);
  OK(siltstone_table_open_or_create(db, "t", "lsm", NULL, 0, &table));
  read_and_write(table);
  write_batches(table);
  iterate(table);
  take_snapshots(table);
  run_transactions(table);
  retry_transactions(table);
  OK(siltstone_sync(db));
  OK(siltstone_verify_open(db, &is_intact, &value));
  CHECK(is_intact && strstr(value, "\"damage\":[]"));
  siltstone_free(value);
  OK(siltstone_checkpoint(db, path[1]));
  FAILS(siltstone_checkpoint(db, path[1]), SILTSTONE_CODE_REFUSED, "inside the store");

  OK(siltstone_snapshot_create(table, &snapshot));
  OK(siltstone_transaction_begin(table, &tx));
  OK(siltstone_transaction_put(tx, S("own"), S("v")));
  OK(siltstone_table_cursor(table, NULL, 0, NULL, 0, &cursors[0]));
  OK(siltstone_snapshot_cursor(snapshot, NULL, 0, NULL, 0, &cursors[1]));
  OK(siltstone_transaction_cursor(tx, NULL, 0, NULL, 0, &cursors[2]));
  for (int i = 0; i < 3; i++) OK(siltstone_cursor_first(cursors[i]));
  OK(siltstone_close(db));
  OK(siltstone_close(db)); /* a second close is harmless */
  use_after_close(table, snapshot, tx, cursors, 3);
  FAILS(siltstone_table_open(db, "t", &(siltstone_table *){0}), SILTSTONE_CODE_CLOSED, "closed");
  /* In the order that is the least convenient for the library. */
  siltstone_db_free(db);
  siltstone_table_free(table);
  siltstone_snapshot_free(snapshot);
  siltstone_transaction_free(tx);
  for (int i = 0; i < 3; i++) siltstone_cursor_free(cursors[i]);

  siltstone_options_set_read_only(options, true);
  OK(siltstone_open(path[1], options, &db));
  OK(siltstone_table_open(db, "t", &table));
  OK(siltstone_table_count(table, &count));
  CHECK(count > 5);
  FAILS(siltstone_table_put(table, S("k"), S("v")), SILTSTONE_CODE_REFUSED, "read-only");
  siltstone_table_free(table);
  siltstone_db_free(db); /* closes it */
  OK(siltstone_verify(path[1], &is_intact, NULL));
  CHECK(is_intact);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  snprintf(path[0], sizeof path[0], "%s/store", argv[1]);
  snprintf(path[1], sizeof path[1], "%s/copy", argv[1]);
  CHECK(strchr(siltstone_version(), '.'));
  reject_null();
  siltstone_options *options = siltstone_options_create();
  siltstone_options_set_direct_reads(options, false);
  siltstone_options_set_threads(options, 2);
  siltstone_options_set_max_open_files(options, 64);
  siltstone_options_set_cache_bytes(options, 1 << 20);
  siltstone_options_set_idle_ms(options, 0);
  siltstone_options_set_transaction_memory_bytes(options, 1 << 20);
  open_and_close(options);
  siltstone_options_free(options);
  puts("ok");
  return 0;
}
