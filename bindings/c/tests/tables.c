/*
 * What concerns more than one key: ranges, merges, options, batches over tables, bulk loading,
 * moves.
 *
 *   tables DIR    DIR is an empty directory, in which it makes a store
 */

#include "check.h"

#include <time.h>

static char path[4096];

static bool has(siltstone_table *table, const char *key, const char *expected) {
  char *value;
  size_t len;
  OK(siltstone_table_get(table, S(key), &value, &len));
  return expected ? take_equal(value, len, expected) : value == NULL;
}

static void delete_ranges(siltstone_table *table) {
  uint64_t count;
  for (char key[] = "a"; *key <= 'z'; ++*key) OK(siltstone_table_put(table, S(key), S("1")));
  OK(siltstone_table_delete_range(table, S("b"), S("d")));
  CHECK(has(table, "a", "1") && has(table, "b", NULL) && has(table, "d", "1"));
  FAILS(siltstone_table_delete_range(table, S("z"), S("b")), SILTSTONE_CODE_INVALID, "after");
  siltstone_batch *batch = siltstone_batch_create();
  OK(siltstone_batch_delete_range(batch, S("x"), NULL, 0));
  OK(siltstone_batch_put(batch, S("z"), S("2")));
  FAILS(siltstone_batch_delete_range(batch, S("z"), S("b")), SILTSTONE_CODE_INVALID, "after");
  FAILS(siltstone_batch_delete_range(NULL, NULL, 0, NULL, 0), SILTSTONE_CODE_INVALID, "'batch'");
  CHECK(siltstone_batch_count(batch) == 2);
  OK(siltstone_table_write(table, batch, true));
  siltstone_batch_free(batch);
  CHECK(has(table, "w", "1") && has(table, "y", NULL) && has(table, "z", "2"));
  OK(siltstone_table_compact_range(table, S("a"), S("m")));
  OK(siltstone_table_compact_range(table, NULL, 0, NULL, 0));
  FAILS(siltstone_table_compact_range(table, S("z"), S("b")), SILTSTONE_CODE_INVALID, "after");
  OK(siltstone_table_delete_range(table, NULL, 0, NULL, 0));
  OK(siltstone_table_count(table, &count));
  CHECK(count == 0);
}

static void change_options(siltstone_table *table) {
  char *json;
  const char *options[] = {"cache=2MiB", "levels=64MiB:1GiB:10GiB"};
  OK(siltstone_table_set_options(table, options, 2, &json));
  CHECK(!strcmp(json, "[\"levels\"]"));
  siltstone_free(json);
  OK(siltstone_table_set_options(table, options, 1, NULL));
  options[0] = "cache=many";
  FAILS(siltstone_table_set_options(table, options, 1, &json), SILTSTONE_CODE_INVALID_OPTIONS,
        "cache");
  CHECK(json == NULL);
}

static bool swaps(siltstone_table *table, const char *expected, const char *value) {
  bool is_swapped;
  OK(siltstone_table_compare_and_swap(table, S("k"), expected, expected ? strlen(expected) : 0, value,
                                      value ? strlen(value) : 0, &is_swapped));
  return is_swapped;
}

static void compare_and_swap(siltstone_table *table) {
  bool is_swapped;
  CHECK(!swaps(table, "1", "2") && !swaps(table, "", "2") && has(table, "k", NULL));
  CHECK(swaps(table, NULL, "") && has(table, "k", ""));
  CHECK(!swaps(table, NULL, "1") && swaps(table, "", "1") && has(table, "k", "1"));
  CHECK(!swaps(table, "2", NULL) && has(table, "k", "1"));
  CHECK(swaps(table, "1", NULL) && has(table, "k", NULL));
  FAILS(siltstone_table_compare_and_swap(table, NULL, 1, NULL, 0, NULL, 0, &is_swapped),
        SILTSTONE_CODE_INVALID, "'key'");
  CHECK(!is_swapped);
  FAILS(siltstone_table_compare_and_swap(table, S("k"), NULL, 1, NULL, 0, &is_swapped),
        SILTSTONE_CODE_INVALID, "'expected'");
  FAILS(siltstone_table_compare_and_swap(table, S("k"), NULL, 0, NULL, 1, &is_swapped),
        SILTSTONE_CODE_INVALID, "'new_value'");
}

static void pop(siltstone_table *table) {
  char *key, *value;
  size_t key_len, value_len;
  OK(siltstone_table_put(table, S("b"), S("2")));
  OK(siltstone_table_put(table, S("a"), S("1")));
  OK(siltstone_table_put(table, S("c"), S("")));
  OK(siltstone_table_pop_first(table, &key, &key_len, &value, &value_len));
  CHECK(take_equal(key, key_len, "a") && take_equal(value, value_len, "1"));
  OK(siltstone_table_pop_last(table, &key, &key_len, &value, &value_len));
  CHECK(take_equal(key, key_len, "c") && take_equal(value, value_len, ""));
  FAILS(siltstone_table_pop_last(table, &key, &key_len, NULL, &value_len), SILTSTONE_CODE_INVALID,
        "'value'");
  OK(siltstone_table_pop_last(table, &key, &key_len, &value, &value_len));
  CHECK(take_equal(key, key_len, "b") && take_equal(value, value_len, "2"));
  OK(siltstone_table_pop_first(table, &key, &key_len, &value, &value_len));
  CHECK(key == NULL && key_len == 0 && value == NULL && value_len == 0);
}

/* Reads of skimpy at a time in the past. */
static void read_the_past(siltstone_db *db) {
  const char *options[] = {"retention=1h", "capacity=16MiB"};
  siltstone_table *table;
  siltstone_snapshot *snapshot;
  char *value;
  size_t len;
  OK(siltstone_table_open_or_create(db, "prices", "skimpy", options, 2, &table));
  OK(siltstone_table_put(table, S("k"), S("100")));
  struct timespec then, now;
  clock_gettime(CLOCK_REALTIME, &then);
  uint64_t time = (uint64_t)then.tv_sec * 1000 + (uint64_t)then.tv_nsec / 1000000;
  do {
    clock_gettime(CLOCK_REALTIME, &now);
  } while ((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 <= time);
  OK(siltstone_table_put(table, S("k"), S("120")));
  OK(siltstone_snapshot_create_at(table, time, &snapshot));
  OK(siltstone_snapshot_get(snapshot, S("k"), &value, &len));
  CHECK(take_equal(value, len, "100"));
  siltstone_snapshot_free(snapshot);
  FAILS(siltstone_snapshot_create_at(table, UINT64_MAX, &snapshot), SILTSTONE_CODE_INVALID, "future");
  CHECK(snapshot == NULL);
  siltstone_table_free(table);
}

static void sizes(siltstone_db *db, siltstone_table *table) {
  uint64_t count;
  char *json;
  siltstone_table *flash;
  for (char key[] = "a"; *key <= 'j'; ++*key) OK(siltstone_table_put(table, S(key), S("1")));
  OK(siltstone_table_flush(table));
  OK(siltstone_table_approximate_len(table, &count));
  CHECK(count >= 10);
  OK(siltstone_table_open_or_create(db, "flash", "skimpy", NULL, 0, &flash));
  FAILS(siltstone_table_approximate_len(flash, &count), SILTSTONE_CODE_UNSUPPORTED, "skimpy");
  CHECK(count == 0);
  siltstone_table_free(flash);
  OK(siltstone_disk_usage(db, &json));
  const char *usage = strstr(json, "\"right\":");
  CHECK(usage && atoll(usage + strlen("\"right\":")) > 0 && strstr(json, "\"flash\":"));
  siltstone_free(json);
}

static void merge(siltstone_table *table) {
  char *value;
  size_t len;
  const char two[8] = {2};
  FAILS(siltstone_table_merge(table, S("k"), two, 8), SILTSTONE_CODE_INVALID, "merge operator");
  FAILS(siltstone_table_set_merge_operator(table, "mine"), SILTSTONE_CODE_INVALID, "'mine'");
  OK(siltstone_table_set_merge_operator(table, "siltstone.counter"));
  FAILS(siltstone_table_merge(table, S("k"), two, 3), SILTSTONE_CODE_INVALID, "3 bytes");
  OK(siltstone_table_merge(table, S("k"), two, 8));
  siltstone_batch *batch = siltstone_batch_create();
  OK(siltstone_batch_merge(batch, S("k"), two, 8));
  FAILS(siltstone_batch_merge(NULL, S("k"), two, 8), SILTSTONE_CODE_INVALID, "'batch'");
  OK(siltstone_table_write(table, batch, false));
  siltstone_batch_free(batch);
  OK(siltstone_table_get(table, S("k"), &value, &len));
  CHECK(len == 8 && value[0] == 4);
  siltstone_free(value);
}

static void write_over_tables(siltstone_db *db, siltstone_table *left, siltstone_table *right) {
  siltstone_batch *batches[] = {siltstone_batch_create(), siltstone_batch_create()};
  const siltstone_table *tables[] = {left, right};
  OK(siltstone_batch_put(batches[0], S("from"), S("1")));
  OK(siltstone_batch_put(batches[1], S("to"), S("2")));
  OK(siltstone_write(db, 2, tables, (const siltstone_batch **)batches, true));
  CHECK(has(left, "from", "1") && has(right, "to", "2"));
  OK(siltstone_write(db, 0, NULL, NULL, false));
  FAILS(siltstone_write(db, 1, NULL, (const siltstone_batch **)batches, true),
        SILTSTONE_CODE_INVALID, "'tables'");
  tables[1] = NULL;
  FAILS(siltstone_write(db, 2, tables, (const siltstone_batch **)batches, true),
        SILTSTONE_CODE_INVALID, "'table'");
  for (int i = 0; i < 2; ++i) siltstone_batch_free(batches[i]);
}

static void load(siltstone_table *table, const char *directory) {
  char file_path[4200];
  siltstone_sorted_file *file;
  char *json;
  snprintf(file_path, sizeof file_path, "%s/rows.sorted", directory);
  OK(siltstone_table_put(table, S("gone"), S("1")));
  OK(siltstone_sorted_file_create(file_path, NULL, 0, &file));
  OK(siltstone_sorted_file_put_until(file, S("fresh"), S("1"), UINT64_MAX));
  OK(siltstone_sorted_file_delete(file, S("gone")));
  OK(siltstone_sorted_file_put(file, S("new"), S("3")));
  FAILS(siltstone_sorted_file_put(file, S("fresh"), S("4")), SILTSTONE_CODE_INVALID, "");
  OK(siltstone_sorted_file_finish(file));
  FAILS(siltstone_sorted_file_put(file, S("z"), S("4")), SILTSTONE_CODE_INVALID, "finished");
  FAILS(siltstone_sorted_file_finish(file), SILTSTONE_CODE_INVALID, "finished");
  siltstone_sorted_file_free(file);
  siltstone_sorted_file_free(NULL);

  const char *paths[] = {file_path};
  FAILS(siltstone_table_ingest(table, 1, paths, 7, &json), SILTSTONE_CODE_INVALID, "mode 7");
  CHECK(json == NULL);
  OK(siltstone_table_ingest(table, 1, paths, SILTSTONE_INGEST_MODE_MOVE, &json));
  CHECK(strstr(json, "\"entries\":3"));
  siltstone_free(json);
  CHECK(has(table, "fresh", "1") && has(table, "gone", NULL) && has(table, "new", "3"));
  FAILS(siltstone_table_ingest(table, 1, paths, SILTSTONE_INGEST_MODE_LINK, NULL),
        SILTSTONE_CODE_IO, "rows.sorted");

  /* A file that is not finished is removed. */
  OK(siltstone_sorted_file_create(file_path, NULL, 0, &file));
  FAILS(siltstone_sorted_file_create(file_path, NULL, 0, &(siltstone_sorted_file *){0}),
        SILTSTONE_CODE_IO, "rows.sorted");
  siltstone_sorted_file_free(file);
  OK(siltstone_sorted_file_create(file_path, NULL, 0, &file));
  siltstone_sorted_file_free(file);
}

static void move(siltstone_db *db, siltstone_table *words) {
  const char *options[] = {"memtable=8MiB"};
  siltstone_move *moving;
  siltstone_table *moved;
  char key[16], *json;
  bool is_copied;
  for (int i = 0; i < 1000; ++i) {
    snprintf(key, sizeof key, "%08d", i);
    OK(siltstone_table_put(words, S(key), S("1")));
  }
  moving = (siltstone_move *)1;
  FAILS(siltstone_move_begin(db, "none", "silt", NULL, 0, &moving), SILTSTONE_CODE_INVALID, "none");
  CHECK(moving == NULL);
  FAILS(siltstone_move_begin(db, "words", "silt", NULL, 0, NULL), SILTSTONE_CODE_INVALID, "'moving'");
  FAILS(siltstone_move_begin(db, "words", "slit", NULL, 0, &moving), SILTSTONE_CODE_INVALID_OPTIONS,
        "slit");
  options[0] = "memtable=many";
  FAILS(siltstone_move_begin(db, "words", "lsm", options, 1, &moving),
        SILTSTONE_CODE_INVALID_OPTIONS, "memtable");

  /* One that is cancelled, and one that is freed, leave the table as it is. */
  OK(siltstone_move_begin(db, "words", "silt", NULL, 0, &moving));
  FAILS(siltstone_move_begin(db, "words", "silt", NULL, 0, &(siltstone_move *){0}),
        SILTSTONE_CODE_INVALID, "words");
  siltstone_move_cancel(moving);
  is_copied = true;
  OK(siltstone_move_copy(moving, &is_copied));
  CHECK(!is_copied && siltstone_move_rows(moving) == 0);
  FAILS(siltstone_move_finish(moving, &moved), SILTSTONE_CODE_INVALID, "cancelled");
  CHECK(moved == NULL);
  siltstone_move_free(moving);
  OK(siltstone_move_begin(db, "words", "trie", NULL, 0, &moving));
  OK(siltstone_move_copy(moving, &is_copied));
  siltstone_move_free(moving);
  OK(siltstone_table_put(words, S("00000000"), S("2")));

  OK(siltstone_move_begin(db, "words", "silt", NULL, 0, &moving));
  OK(siltstone_move_copy(moving, &is_copied));
  CHECK(is_copied && siltstone_move_rows(moving) == 1000 && siltstone_move_changes(moving) == 0);
  OK(siltstone_table_put(words, S("00000001"), S("3")));
  OK(siltstone_table_delete(words, S("00000002")));
  CHECK(siltstone_move_restarts(moving) == 0);
  FAILS(siltstone_move_finish(NULL, &moved), SILTSTONE_CODE_INVALID, "'moving'");
  OK(siltstone_move_finish(moving, &moved));
  CHECK(siltstone_move_changes(moving) == 2);
  FAILS(siltstone_move_copy(moving, &is_copied), SILTSTONE_CODE_INVALID, "finished");
  FAILS(siltstone_move_finish(moving, &(siltstone_table *){0}), SILTSTONE_CODE_INVALID, "finished");
  siltstone_move_free(moving);
  CHECK(has(moved, "00000000", "2") && has(moved, "00000001", "3") && has(moved, "00000002", NULL));
  FAILS(siltstone_table_put(words, S("k"), S("v")), SILTSTONE_CODE_CLOSED, "closed");
  OK(siltstone_tables(db, &json));
  CHECK(strstr(json, "\"words\":{\"engine\":\"silt\""));
  siltstone_free(json);
  siltstone_table_free(moved);
  siltstone_move_cancel(NULL);
  siltstone_move_free(NULL);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  siltstone_db *db;
  siltstone_table *tables[4];
  const char *names[] = {"left", "right", "counters", "words"};
  snprintf(path, sizeof path, "%s/store", argv[1]);
  OK(siltstone_open_or_create(path, NULL, &db));
  for (int i = 0; i < 4; ++i)
    OK(siltstone_table_open_or_create(db, names[i], "lsm", NULL, 0, &tables[i]));
  delete_ranges(tables[0]);
  change_options(tables[0]);
  compare_and_swap(tables[0]);
  pop(tables[0]);
  read_the_past(db);
  write_over_tables(db, tables[0], tables[1]);
  load(tables[1], argv[1]);
  sizes(db, tables[1]);
  merge(tables[2]);
  move(db, tables[3]);
  for (int i = 0; i < 4; ++i) siltstone_table_free(tables[i]);
  OK(siltstone_close(db));
  FAILS(siltstone_disk_usage(db, &(char *){0}), SILTSTONE_CODE_CLOSED, "closed");
  siltstone_db_free(db);
  puts("ok");
  return 0;
}
