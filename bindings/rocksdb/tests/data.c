/* Opening, reads, writes, iterators, snapshots, column families, expiry. */

#include "check.h"

static void *options, *wo, *ro;

static void reads_and_writes(void *db) {
  size_t len;
  OK(rocksdb_put(db, wo, S("a"), S("1"), &err));
  OK(rocksdb_put(db, wo, NULL, 0, NULL, 0, &err));
  CHECK(holds(db, ro, "a", "1") && holds(db, ro, "", "") && holds(db, ro, "b", NULL));
  OK(rocksdb_delete(db, wo, "", 0, &err));
  OK(rocksdb_put(db, wo, S("x"), S("y"), &err));
  OK(rocksdb_singledelete(db, wo, S("x"), &err));
  CHECK(holds(db, ro, "", NULL) && holds(db, ro, "x", NULL));
  void *pinned;
  OK(pinned = rocksdb_get_pinned(db, ro, S("a"), &err));
  CHECK(take_pinned(pinned, "1"));
  OK(pinned = rocksdb_get_pinned(db, ro, S("b"), &err));
  CHECK(take_pinned(pinned, NULL));
  OK(pinned = rocksdb_get_pinned_v2(db, ro, S("a"), &err));
  CHECK(are(rocksdb_pinnable_handle_get_value(pinned, &len), &len, "1"));
  rocksdb_pinnable_handle_destroy(pinned);
  char buffer[4];
  unsigned char found;
  CHECK(rocksdb_get_into_buffer(db, ro, S("a"), buffer, 4, &len, &found, &err) && found &&
        are(buffer, &len, "1"));
  CHECK(!rocksdb_get_into_buffer(db, ro, S("a"), buffer, 0, &len, &found, &err) && found &&
        len == 1);
  CHECK(!rocksdb_get_into_buffer(db, ro, S("b"), buffer, 4, &len, &found, &err) && !found);
  const char *keys[3] = {"a", "b", "a"};
  size_t key_lens[3] = {1, 1, 1}, lens[3];
  char *values[3], *errs[3];
  rocksdb_multi_get(db, ro, 3, keys, key_lens, values, lens, errs);
  CHECK(!errs[0] && !errs[1] && take(values[0], lens[0], "1") && take(values[1], lens[1], NULL) &&
        take(values[2], lens[2], "1"));
  void *family = rocksdb_get_default_column_family_handle(db);
  void *families[3] = {family, family, family}, *pins[3];
  rocksdb_multi_get_cf(db, ro, families, 3, keys, key_lens, values, lens, errs);
  CHECK(!errs[0] && take(values[0], lens[0], "1") && take(values[1], lens[1], NULL));
  rocksdb_free(values[2]);
  rocksdb_batched_multi_get_cf(db, ro, family, 2, keys, key_lens, pins, errs, false);
  CHECK(!errs[0] && take_pinned(pins[0], "1") && take_pinned(pins[1], NULL));
  rocksdb_slice_t slices[2] = {{"a", 1}, {"b", 1}};
  rocksdb_batched_multi_get_cf_slice(db, ro, family, 2, slices, pins, errs, true);
  CHECK(!errs[1] && take_pinned(pins[0], "1") && take_pinned(pins[1], NULL));
  rocksdb_multi_get_with_ts(db, ro, 1, keys, key_lens, values, lens, values + 1, lens + 1, errs);
  CHECK(strstr(errs[0], "Not implemented"));
  rocksdb_free(errs[0]);
  rocksdb_multi_get_cf_with_ts(db, ro, families, 1, keys, key_lens, values, lens, values + 1,
                               lens + 1, errs);
  CHECK(strstr(errs[0], "Not implemented"));
  rocksdb_free(errs[0]);
  CHECK(rocksdb_key_may_exist(db, ro, S("a"), &values[0], &lens[0], NULL, 0, &found) && found &&
        take(values[0], lens[0], "1"));
  CHECK(!rocksdb_key_may_exist_cf(db, ro, family, S("b"), NULL, NULL, NULL, 0, NULL));
  OK(rocksdb_put(db, wo, S("r1"), S(""), &err));
  OK(rocksdb_put(db, wo, S("r2"), S(""), &err));
  OK(rocksdb_delete_range_cf(db, wo, family, S("r"), S("r2"), &err));
  OK(rocksdb_delete_range_cf(db, wo, family, S("s"), S("a"), &err));
  CHECK(holds(db, ro, "r1", NULL) && holds(db, ro, "r2", "") && holds(db, ro, "a", "1"));
  OK(rocksdb_delete(db, wo, S("r2"), &err));
  FAILS(rocksdb_merge(db, wo, S("a"), S("1"), &err), "Invalid argument: ");
  rocksdb_readoptions_set_timestamp(ro, S("1234"));
  FAILS(rocksdb_get(db, ro, S("a"), &len, &err), "Not implemented: ");
  rocksdb_readoptions_set_timestamp(ro, NULL, 0);
  rocksdb_readoptions_set_iter_start_ts(ro, NULL, 0);
  rocksdb_column_family_handle_destroy(family);
}

static void iterators(void *db) {
  size_t len;
  for (const char *key = "bcde"; *key; key++) OK(rocksdb_put(db, wo, key, 1, key, 1, &err));
  void *iterator = rocksdb_create_iterator(db, ro);
  OK(rocksdb_put(db, wo, S("f"), S("f"), &err));
  CHECK(is_on(iterator, NULL, NULL));
  rocksdb_iter_next(iterator);
  CHECK(is_on(iterator, NULL, NULL));
  rocksdb_iter_seek(iterator, S("bb"));
  CHECK(is_on(iterator, "c", "c"));
  rocksdb_iter_seek_for_prev(iterator, S("bb"));
  CHECK(is_on(iterator, "b", "b"));
  rocksdb_slice_t key = rocksdb_iter_key_slice(iterator), value = rocksdb_iter_value_slice(iterator);
  CHECK(are(key.data, &key.size, "b") && are(value.data, &value.size, "b"));
  CHECK(rocksdb_iter_timestamp(iterator, &len) && !len);
  CHECK(!rocksdb_iter_timestamp_slice(iterator).size);
  rocksdb_iter_seek(iterator, S("f"));
  CHECK(is_on(iterator, NULL, NULL));
  OK(rocksdb_iter_refresh(iterator, &err));
  /* What has no bytes has an address all the same. */
  OK(rocksdb_put(db, wo, S("empty"), S(""), &err));
  OK(rocksdb_iter_refresh(iterator, &err));
  rocksdb_iter_seek(iterator, S("empty"));
  CHECK(is_on(iterator, "empty", "") && *rocksdb_iter_value(iterator, &len) == 0);
  void *pinned;
  OK(pinned = rocksdb_get_pinned(db, ro, S("empty"), &err));
  CHECK(*rocksdb_pinnableslice_value(pinned, &len) == 0 && len == 0);
  CHECK(*rocksdb_pinnable_handle_get_value(pinned, &len) == 0 && len == 0);
  rocksdb_pinnableslice_destroy(pinned);
  OK(rocksdb_delete(db, wo, S("empty"), &err));
  OK(rocksdb_iter_refresh(iterator, &err));
  CHECK(has_keys(iterator, "a b c d e f "));

  void *bounded = rocksdb_readoptions_create();
  rocksdb_readoptions_set_iterate_lower_bound(bounded, S("b"));
  rocksdb_readoptions_set_iterate_upper_bound(bounded, S("d"));
  CHECK(has_keys(rocksdb_create_iterator(db, bounded), "b c "));
  rocksdb_readoptions_set_iterate_upper_bound(bounded, S("a"));
  CHECK(has_keys(rocksdb_create_iterator(db, bounded), ""));
  rocksdb_readoptions_set_iterate_upper_bound(bounded, NULL, 0);
  rocksdb_readoptions_set_tailing(bounded, 1);
  iterator = rocksdb_create_iterator(db, bounded);
  OK(rocksdb_put(db, wo, S("g"), S("g"), &err));
  CHECK(has_keys(iterator, "b c d e f g "));
  /* The entry under a tailing iterator is removed: a step goes to the next one, not past it. */
  iterator = rocksdb_create_iterator(db, bounded);
  rocksdb_iter_seek(iterator, S("c"));
  OK(rocksdb_delete(db, wo, S("c"), &err));
  rocksdb_iter_next(iterator);
  CHECK(is_on(iterator, "d", "d"));
  OK(rocksdb_delete(db, wo, S("d"), &err));
  rocksdb_iter_prev(iterator);
  CHECK(is_on(iterator, "b", "b"));
  rocksdb_iter_destroy(iterator);
  OK(rocksdb_put(db, wo, S("c"), S("c"), &err));
  OK(rocksdb_put(db, wo, S("d"), S("d"), &err));
  /* With a batch over it. */
  void *batch = rocksdb_writebatch_wi_create(0, 1);
  rocksdb_writebatch_wi_put(batch, S("cc"), S("new"));
  rocksdb_writebatch_wi_delete(batch, S("e"));
  iterator = rocksdb_create_iterator(db, bounded);
  iterator = rocksdb_writebatch_wi_create_iterator_with_base(batch, iterator);
  CHECK(has_keys(iterator, "b c cc d f g "));
  rocksdb_writebatch_wi_destroy(batch);
  rocksdb_readoptions_destroy(bounded);
}

static void snapshots(void *db) {
  uint64_t before = rocksdb_get_latest_sequence_number(db);
  void *snapshot = rocksdb_create_snapshot(db);
  CHECK(rocksdb_snapshot_get_sequence_number(snapshot) == before);
  OK(rocksdb_put(db, wo, S("a"), S("2"), &err));
  CHECK(rocksdb_get_latest_sequence_number(db) > before);
  rocksdb_readoptions_set_snapshot(ro, snapshot);
  CHECK(holds(db, ro, "a", "1"));
  void *iterator = rocksdb_create_iterator(db, ro);
  rocksdb_iter_seek_to_first(iterator);
  CHECK(is_on(iterator, "a", "1"));
  rocksdb_iter_destroy(iterator);
  rocksdb_readoptions_set_snapshot(ro, NULL);
  rocksdb_release_snapshot(db, snapshot);
  CHECK(holds(db, ro, "a", "2"));
}

static void families(char **argv) {
  const char *path = path_of(argv, "families"), *names[3] = {"default", "one", "two"};
  void *options_of[3] = {options, options, options}, *handles[3], *db;
  OK(db = rocksdb_open_column_families(options, path, 3, names, options_of, handles, &err));
  CHECK(rocksdb_column_family_handle_get_id(handles[0]) == 0);
  size_t len;
  char **known;
  OK(known = rocksdb_list_column_families(options, path, &len, &err));
  CHECK(len == 3 && !strcmp(known[0], "default") && !strcmp(known[2], "two"));
  rocksdb_list_column_families_destroy(known, len);
  char *name = rocksdb_column_family_handle_get_name(handles[2], &len);
  CHECK(take(name, len, "two"));
  OK(rocksdb_put_cf(db, wo, handles[1], S("k"), S("1"), &err));
  OK(rocksdb_put_cf(db, wo, handles[2], S("k"), S("2"), &err));
  OK(rocksdb_put_cf(db, wo, handles[2], S("l"), S("3"), &err));
  CHECK(holds(db, ro, "k", NULL) && holds_cf(db, ro, handles[1], "k", "1") &&
        holds_cf(db, ro, handles[2], "k", "2"));
  OK(rocksdb_delete_cf(db, wo, handles[1], S("k"), &err));
  OK(rocksdb_singledelete_cf(db, wo, handles[1], S("l"), &err));
  FAILS(rocksdb_merge_cf(db, wo, handles[1], S("k"), S(""), &err), "Invalid argument: ");
  CHECK(has_keys(rocksdb_create_iterator_cf(db, ro, handles[1]), ""));
  CHECK(has_keys(rocksdb_create_iterator_cf(db, ro, handles[2]), "k l "));
  void *iterators[2];
  OK(rocksdb_create_iterators(db, ro, handles + 1, iterators, 2, &err));
  CHECK(has_keys(iterators[0], "") && has_keys(iterators[1], "k l "));
  void *pinned;
  OK(pinned = rocksdb_get_pinned_cf(db, ro, handles[2], S("k"), &err));
  CHECK(take_pinned(pinned, "2"));
  OK(pinned = rocksdb_get_pinned_cf_v2(db, ro, handles[2], S("k"), &err));
  rocksdb_pinnable_handle_destroy(pinned);
  char buffer[4];
  unsigned char found;
  CHECK(rocksdb_get_into_buffer_cf(db, ro, handles[2], S("k"), buffer, 4, &len, &found, &err));
  void *created, **list;
  FAILS(created = rocksdb_create_column_family(db, options, "one", &err), "Invalid argument: ");
  OK(created = rocksdb_create_column_family(db, options, "three", &err));
  OK(rocksdb_put_cf(db, wo, created, S("k"), S("3"), &err));
  const char *more[2] = {"four", "five"};
  OK(list = rocksdb_create_column_families(db, options, 2, more, &len, &err));
  CHECK(len == 2);
  /* After an error the list has those before it. */
  const char *some[3] = {"six", "one", "seven"};
  void **made;
  FAILS(made = rocksdb_create_column_families(db, options, 3, some, &len, &err),
        "Invalid argument: ");
  CHECK(len == 1 && made);
  OK(rocksdb_put_cf(db, wo, made[0], S("k"), S("6"), &err));
  OK(rocksdb_drop_column_family(db, made[0], &err));
  rocksdb_column_family_handle_destroy(made[0]);
  rocksdb_create_column_families_destroy(made);
  /* A dropped family is empty for who still has its handle, and its name is free. */
  OK(rocksdb_drop_column_family(db, list[0], &err));
  FAILS(rocksdb_put_cf(db, wo, list[0], S("k"), S(""), &err), "Invalid argument: ");
  FAILS(rocksdb_drop_column_family(db, handles[0], &err), "Invalid argument: ");
  OK(rocksdb_drop_column_family(db, created, &err));
  rocksdb_column_family_handle_destroy(created);
  OK(created = rocksdb_create_column_family(db, options, "three", &err));
  CHECK(holds_cf(db, ro, created, "k", NULL));
  rocksdb_column_family_handle_destroy(list[0]);
  rocksdb_column_family_handle_destroy(list[1]);
  rocksdb_create_column_families_destroy(list);
  rocksdb_column_family_handle_destroy(created);
  for (int i = 0; i < 3; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_close(db);

  OK(known = rocksdb_list_column_families(options, path, &len, &err));
  CHECK(len == 5 && !strcmp(known[0], "default") && !strcmp(known[1], "one"));
  rocksdb_list_column_families_destroy(known, len);
  FAILS(db = rocksdb_open(options, path, &err), "Invalid argument: Column families not opened");
  OK(db = rocksdb_open_for_read_only_column_families(options, path, 2, names, options_of, handles,
                                                      0, &err));
  CHECK(holds_cf(db, ro, handles[1], "k", NULL));
  FAILS(rocksdb_put(db, wo, S("k"), S(""), &err), "Invalid argument: ");
  rocksdb_column_family_handle_destroy(handles[0]);
  rocksdb_column_family_handle_destroy(handles[1]);
  rocksdb_close(db);
}

static void expiry(char **argv) {
  const char *path = path_of(argv, "ttl"), *names[2] = {"default", "one"};
  void *db, *handles[2], *options_of[2] = {options, options}, *created;
  int ttls[2] = {0, 1};
  OK(db = rocksdb_open_column_families_with_ttl(options, path, 2, names, options_of, handles, ttls,
                                                &err));
  OK(rocksdb_put(db, wo, S("k"), S("1"), &err));
  OK(rocksdb_put_cf(db, wo, handles[1], S("k"), S("1"), &err));
  CHECK(holds_cf(db, ro, handles[1], "k", "1"));
  OK(created = rocksdb_create_column_family_with_ttl(db, options, "three", 1, &err));
  OK(rocksdb_put_cf(db, wo, created, S("k"), S("1"), &err));
  usleep(1100 * 1000);
  CHECK(holds(db, ro, "k", "1") && holds_cf(db, ro, handles[1], "k", NULL) &&
        holds_cf(db, ro, created, "k", NULL));
  rocksdb_column_family_handle_destroy(created);
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_close(db);
  OK(db = rocksdb_open_with_ttl(options, path_of(argv, "ttl2"), 100, &err));
  OK(rocksdb_put(db, wo, S("k"), S("1"), &err));
  CHECK(holds(db, ro, "k", "1"));
  rocksdb_close(db);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  const char *path = path_of(argv, "db");
  options = rocksdb_options_create();
  wo = rocksdb_writeoptions_create();
  ro = rocksdb_readoptions_create();
  void *db;
  FAILS(db = rocksdb_open(options, path, &err), "Invalid argument: ");
  rocksdb_options_set_create_if_missing(options, 1);
  OK(db = rocksdb_open(options, path, &err));
  void *again;
  FAILS(again = rocksdb_open(options, path, &err), "IO error: ");
  CHECK(!again);
  size_t len;
  char *identity = rocksdb_get_db_identity(db, &len), first[40];
  CHECK(len == 36);
  memcpy(first, identity, 36);
  rocksdb_free(identity);
  reads_and_writes(db);
  iterators(db);
  rocksdb_writeoptions_set_sync(wo, 1);
  snapshots(db);
  rocksdb_close(db);

  OK(db = rocksdb_open_for_read_only(options, path, 0, &err));
  CHECK(holds(db, ro, "a", "2"));
  identity = rocksdb_get_db_identity(db, &len);
  CHECK(!memcmp(identity, first, 36));
  rocksdb_free(identity);
  FAILS(rocksdb_put(db, wo, S("a"), S("3"), &err), "Invalid argument: ");
  rocksdb_close(db);
  rocksdb_options_set_error_if_exists(options, 1);
  FAILS(db = rocksdb_open(options, path, &err), "Invalid argument: ");
  OK(db = rocksdb_open_for_read_only(options, path, 0, &err));
  rocksdb_close(db);
  rocksdb_options_set_error_if_exists(options, 0);

  /* A damaged catalogue: repair keeps the entries. */
  char catalog[4200];
  snprintf(catalog, sizeof catalog, "%s/CATALOG", path);
  FILE *file = fopen(catalog, "w");
  CHECK(file && fputs("damage", file) >= 0 && !fclose(file));
  FAILS(db = rocksdb_open(options, path, &err), "Corruption: ");
  OK(rocksdb_repair_db(options, path, &err));
  OK(db = rocksdb_open(options, path, &err));
  CHECK(holds(db, ro, "a", "2"));
  FAILS(rocksdb_destroy_db(options, path, &err), "IO error: ");
  rocksdb_close(db);
  OK(rocksdb_destroy_db(options, path, &err));
  CHECK(access(path, F_OK));
  OK(rocksdb_destroy_db(NULL, path, &err));

  rocksdb_options_set_create_missing_column_families(options, 1);
  families(argv);
  expiry(argv);

  /* RocksDB's own files are refused. */
  const char *other = path_of(argv, "other");
  char command[4200];
  snprintf(command, sizeof command, "mkdir %s && echo MANIFEST-000001 > %s/CURRENT", other, other);
  CHECK(!system(command));
  FAILS(db = rocksdb_open(options, other, &err), "Invalid argument: ");
  rocksdb_options_destroy(options);
  rocksdb_writeoptions_destroy(wo);
  rocksdb_readoptions_destroy(ro);
  puts("ok");
  return 0;
}
