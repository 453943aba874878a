/* Merge operators, compaction filters, prefix extractors, comparators, options, caches. */

#include "check.h"

static void *wo, *ro;
static int destroyed = 0, created = 0;

static void destroy(void *state) {
  (void)state;
  destroyed++;
}

static const char *name(void *state) { return state; }

static char *full_merge(void *state, const char *key, size_t klen, const char *old, size_t old_len,
                        const char *const *operands, const size_t *lens, int count,
                        unsigned char *success, size_t *len) {
  (void)state, (void)key, (void)klen;
  char *value = malloc(1000);
  *len = 0;
  if (old) {
    memcpy(value, old, old_len);
    *len = old_len;
  }
  for (int i = 0; i < count; i++) {
    if (lens[i] == 4 && !memcmp(operands[i], "fail", 4)) {
      *success = 0;
      return value;
    }
    value[(*len)++] = ',';
    memcpy(value + *len, operands[i], lens[i]);
    *len += lens[i];
  }
  *success = 1;
  return value;
}

static char *partial_merge(void *state, const char *key, size_t klen, const char *const *operands,
                           const size_t *lens, int count, unsigned char *success, size_t *len) {
  (void)state, (void)key, (void)klen, (void)operands, (void)lens, (void)count;
  *success = 0;
  *len = 0;
  return NULL;
}

static void free_value(void *state, const char *value, size_t len) {
  (void)state, (void)len;
  free((void *)value);
}

static void *new_merge(void) {
  return rocksdb_mergeoperator_create("append", destroy, full_merge, partial_merge, free_value,
                                      name);
}

static void merges(char **argv) {
  const char *path = path_of(argv, "merges"), *names[2] = {"default", "one"};
  void *options = new_options(), *adding = rocksdb_options_create_copy(options), *handles[2], *db;
  rocksdb_options_set_merge_operator(options, new_merge());
  rocksdb_options_set_uint64add_merge_operator(adding);
  void *options_of[2] = {options, adding};
  OK(db = rocksdb_open_column_families(options, path, 2, names, options_of, handles, &err));
  OK(rocksdb_put(db, wo, S("k"), S("0"), &err));
  OK(rocksdb_merge(db, wo, S("k"), S("1"), &err));
  OK(rocksdb_merge(db, wo, S("k"), S("2"), &err));
  OK(rocksdb_merge(db, wo, S("new"), S("3"), &err));
  CHECK(holds(db, ro, "k", "0,1,2") && holds(db, ro, "new", ",3"));
  uint64_t one = 1, sum;
  size_t len;
  for (int i = 0; i < 3; i++) {
    OK(rocksdb_merge_cf(db, wo, handles[1], S("n"), (char *)&one, 8, &err));
  }
  char *value = rocksdb_get_cf(db, ro, handles[1], S("n"), &len, &err);
  CHECK(len == 8);
  memcpy(&sum, value, 8);
  CHECK(sum == 3);
  rocksdb_free(value);
  rocksdb_compact_range(db, NULL, 0, NULL, 0);
  CHECK(holds(db, ro, "k", "0,1,2"));
  void *batch = rocksdb_writebatch_wi_create(0, 1);
  rocksdb_writebatch_wi_merge(batch, S("k"), S("5"));
  value = rocksdb_writebatch_wi_get_from_batch_and_db(batch, db, ro, S("k"), &len, &err);
  CHECK(take(value, len, "0,1,2,5"));
  value = rocksdb_writebatch_wi_get_from_batch(batch, options, S("k"), &len, &err);
  CHECK(take(value, len, ",5"));
  rocksdb_writebatch_wi_destroy(batch);
  OK(rocksdb_merge(db, wo, S("bad"), S("fail"), &err));
  FAILS(rocksdb_get(db, ro, S("bad"), &len, &err), "Invalid argument: ");
  OK(rocksdb_delete(db, wo, S("bad"), &err));
  /* A family that comes later has its own operator. */
  void *later;
  OK(later = rocksdb_create_column_family(db, options, "two", &err));
  OK(rocksdb_merge_cf(db, wo, later, S("k"), S("1"), &err));
  CHECK(holds_cf(db, ro, later, "k", ",1"));
  rocksdb_column_family_handle_destroy(later);
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_close(db);
  OK(db = rocksdb_open_for_read_only(options, path, 0, &err));
  CHECK(holds(db, ro, "k", "0,1,2"));
  rocksdb_close(db);
  rocksdb_options_destroy(adding);
  rocksdb_options_destroy(options);
  CHECK(destroyed == 1);
  rocksdb_mergeoperator_destroy(new_merge());
  CHECK(destroyed == 2);
}

static unsigned char drop_x(void *state, int level, const char *key, size_t klen, const char *value,
                            size_t vlen, char **new_value, size_t *new_len,
                            unsigned char *changed) {
  (void)state, (void)level;
  /* The value "old" becomes "changed"; the new one stays the program's. */
  if (vlen == 3 && !memcmp(value, "old", 3)) {
    *new_value = "changed";
    *new_len = 7;
    *changed = 1;
  }
  return klen > 0 && key[0] == 'x';
}

static void *new_filter(void) {
  return rocksdb_compactionfilter_create("filter", destroy, drop_x, name);
}

static void *create_filter(void *state, void *context) {
  (void)state;
  created++;
  CHECK(!rocksdb_compactionfiltercontext_is_full_compaction(context));
  CHECK(!rocksdb_compactionfiltercontext_is_manual_compaction(context));
  return new_filter();
}

static void filters(char **argv) {
  void *options = new_options(), *filter = new_filter(), *db, *family;
  rocksdb_compactionfilter_set_ignore_snapshots(filter, 1);
  rocksdb_options_set_compaction_filter(options, filter);
  OK(db = rocksdb_open(options, path_of(argv, "filters"), &err));
  rocksdb_options_set_compaction_filter(options, NULL);
  rocksdb_options_set_compaction_filter_factory(
      options, rocksdb_compactionfilterfactory_create("factory", destroy, create_filter, name));
  OK(family = rocksdb_create_column_family(db, options, "one", &err));
  OK(rocksdb_put(db, wo, S("x1"), S("1"), &err));
  OK(rocksdb_put(db, wo, S("y1"), S("1"), &err));
  OK(rocksdb_put(db, wo, S("y2"), S("old"), &err));
  OK(rocksdb_put(db, wo, S("x2"), S("old"), &err));
  OK(rocksdb_put_cf(db, wo, family, S("x1"), S("1"), &err));
  OK(rocksdb_put_cf(db, wo, family, S("y2"), S("old"), &err));
  OK(rocksdb_put_cf(db, wo, family, S("y1"), S("1"), &err));
  rocksdb_compact_range(db, NULL, 0, NULL, 0);
  CHECK(holds(db, ro, "x1", NULL) && holds(db, ro, "y1", "1"));
  CHECK(holds(db, ro, "x2", NULL) && holds(db, ro, "y2", "changed"));
  rocksdb_compact_range_cf(db, family, S("x"), S("z"));
  CHECK(holds_cf(db, ro, family, "x1", NULL) && holds_cf(db, ro, family, "y1", "1") && created);
  CHECK(holds_cf(db, ro, family, "y2", "changed"));
  rocksdb_column_family_handle_destroy(family);
  rocksdb_close(db);
  rocksdb_options_destroy(options);
  rocksdb_compactionfilter_destroy(filter);
  rocksdb_compactionfilterfactory_destroy(
      rocksdb_compactionfilterfactory_create("factory", destroy, create_filter, name));
}

static char *first_byte(void *state, const char *key, size_t len, size_t *out_len) {
  (void)state, (void)len;
  *out_len = 1;
  return (char *)key;
}

static unsigned char is_long(void *state, const char *key, size_t len) {
  (void)state, (void)key;
  return len > 0;
}

static void prefixes(char **argv) {
  void *extractors[3] = {rocksdb_slicetransform_create("one", destroy, first_byte, is_long, name),
                         rocksdb_slicetransform_create_fixed_prefix(2),
                         rocksdb_slicetransform_create_noop()};
  const char *expected[3] = {"a1 a22 ", "a22 ", "a22 "};
  void *same = rocksdb_readoptions_create();
  rocksdb_readoptions_set_prefix_same_as_start(same, 1);
  for (int i = 0; i < 3; i++) {
    void *options = new_options(), *db;
    char path[20];
    sprintf(path, "prefix%d", i);
    rocksdb_options_set_prefix_extractor(options, extractors[i]);
    OK(db = rocksdb_open(options, path_of(argv, path), &err));
    OK(rocksdb_put(db, wo, S("a1"), S("1"), &err));
    OK(rocksdb_put(db, wo, S("a22"), S("1"), &err));
    OK(rocksdb_put(db, wo, S("b"), S("1"), &err));
    void *iterator = rocksdb_create_iterator(db, same);
    char text[100] = "";
    size_t len;
    for (rocksdb_iter_seek(iterator, i ? "a22" : "a", i ? 3 : 1); rocksdb_iter_valid(iterator);
         rocksdb_iter_next(iterator)) {
      const char *key = rocksdb_iter_key(iterator, &len);
      sprintf(text + strlen(text), "%.*s ", (int)len, key);
    }
    CHECK(!strcmp(text, expected[i]));
    rocksdb_iter_destroy(iterator);
    CHECK(has_keys(rocksdb_create_iterator(db, ro), "a1 a22 b "));
    rocksdb_close(db);
    rocksdb_options_destroy(options);
  }
  rocksdb_readoptions_destroy(same);
  rocksdb_slicetransform_destroy(rocksdb_slicetransform_create_noop());
}

static int compare(void *state, const char *a, size_t alen, const char *b, size_t blen) {
  (void)state, (void)a, (void)alen, (void)b, (void)blen;
  abort();
}

static void refusals(char **argv) {
  void *options = new_options(), *db, *environment = rocksdb_create_mem_env();
  void *reverse = rocksdb_comparator_create("reverse", destroy, compare, name);
  void *bytewise = rocksdb_comparator_create("leveldb.BytewiseComparator", destroy, compare, name);
  void *timed = rocksdb_comparator_with_ts_create("leveldb.BytewiseComparator", destroy, compare,
                                                  compare, compare, name, 8);
  const char *path = path_of(argv, "refusals");
  rocksdb_options_set_comparator(options, reverse);
  FAILS(db = rocksdb_open(options, path, &err), "Invalid argument: ");
  rocksdb_options_set_comparator(options, timed);
  FAILS(db = rocksdb_open(options, path, &err), "Invalid argument: ");
  rocksdb_options_set_comparator(options, bytewise);
  rocksdb_options_set_env(options, environment);
  FAILS(db = rocksdb_open(options, path, &err), "Not implemented: ");
  rocksdb_env_destroy(environment);
  environment = rocksdb_create_default_env();
  rocksdb_options_set_env(options, environment);
  OK(rocksdb_create_dir_if_missing(environment, path_of(argv, "a/b"), &err));
  CHECK(!access(path_of(argv, "a/b"), W_OK));
  OK(db = rocksdb_open(options, path, &err));
  rocksdb_close(db);
  rocksdb_env_destroy(environment);
  rocksdb_options_destroy(options);
  int before = destroyed;
  rocksdb_comparator_destroy(reverse);
  rocksdb_comparator_destroy(bytewise);
  rocksdb_comparator_destroy(timed);
  CHECK(destroyed == before + 3);
}

static void texts_and_sizes(char **argv) {
  void *options = new_options(), *table = rocksdb_block_based_options_create(), *db;
  size_t len;
  rocksdb_options_set_db_log_dir(options, "log");
  rocksdb_options_set_wal_dir(options, "wal");
  rocksdb_options_set_db_host_id(options, "host");
  rocksdb_options_set_daily_offpeak_time_utc(options, "1:00-2:00");
  CHECK(are(rocksdb_options_get_db_log_dir(options, &len), &len, "log"));
  CHECK(are(rocksdb_options_get_wal_dir(options, &len), &len, "wal"));
  CHECK(are(rocksdb_options_get_db_host_id(options, &len), &len, "host"));
  CHECK(are(rocksdb_options_get_daily_offpeak_time_utc(options, &len), &len, "1:00-2:00"));
  rocksdb_options_increase_parallelism(options, 3);
  CHECK(rocksdb_options_get_max_background_jobs(options) == 3);
  rocksdb_options_optimize_for_point_lookup(options, 1);
  rocksdb_options_optimize_universal_style_compaction(options, 4 << 20);
  rocksdb_options_optimize_level_style_compaction(options, 8 << 20);
  CHECK(rocksdb_options_get_write_buffer_size(options) == 2 << 20);
  CHECK(rocksdb_options_get_target_file_size_base(options) == 1 << 20);
  CHECK(rocksdb_options_get_level0_file_num_compaction_trigger(options) == 2);
  int levels[2] = {0, 7};
  rocksdb_options_set_compression_per_level(options, levels, 2);
  CHECK(rocksdb_options_get_compression(options) == 7);
  rocksdb_options_set_compression_options(options, 1, 2, 3, 4);
  rocksdb_options_set_bottommost_compression_options(options, 1, 2, 3, 4, 1);
  rocksdb_options_set_bottommost_compression_options_use_zstd_dict_trainer(options, 1, 1);
  rocksdb_options_compaction_readahead_size(options, 9);
  CHECK(rocksdb_options_get_compaction_readahead_size(options) == 9);
  rocksdb_writeoptions_disable_WAL(wo, 1);
  CHECK(rocksdb_writeoptions_get_disable_WAL(wo));
  rocksdb_writeoptions_disable_WAL(wo, 0);

  void *policies[4] = {
      rocksdb_filterpolicy_create_bloom(10), rocksdb_filterpolicy_create_bloom_full(10),
      rocksdb_filterpolicy_create_ribbon(10), rocksdb_filterpolicy_create_ribbon_hybrid(10, 1)};
  for (int i = 0; i < 3; i++) rocksdb_block_based_options_set_filter_policy(table, policies[i]);
  rocksdb_filterpolicy_destroy(policies[3]);
  void *lru = rocksdb_lru_cache_options_create();
  rocksdb_lru_cache_options_set_capacity(lru, 1 << 20);
  void *clock = rocksdb_hyper_clock_cache_options_create(1 << 20, 0);
  void *caches[5] = {rocksdb_cache_create_lru(1 << 20),
                     rocksdb_cache_create_lru_with_strict_capacity_limit(1 << 20),
                     rocksdb_cache_create_lru_opts(lru),
                     rocksdb_cache_create_hyper_clock(1 << 20, 0),
                     rocksdb_cache_create_hyper_clock_opts(clock)};
  for (int i = 0; i < 5; i++) {
    CHECK(rocksdb_cache_get_capacity(caches[i]) == 1 << 20);
    rocksdb_cache_set_capacity(caches[i], 2 << 20);
    CHECK(rocksdb_cache_get_capacity(caches[i]) == 2 << 20);
    CHECK(!rocksdb_cache_get_usage(caches[i]) && !rocksdb_cache_get_pinned_usage(caches[i]));
    CHECK(!rocksdb_cache_get_table_address_count(caches[i]));
    CHECK(!rocksdb_cache_get_occupancy_count(caches[i]));
    rocksdb_cache_disown_data(caches[i]);
    rocksdb_block_based_options_set_block_cache(table, caches[i]);
    rocksdb_cache_destroy(caches[i]);
  }
  rocksdb_lru_cache_options_destroy(lru);
  rocksdb_hyper_clock_cache_options_destroy(clock);
  rocksdb_block_based_options_set_block_size(table, 8192);
  rocksdb_options_set_block_based_table_factory(options, table);
  rocksdb_block_based_options_destroy(table);
  rocksdb_options_set_max_open_files(options, 100);
  rocksdb_options_set_target_file_size_base(options, 1);
  OK(db = rocksdb_open(options, path_of(argv, "sizes"), &err));
  rocksdb_close(db);
  /* Other sizes at a later open. */
  rocksdb_options_set_write_buffer_size(options, 1 << 20);
  OK(db = rocksdb_open(options, path_of(argv, "sizes"), &err));
  rocksdb_close(db);

  void *parsed = rocksdb_options_create();
  OK(rocksdb_get_options_from_string(options, "write_buffer_size=3M; use_fsync=true", parsed, &err));
  CHECK(rocksdb_options_get_write_buffer_size(parsed) == 3 << 20);
  CHECK(rocksdb_options_get_use_fsync(parsed) == 1);
  FAILS(rocksdb_get_options_from_string(options, "nothing=1", parsed, &err), "Invalid argument: ");
  rocksdb_options_destroy(parsed);
  rocksdb_options_destroy(options);

  void *manager = rocksdb_write_buffer_manager_create(7, false);
  CHECK(rocksdb_write_buffer_manager_enabled(manager));
  rocksdb_write_buffer_manager_set_buffer_size(manager, 8);
  CHECK(rocksdb_write_buffer_manager_buffer_size(manager) == 8);
  rocksdb_write_buffer_manager_destroy(manager);
  rocksdb_write_buffer_manager_destroy(rocksdb_write_buffer_manager_create_with_cache(0, NULL, 1));
  void *context = rocksdb_perfcontext_create();
  rocksdb_free(rocksdb_perfcontext_report(context, 1));
  rocksdb_perfcontext_destroy(context);
  int before = destroyed;
  rocksdb_readoptions_set_table_filter(ro, NULL, destroy, NULL);
  CHECK(rocksdb_readoptions_has_table_filter(ro));
  rocksdb_readoptions_clear_table_filter(ro);
  CHECK(!rocksdb_readoptions_has_table_filter(ro) && destroyed == before + 1);
  CHECK(!rocksdb_readoptions_has_merge_operand_count_threshold(ro));
  rocksdb_readoptions_set_merge_operand_count_threshold(ro, 7);
  CHECK(rocksdb_readoptions_has_merge_operand_count_threshold(ro));
  rocksdb_readoptions_clear_merge_operand_count_threshold(ro);
  CHECK(!rocksdb_readoptions_has_merge_operand_count_threshold(ro));
  rocksdb_eventlistener_destroy(rocksdb_eventlistener_create(
      NULL, destroy, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
  CHECK(destroyed == before + 2);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  wo = rocksdb_writeoptions_create();
  ro = rocksdb_readoptions_create();
  merges(argv);
  filters(argv);
  prefixes(argv);
  refusals(argv);
  texts_and_sizes(argv);
  rocksdb_writeoptions_destroy(wo);
  rocksdb_readoptions_destroy(ro);
  puts("ok");
  return 0;
}
