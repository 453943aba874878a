/* Flushes, compactions, sizes, properties, checkpoints, backups. */

#include "check.h"

static void *options, *wo, *ro;

static void sizes_and_properties(void *db, void *family) {
  char key[32];
  for (int i = 0; i < 3000; i++) {
    snprintf(key, sizeof key, "k%06d", i);
    OK(rocksdb_put(db, wo, S(key), S("0123456789"), &err));
  }
  OK(rocksdb_put_cf(db, wo, family, S("k"), S("1"), &err));
  const char *start[2] = {"k000000", "k001000"}, *limit[2] = {"k001000", "k002000"};
  size_t start_len[2] = {7, 7}, limit_len[2] = {7, 7};
  uint64_t sizes[2], number;
  /* Each key has one more byte in the store. */
  OK(rocksdb_approximate_sizes(db, 2, start, start_len, limit, limit_len, sizes, &err));
  CHECK(sizes[0] == 18000 && sizes[1] == 18000);
  OK(rocksdb_approximate_sizes_cf(db, family, 1, start, start_len, limit, limit_len, sizes, &err));
  CHECK(sizes[0] == 0);
  OK(rocksdb_approximate_sizes_cf_with_flags(db, family, 1, start, start_len, limit, limit_len, 1,
                                             sizes, &err));
  void *approximation = rocksdb_size_approximation_options_create();
  OK(rocksdb_approximate_sizes_with_options(db, approximation, 1, start, start_len, limit,
                                            limit_len, sizes, &err));
  CHECK(sizes[0] == 18000);
  OK(rocksdb_approximate_sizes_cf_with_options(db, family, approximation, 1, start, start_len,
                                               limit, limit_len, sizes, &err));
  rocksdb_size_approximation_options_destroy(approximation);

  void *flush = rocksdb_flushoptions_create(), *compact = rocksdb_compactoptions_create();
  void *wait = rocksdb_wait_for_compact_options_create(), *wal = rocksdb_flushwaloptions_create();
  void *families[1] = {family};
  OK(rocksdb_flush(db, flush, &err));
  OK(rocksdb_flush_cf(db, flush, family, &err));
  OK(rocksdb_flush_cfs(db, flush, families, 1, &err));
  OK(rocksdb_flush_wal(db, 1, &err));
  rocksdb_flushwaloptions_set_sync(wal, 1);
  OK(rocksdb_flush_wal_with_options(db, wal, &err));
  rocksdb_compact_range_opt(db, compact, S("a"), NULL, 0);
  rocksdb_compact_range_cf_opt(db, family, compact, NULL, 0, S("z"));
  OK(rocksdb_suggest_compact_range(db, NULL, 0, NULL, 0, &err));
  OK(rocksdb_suggest_compact_range_cf(db, family, NULL, 0, NULL, 0, &err));
  rocksdb_wait_for_compact_options_set_flush(wait, 1);
  OK(rocksdb_wait_for_compact(db, wait, &err));
  OK(rocksdb_delete_file_in_range(db, S("a"), S("b"), &err));
  OK(rocksdb_delete_file_in_range_cf(db, family, S("a"), S("b"), &err));
  OK(rocksdb_verify_checksum(db, &err));
  OK(rocksdb_verify_file_checksums(db, &err));
  OK(rocksdb_verify_checksum_with_options(db, ro, &err));
  OK(rocksdb_verify_file_checksums_with_options(db, ro, &err));
  OK(rocksdb_disable_file_deletions(db, &err));
  OK(rocksdb_enable_file_deletions(db, &err));
  rocksdb_flushoptions_destroy(flush);
  rocksdb_compactoptions_destroy(compact);
  rocksdb_wait_for_compact_options_destroy(wait);
  rocksdb_flushwaloptions_destroy(wal);

  CHECK(!rocksdb_property_value(db, "rocksdb.nosuchprop"));
  CHECK(rocksdb_property_int(db, "rocksdb.nosuchprop", &number) == -1);
  const char *names[] = {"rocksdb.stats", "rocksdb.sstables", "rocksdb.num-files-at-level0",
                         "rocksdb.cur-size-all-mem-tables", "rocksdb.num-live-versions"};
  for (int i = 0; i < 5; i++) {
    char *value = rocksdb_property_value(db, names[i]);
    CHECK(value && *value);
    rocksdb_free(value);
  }
  rocksdb_free(rocksdb_property_value_cf(db, family, "rocksdb.stats"));
  CHECK(!rocksdb_property_int(db, "rocksdb.estimate-num-keys", &number) && number == 3000);
  CHECK(!rocksdb_property_int_cf(db, family, "rocksdb.estimate-num-keys", &number) && number == 1);
  CHECK(!rocksdb_property_int(db, "rocksdb.total-sst-files-size", &number) && number > 10000);

  void *metadata = rocksdb_get_column_family_metadata_cf(db, family);
  CHECK(rocksdb_column_family_metadata_get_size(metadata) > 10000);
  CHECK(rocksdb_column_family_metadata_get_file_count(metadata) > 0);
  char *name = rocksdb_column_family_metadata_get_name(metadata);
  CHECK(take(name, strlen(name), "one"));
  size_t files = 0, count = rocksdb_column_family_metadata_get_level_count(metadata), len;
  for (size_t i = 0; i < count; i++) {
    void *level = rocksdb_column_family_metadata_get_level_metadata(metadata, i);
    CHECK(rocksdb_level_metadata_get_level(level) == (int)i);
    files += rocksdb_level_metadata_get_file_count(level);
    void *file = rocksdb_level_metadata_get_sst_file_metadata(level, 0);
    if (file) {
      CHECK(rocksdb_sst_file_metadata_get_size(file) <= rocksdb_level_metadata_get_size(level));
      rocksdb_free(rocksdb_sst_file_metadata_get_relative_filename(file));
      rocksdb_free(rocksdb_sst_file_metadata_get_directory(file));
      rocksdb_free(rocksdb_sst_file_metadata_get_smallestkey(file, &len));
      rocksdb_free(rocksdb_sst_file_metadata_get_largestkey(file, &len));
      rocksdb_sst_file_metadata_destroy(file);
    }
    rocksdb_level_metadata_destroy(level);
  }
  CHECK(files == rocksdb_column_family_metadata_get_file_count(metadata));
  rocksdb_column_family_metadata_destroy(metadata);
  rocksdb_column_family_metadata_destroy(rocksdb_get_column_family_metadata(db));
  rocksdb_column_family_metadata_destroy(
      rocksdb_get_column_family_metadata_with_options(db, NULL));
  rocksdb_column_family_metadata_destroy(
      rocksdb_get_column_family_metadata_cf_with_options(db, family, NULL));

  void *consumers = rocksdb_memory_consumers_create(), *usage;
  rocksdb_memory_consumers_add_db(consumers, db);
  OK(usage = rocksdb_approximate_memory_usage_create(consumers, &err));
  CHECK(rocksdb_approximate_memory_usage_get_mem_table_total(usage) ==
        rocksdb_approximate_memory_usage_get_mem_table_unflushed(usage));
  CHECK(rocksdb_approximate_memory_usage_get_mem_table_readers_total(usage) > 0);
  rocksdb_approximate_memory_usage_get_cache_total(usage);
  rocksdb_approximate_memory_usage_destroy(usage);
  rocksdb_memory_consumers_destroy(consumers);
  void *files_of = rocksdb_livefiles(db);
  CHECK(!rocksdb_livefiles_count(files_of));
  rocksdb_livefiles_destroy(files_of);
  rocksdb_livefiles_destroy(rocksdb_livefiles_create());

  const char *keys[2] = {"write_buffer_size", "disable_auto_compactions"}, *bad[1] = {"nothing"};
  const char *values[2] = {"1M", "false"}, *no_number[1] = {"much"};
  OK(rocksdb_set_options(db, 2, keys, values, &err));
  OK(rocksdb_set_options_cf(db, family, 1, keys, values, &err));
  OK(rocksdb_set_db_options(db, 1, keys, values, &err));
  FAILS(rocksdb_set_options(db, 1, bad, values, &err), "Invalid argument: ");
  FAILS(rocksdb_set_options(db, 1, keys, no_number, &err), "Invalid argument: ");
  FAILS(rocksdb_set_options(db, 0, NULL, NULL, &err), "Invalid argument: ");
}

static void copies(char **argv, void *db) {
  const char *names[2] = {"default", "one"};
  void *options_of[2] = {options, options}, *handles[2], *copy, *checkpoint;
  OK(checkpoint = rocksdb_checkpoint_object_create(db, &err));
  OK(rocksdb_checkpoint_create(checkpoint, path_of(argv, "copy"), 0, &err));
  FAILS(rocksdb_checkpoint_create(checkpoint, path_of(argv, "copy"), 0, &err), "Invalid argument: ");
  rocksdb_checkpoint_object_destroy(checkpoint);

  void *engine, *engine_options = rocksdb_backup_engine_options_create("nowhere");
  size_t len;
  rocksdb_backup_engine_options_set_backup_dir(engine_options, path_of(argv, "backups"));
  CHECK(strstr(rocksdb_backup_engine_options_get_backup_dir(engine_options, &len), "backups"));
  OK(engine = rocksdb_backup_engine_open_opts(engine_options, NULL, &err));
  rocksdb_backup_engine_close(engine);
  rocksdb_backup_engine_options_destroy(engine_options);
  OK(engine = rocksdb_backup_engine_open(options, path_of(argv, "backups"), &err));
  FAILS(rocksdb_backup_engine_restore_db_from_latest_backup(engine, path_of(argv, "restored"),
                                                            path_of(argv, "restored"), NULL, &err),
        "NotFound: ");
  OK(rocksdb_backup_engine_create_new_backup(engine, db, &err));
  OK(rocksdb_put(db, wo, S("second"), S("1"), &err));
  OK(rocksdb_backup_engine_create_new_backup_flush(engine, db, 1, &err));
  OK(rocksdb_put(db, wo, S("third"), S("1"), &err));
  void *create = rocksdb_create_backup_options_create();
  uint32_t id;
  OK(rocksdb_backup_engine_create_new_backup_with_options(engine, db, create, &id, &err));
  CHECK(id == 3);
  rocksdb_create_backup_options_destroy(create);
  OK(rocksdb_backup_engine_purge_old_backups(engine, 2, &err));
  void *info = rocksdb_backup_engine_get_backup_info(engine);
  CHECK(rocksdb_backup_engine_info_count(info) == 2);
  CHECK(rocksdb_backup_engine_info_timestamp(info, 0) > 1000000000);
  CHECK(rocksdb_backup_engine_info_backup_id(info, 1) == 2);
  CHECK(rocksdb_backup_engine_info_size(info, 1) > 0);
  CHECK(rocksdb_backup_engine_info_number_files(info, 1) > 0);
  CHECK(rocksdb_backup_engine_info_app_metadata(info, 1, &len) && !len);
  rocksdb_backup_engine_info_destroy(info);
  OK(rocksdb_backup_engine_verify_backup(engine, 1, &err));
  FAILS(rocksdb_backup_engine_verify_backup(engine, 7, &err), "NotFound: ");
  void *restore = rocksdb_restore_options_create();
  const char *restored = path_of(argv, "restored");
  OK(rocksdb_backup_engine_restore_db_from_latest_backup(engine, restored, restored, restore, &err));
  OK(rocksdb_backup_engine_restore_db_from_backup(engine, restored, restored, restore, 1, &err));
  rocksdb_restore_options_destroy(restore);
  rocksdb_backup_engine_close(engine);

  const char *paths[2] = {path_of(argv, "copy"), path_of(argv, "restored")};
  for (int i = 0; i < 2; i++) {
    OK(copy = rocksdb_open_column_families(options, paths[i], 2, names, options_of, handles, &err));
    CHECK(holds(copy, ro, "k002999", "0123456789") && holds_cf(copy, ro, handles[1], "k", "1"));
    CHECK(holds(copy, ro, "second", i ? "1" : NULL) && holds(copy, ro, "third", NULL));
    for (int k = 0; k < 2; k++) rocksdb_column_family_handle_destroy(handles[k]);
    rocksdb_close(copy);
  }
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  options = new_options();
  wo = rocksdb_writeoptions_create();
  ro = rocksdb_readoptions_create();
  void *db, *family;
  OK(db = rocksdb_open(options, path_of(argv, "db"), &err));
  OK(family = rocksdb_create_column_family(db, options, "one", &err));
  sizes_and_properties(db, family);
  copies(argv, db);
  rocksdb_cancel_all_background_work(db, 1);
  rocksdb_column_family_handle_destroy(family);
  rocksdb_close(db);
  rocksdb_options_destroy(options);
  rocksdb_writeoptions_destroy(wo);
  rocksdb_readoptions_destroy(ro);
  puts("ok");
  return 0;
}
