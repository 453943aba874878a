/* Transactions: with locks, and optimistic. */

#include "check.h"

static void *options, *wo, *ro;

static bool sees(void *txn, const char *key, const char *expected) {
  size_t len;
  char *value = rocksdb_transaction_get(txn, ro, S(key), &len, &err);
  CHECK(!err);
  return take(value, len, expected);
}

/* What both kinds have in common. */
static void writes(void *txn, void *family, bool is_optimistic) {
  size_t len;
  OK(rocksdb_transaction_put(txn, S("a"), S("1"), &err));
  OK(rocksdb_transaction_put_cf(txn, family, S("a"), S("2"), &err));
  OK(rocksdb_transaction_put(txn, S("b"), S("1"), &err));
  OK(rocksdb_transaction_delete(txn, S("b"), &err));
  OK(rocksdb_transaction_delete_cf(txn, family, S("b"), &err));
  rocksdb_transaction_put_log_data(txn, S("log"));
  rocksdb_transaction_set_commit_timestamp(txn, 1);
  rocksdb_transaction_set_read_timestamp_for_validation(txn, 1);
  CHECK(sees(txn, "a", "1") && sees(txn, "b", NULL));
  char *value = rocksdb_transaction_get_cf(txn, ro, family, S("a"), &len, &err);
  CHECK(take(value, len, "2"));
  value = rocksdb_transaction_get_for_update(txn, ro, S("a"), &len, 1, &err);
  CHECK(take(value, len, "1"));
  value = rocksdb_transaction_get_for_update_cf(txn, ro, family, S("a"), &len, 1, &err);
  CHECK(take(value, len, "2"));
  CHECK(take_pinned(rocksdb_transaction_get_pinned(txn, ro, S("a"), &err), "1"));
  CHECK(take_pinned(rocksdb_transaction_get_pinned_cf(txn, ro, family, S("a"), &err), "2"));
  CHECK(take_pinned(rocksdb_transaction_get_pinned_for_update(txn, ro, S("a"), 0, &err), "1"));
  CHECK(take_pinned(
      rocksdb_transaction_get_pinned_for_update_cf(txn, ro, family, S("a"), 1, &err), "2"));
  const char *keys[2] = {"a", "b"};
  size_t key_lens[2] = {1, 1}, lens[2];
  char *values[2], *errs[2];
  void *families[2] = {family, family};
  rocksdb_transaction_multi_get(txn, ro, 2, keys, key_lens, values, lens, errs);
  CHECK(!errs[0] && take(values[0], lens[0], "1") && take(values[1], lens[1], NULL));
  rocksdb_transaction_multi_get_for_update(txn, ro, 2, keys, key_lens, values, lens, errs);
  CHECK(!errs[0] && take(values[0], lens[0], "1") && take(values[1], lens[1], NULL));
  rocksdb_transaction_multi_get_cf(txn, ro, families, 2, keys, key_lens, values, lens, errs);
  CHECK(!errs[0] && take(values[0], lens[0], "2") && take(values[1], lens[1], NULL));
  rocksdb_transaction_multi_get_for_update_cf(txn, ro, families, 2, keys, key_lens, values, lens,
                                              errs);
  CHECK(!errs[0] && take(values[0], lens[0], "2") && take(values[1], lens[1], NULL));
  rocksdb_transaction_set_savepoint(txn);
  OK(rocksdb_transaction_put(txn, S("c"), S("1"), &err));
  CHECK(has_keys(rocksdb_transaction_create_iterator(txn, ro), "a c z "));
  OK(rocksdb_transaction_rollback_to_savepoint(txn, &err));
  FAILS(rocksdb_transaction_rollback_to_savepoint(txn, &err), "NotFound: ");
  CHECK(has_keys(rocksdb_transaction_create_iterator(txn, ro), "a z "));
  CHECK(has_keys(rocksdb_transaction_create_iterator_cf(txn, ro, family), "a "));
  OK(rocksdb_transaction_set_name(txn, S("name"), &err));
  value = rocksdb_transaction_get_name(txn, &len);
  CHECK(take(value, len, "name"));
  /* two_phases.c prepares those with locks. */
  if (is_optimistic) FAILS(rocksdb_transaction_prepare(txn, &err), "Invalid argument: Two phase commit");

  void *lent = rocksdb_transaction_get_writebatch_wi(txn);
  CHECK(rocksdb_writebatch_wi_count(lent) == 5);
  void *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put(batch, S("d"), S("1"));
  OK(rocksdb_transaction_rebuild_from_writebatch(txn, batch, &err));
  rocksdb_writebatch_destroy(batch);
  rocksdb_free(lent);
  batch = rocksdb_writebatch_wi_create(0, 1);
  rocksdb_writebatch_wi_put(batch, S("e"), S("1"));
  OK(rocksdb_transaction_rebuild_from_writebatch_wi(txn, batch, &err));
  rocksdb_writebatch_wi_destroy(batch);
  CHECK(sees(txn, "d", "1") && sees(txn, "e", "1"));
}

static void locking(char **argv) {
  void *db_options = rocksdb_transactiondb_options_create();
  rocksdb_transactiondb_options_set_transaction_lock_timeout(db_options, 10);
  rocksdb_transactiondb_options_set_default_lock_timeout(db_options, 10);
  const char *names[2] = {"default", "one"};
  void *options_of[2] = {options, options}, *handles[2], *db, *txn, *other, *created;
  OK(db = rocksdb_transactiondb_open_column_families(options, db_options, path_of(argv, "locking"),
                                                     2, names, options_of, handles, &err));
  void *txn_options = rocksdb_transaction_options_create();
  OK(rocksdb_transactiondb_put(db, wo, S("z"), S("0"), &err));
  OK(rocksdb_transactiondb_put_cf(db, wo, handles[1], S("z"), S("0"), &err));
  OK(rocksdb_transactiondb_delete_cf(db, wo, handles[1], S("z"), &err));
  FAILS(rocksdb_transactiondb_merge(db, wo, S("z"), S("0"), &err), "Invalid argument: ");
  FAILS(rocksdb_transactiondb_merge_cf(db, wo, handles[1], S("z"), S("0"), &err),
        "Invalid argument: ");
  txn = rocksdb_transaction_begin(db, wo, txn_options, NULL);
  writes(txn, handles[1], false);
  /* Others wait for its locks in vain, and those of the savepoint are free. */
  OK(rocksdb_transactiondb_put(db, wo, S("c"), S("2"), &err));
  OK(rocksdb_transactiondb_delete(db, wo, S("c"), &err));
  FAILS(rocksdb_transactiondb_put(db, wo, S("a"), S("2"), &err), "Operation timed out: ");
  other = rocksdb_transaction_begin(db, wo, txn_options, NULL);
  FAILS(rocksdb_transaction_put(other, S("a"), S("2"), &err), "Operation timed out: ");
  CHECK(holds(db, ro, "a", NULL));
  OK(rocksdb_transaction_commit(txn, &err));
  CHECK(holds(db, ro, "a", "1") && holds_cf(db, ro, handles[1], "a", "2") && holds(db, ro, "d", "1"));
  OK(rocksdb_transaction_put(other, S("a"), S("2"), &err));
  OK(rocksdb_transaction_rollback(other, &err));
  /* What was written after its snapshot is a conflict. */
  rocksdb_transaction_options_set_set_snapshot(txn_options, 1);
  CHECK(txn == rocksdb_transaction_begin(db, wo, txn_options, txn));
  OK(rocksdb_transactiondb_put(db, wo, S("a"), S("3"), &err));
  FAILS(rocksdb_transaction_put(txn, S("a"), S("4"), &err), "Resource busy: ");
  void *snapshot = rocksdb_transaction_get_snapshot(txn);
  rocksdb_readoptions_set_snapshot(ro, snapshot);
  CHECK(sees(txn, "a", "1"));
  rocksdb_readoptions_set_snapshot(ro, NULL);
  rocksdb_free(snapshot);
  rocksdb_transaction_options_set_set_snapshot(txn_options, 0);
  rocksdb_transaction_options_set_expiration(txn_options, 1);
  CHECK(other == rocksdb_transaction_begin(db, wo, txn_options, other));
  OK(rocksdb_transaction_put(other, S("x"), S("1"), &err));
  usleep(5000);
  FAILS(rocksdb_transaction_commit(other, &err), "Operation expired: ");
  rocksdb_transaction_destroy(other);
  rocksdb_transaction_destroy(txn);

  size_t len, lens[1], key_lens[1] = {1};
  const char *keys[1] = {"a"};
  char *values[1], *errs[1];
  char *value = rocksdb_transactiondb_get(db, ro, S("a"), &len, &err);
  CHECK(take(value, len, "3"));
  value = rocksdb_transactiondb_get_cf(db, ro, handles[1], S("a"), &len, &err);
  CHECK(take(value, len, "2"));
  CHECK(take_pinned(rocksdb_transactiondb_get_pinned(db, ro, S("a"), &err), "3"));
  CHECK(take_pinned(rocksdb_transactiondb_get_pinned_cf(db, ro, handles[1], S("a"), &err), "2"));
  rocksdb_transactiondb_multi_get(db, ro, 1, keys, key_lens, values, lens, errs);
  CHECK(take(values[0], lens[0], "3"));
  rocksdb_transactiondb_multi_get_cf(db, ro, handles + 1, 1, keys, key_lens, values, lens, errs);
  CHECK(take(values[0], lens[0], "2"));
  CHECK(has_keys(rocksdb_transactiondb_create_iterator(db, ro), "a d e z "));
  CHECK(has_keys(rocksdb_transactiondb_create_iterator_cf(db, ro, handles[1]), "a "));
  void *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put(batch, S("f"), S("1"));
  OK(rocksdb_transactiondb_write(db, wo, batch, &err));
  rocksdb_writebatch_destroy(batch);
  snapshot = rocksdb_transactiondb_create_snapshot(db);
  rocksdb_transactiondb_release_snapshot(db, snapshot);
  void *flush = rocksdb_flushoptions_create(), *wal = rocksdb_flushwaloptions_create();
  rocksdb_flushwaloptions_set_sync(wal, 1);
  OK(rocksdb_transactiondb_flush(db, flush, &err));
  OK(rocksdb_transactiondb_flush_cf(db, flush, handles[1], &err));
  OK(rocksdb_transactiondb_flush_cfs(db, flush, handles, 2, &err));
  OK(rocksdb_transactiondb_flush_wal(db, 1, &err));
  OK(rocksdb_transactiondb_flush_wal_with_options(db, wal, &err));
  rocksdb_flushoptions_destroy(flush);
  rocksdb_flushwaloptions_destroy(wal);
  uint64_t number;
  CHECK(!rocksdb_transactiondb_property_int(db, "rocksdb.estimate-num-keys", &number));
  CHECK(number == 5);
  rocksdb_free(rocksdb_transactiondb_property_value(db, "rocksdb.stats"));
  OK(created = rocksdb_transactiondb_create_column_family(db, options, "two", &err));
  rocksdb_column_family_handle_destroy(created);
  CHECK(!rocksdb_transactiondb_get_prepared_transactions(db, &len) && !len);
  void *checkpoint;
  OK(checkpoint = rocksdb_transactiondb_checkpoint_object_create(db, &err));
  rocksdb_checkpoint_object_destroy(checkpoint);
  void *base = rocksdb_transactiondb_get_base_db(db);
  CHECK(holds(base, ro, "f", "1"));
  rocksdb_transactiondb_close_base_db(base);
  rocksdb_column_family_handle_destroy(handles[0]);
  rocksdb_column_family_handle_destroy(handles[1]);
  rocksdb_transactiondb_close(db);
  OK(db = rocksdb_transactiondb_open(options, db_options, path_of(argv, "locking2"), &err));
  rocksdb_transactiondb_close(db);
  rocksdb_transaction_options_destroy(txn_options);
  rocksdb_transactiondb_options_destroy(db_options);
}

static void optimistic(char **argv) {
  void *db_options = rocksdb_optimistictransactiondb_options_create();
  const char *path = path_of(argv, "optimistic"), *names[2] = {"default", "one"};
  void *options_of[2] = {options, options}, *handles[2], *db, *base, *txn, *other, *checkpoint;
  OK(db = rocksdb_optimistictransactiondb_open(options, path, &err));
  rocksdb_optimistictransactiondb_close(db);
  OK(db = rocksdb_optimistictransactiondb_open_with_otxn_db_options(options, db_options, path, &err));
  rocksdb_optimistictransactiondb_close(db);
  OK(db = rocksdb_optimistictransactiondb_open_column_families(options, path, 2, names, options_of,
                                                               handles, &err));
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_optimistictransactiondb_close(db);
  OK(db = rocksdb_optimistictransactiondb_open_column_families_with_otxn_db_options(
         options, db_options, path, 2, names, options_of, handles, &err));
  base = rocksdb_optimistictransactiondb_get_base_db(db);
  OK(rocksdb_put(base, wo, S("z"), S("0"), &err));
  void *txn_options = rocksdb_optimistictransaction_options_create();
  txn = rocksdb_optimistictransaction_begin(db, wo, txn_options, NULL);
  writes(txn, handles[1], true);
  CHECK(holds(base, ro, "a", NULL));
  OK(rocksdb_transaction_commit(txn, &err));
  CHECK(holds(base, ro, "a", "1") && holds_cf(base, ro, handles[1], "a", "2"));
  /* A write of another to a written key is a conflict, one to a key that was only read is not. */
  CHECK(txn == rocksdb_optimistictransaction_begin(db, wo, txn_options, txn));
  other = rocksdb_optimistictransaction_begin(db, wo, txn_options, NULL);
  CHECK(sees(txn, "z", "0"));
  OK(rocksdb_transaction_put(txn, S("a"), S("x"), &err));
  OK(rocksdb_transaction_put(other, S("z"), S("1"), &err));
  OK(rocksdb_transaction_commit(other, &err));
  OK(rocksdb_transaction_commit(txn, &err));
  CHECK(holds(base, ro, "a", "x") && holds(base, ro, "z", "1"));
  size_t len;
  CHECK(txn == rocksdb_optimistictransaction_begin(db, wo, txn_options, txn));
  rocksdb_free(rocksdb_transaction_get_for_update(txn, ro, S("z"), &len, 1, &err));
  OK(rocksdb_transaction_put(txn, S("y"), S("1"), &err));
  OK(rocksdb_put(base, wo, S("z"), S("2"), &err));
  FAILS(rocksdb_transaction_commit(txn, &err), "Resource busy: ");
  CHECK(holds(base, ro, "y", NULL));
  FAILS(rocksdb_transaction_merge(txn, S("q"), S("1"), &err);
        rocksdb_transaction_merge_cf(txn, handles[1], S("q"), S("1"), &err);
        rocksdb_transaction_commit(txn, &err), "Resource busy: ");
  /* The snapshot is where the validation begins. */
  rocksdb_optimistictransaction_options_set_set_snapshot(txn_options, 1);
  CHECK(txn == rocksdb_optimistictransaction_begin(db, wo, txn_options, txn));
  OK(rocksdb_put(base, wo, S("z"), S("3"), &err));
  OK(rocksdb_transaction_put(txn, S("z"), S("4"), &err));
  FAILS(rocksdb_transaction_commit(txn, &err), "Resource busy: ");
  OK(rocksdb_transaction_rollback(txn, &err));
  rocksdb_transaction_destroy(txn);
  rocksdb_transaction_destroy(other);
  void *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put(batch, S("f"), S("1"));
  OK(rocksdb_optimistictransactiondb_write(db, wo, batch, &err));
  rocksdb_writebatch_destroy(batch);
  uint64_t number;
  CHECK(!rocksdb_optimistictransactiondb_property_int(db, "rocksdb.num-live-versions", &number));
  rocksdb_free(rocksdb_optimistictransactiondb_property_value(db, "rocksdb.stats"));
  OK(checkpoint = rocksdb_optimistictransactiondb_checkpoint_object_create(db, &err));
  rocksdb_checkpoint_object_destroy(checkpoint);
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_optimistictransactiondb_close_base_db(base);
  rocksdb_optimistictransactiondb_close(db);
  rocksdb_optimistictransaction_options_destroy(txn_options);
  rocksdb_optimistictransactiondb_options_destroy(db_options);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  options = new_options();
  wo = rocksdb_writeoptions_create();
  ro = rocksdb_readoptions_create();
  locking(argv);
  optimistic(argv);
  rocksdb_options_destroy(options);
  rocksdb_writeoptions_destroy(wo);
  rocksdb_readoptions_destroy(ro);
  puts("ok");
  return 0;
}
