/*
 * Several tables as of one moment, and a reader beside the writer.
 *
 *   several DIR    DIR is an empty directory, in which it makes a store
 */

#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static char path[4096];

static bool has(siltstone_snapshot *snapshot, const char *key, const char *expected) {
  char *value;
  size_t len;
  OK(siltstone_snapshot_get(snapshot, S(key), &value, &len));
  return expected ? take_equal(value, len, expected) : value == NULL;
}

static bool reads(siltstone_transaction *transaction, const char *key, const char *expected) {
  char *value;
  size_t len;
  OK(siltstone_transaction_get(transaction, S(key), &value, &len));
  return expected ? take_equal(value, len, expected) : value == NULL;
}

static bool holds(siltstone_table *table, const char *key, const char *expected) {
  char *value;
  size_t len;
  OK(siltstone_table_get(table, S(key), &value, &len));
  return expected ? take_equal(value, len, expected) : value == NULL;
}

static void take_snapshots(siltstone_db *db, siltstone_table *stock, siltstone_table *orders) {
  const siltstone_table *tables[] = {stock, orders};
  siltstone_snapshot *snapshots[2];
  siltstone_batch *batches[] = {siltstone_batch_create(), siltstone_batch_create()};
  OK(siltstone_table_put(stock, S("pears"), S("5")));
  OK(siltstone_snapshot_create_all(db, 2, tables, snapshots));
  OK(siltstone_batch_put(batches[0], S("pears"), S("4")));
  OK(siltstone_batch_put(batches[1], S("1"), S("pears")));
  OK(siltstone_write(db, 2, tables, (const siltstone_batch *const *)batches, false));
  CHECK(has(snapshots[0], "pears", "5") && has(snapshots[1], "1", NULL));
  CHECK(siltstone_snapshot_sequence(snapshots[0]) > 0);
  siltstone_snapshot_free(snapshots[0]);
  CHECK(has(snapshots[1], "1", NULL));
  siltstone_snapshot_free(snapshots[1]);
  siltstone_batch_free(batches[0]);
  siltstone_batch_free(batches[1]);
  CHECK(holds(stock, "pears", "4") && holds(orders, "1", "pears"));

  OK(siltstone_snapshot_create_all(db, 0, NULL, NULL));
  const siltstone_table *twice[] = {stock, stock};
  snapshots[1] = (siltstone_snapshot *)1;
  FAILS(siltstone_snapshot_create_all(db, 2, twice, snapshots), SILTSTONE_CODE_INVALID, "twice");
  CHECK(snapshots[0] == NULL && snapshots[1] == NULL);
  FAILS(siltstone_snapshot_create_all(db, 2, tables, NULL), SILTSTONE_CODE_INVALID, "'snapshots'");
  FAILS(siltstone_snapshot_create_all(NULL, 2, tables, snapshots), SILTSTONE_CODE_INVALID, "'db'");
  twice[0] = NULL;
  FAILS(siltstone_snapshot_create_all(db, 2, twice, snapshots), SILTSTONE_CODE_INVALID, "'tables[]'");
}

static void move_between(siltstone_db *db, siltstone_table *stock, siltstone_table *orders) {
  const siltstone_table *tables[] = {stock, orders};
  siltstone_transaction *both[2], *others[2];
  OK(siltstone_transaction_begin_all(db, 2, tables, both));
  OK(siltstone_table_put(orders, S("2"), S("plums")));
  CHECK(reads(both[0], "pears", "4") && reads(both[1], "2", NULL));
  OK(siltstone_transaction_put(both[0], S("pears"), S("3")));
  CHECK(reads(both[0], "pears", "3") && holds(stock, "pears", "4"));

  /* What it has read in the other table has changed. */
  siltstone_error *error = siltstone_transaction_commit_all(2, both, false);
  CHECK(siltstone_error_code(error) == SILTSTONE_CODE_CONFLICT && siltstone_error_is_retryable(error));
  siltstone_error_free(error);
  FAILS(siltstone_transaction_commit_all(2, both, false), SILTSTONE_CODE_INVALID, "have ended");
  siltstone_transaction_free(both[0]);
  siltstone_transaction_free(both[1]);
  CHECK(holds(stock, "pears", "4"));

  /* In another order of tables, and of handles. */
  const siltstone_table *reversed[] = {orders, stock};
  OK(siltstone_transaction_begin_all(db, 2, reversed, both));
  OK(siltstone_transaction_put(both[1], S("pears"), S("3")));
  OK(siltstone_transaction_put(both[0], S("3"), S("pears")));
  OK(siltstone_transaction_begin_all(db, 2, tables, others));
  FAILS(siltstone_transaction_commit(both[0], false), SILTSTONE_CODE_INVALID, "commit_all()");
  siltstone_transaction *mixed[] = {both[0], others[1]}, *same[] = {both[0], both[0]};
  FAILS(siltstone_transaction_commit_all(2, mixed, false), SILTSTONE_CODE_INVALID, "each once");
  FAILS(siltstone_transaction_commit_all(2, same, false), SILTSTONE_CODE_INVALID, "each once");
  FAILS(siltstone_transaction_commit_all(1, both, false), SILTSTONE_CODE_INVALID, "each once");
  same[1] = NULL;
  FAILS(siltstone_transaction_commit_all(2, same, false), SILTSTONE_CODE_INVALID, "'transactions[]'");
  CHECK(reads(both[1], "pears", "3"));
  siltstone_transaction *turned[] = {both[1], both[0]};
  OK(siltstone_transaction_commit_all(2, turned, true));
  CHECK(holds(stock, "pears", "3") && holds(orders, "3", "pears"));
  siltstone_transaction_free(both[0]);
  siltstone_transaction_free(both[1]);

  /* Freeing one discards all. */
  OK(siltstone_transaction_put(others[0], S("pears"), S("9")));
  siltstone_transaction_free(others[1]);
  FAILS(siltstone_transaction_commit_all(1, others, false), SILTSTONE_CODE_INVALID, "each once");
  siltstone_transaction_free(others[0]);
  CHECK(holds(stock, "pears", "3"));

  siltstone_transaction *one;
  OK(siltstone_transaction_begin(stock, &one));
  FAILS(siltstone_transaction_commit_all(1, &one, false), SILTSTONE_CODE_INVALID, "begin_all()");
  siltstone_transaction_free(one);
  OK(siltstone_transaction_commit_all(0, NULL, false));
  FAILS(siltstone_transaction_begin_all(NULL, 2, tables, both), SILTSTONE_CODE_INVALID, "'db'");
  FAILS(siltstone_transaction_begin_all(db, 2, tables, NULL), SILTSTONE_CODE_INVALID, "'transactions'");
}

/* Another process, which opens the store by itself. */
static void read_beside(int asked, int answer) {
  siltstone_reader *reader;
  siltstone_table *stock, *later;
  bool has_changed;
  char turn;
  CHECK(read(asked, &turn, 1) == 1);
  OK(siltstone_reader_open(path, NULL, &reader));
  OK(siltstone_reader_table(reader, "stock", &stock));
  CHECK(holds(stock, "pears", "3"));
  FAILS(siltstone_table_put(stock, S("k"), S("v")), SILTSTONE_CODE_REFUSED, "read-only");
  FAILS(siltstone_reader_table(reader, "none", &later), SILTSTONE_CODE_INVALID, "none");
  CHECK(later == NULL);
  OK(siltstone_reader_catch_up(reader, &has_changed));
  CHECK(!has_changed);
  CHECK(write(answer, "1", 1) == 1 && read(asked, &turn, 1) == 1);
  OK(siltstone_reader_catch_up(reader, &has_changed));
  CHECK(has_changed);
  OK(siltstone_reader_table(reader, "stock", &later));
  CHECK(holds(stock, "pears", "3") && holds(later, "pears", "2"));
  siltstone_table_free(stock);
  siltstone_reader_free(reader);
  CHECK(holds(later, "pears", "2"));
  siltstone_table_free(later);
  exit(0);
}

int main(int argc, char **argv) {
  siltstone_db *db;
  siltstone_table *stock, *orders;
  siltstone_reader *reader;
  bool has_changed;
  char turn;
  int asked[2], answer[2], status;
  CHECK(argc == 2);
  snprintf(path, sizeof path, "%s/store", argv[1]);
  /* Before this process has threads. */
  CHECK(!pipe(asked) && !pipe(answer));
  pid_t child = fork();
  if (child == 0) read_beside(asked[0], answer[1]);
  OK(siltstone_open_or_create(path, NULL, &db));
  OK(siltstone_table_open_or_create(db, "stock", "lsm", NULL, 0, &stock));
  OK(siltstone_table_open_or_create(db, "orders", "lsm", NULL, 0, &orders));
  take_snapshots(db, stock, orders);
  move_between(db, stock, orders);

  close(answer[1]);
  CHECK(write(asked[1], "1", 1) == 1 && read(answer[0], &turn, 1) == 1);
  OK(siltstone_table_put(stock, S("pears"), S("2")));
  CHECK(write(asked[1], "1", 1) == 1);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  FAILS(siltstone_reader_open(argv[1], NULL, &reader), SILTSTONE_CODE_REFUSED, "store");
  FAILS(siltstone_reader_open(path, NULL, NULL), SILTSTONE_CODE_INVALID, "'reader'");
  FAILS(siltstone_reader_catch_up(NULL, &has_changed), SILTSTONE_CODE_INVALID, "'reader'");
  siltstone_table_free(stock);
  siltstone_table_free(orders);
  FAILS(siltstone_reader_table(NULL, "stock", &stock), SILTSTONE_CODE_INVALID, "'reader'");
  CHECK(stock == NULL);
  siltstone_reader_free(NULL);

  OK(siltstone_close(db));
  siltstone_db_free(db);
  puts("ok");
  return 0;
}
