/*
 * The change feed: follows a table, and keeps a copy of it in another store.
 *
 *   changes DIR    DIR is an empty directory, in which it makes stores
 */

#include "check.h"

static siltstone_table *open_table(siltstone_db **db, const char *directory, const char *name,
                                   const char *option) {
  char path[4096];
  siltstone_table *table;
  snprintf(path, sizeof path, "%s/%s", directory, name);
  OK(siltstone_open_or_create(path, NULL, db));
  OK(siltstone_table_open_or_create(*db, "t", "lsm", &option, 1, &table));
  return table;
}

static bool is_bytes(const char *bytes, size_t len, const char *expected) {
  return bytes && len == strlen(expected) && !memcmp(bytes, expected, len);
}

/* The operation is lent with this kind, key and value; NULL: it has no value. */
static void check_op(siltstone_changes *changes, size_t index, siltstone_op_kind kind, const char *key,
                     const char *value, uint64_t expires_at) {
  siltstone_change_op op;
  CHECK(siltstone_changes_op(changes, index, &op));
  CHECK(op.kind == (int)kind && is_bytes(op.key, op.key_len, key) && op.expires_at == expires_at);
  CHECK(value ? is_bytes(op.value, op.value_len, value) : op.value == NULL && op.value_len == 0);
}

static bool next(siltstone_changes *changes) {
  bool is_found;
  OK(siltstone_changes_next(changes, 0, &is_found));
  CHECK(is_found == (siltstone_changes_kind(changes) != SILTSTONE_CHANGE_KIND_NONE));
  return is_found;
}

static void show_operations(siltstone_table *table) {
  siltstone_changes *changes;
  siltstone_change_op op = {.kind = 77};
  bool is_found = true;
  OK(siltstone_table_changes(table, 0, false, &changes));
  CHECK(siltstone_changes_kind(changes) == SILTSTONE_CHANGE_KIND_NONE);
  CHECK(!next(changes) && siltstone_changes_sequence(changes) == 0);

  OK(siltstone_table_set_merge_operator(table, "siltstone.append:2c"));
  siltstone_batch *batch = siltstone_batch_create();
  OK(siltstone_batch_put(batch, S("k"), S("v")));
  OK(siltstone_batch_delete(batch, S("l")));
  OK(siltstone_batch_delete_range(batch, S("a"), S("c")));
  OK(siltstone_batch_delete_range(batch, S("x"), NULL, 0));
  OK(siltstone_batch_merge(batch, S("m"), S("one")));
  OK(siltstone_batch_put(batch, S("empty"), NULL, 0));
  OK(siltstone_table_write(table, batch, true));
  OK(siltstone_table_put(table, S("unsynced"), S("1")));

  CHECK(next(changes) && siltstone_changes_kind(changes) == SILTSTONE_CHANGE_KIND_WRITE);
  CHECK(siltstone_changes_count(changes) == 6 && siltstone_changes_sequence(changes) == 6);
  CHECK(siltstone_changes_part(changes) == 0);
  check_op(changes, 0, SILTSTONE_OP_KIND_PUT, "k", "v", 0);
  check_op(changes, 1, SILTSTONE_OP_KIND_DELETE, "l", NULL, 0);
  check_op(changes, 2, SILTSTONE_OP_KIND_DELETE_RANGE, "a", "c", 0);
  check_op(changes, 3, SILTSTONE_OP_KIND_DELETE_RANGE, "x", NULL, 0);
  check_op(changes, 4, SILTSTONE_OP_KIND_MERGE, "m", "one", 0);
  check_op(changes, 5, SILTSTONE_OP_KIND_PUT, "empty", "", 0);
  CHECK(!siltstone_changes_op(changes, 6, &op) && op.kind == 77);

  /* Not before it is durable, unless asked for. */
  CHECK(!next(changes) && siltstone_changes_count(changes) == 0);
  CHECK(siltstone_changes_sequence(changes) == 6);
  FAILS(siltstone_changes_append_to(changes, batch), SILTSTONE_CODE_INVALID, "not on a change");
  siltstone_changes_free(changes);
  OK(siltstone_table_changes(table, 6, true, &changes));
  OK(siltstone_changes_next(changes, 60000, &is_found));
  CHECK(is_found && siltstone_changes_sequence(changes) == 7);
  check_op(changes, 0, SILTSTONE_OP_KIND_PUT, "unsynced", "1", 0);
  siltstone_changes_free(changes);
  siltstone_batch_free(batch);
}

/* Applies all changes after `since`, and returns where to resume. */
static uint64_t follow(siltstone_table *table, siltstone_table *copy, uint64_t since) {
  siltstone_changes *changes;
  siltstone_batch *batch = siltstone_batch_create();
  OK(siltstone_table_changes(table, since, false, &changes));
  while (next(changes)) {
    if (siltstone_changes_kind(changes) == SILTSTONE_CHANGE_KIND_CLEARED) {
      OK(siltstone_table_delete_range(copy, NULL, 0, NULL, 0));
      continue;
    }
    OK(siltstone_batch_clear(batch));
    OK(siltstone_changes_append_to(changes, batch));
    CHECK(siltstone_batch_count(batch) == siltstone_changes_count(changes));
    OK(siltstone_table_write(copy, batch, false));
  }
  uint64_t position = siltstone_changes_sequence(changes);
  siltstone_changes_free(changes);
  siltstone_batch_free(batch);
  return position;
}

static void keep_copy(siltstone_db *db, siltstone_table *table, siltstone_table *copy) {
  char *value;
  size_t len;
  uint64_t count;
  siltstone_table *other;
  siltstone_batch *batches[2] = {siltstone_batch_create(), siltstone_batch_create()};
  siltstone_changes *changes;
  OK(siltstone_table_set_merge_operator(copy, "siltstone.append:2c"));
  OK(siltstone_sync(db));
  uint64_t position = follow(table, copy, 0);
  CHECK(position == 7);
  OK(siltstone_table_get(copy, S("m"), &value, &len));
  CHECK(take_equal(value, len, "one"));

  OK(siltstone_table_clear(table));
  OK(siltstone_table_open_or_create(db, "other", "lsm", NULL, 0, &other));
  const siltstone_table *tables[] = {table, other};
  const siltstone_batch *parts[] = {batches[0], batches[1]};
  for (int i = 0; i < 2; i++) OK(siltstone_batch_put(batches[i], S("both"), S("1")));
  OK(siltstone_write(db, 2, tables, parts, true));
  position = follow(table, copy, position);
  CHECK(position == 9);
  OK(siltstone_table_count(copy, &count));
  CHECK(count == 1);
  OK(siltstone_table_changes(table, 8, false, &changes));
  CHECK(next(changes) && siltstone_changes_part(changes) > 0);
  siltstone_changes_free(changes);
  siltstone_table_free(other);
  for (int i = 0; i < 2; i++) siltstone_batch_free(batches[i]);
}

static void reject(siltstone_table *table) {
  siltstone_changes *changes = (siltstone_changes *)1;
  siltstone_change_op op;
  siltstone_snapshot *snapshot;
  bool is_found = true;
  FAILS(siltstone_table_changes(NULL, 0, false, &changes), SILTSTONE_CODE_INVALID, "'table'");
  CHECK(changes == NULL);
  FAILS(siltstone_table_changes(table, 0, false, NULL), SILTSTONE_CODE_INVALID, "'changes'");
  FAILS(siltstone_changes_next(NULL, 0, &is_found), SILTSTONE_CODE_INVALID, "'changes'");
  CHECK(!is_found);
  FAILS(siltstone_changes_next(NULL, 0, NULL), SILTSTONE_CODE_INVALID, "'is_found'");
  FAILS(siltstone_changes_append_to(NULL, NULL), SILTSTONE_CODE_INVALID, "'changes'");
  CHECK(siltstone_changes_kind(NULL) == 0 && siltstone_changes_count(NULL) == 0);
  CHECK(siltstone_changes_sequence(NULL) == 0 && siltstone_changes_part(NULL) == 0);
  CHECK(!siltstone_changes_op(NULL, 0, &op));
  siltstone_changes_free(NULL);

  /* The log does not have what the table never had, nor what was removed from it. */
  FAILS(siltstone_table_changes(table, 1000, false, &changes), SILTSTONE_CODE_CHANGES_UNAVAILABLE,
        "1000");
  const char *none = "log_retention=0";
  OK(siltstone_table_set_options(table, &none, 1, NULL));
  OK(siltstone_table_clear(table));
  OK(siltstone_table_put(table, S("k"), S("v")));
  FAILS(siltstone_table_changes(table, 0, false, &changes), SILTSTONE_CODE_CHANGES_UNAVAILABLE,
        "snapshot");
  CHECK(siltstone_snapshot_sequence(NULL) == 0);
  OK(siltstone_snapshot_create(table, &snapshot));
  OK(siltstone_table_changes(table, siltstone_snapshot_sequence(snapshot), false, &changes));
  CHECK(!next(changes));
  siltstone_changes_free(changes);
  siltstone_snapshot_free(snapshot);
}

int main(int argc, char **argv) {
  siltstone_db *db, *copy_db;
  siltstone_changes *changes;
  bool is_found;
  CHECK(argc == 2);
  siltstone_table *table = open_table(&db, argv[1], "store", "log_retention=64MiB");
  siltstone_table *copy = open_table(&copy_db, argv[1], "copy", "memtable=4MiB");
  show_operations(table);
  keep_copy(db, table, copy);
  reject(table);
  OK(siltstone_table_changes(table, siltstone_changes_sequence(NULL) + 10, true, &changes));
  OK(siltstone_close(db));
  FAILS(siltstone_changes_next(changes, 60000, &is_found), SILTSTONE_CODE_CLOSED, "closed");
  CHECK(!is_found && siltstone_changes_kind(changes) == 0);
  siltstone_table_free(table);
  siltstone_db_free(db);
  siltstone_changes_free(changes);
  siltstone_table_free(copy);
  siltstone_db_free(copy_db);
  puts("ok");
  return 0;
}
