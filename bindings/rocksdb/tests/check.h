/* What the programs share. c.h is made by shim.rs from functions.txt. */

#include <rocksdb/c.h>

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

/* The call must succeed. */
#define OK(call)                                                               \
  do {                                                                         \
    call;                                                                      \
    CHECK(!err);                                                               \
  } while (0)

/* The call must fail with an error that begins so. */
#define FAILS(call, start)                                                     \
  do {                                                                         \
    call;                                                                      \
    CHECK(err && !strncmp(err, start, strlen(start)));                         \
    rocksdb_free(err);                                                         \
    err = NULL;                                                                \
  } while (0)

#define S(text) (text), strlen(text)

static char *err = NULL;

/* Whether bytes of malloc are these; NULL: there are none. Frees them. */
__attribute__((unused)) static bool take(char *value, size_t len, const char *expected) {
  bool is_so = expected ? value && len == strlen(expected) && !memcmp(value, expected, len)
                        : !value && !len;
  rocksdb_free(value);
  return is_so;
}

/* Whether lent bytes are these. The length is read after the call that sets it. */
__attribute__((unused)) static bool are(const char *value, const size_t *len,
                                         const char *expected) {
  return value && *len == strlen(expected) && !memcmp(value, expected, *len);
}

/* The same of a pinned value, which is freed. */
__attribute__((unused)) static bool take_pinned(void *pinned, const char *expected) {
  size_t len = 7;
  const char *value = rocksdb_pinnableslice_value(pinned, &len);
  bool is_so = expected ? are(value, &len, expected) : !pinned && !value && !len;
  rocksdb_pinnableslice_destroy(pinned);
  return is_so;
}

__attribute__((unused)) static bool holds(void *db, void *options, const char *key,
                                          const char *expected) {
  size_t len;
  char *value = rocksdb_get(db, options, S(key), &len, &err);
  CHECK(!err);
  return take(value, len, expected);
}

__attribute__((unused)) static bool holds_cf(void *db, void *options, void *family,
                                             const char *key, const char *expected) {
  size_t len;
  char *value = rocksdb_get_cf(db, options, family, S(key), &len, &err);
  CHECK(!err);
  return take(value, len, expected);
}

/* Whether the iterator is on this entry; NULL: on none. */
__attribute__((unused)) static bool is_on(void *iterator, const char *key, const char *value) {
  size_t klen, vlen;
  const char *k = rocksdb_iter_key(iterator, &klen), *v = rocksdb_iter_value(iterator, &vlen);
  if (!key) return !rocksdb_iter_valid(iterator) && !k && !v;
  return rocksdb_iter_valid(iterator) && are(k, &klen, key) && are(v, &vlen, value);
}

/* All keys of an iterator, in order, each followed by a space. Destroys it. */
__attribute__((unused)) static bool has_keys(void *iterator, const char *expected) {
  char text[400] = "", back[400] = "";
  size_t len;
  for (rocksdb_iter_seek_to_first(iterator); rocksdb_iter_valid(iterator);
       rocksdb_iter_next(iterator)) {
    const char *key = rocksdb_iter_key(iterator, &len);
    sprintf(text + strlen(text), "%.*s ", (int)len, key);
  }
  for (rocksdb_iter_seek_to_last(iterator); rocksdb_iter_valid(iterator);
       rocksdb_iter_prev(iterator)) {
    const char *key = rocksdb_iter_key(iterator, &len);
    memmove(back + len + 1, back, strlen(back) + 1);
    memcpy(back, key, len);
    back[len] = ' ';
  }
  OK(rocksdb_iter_get_error(iterator, &err));
  rocksdb_iter_destroy(iterator);
  if (strcmp(text, expected)) fprintf(stderr, "keys are '%s'\n", text);
  return !strcmp(text, expected) && !strcmp(back, expected);
}

/* A path in the directory of the program, in one of a few buffers. */
__attribute__((unused)) static const char *path_of(char **argv, const char *name) {
  static char paths[8][4096];
  static int next = 0;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", argv[1], name);
  return path;
}

/* Options that create what is missing. */
__attribute__((unused)) static void *new_options(void) {
  void *options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_create_missing_column_families(options, 1);
  return options;
}
