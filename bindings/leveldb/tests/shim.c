/*
 * Calls every function of the interface, and checks what differs from LevelDB.
 *
 *   shim DIR    DIR is an empty directory
 */

#include <leveldb/c.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition,       \
              err ? err : "no error");                                         \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

#define S(text) (text), strlen(text)

static char *err = NULL;
static char path[4096], other_path[4096];
static int destroyed = 0;

/* Whether the last call failed with a text that begins so; forgets the error. */
static bool failed(const char *start) {
  bool is_so = err && !strncmp(err, start, strlen(start));
  if (is_so) {
    leveldb_free(err);
    err = NULL;
  }
  return is_so;
}

static bool holds(leveldb_t *db, const leveldb_readoptions_t *options, const char *key,
                  const char *expected) {
  size_t len;
  char *value = leveldb_get(db, options, S(key), &len, &err);
  CHECK(!err);
  bool is_so = expected ? value && len == strlen(expected) && !memcmp(value, expected, len)
                        : !value && !len;
  leveldb_free(value);
  return is_so;
}

static void destroy(void *state) {
  (void)state;
  destroyed++;
}

static int compare(void *state, const char *a, size_t alen, const char *b, size_t blen) {
  (void)state, (void)a, (void)alen, (void)b, (void)blen;
  abort();
}

static const char *name_reverse(void *state) {
  (void)state;
  return "reverse";
}

static const char *name_bytewise(void *state) {
  (void)state;
  return "leveldb.BytewiseComparator";
}

static char *create_filter(void *state, const char *const *keys, const size_t *lens, int count,
                           size_t *len) {
  (void)state, (void)keys, (void)lens, (void)count, (void)len;
  abort();
}

static uint8_t may_match(void *state, const char *key, size_t len, const char *filter,
                         size_t filter_len) {
  (void)state, (void)key, (void)len, (void)filter, (void)filter_len;
  abort();
}

/* The operations of a batch as text. */
static void add_put(void *state, const char *k, size_t klen, const char *v, size_t vlen) {
  sprintf((char *)state + strlen(state), "%.*s=%.*s ", (int)klen, k, (int)vlen, v);
}

static void add_delete(void *state, const char *k, size_t klen) {
  sprintf((char *)state + strlen(state), "-%.*s ", (int)klen, k);
}

static void batches(leveldb_t *db, leveldb_writeoptions_t *wo, leveldb_readoptions_t *ro) {
  char text[100] = "";
  leveldb_writebatch_t *batch = leveldb_writebatch_create(), *more = leveldb_writebatch_create();
  leveldb_writebatch_put(batch, S("x"), S("0"));
  leveldb_writebatch_clear(batch);
  leveldb_writebatch_put(batch, S("a"), S("1"));
  leveldb_writebatch_put(batch, S("b"), S("2"));
  leveldb_writebatch_delete(more, S("a"));
  leveldb_writebatch_append(batch, more);
  leveldb_writebatch_iterate(batch, text, add_put, add_delete);
  CHECK(!strcmp(text, "a=1 b=2 -a "));
  leveldb_write(db, wo, batch, &err);
  CHECK(!err && holds(db, ro, "a", NULL) && holds(db, ro, "b", "2") && holds(db, ro, "x", NULL));
  leveldb_writebatch_destroy(more);
  leveldb_writebatch_destroy(batch);
}

static bool is_on(leveldb_iterator_t *iterator, const char *key, const char *value) {
  size_t klen, vlen;
  const char *k = leveldb_iter_key(iterator, &klen), *v = leveldb_iter_value(iterator, &vlen);
  if (!key) return !leveldb_iter_valid(iterator) && !k && !v;
  return leveldb_iter_valid(iterator) && klen == strlen(key) && !memcmp(k, key, klen) &&
         vlen == strlen(value) && !memcmp(v, value, vlen);
}

static void iterators(leveldb_t *db, leveldb_writeoptions_t *wo, leveldb_readoptions_t *ro) {
  leveldb_put(db, wo, S("c"), S("3"), &err);
  CHECK(!err);
  leveldb_iterator_t *iterator = leveldb_create_iterator(db, ro);
  leveldb_delete(db, wo, S("c"), &err);
  CHECK(is_on(iterator, NULL, NULL));
  leveldb_iter_next(iterator);
  CHECK(is_on(iterator, NULL, NULL));
  leveldb_iter_seek_to_first(iterator);
  CHECK(is_on(iterator, "b", "2"));
  leveldb_iter_next(iterator);
  CHECK(is_on(iterator, "c", "3"));
  leveldb_iter_prev(iterator);
  CHECK(is_on(iterator, "b", "2"));
  leveldb_iter_seek_to_last(iterator);
  CHECK(is_on(iterator, "c", "3"));
  leveldb_iter_seek(iterator, S("bb"));
  CHECK(is_on(iterator, "c", "3"));
  leveldb_iter_seek(iterator, S("d"));
  CHECK(is_on(iterator, NULL, NULL));
  leveldb_iter_get_error(iterator, &err);
  CHECK(!err);
  leveldb_iter_destroy(iterator);
  /* The address of no bytes can be read. */
  size_t len;
  leveldb_put(db, wo, S("empty"), NULL, 0, &err);
  CHECK(!err);
  iterator = leveldb_create_iterator(db, ro);
  leveldb_iter_seek(iterator, S("empty"));
  CHECK(is_on(iterator, "empty", "") && *leveldb_iter_value(iterator, &len) == 0);
  leveldb_iter_destroy(iterator);
  leveldb_delete(db, wo, S("empty"), &err);
  CHECK(!err);
}

static void snapshots(leveldb_t *db, leveldb_writeoptions_t *wo, leveldb_readoptions_t *ro) {
  const leveldb_snapshot_t *snapshot = leveldb_create_snapshot(db);
  leveldb_put(db, wo, S("b"), S("later"), &err);
  leveldb_readoptions_set_snapshot(ro, snapshot);
  CHECK(!err && holds(db, ro, "b", "2"));
  leveldb_iterator_t *iterator = leveldb_create_iterator(db, ro);
  leveldb_iter_seek_to_first(iterator);
  CHECK(is_on(iterator, "b", "2"));
  leveldb_iter_destroy(iterator);
  leveldb_readoptions_set_snapshot(ro, NULL);
  CHECK(holds(db, ro, "b", "later"));
  leveldb_release_snapshot(db, snapshot);
}

static void sizes_and_properties(leveldb_t *db, leveldb_writeoptions_t *wo) {
  char key[32];
  for (int i = 0; i < 3000; i++) {
    snprintf(key, sizeof key, "k%06d", i);
    leveldb_put(db, wo, S(key), S("0123456789"), &err);
    CHECK(!err);
  }
  leveldb_compact_range(db, NULL, 0, S("z"));
  const char *start[2] = {"k000000", "k001000"}, *limit[2] = {"k001000", "k000000"};
  size_t start_len[2] = {7, 7}, limit_len[2] = {7, 7};
  uint64_t sizes[2];
  leveldb_approximate_sizes(db, 2, start, start_len, limit, limit_len, sizes);
  CHECK(sizes[0] == 17000 && sizes[1] == 0);
  CHECK(leveldb_property_value(db, "nosuchprop") == NULL);
  const char *names[] = {"leveldb.stats", "leveldb.sstables", "leveldb.approximate-memory-usage",
                         "leveldb.num-files-at-level0"};
  for (int i = 0; i < 4; i++) {
    char *value = leveldb_property_value(db, names[i]);
    CHECK(value && *value);
    leveldb_free(value);
  }
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  snprintf(path, sizeof path, "%s/db", argv[1]);
  snprintf(other_path, sizeof other_path, "%s/other", argv[1]);
  CHECK(leveldb_major_version() == 1 && leveldb_minor_version() == 23);

  leveldb_env_t *env = leveldb_create_default_env();
  char *directory = leveldb_env_get_test_directory(env);
  CHECK(directory && !access(directory, W_OK));
  leveldb_free(directory);
  leveldb_cache_t *cache = leveldb_cache_create_lru(1 << 20);
  leveldb_filterpolicy_t *bloom = leveldb_filterpolicy_create_bloom(10);
  leveldb_filterpolicy_t *custom =
      leveldb_filterpolicy_create(NULL, destroy, create_filter, may_match, name_reverse);
  leveldb_comparator_t *reverse = leveldb_comparator_create(NULL, destroy, compare, name_reverse);
  leveldb_comparator_t *bytewise = leveldb_comparator_create(NULL, destroy, compare, name_bytewise);

  leveldb_options_t *options = leveldb_options_create();
  leveldb_options_set_env(options, env);
  leveldb_options_set_info_log(options, NULL);
  leveldb_options_set_cache(options, cache);
  leveldb_options_set_filter_policy(options, bloom);
  leveldb_options_set_filter_policy(options, custom);
  leveldb_options_set_paranoid_checks(options, 1);
  leveldb_options_set_write_buffer_size(options, 1);
  leveldb_options_set_max_open_files(options, 1);
  leveldb_options_set_block_size(options, 1);
  leveldb_options_set_block_restart_interval(options, 0);
  leveldb_options_set_max_file_size(options, 1);
  leveldb_options_set_compression(options, 1);
  leveldb_readoptions_t *ro = leveldb_readoptions_create();
  leveldb_readoptions_set_verify_checksums(ro, 1);
  leveldb_readoptions_set_fill_cache(ro, 0);
  leveldb_writeoptions_t *wo = leveldb_writeoptions_create();
  leveldb_writeoptions_set_sync(wo, 0);

  CHECK(!leveldb_open(options, path, &err) && failed("Invalid argument: "));
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_options_set_comparator(options, reverse);
  CHECK(!leveldb_open(options, path, &err) && failed("Invalid argument: "));
  leveldb_options_set_comparator(options, bytewise);
  leveldb_t *db = leveldb_open(options, path, &err);
  CHECK(db && !err);
  CHECK(!leveldb_open(options, path, &err) && failed("IO error: "));
  CHECK(!leveldb_open(options, path, &err));
  CHECK(!leveldb_open(options, path, &err) && failed("IO error: ")); /* replaces the error */
  leveldb_put(db, wo, S("a"), S("0"), &err);
  CHECK(!err && holds(db, ro, "a", "0"));
  leveldb_put(db, wo, NULL, 0, NULL, 0, &err);
  CHECK(!err && holds(db, ro, "", ""));
  leveldb_delete(db, wo, "", 0, &err);
  leveldb_writeoptions_set_sync(wo, 1);
  batches(db, wo, ro);
  leveldb_writeoptions_set_sync(wo, 0);
  iterators(db, wo, ro);
  snapshots(db, wo, ro);
  sizes_and_properties(db, wo);
  leveldb_destroy_db(options, path, &err);
  CHECK(failed("IO error: ")); /* in use */
  leveldb_close(db);

  leveldb_options_set_error_if_exists(options, 1);
  CHECK(!leveldb_open(options, path, &err) && failed("Invalid argument: "));
  leveldb_options_set_error_if_exists(options, 0);
  leveldb_options_set_comparator(options, NULL);
  leveldb_options_set_filter_policy(options, NULL);
  leveldb_options_set_cache(options, NULL);

  /* A damaged database does not open; repair keeps its entries, and destruction works as well. */
  char catalog[4200];
  snprintf(catalog, sizeof catalog, "%s/CATALOG", path);
  FILE *file = fopen(catalog, "w");
  CHECK(file && fputs("damage", file) >= 0 && !fclose(file));
  CHECK(!leveldb_open(options, path, &err) && failed("Corruption: "));
  leveldb_repair_db(options, path, &err);
  CHECK(!err);
  db = leveldb_open(options, path, &err);
  CHECK(db && !err && holds(db, ro, "b", "later") && holds(db, ro, "k002999", "0123456789"));
  leveldb_close(db);
  file = fopen(catalog, "w");
  CHECK(file && fputs("damage", file) >= 0 && !fclose(file));
  leveldb_destroy_db(options, path, &err);
  CHECK(!err && access(path, F_OK));
  leveldb_destroy_db(NULL, path, &err);
  CHECK(!err);
  leveldb_repair_db(NULL, path, &err);
  CHECK(failed("IO error: ") || failed("Invalid argument: "));

  /* A directory that is no database keeps its files. */
  char current[4200];
  snprintf(current, sizeof current, "mkdir %s", other_path);
  CHECK(!system(current));
  snprintf(current, sizeof current, "%s/CURRENT", other_path);
  file = fopen(current, "w");
  CHECK(file && fputs("MANIFEST-000001\n", file) >= 0 && !fclose(file));
  CHECK(!leveldb_open(options, other_path, &err) && strstr(err, "LevelDB itself") &&
        failed("Invalid argument: "));
  leveldb_destroy_db(options, other_path, &err);
  CHECK(failed("Invalid argument: ") && !access(current, F_OK));

  leveldb_options_destroy(options);
  leveldb_readoptions_destroy(ro);
  leveldb_writeoptions_destroy(wo);
  leveldb_comparator_destroy(reverse);
  leveldb_comparator_destroy(bytewise);
  leveldb_filterpolicy_destroy(custom);
  CHECK(destroyed == 3);
  leveldb_filterpolicy_destroy(bloom);
  leveldb_cache_destroy(cache);
  leveldb_env_destroy(env);
  puts("ok");
  return 0;
}
