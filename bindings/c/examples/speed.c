/* Writes or reads a table and prints the seconds of each part, and those of CPU time of the thread,
 * for ../../compare-languages.
 *
 * speed write|read STORE COUNT */

#include <siltstone.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEY = 16, VALUE = 100, BATCH = 100 };

static siltstone_table *table;
static char *keys; /* COUNT of KEY bytes */
static size_t count;
static char value[VALUE];

static void check(siltstone_error *error) {
  if (!error) return;
  fprintf(stderr, "%s\n", siltstone_error_message(error));
  exit(1);
}

/* The value of a key: the key, and dots. */
static const char *value_of(const char *key) {
  return memcpy(value, key, KEY);
}

static void compare(const char *key, const char *found, size_t len) {
  if (found && len == VALUE && memcmp(found, value_of(key), VALUE) == 0) return;
  fprintf(stderr, "the value of %.*s is %.*s\n", KEY, key, (int)len, found ? found : "");
  exit(1);
}

static void fill(void) {
  siltstone_batch *batch = siltstone_batch_create();
  for (size_t i = 0; i < count; i++) {
    const char *key = keys + i * KEY;
    check(siltstone_batch_put(batch, key, KEY, value_of(key), VALUE));
    if (siltstone_batch_count(batch) == BATCH || i == count - 1) {
      check(siltstone_table_write(table, batch, false));
      check(siltstone_batch_clear(batch));
    }
  }
  siltstone_batch_free(batch);
}

static void put(void) {
  for (const char *key = keys; key < keys + count * KEY; key += KEY)
    check(siltstone_table_put(table, key, KEY, value_of(key), VALUE));
}

static void scan(void) {
  siltstone_cursor *cursor;
  size_t found = 0, key_len, value_len;
  check(siltstone_table_cursor(table, NULL, 0, NULL, 0, &cursor));
  while (check(siltstone_cursor_next(cursor)), siltstone_cursor_valid(cursor)) {
    const char *key = siltstone_cursor_key(cursor, &key_len);
    const char *entry = siltstone_cursor_value(cursor, &value_len);
    compare(key, entry, value_len);
    found++;
  }
  siltstone_cursor_free(cursor);
  if (found == count) return;
  fprintf(stderr, "%zu entries instead of %zu\n", found, count);
  exit(1);
}

static void get(void) {
  for (const char *key = keys; key < keys + count * KEY; key += KEY) {
    char *found;
    size_t len;
    check(siltstone_table_get(table, key, KEY, &found, &len));
    compare(key, found, len);
    siltstone_free(found);
  }
}

static double seconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

static void timed(const char *name, void (*run)(void)) {
  double start = seconds(CLOCK_MONOTONIC), cpu_start = seconds(CLOCK_THREAD_CPUTIME_ID);
  run();
  double end = seconds(CLOCK_MONOTONIC), cpu_end = seconds(CLOCK_THREAD_CPUTIME_ID);
  printf("%s %f %f\n", name, end - start, cpu_end - cpu_start);
  check(siltstone_table_maintain(table));
}

int main(int argc, char **argv) {
  const char *options[] = {"cache=256MiB"};
  siltstone_db *db;
  if (argc != 4) return 2;
  count = strtoull(argv[3], NULL, 10);
  keys = malloc(count * KEY + 1);
  if (!keys) return 1;
  for (size_t i = 0; i < count; i++) sprintf(keys + i * KEY, "%016zu", i * 7919 % count);
  memset(value, '.', VALUE);
  check(siltstone_open_or_create(argv[2], NULL, &db));
  check(siltstone_table_open_or_create(db, "speed", "lsm", options, 1, &table));
  if (strcmp(argv[1], "write") == 0) {
    timed("fill", fill);
    timed("put", put);
  } else {
    timed("scan", scan);
    timed("get", get);
  }
  siltstone_table_free(table);
  check(siltstone_close(db));
  siltstone_db_free(db);
  free(keys);
  return 0;
}
