/* SST files and their ingestion, updates since a sequence number, secondaries, statistics. */

#include "check.h"

static void *options, *wo, *ro;

static void write_file(void *writer, const char *path, const char *first, const char *second,
                       const char *value) {
  uint64_t size = 0;
  OK(rocksdb_sstfilewriter_open(writer, path, &err));
  OK(rocksdb_sstfilewriter_put(writer, S(first), S(value), &err));
  OK(rocksdb_sstfilewriter_add(writer, S(second), S(value), &err));
  OK(rocksdb_sstfilewriter_finish(writer, &err));
  rocksdb_sstfilewriter_file_size(writer, &size);
  CHECK(size > 0);
}

static void writers(char **argv, void *writer) {
  const char *path = path_of(argv, "unfinished.sst");
  FAILS(rocksdb_sstfilewriter_put(writer, S("k"), S("v"), &err), "Invalid argument: File is not");
  FAILS(rocksdb_sstfilewriter_finish(writer, &err), "Invalid argument: File is not opened");
  OK(rocksdb_sstfilewriter_open(writer, path, &err));
  FAILS(rocksdb_sstfilewriter_finish(writer, &err), "Invalid argument: ");
  OK(rocksdb_sstfilewriter_open(writer, path, &err));
  OK(rocksdb_sstfilewriter_put(writer, S("b"), S("1"), &err));
  FAILS(rocksdb_sstfilewriter_put(writer, S("b"), S("1"), &err), "Invalid argument: ");
  FAILS(rocksdb_sstfilewriter_delete(writer, S("a"), &err), "Invalid argument: ");
  FAILS(rocksdb_sstfilewriter_merge(writer, S("c"), S("1"), &err), "Not implemented: ");
  FAILS(rocksdb_sstfilewriter_delete_range(writer, S("c"), S("d"), &err), "Not implemented: ");
  CHECK(!access(path, R_OK));
  FAILS(rocksdb_sstfilewriter_open(writer, path_of(argv, "no/such"), &err), "IO error: ");
  CHECK(access(path, R_OK));
}

static void ingestions(char **argv, void *db, void *family, void *writer) {
  const char *a = path_of(argv, "a.sst"), *b = path_of(argv, "b.sst");
  const char *both[2] = {a, b};
  void *ingest = rocksdb_ingestexternalfileoptions_create();
  OK(rocksdb_put(db, wo, S("k1"), S("old"), &err));
  OK(rocksdb_put_cf(db, wo, family, S("k1"), S("old"), &err));
  void *snapshot = rocksdb_create_snapshot(db), *before = rocksdb_readoptions_create();
  rocksdb_readoptions_set_snapshot(before, snapshot);
  write_file(writer, a, "k1", "k2", "file");
  write_file(writer, b, "k3", "k4", "file");
  /* Into both families, which are apart; the files stay. */
  OK(rocksdb_ingest_external_file(db, both, 1, ingest, &err));
  CHECK(holds(db, ro, "k1", "file") && holds(db, ro, "k2", "file") && holds(db, ro, "k3", NULL));
  CHECK(holds_cf(db, ro, family, "k1", "old") && holds_cf(db, ro, family, "k2", NULL));
  CHECK(holds(db, before, "k1", "old") && holds(db, before, "k2", NULL));
  rocksdb_ingestexternalfileoptions_set_verify_checksums_before_ingest(ingest, 1);
  rocksdb_ingestexternalfileoptions_set_move_files(ingest, 1);
  OK(rocksdb_ingest_external_file_cf(db, family, both, 2, ingest, &err));
  CHECK(access(a, R_OK) && access(b, R_OK));
  CHECK(has_keys(rocksdb_create_iterator_cf(db, ro, family), "k1 k2 k3 k4 "));
  CHECK(holds_cf(db, ro, family, "k1", "file") && holds_cf(db, before, family, "k1", "old"));
  CHECK(has_keys(rocksdb_create_iterator(db, ro), "k1 k2 "));
  /* None of several files if one is refused. */
  write_file(writer, a, "k5", "k7", "file");
  write_file(writer, b, "k6", "k8", "file");
  FAILS(rocksdb_ingest_external_file_cf(db, family, both, 2, ingest, &err), "Invalid argument: ");
  const char *missing[2] = {a, path_of(argv, "missing.sst")};
  FAILS(rocksdb_ingest_external_file(db, missing, 2, ingest, &err), "IO error: ");
  CHECK(holds_cf(db, ro, family, "k5", NULL) && holds(db, ro, "k5", NULL) && !access(a, R_OK));
  rocksdb_ingestexternalfileoptions_set_ingest_behind(ingest, 1);
  FAILS(rocksdb_ingest_external_file(db, both, 1, ingest, &err), "Not implemented: ingest_behind");
  rocksdb_ingestexternalfileoptions_set_ingest_behind(ingest, 0);
  rocksdb_ingestexternalfileoptions_set_move_files(ingest, 0);
  rocksdb_ingestexternalfileoptions_set_link_files(ingest, 1);
  OK(rocksdb_sstfilewriter_open(writer, a, &err));
  OK(rocksdb_sstfilewriter_delete(writer, S("k2"), &err));
  OK(rocksdb_sstfilewriter_finish(writer, &err));
  OK(rocksdb_ingest_external_file_cf(db, family, both, 1, ingest, &err));
  OK(rocksdb_ingest_external_file(db, both, 1, ingest, &err));
  CHECK(!access(a, R_OK) && holds_cf(db, ro, family, "k2", NULL) && holds(db, ro, "k2", NULL));
  rocksdb_readoptions_destroy(before);
  rocksdb_release_snapshot(db, snapshot);
  rocksdb_ingestexternalfileoptions_destroy(ingest);
}

static void files(char **argv) {
  const char *path = path_of(argv, "ingested"), *names[2] = {"default", "one"};
  void *options_of[2] = {options, options}, *handles[2], *db;
  OK(db = rocksdb_open_column_families(options, path, 2, names, options_of, handles, &err));
  void *writer = rocksdb_sstfilewriter_create(NULL, options);
  writers(argv, writer);
  ingestions(argv, db, handles[1], writer);
  rocksdb_sstfilewriter_destroy(writer);
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_close(db);
  OK(db = rocksdb_open_column_families(options, path, 2, names, options_of, handles, &err));
  CHECK(has_keys(rocksdb_create_iterator(db, ro), "k1 "));
  CHECK(has_keys(rocksdb_create_iterator_cf(db, ro, handles[1]), "k1 k3 k4 "));
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_close(db);
  void *comparator = rocksdb_comparator_create(NULL, NULL, NULL, NULL);
  writer = rocksdb_sstfilewriter_create_with_comparator(NULL, options, comparator);
  FAILS(rocksdb_sstfilewriter_open(writer, path_of(argv, "c.sst"), &err), "Invalid argument: ");
  rocksdb_sstfilewriter_destroy(writer);
  rocksdb_comparator_destroy(comparator);
}

/* A column family of one database becomes one of another, by the list of the export and by one that
 * the program makes of its values. */
static void exports(char **argv) {
  const char *path = path_of(argv, "exported"), *names[2] = {"default", "one"};
  void *options_of[2] = {options, options}, *handles[2], *db, *other, *checkpoint, *metadata, *none;
  OK(db = rocksdb_open_column_families(options, path, 2, names, options_of, handles, &err));
  char key[8], *comparator;
  for (int i = 0; i < 100; i++) {
    sprintf(key, "k%02d", i);
    OK(rocksdb_put_cf(db, wo, handles[1], S(key), S(key), &err));
  }
  OK(rocksdb_put_cf(db, wo, handles[1], "", 0, S("empty"), &err));
  OK(rocksdb_delete_cf(db, wo, handles[1], S("k07"), &err));
  OK(rocksdb_put(db, wo, S("k00"), S("default"), &err));
  OK(checkpoint = rocksdb_checkpoint_object_create(db, &err));
  const char *directory = path_of(argv, "export"), *second = path_of(argv, "export2");
  OK(metadata = rocksdb_checkpoint_export_column_family(checkpoint, handles[1], directory, &err));
  FAILS(rocksdb_checkpoint_export_column_family(checkpoint, handles[1], directory, &err),
        "Invalid argument: the directory of an export is a new one: ");
  comparator = rocksdb_export_import_files_metadata_get_db_comparator_name(metadata);
  CHECK(!strcmp(comparator, "leveldb.BytewiseComparator"));
  void *files = rocksdb_export_import_files_metadata_get_files(metadata);
  size_t len;
  CHECK(rocksdb_livefiles_count(files) == 1 && !rocksdb_livefiles_name(files, 1));
  CHECK(!strcmp(rocksdb_livefiles_column_family_name(files, 0), "one"));
  CHECK(!strcmp(rocksdb_livefiles_directory(files, 0), directory));
  CHECK(rocksdb_livefiles_size(files, 0) > 100 && rocksdb_livefiles_entries(files, 0) == 100);
  CHECK(!rocksdb_livefiles_deletions(files, 0) && !rocksdb_livefiles_level(files, 0));
  CHECK(are(rocksdb_livefiles_smallestkey(files, 0, &len), &len, ""));
  CHECK(are(rocksdb_livefiles_largestkey(files, 0, &len), &len, "k99"));

  OK(other = rocksdb_open(options, path_of(argv, "imported"), &err));
  void *import = rocksdb_import_column_family_options_create(), *imported;
  OK(imported = rocksdb_create_column_family_with_import(other, options, "a", import, metadata, &err));
  CHECK(holds_cf(other, ro, imported, "k00", "k00") && holds_cf(other, ro, imported, "k07", NULL));
  CHECK(holds_cf(other, ro, imported, "", "empty") && holds(other, ro, "k00", NULL));
  rocksdb_column_family_handle_destroy(imported);
  FAILS(rocksdb_create_column_family_with_import(other, options, "a", import, metadata, &err),
        "Invalid argument: Column family already exists: a");

  /* A list that the program makes, with another order at first. */
  void *list = rocksdb_livefiles_create(), *file = rocksdb_livefile_create();
  void *made = rocksdb_export_import_files_metadata_create();
  rocksdb_livefile_set_column_family_name(file, rocksdb_livefiles_column_family_name(files, 0));
  char name[40];
  snprintf(name, sizeof name, "/%s", rocksdb_livefiles_name(files, 0));
  rocksdb_livefile_set_name(file, name);
  rocksdb_livefile_set_directory(file, rocksdb_livefiles_directory(files, 0));
  rocksdb_livefile_set_size(file, rocksdb_livefiles_size(files, 0));
  rocksdb_livefile_set_level(file, 6);
  rocksdb_livefile_set_smallest_key(file, S("a"));
  rocksdb_livefile_set_largest_key(file, S("k99"));
  rocksdb_livefile_set_smallest_seqno(file, 3);
  rocksdb_livefile_set_largest_seqno(file, 4);
  rocksdb_livefile_set_num_entries(file, 100);
  rocksdb_livefile_set_num_deletions(file, 5);
  rocksdb_export_import_files_metadata_set_db_comparator_name(made, comparator);
  FAILS(rocksdb_create_column_family_with_import(other, options, "b", import, made, &err),
        "Invalid argument: The list of files is empty");
  rocksdb_livefiles_add(list, file);
  rocksdb_livefile_destroy(file);
  CHECK(rocksdb_livefiles_smallest_seqno(list, 0) == 3 && rocksdb_livefiles_level(list, 0) == 6);
  CHECK(rocksdb_livefiles_largest_seqno(list, 0) == 4 && rocksdb_livefiles_deletions(list, 0) == 5);
  CHECK(are(rocksdb_livefiles_smallestkey(list, 0, &len), &len, "a"));
  rocksdb_export_import_files_metadata_set_files(made, list);
  rocksdb_export_import_files_metadata_set_db_comparator_name(made, "other");
  FAILS(rocksdb_create_column_family_with_import(other, options, "b", import, made, &err),
        "Invalid argument: Comparator name mismatch: ");
  rocksdb_export_import_files_metadata_set_db_comparator_name(made, comparator);
  rocksdb_import_column_family_options_set_move_files(import, 1);
  OK(imported = rocksdb_create_column_family_with_import(other, options, "b", import, made, &err));
  CHECK(holds_cf(other, ro, imported, "k99", "k99"));
  rocksdb_column_family_handle_destroy(imported);
  /* The file was moved: an import fails, and leaves no family behind. */
  FAILS(none = rocksdb_create_column_family_with_import(other, options, "c", import, made, &err),
        "IO error: ");
  CHECK(!none);
  OK(imported = rocksdb_create_column_family(other, options, "c", &err));
  CHECK(has_keys(rocksdb_create_iterator_cf(other, ro, imported), ""));
  rocksdb_column_family_handle_destroy(imported);
  OK(rocksdb_drop_column_family(db, handles[1], &err));
  FAILS(rocksdb_checkpoint_export_column_family(checkpoint, handles[1], second, &err),
        "Invalid argument: ");
  CHECK(access(second, R_OK));

  rocksdb_free(comparator);
  rocksdb_livefiles_destroy(list);
  rocksdb_livefiles_destroy(files);
  rocksdb_export_import_files_metadata_destroy(made);
  rocksdb_export_import_files_metadata_destroy(metadata);
  rocksdb_import_column_family_options_destroy(import);
  rocksdb_checkpoint_object_destroy(checkpoint);
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_close(other);
  rocksdb_close(db);
}

static int puts_seen = 0, deletes_seen = 0;

static void on_put(void *state, const char *k, size_t klen, const char *v, size_t vlen) {
  (void)state, (void)k, (void)klen, (void)v, (void)vlen;
  puts_seen++;
}

static void on_delete(void *state, const char *k, size_t klen) {
  (void)state, (void)k, (void)klen;
  deletes_seen++;
}

/* Whether the iterator is on an update with this number and so many operations. */
static bool is_update(void *updates, uint64_t sequence, int puts, int deletes) {
  uint64_t found = 0;
  if (!rocksdb_wal_iter_valid(updates)) return false;
  void *batch = rocksdb_wal_iter_get_batch(updates, &found);
  puts_seen = deletes_seen = 0;
  rocksdb_writebatch_iterate(batch, NULL, on_put, on_delete);
  int count = rocksdb_writebatch_count(batch);
  rocksdb_writebatch_destroy(batch);
  return found == sequence && puts_seen == puts && deletes_seen == deletes &&
         count == puts + deletes;
}

static void updates(char **argv) {
  const char *path = path_of(argv, "updates");
  void *db, *family, *since, *copy, *keeping = rocksdb_options_create_copy(options);
  uint64_t sequence;
  rocksdb_options_set_WAL_size_limit_MB(keeping, 1);
  rocksdb_options_set_WAL_ttl_seconds(keeping, 3600);
  OK(db = rocksdb_open(keeping, path, &err));
  OK(since = rocksdb_get_updates_since(db, 0, NULL, &err));
  CHECK(!rocksdb_wal_iter_valid(since) && !rocksdb_wal_iter_get_batch(since, NULL));
  OK(rocksdb_wal_iter_status(since, &err));
  OK(rocksdb_put(db, wo, S("a"), S("1"), &err));
  /* What is written later is shown by the next step. */
  rocksdb_wal_iter_next(since);
  CHECK(is_update(since, 1, 1, 0));
  rocksdb_wal_iter_next(since);
  CHECK(!rocksdb_wal_iter_valid(since));
  rocksdb_wal_iter_destroy(since);
  void *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put(batch, S("b"), S("2"));
  rocksdb_writebatch_put(batch, S("c"), S("3"));
  rocksdb_writebatch_delete(batch, S("a"));
  OK(rocksdb_write(db, wo, batch, &err));
  rocksdb_writebatch_destroy(batch);
  OK(family = rocksdb_create_column_family(db, keeping, "one", &err));
  OK(rocksdb_put_cf(db, wo, family, S("d"), S("4"), &err));
  void *flush = rocksdb_flushoptions_create();
  OK(rocksdb_flush(db, flush, &err));
  rocksdb_flushoptions_destroy(flush);
  sequence = rocksdb_get_latest_sequence_number(db);
  FAILS(since = rocksdb_get_updates_since(db, sequence + 1, NULL, &err), "NotFound: ");
  OK(rocksdb_drop_column_family(db, family, &err));
  rocksdb_column_family_handle_destroy(family);
  rocksdb_close(db);
  OK(db = rocksdb_open(keeping, path, &err));
  /* The batch that has number 3 begins with number 2; the catalogue of families is not shown. */
  OK(since = rocksdb_get_updates_since(db, 3, NULL, &err));
  CHECK(is_update(since, 2, 2, 1));
  rocksdb_wal_iter_next(since);
  CHECK(is_update(since, sequence, 1, 0));
  rocksdb_wal_iter_next(since);
  CHECK(!rocksdb_wal_iter_valid(since));
  OK(rocksdb_wal_iter_status(since, &err));
  rocksdb_wal_iter_destroy(since);
  /* A copy that is fed with the updates. */
  OK(copy = rocksdb_open(options, path_of(argv, "fed"), &err));
  OK(since = rocksdb_get_updates_since(db, 1, NULL, &err));
  for (int i = 0; i < 2; i++, rocksdb_wal_iter_next(since)) {
    batch = rocksdb_wal_iter_get_batch(since, &sequence);
    OK(rocksdb_write(copy, wo, batch, &err));
    rocksdb_writebatch_destroy(batch);
  }
  rocksdb_wal_iter_destroy(since);
  CHECK(has_keys(rocksdb_create_iterator(copy, ro), "b c "));
  rocksdb_close(copy);
  /* Files are not in the log. */
  void *writer = rocksdb_sstfilewriter_create(NULL, options);
  void *ingest = rocksdb_ingestexternalfileoptions_create();
  const char *file = path_of(argv, "u.sst");
  write_file(writer, file, "x", "y", "file");
  sequence = rocksdb_get_latest_sequence_number(db);
  OK(rocksdb_ingest_external_file(db, &file, 1, ingest, &err));
  OK(rocksdb_put(db, wo, S("e"), S("5"), &err));
  OK(since = rocksdb_get_updates_since(db, sequence, NULL, &err));
  while (rocksdb_wal_iter_valid(since)) rocksdb_wal_iter_next(since);
  FAILS(rocksdb_wal_iter_status(since, &err), "NotFound: files were ingested");
  rocksdb_wal_iter_next(since);
  CHECK(!rocksdb_wal_iter_valid(since));
  rocksdb_wal_iter_destroy(since);
  OK(since = rocksdb_get_updates_since(db, sequence + 2, NULL, &err));
  CHECK(is_update(since, sequence + 2, 1, 0));
  rocksdb_wal_iter_destroy(since);
  rocksdb_ingestexternalfileoptions_destroy(ingest);
  rocksdb_sstfilewriter_destroy(writer);
  rocksdb_close(db);
  rocksdb_options_destroy(keeping);
}

static void secondaries(char **argv) {
  const char *path = path_of(argv, "primary"), *second = path_of(argv, "secondary");
  const char *names[2] = {"default", "one"};
  void *options_of[2] = {options, options}, *handles[2], *seen[2], *db, *secondary, *alone;
  FAILS(secondary = rocksdb_open_as_secondary(options, path, second, &err), "Invalid argument: ");
  OK(db = rocksdb_open_column_families(options, path, 2, names, options_of, handles, &err));
  OK(rocksdb_put(db, wo, S("a"), S("1"), &err));
  OK(rocksdb_put_cf(db, wo, handles[1], S("a"), S("one"), &err));
  OK(secondary = rocksdb_open_as_secondary_column_families(options, path, second, 2, names,
                                                           options_of, seen, &err));
  OK(alone = rocksdb_open_as_secondary(options, path, second, &err));
  CHECK(holds(secondary, ro, "a", "1") && holds_cf(secondary, ro, seen[1], "a", "one"));
  void *iterator = rocksdb_create_iterator(secondary, ro);
  void *snapshot = rocksdb_create_snapshot(secondary), *then = rocksdb_readoptions_create();
  rocksdb_readoptions_set_snapshot(then, snapshot);
  OK(rocksdb_put(db, wo, S("a"), S("2"), &err));
  OK(rocksdb_put(db, wo, S("b"), S("2"), &err));
  CHECK(holds(secondary, ro, "a", "1") && holds(secondary, ro, "b", NULL));
  OK(rocksdb_try_catch_up_with_primary(secondary, &err));
  CHECK(holds(secondary, ro, "a", "2") && holds(secondary, then, "a", "1"));
  CHECK(holds(alone, ro, "a", "1") && has_keys(iterator, "a "));
  CHECK(has_keys(rocksdb_create_iterator(secondary, ro), "a b "));
  CHECK(rocksdb_get_latest_sequence_number(secondary) == rocksdb_get_latest_sequence_number(db));
  void *flush = rocksdb_flushoptions_create();
  OK(rocksdb_flush(db, flush, &err));
  rocksdb_flushoptions_destroy(flush);
  OK(rocksdb_delete(db, wo, S("a"), &err));
  rocksdb_compact_range(db, NULL, 0, NULL, 0);
  OK(rocksdb_try_catch_up_with_primary(alone, &err));
  OK(rocksdb_try_catch_up_with_primary(alone, &err));
  CHECK(holds(alone, ro, "a", NULL) && holds(secondary, ro, "a", "2"));
  rocksdb_put(secondary, wo, S("c"), S("1"), &err);
  CHECK(err);
  rocksdb_free(err);
  err = NULL;
  FAILS(rocksdb_try_catch_up_with_primary(db, &err), "Not implemented: ");
  rocksdb_readoptions_destroy(then);
  rocksdb_release_snapshot(secondary, snapshot);
  for (int i = 0; i < 2; i++) {
    rocksdb_column_family_handle_destroy(handles[i]);
    rocksdb_column_family_handle_destroy(seen[i]);
  }
  rocksdb_close(alone);
  rocksdb_close(secondary);
  OK(rocksdb_put(db, wo, S("c"), S("1"), &err));
  rocksdb_close(db);
}

static void statistics(char **argv) {
  void *counting = rocksdb_options_create_copy(options), *db, *data, *flush;
  void *cache = rocksdb_cache_create_lru(8 << 20), *table = rocksdb_block_based_options_create();
  size_t len;
  rocksdb_block_based_options_set_block_cache(table, cache);
  rocksdb_options_set_block_based_table_factory(counting, table);
  rocksdb_block_based_options_destroy(table);
  CHECK(!rocksdb_options_statistics_get_string(counting));
  CHECK(!rocksdb_options_statistics_get_ticker_count(counting, 61));
  rocksdb_options_enable_statistics(counting);
  void *copy = rocksdb_options_create_copy(counting);
  OK(db = rocksdb_open(counting, path_of(argv, "counted"), &err));
  uint64_t written = rocksdb_options_statistics_get_ticker_count(counting, 61);
  for (int i = 0; i < 100; i++) {
    char key[20];
    snprintf(key, sizeof key, "key%03d", i);
    OK(rocksdb_put(db, wo, S(key), S("0123456789"), &err));
  }
  rocksdb_writeoptions_set_sync(wo, 1);
  OK(rocksdb_put(db, wo, S("key100"), S("0123456789"), &err));
  rocksdb_writeoptions_set_sync(wo, 0);
  flush = rocksdb_flushoptions_create();
  OK(rocksdb_flush(db, flush, &err));
  rocksdb_flushoptions_destroy(flush);
  rocksdb_compact_range(db, NULL, 0, NULL, 0);
  for (int i = 0; i < 3; i++) {
    rocksdb_free(rocksdb_get(db, ro, S("key050"), &len, &err));
    CHECK(len == 10);
  }
  uint64_t used;
  CHECK(rocksdb_cache_get_usage(cache) > 10);
  CHECK(!rocksdb_property_int(db, "rocksdb.block-cache-usage", &used));
  CHECK(rocksdb_cache_get_usage(cache) == used);
  /* Bytes and numbers of keys that were written, read; the file system and the cache. */
  uint64_t bytes = rocksdb_options_statistics_get_ticker_count(counting, 61) - written;
  CHECK(bytes >= 101 * 16 && bytes <= 101 * 20);
  CHECK(rocksdb_options_statistics_get_ticker_count(counting, 58) >= 101);
  CHECK(rocksdb_options_statistics_get_ticker_count(counting, 59) >= 3);
  CHECK(rocksdb_options_statistics_get_ticker_count(counting, 62) == 30);
  CHECK(rocksdb_options_statistics_get_ticker_count(counting, 84) > 0);
  CHECK(rocksdb_options_statistics_get_ticker_count(counting, 85) > bytes);
  CHECK(rocksdb_options_statistics_get_ticker_count(counting, 95) > 0);
  CHECK(rocksdb_options_statistics_get_ticker_count(counting, 1) +
            rocksdb_options_statistics_get_ticker_count(counting, 0) > 0);
  CHECK(!rocksdb_options_statistics_get_ticker_count(counting, 999));
  data = rocksdb_statistics_histogram_data_create();
  rocksdb_options_statistics_get_histogram_data(counting, 1, data);
  CHECK(rocksdb_statistics_histogram_data_get_count(data) == 101);
  double min = rocksdb_statistics_histogram_data_get_min(data);
  double median = rocksdb_statistics_histogram_data_get_median(data);
  double p95 = rocksdb_statistics_histogram_data_get_p95(data);
  double p99 = rocksdb_statistics_histogram_data_get_p99(data);
  double max = rocksdb_statistics_histogram_data_get_max(data);
  CHECK(min >= 1 && min <= median && median <= p95 && p95 <= p99 && p99 <= max);
  CHECK(rocksdb_statistics_histogram_data_get_average(data) * 101 <=
        rocksdb_statistics_histogram_data_get_sum(data) * 1.001);
  CHECK(rocksdb_statistics_histogram_data_get_std_dev(data) <= max);
  rocksdb_options_statistics_get_histogram_data(counting, 0, data);
  CHECK(rocksdb_statistics_histogram_data_get_count(data) == 3);
  rocksdb_options_statistics_get_histogram_data(counting, 2, data);
  CHECK(!rocksdb_statistics_histogram_data_get_count(data));
  rocksdb_statistics_histogram_data_destroy(data);
  bytes = rocksdb_options_statistics_get_ticker_count(counting, 61);
  rocksdb_close(db);
  CHECK(!rocksdb_cache_get_usage(cache));
  rocksdb_cache_destroy(cache);
  /* Counts outlive the database, and are those of all copies of the options. */
  CHECK(rocksdb_options_statistics_get_ticker_count(copy, 61) == bytes);
  char *text = rocksdb_options_statistics_get_string(copy), line[60];
  snprintf(line, sizeof line, "rocksdb.bytes.written COUNT : %llu\n", (unsigned long long)bytes);
  CHECK(strstr(text, line) && strstr(text, "rocksdb.db.write.micros P50 : "));
  rocksdb_free(text);
  OK(db = rocksdb_open(copy, path_of(argv, "counted"), &err));
  OK(rocksdb_put(db, wo, S("k"), S("1"), &err));
  CHECK(rocksdb_options_statistics_get_ticker_count(counting, 61) > bytes);
  rocksdb_close(db);
  rocksdb_options_destroy(copy);
  rocksdb_options_destroy(counting);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  options = new_options();
  wo = rocksdb_writeoptions_create();
  ro = rocksdb_readoptions_create();
  files(argv);
  exports(argv);
  updates(argv);
  secondaries(argv);
  statistics(argv);
  rocksdb_options_destroy(options);
  rocksdb_writeoptions_destroy(wo);
  rocksdb_readoptions_destroy(ro);
  puts("ok");
  return 0;
}
