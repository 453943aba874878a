/* Two-phase commit, with a process that ends between the phases. */

#include "check.h"

#include <sys/wait.h>

static void *options, *db_options, *txn_options, *wo, *ro;
static const char *path;

static void *begin(void *db, const char *key, const char *value) {
  void *txn = rocksdb_transaction_begin(db, wo, txn_options, NULL);
  OK(rocksdb_transaction_put(txn, S(key), S(value), &err));
  return txn;
}

static void *prepared(void *db, const char *name, const char *key, const char *value) {
  void *txn = begin(db, key, value);
  OK(rocksdb_transaction_set_name(txn, S(name), &err));
  OK(rocksdb_transaction_prepare(txn, &err));
  return txn;
}

/* Another process, which ends without closing the database. */
static void prepare_and_end(void) {
  const char *names[2] = {"default", "one"};
  void *options_of[2] = {options, options}, *handles[2], *db;
  OK(db = rocksdb_transactiondb_open_column_families(options, db_options, path, 2, names, options_of,
                                                     handles, &err));
  OK(rocksdb_transactiondb_put(db, wo, S("gone"), S("1"), &err));
  void *txn = begin(db, "a", "1");
  OK(rocksdb_transaction_put_cf(txn, handles[1], S("a"), S("2"), &err));
  OK(rocksdb_transaction_delete(txn, S("gone"), &err));
  FAILS(rocksdb_transaction_prepare(txn, &err), "Invalid argument: Cannot prepare a transaction");
  FAILS(rocksdb_transaction_set_name(txn, "", 0, &err), "Invalid argument: ");
  OK(rocksdb_transaction_set_name(txn, S("first"), &err));
  FAILS(rocksdb_transaction_set_name(txn, S("other"), &err), "Invalid argument: ");
  OK(rocksdb_transaction_prepare(txn, &err));
  CHECK(holds(db, ro, "a", NULL) && holds(db, ro, "gone", "1"));

  /* Later writes are not prepared, and its name is taken. */
  OK(rocksdb_transaction_put(txn, S("late"), S("1"), &err));
  FAILS(rocksdb_transaction_prepare(txn, &err), "Invalid argument: ");
  FAILS(rocksdb_transaction_rollback_to_savepoint(txn, &err), "Invalid argument: ");
  void *other = begin(db, "lost", "1");
  FAILS(rocksdb_transaction_set_name(other, S("first"), &err), "Invalid argument: ");

  prepared(db, "second", "b", "1");
  void *decided = prepared(db, "third", "c", "1");
  OK(rocksdb_transaction_put(decided, S("e"), S("1"), &err));
  OK(rocksdb_transaction_commit(decided, &err));
  rocksdb_transaction_destroy(decided);
  decided = prepared(db, "third", "d", "1");
  OK(rocksdb_transaction_rollback(decided, &err));
  OK(rocksdb_transaction_commit(decided, &err));
  rocksdb_transaction_destroy(decided);
  CHECK(holds(db, ro, "c", "1") && holds(db, ro, "d", NULL) && holds(db, ro, "e", "1"));
  _exit(0);
}

/* The handle of one of the prepared transactions, of which there are `expected`. */
static void *find(void *db, const char *name, size_t expected) {
  size_t count, len;
  void *found = NULL;
  void **list = (void **)rocksdb_transactiondb_get_prepared_transactions(db, &count);
  CHECK(count == expected && (list != NULL) == (count > 0));
  for (size_t i = 0; i < count; i++) {
    char *own = rocksdb_transaction_get_name(list[i], &len);
    if (len == strlen(name) && !memcmp(own, name, len)) found = list[i];
    /* The others are undecided again. */
    else rocksdb_transaction_destroy(list[i]);
    rocksdb_free(own);
  }
  rocksdb_free(list);
  return found;
}

static void decide(void) {
  const char *names[2] = {"default", "one"};
  void *options_of[2] = {options, options}, *handles[2], *db, *txn;
  for (int round = 0; round < 2; round++) {
    OK(db = rocksdb_transactiondb_open_column_families(options, db_options, path, 2, names,
                                                       options_of, handles, &err));
    CHECK(holds(db, ro, "a", NULL) && holds(db, ro, "gone", "1") && holds(db, ro, "c", "1"));
    CHECK(holds(db, ro, "lost", NULL) && holds(db, ro, "b", NULL) && holds(db, ro, "d", NULL));
    FAILS(rocksdb_transactiondb_put(db, wo, S("a"), S("3"), &err), "Operation timed out: ");
    FAILS(rocksdb_transactiondb_put_cf(db, wo, handles[1], S("a"), S("3"), &err),
          "Operation timed out: ");
    OK(rocksdb_transactiondb_put(db, wo, S("lost"), S("2"), &err));
    OK(rocksdb_transactiondb_delete(db, wo, S("lost"), &err));
    txn = begin(db, "x", "1");
    FAILS(rocksdb_transaction_set_name(txn, S("first"), &err), "Invalid argument: ");
    rocksdb_transaction_destroy(txn);
    if (round == 0) {
      for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(handles[i]);
      rocksdb_transactiondb_close(db);
    }
  }
  /* Its reads show its writes. */
  size_t len;
  CHECK((txn = find(db, "first", 2)));
  char *value = rocksdb_transaction_get(txn, ro, S("a"), &len, &err);
  CHECK(take(value, len, "1"));
  OK(rocksdb_transaction_commit(txn, &err));
  rocksdb_transaction_destroy(txn);
  CHECK(holds(db, ro, "a", "1") && holds_cf(db, ro, handles[1], "a", "2"));
  CHECK(holds(db, ro, "gone", NULL) && holds(db, ro, "late", NULL));
  OK(rocksdb_transactiondb_put(db, wo, S("a"), S("3"), &err));
  FAILS(rocksdb_transactiondb_put(db, wo, S("b"), S("3"), &err), "Operation timed out: ");
  CHECK((txn = find(db, "second", 1)));
  OK(rocksdb_transaction_rollback(txn, &err));
  rocksdb_transaction_destroy(txn);
  OK(rocksdb_transactiondb_put(db, wo, S("b"), S("3"), &err));
  CHECK(!find(db, "first", 0));
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_transactiondb_close(db);

  OK(db = rocksdb_transactiondb_open_column_families(options, db_options, path, 2, names, options_of,
                                                     handles, &err));
  CHECK(!find(db, "first", 0) && holds(db, ro, "a", "3") && holds(db, ro, "b", "3"));
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_transactiondb_close(db);
}

int main(int argc, char **argv) {
  int status;
  CHECK(argc == 2);
  path = path_of(argv, "phases");
  options = new_options();
  db_options = rocksdb_transactiondb_options_create();
  rocksdb_transactiondb_options_set_transaction_lock_timeout(db_options, 10);
  rocksdb_transactiondb_options_set_default_lock_timeout(db_options, 10);
  txn_options = rocksdb_transaction_options_create();
  wo = rocksdb_writeoptions_create();
  ro = rocksdb_readoptions_create();
  rocksdb_writeoptions_set_sync(wo, 1);
  pid_t child = fork();
  if (child == 0) prepare_and_end();
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  decide();
  rocksdb_transaction_options_destroy(txn_options);
  rocksdb_transactiondb_options_destroy(db_options);
  rocksdb_options_destroy(options);
  rocksdb_writeoptions_destroy(wo);
  rocksdb_readoptions_destroy(ro);
  puts("ok");
  return 0;
}
