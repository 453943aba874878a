/*
 * Merge operators and listeners of the program, and encrypted stores.
 *
 *   callbacks DIR    DIR is an empty directory, in which it makes stores
 */

#include <dirent.h>
#include <pthread.h>

#include "check.h"

static char path[4096];

/* The largest operand wins; an empty one does not apply. */
struct largest {
  pthread_mutex_t lock;
  int full, partial, freed;
};

static bool merge_largest(struct largest *counts, int *count, const char *value, size_t value_len,
                          size_t operand_count, const char *const *operands, const size_t *lens,
                          siltstone_merge_output *output) {
  pthread_mutex_lock(&counts->lock);
  ++*count;
  pthread_mutex_unlock(&counts->lock);
  for (size_t i = 0; i < operand_count; i++) {
    if (lens[i] == 0) {
      OK(siltstone_merge_output_append(output, S("an empty operand")));
      return false;
    }
    size_t shorter = lens[i] < value_len ? lens[i] : value_len;
    int order = value ? memcmp(operands[i], value, shorter) : 1;
    if (order > 0 || (order == 0 && lens[i] > value_len)) value = operands[i], value_len = lens[i];
  }
  /* In two parts. */
  OK(siltstone_merge_output_append(output, value, 1));
  OK(siltstone_merge_output_append(output, value + 1, value_len - 1));
  return true;
}

static bool full(void *arg, const char *key, size_t key_len, const char *value, size_t value_len,
                 size_t operand_count, const char *const *operands, const size_t *lens,
                 siltstone_merge_output *output) {
  struct largest *counts = arg;
  CHECK(key_len >= 1 && key[0] == 'k' && operand_count >= 1);
  return merge_largest(counts, &counts->full, value, value_len, operand_count, operands, lens, output);
}

static bool partial(void *arg, const char *key, size_t key_len, const char *value, size_t value_len,
                    size_t operand_count, const char *const *operands, const size_t *lens,
                    siltstone_merge_output *output) {
  struct largest *counts = arg;
  CHECK(key && key_len >= 1 && value == NULL && value_len == 0 && operand_count >= 2);
  return merge_largest(counts, &counts->partial, NULL, 0, operand_count, operands, lens, output);
}

static void free_counts(void *arg) { ++((struct largest *)arg)->freed; }

static void merge(void) {
  struct largest counts = {.lock = PTHREAD_MUTEX_INITIALIZER};
  siltstone_options *options = siltstone_options_create();
  siltstone_db *db;
  siltstone_table *table;
  char *value;
  size_t len;
  OK(siltstone_options_add_merge_operator(options, "t", "largest", full, partial, &counts, free_counts));
  FAILS(siltstone_options_add_merge_operator(options, "t", "other", full, NULL, NULL, NULL),
        SILTSTONE_CODE_INVALID, "'t'");
  FAILS(siltstone_options_add_merge_operator(options, "u", "siltstone.x", full, NULL, NULL, NULL),
        SILTSTONE_CODE_INVALID, "reserved");
  FAILS(siltstone_options_add_merge_operator(options, "u", "x", NULL, NULL, NULL, NULL),
        SILTSTONE_CODE_INVALID, "'merge'");
  FAILS(siltstone_options_add_merge_operator(NULL, "u", "x", full, NULL, NULL, NULL),
        SILTSTONE_CODE_INVALID, "'options'");
  FAILS(siltstone_merge_output_append(NULL, S("x")), SILTSTONE_CODE_INVALID, "'output'");
  OK(siltstone_open_or_create(path, options, &db));
  OK(siltstone_table_open_or_create(db, "t", "lsm", NULL, 0, &table));
  OK(siltstone_table_merge(table, S("k"), S("b")));
  OK(siltstone_table_merge(table, S("k"), S("c1")));
  OK(siltstone_table_merge(table, S("k"), S("a")));
  OK(siltstone_table_get(table, S("k"), &value, &len));
  CHECK(take_equal(value, len, "c1"));
  OK(siltstone_table_put(table, S("k2"), S("m")));
  OK(siltstone_table_merge(table, S("k2"), S("l")));
  OK(siltstone_table_merge(table, S("k2"), S("n")));
  OK(siltstone_table_merge(table, S("k3"), S("")));
  FAILS(siltstone_table_get(table, S("k3"), &value, &len), SILTSTONE_CODE_INVALID, "an empty operand");
  OK(siltstone_table_delete(table, S("k3")));
  OK(siltstone_table_compact_range(table, NULL, 0, NULL, 0));
  OK(siltstone_table_get(table, S("k2"), &value, &len));
  CHECK(take_equal(value, len, "n"));
  OK(siltstone_table_get(table, S("k"), &value, &len));
  CHECK(take_equal(value, len, "c1"));
  CHECK(counts.full > 0);
  siltstone_options_free(options);
  CHECK(counts.freed == 0);
  siltstone_table_free(table);
  OK(siltstone_close(db));
  siltstone_db_free(db);
  CHECK(counts.freed == 1);

  /* Another operator is refused by its name; its argument is freed all the same. */
  options = siltstone_options_create();
  OK(siltstone_options_add_merge_operator(options, "t", "smallest", full, NULL, &counts, free_counts));
  OK(siltstone_open(path, options, &db));
  FAILS(siltstone_table_open(db, "t", &table), SILTSTONE_CODE_INVALID, "largest");
  OK(siltstone_close(db));
  siltstone_db_free(db);
  siltstone_options_free(options);
  CHECK(counts.freed == 2);
}

struct heard {
  pthread_mutex_t lock;
  int counts[16], freed;
  uint64_t begun, bytes;
  char damage[1024];
};

static void on_event(void *arg, const siltstone_event *event) {
  struct heard *heard = arg;
  CHECK(!strcmp(event->table, "t") && event->at > 0 && !strchr(event->message, '\n'));
  CHECK(event->kind >= 1 && event->kind < 16 && strlen(event->message) > 0);
  pthread_mutex_lock(&heard->lock);
  heard->counts[event->kind]++;
  if (event->kind == SILTSTONE_EVENT_KIND_FLUSH_BEGUN) heard->begun = event->job;
  if (event->kind == SILTSTONE_EVENT_KIND_FLUSH_COMPLETED) {
    CHECK(!event->is_failed && event->job == heard->begun && event->job > 0);
    heard->bytes += event->output_bytes;
  }
  if (event->kind == SILTSTONE_EVENT_KIND_CORRUPTION)
    snprintf(heard->damage, sizeof heard->damage, "%s", event->message);
  pthread_mutex_unlock(&heard->lock);
}

static void free_heard(void *arg) { ++((struct heard *)arg)->freed; }

/* Overwrites a part of each data file of the table. */
static void damage(void) {
  char name[5000];
  int count = 0;
  snprintf(name, sizeof name, "%s/table-t", path);
  DIR *directory = opendir(name);
  CHECK(directory);
  for (struct dirent *entry; (entry = readdir(directory));) {
    size_t len = strlen(entry->d_name);
    if (len < 4 || strcmp(entry->d_name + len - 4, ".sst")) continue;
    snprintf(name, sizeof name, "%s/table-t/%s", path, entry->d_name);
    FILE *file = fopen(name, "r+");
    CHECK(file && !fseek(file, 100, SEEK_SET) && fputs("damage damage", file) > 0);
    CHECK(!fclose(file));
    count++;
  }
  closedir(directory);
  CHECK(count > 0);
}

static void hear(void) {
  struct heard heard = {.lock = PTHREAD_MUTEX_INITIALIZER};
  siltstone_options *options = siltstone_options_create();
  siltstone_db *db;
  siltstone_table *table;
  char *value;
  size_t len;
  bool is_intact;
  OK(siltstone_options_add_listener(options, on_event, &heard, free_heard));
  FAILS(siltstone_options_add_listener(options, NULL, NULL, NULL), SILTSTONE_CODE_INVALID, "'on_event'");
  FAILS(siltstone_options_add_listener(NULL, on_event, NULL, NULL), SILTSTONE_CODE_INVALID, "'options'");
  OK(siltstone_open_or_create(path, options, &db));
  const char *small[] = {"memtable=64KiB", "memtables=2"};
  OK(siltstone_table_open_or_create(db, "t", "lsm", small, 2, &table));
  /* Bytes that no compression makes smaller. */
  static char block[20000];
  for (unsigned i = 0, state = 1; i < sizeof block; i++) {
    state = state * 1103515245u + 12345u;
    block[i] = (char)(state >> 16);
  }
  for (int i = 0; i < 200; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", i * 7919 % 200);
    OK(siltstone_table_put(table, S(key), block, sizeof block));
  }
  OK(siltstone_table_compact_range(table, NULL, 0, NULL, 0));
  siltstone_table_free(table);
  OK(siltstone_close(db));
  siltstone_db_free(db);
  /* The close has waited for the last event. */
  CHECK(heard.counts[SILTSTONE_EVENT_KIND_FLUSH_BEGUN] > 1);
  CHECK(heard.counts[SILTSTONE_EVENT_KIND_FLUSH_COMPLETED] ==
        heard.counts[SILTSTONE_EVENT_KIND_FLUSH_BEGUN]);
  CHECK(heard.counts[SILTSTONE_EVENT_KIND_COMPACTION_COMPLETED] > 0 && heard.bytes > 0);
  CHECK(heard.counts[SILTSTONE_EVENT_KIND_STALL_BEGUN] ==
        heard.counts[SILTSTONE_EVENT_KIND_STALL_ENDED]);
  CHECK(heard.counts[SILTSTONE_EVENT_KIND_CORRUPTION] == 0 && heard.freed == 0);

  damage();
  OK(siltstone_open(path, options, &db));
  OK(siltstone_table_open(db, "t", &table));
  FAILS(siltstone_table_get(table, S("0"), &value, &len), SILTSTONE_CODE_CORRUPTION, ".sst");
  OK(siltstone_verify_open(db, &is_intact, NULL));
  CHECK(!is_intact);
  siltstone_table_free(table);
  siltstone_error_free(siltstone_close(db));
  siltstone_db_free(db);
  CHECK(heard.counts[SILTSTONE_EVENT_KIND_CORRUPTION] >= 2 && strstr(heard.damage, ".sst"));
  CHECK(heard.freed == 0);
  siltstone_options_free(options);
  CHECK(heard.freed == 1);
}

static void encrypt(void) {
  static const char first[32] = "0123456789abcdef0123456789abcde", second[32] = "another key";
  siltstone_options *options = siltstone_options_create(), *wrong = siltstone_options_create();
  siltstone_db *db;
  siltstone_table *table;
  siltstone_reader *reader;
  char *value;
  size_t len;
  FAILS(siltstone_options_add_key(options, first, 16), SILTSTONE_CODE_INVALID, "32 bytes");
  FAILS(siltstone_options_add_key(NULL, first, 32), SILTSTONE_CODE_INVALID, "'options'");
  OK(siltstone_options_add_key(options, first, 32));
  OK(siltstone_options_add_key(wrong, second, 32));
  OK(siltstone_open_or_create(path, options, &db));
  OK(siltstone_table_open_or_create(db, "t", "lsm", NULL, 0, &table));
  OK(siltstone_table_put(table, S("k"), S("secret")));
  OK(siltstone_sync(db));
  /* A reader has the same options. */
  OK(siltstone_reader_open(path, options, &reader));
  siltstone_table_free(table);
  OK(siltstone_reader_table(reader, "t", &table));
  OK(siltstone_table_get(table, S("k"), &value, &len));
  CHECK(take_equal(value, len, "secret"));
  siltstone_table_free(table);
  siltstone_reader_free(reader);
  OK(siltstone_close(db));
  siltstone_db_free(db);
  FAILS(siltstone_open(path, NULL, &db), SILTSTONE_CODE_REFUSED, "encrypted");
  FAILS(siltstone_open(path, wrong, &db), SILTSTONE_CODE_REFUSED, "key");
  /* The current key, and that of the files. */
  OK(siltstone_options_add_key(wrong, first, 32));
  OK(siltstone_open(path, wrong, &db));
  OK(siltstone_table_open(db, "t", &table));
  OK(siltstone_table_get(table, S("k"), &value, &len));
  CHECK(take_equal(value, len, "secret"));
  siltstone_table_free(table);
  OK(siltstone_close(db));
  siltstone_db_free(db);

  bool is_good;
  char *json;
  FAILS(siltstone_verify(path, &is_good, NULL), SILTSTONE_CODE_REFUSED, "encrypted");
  FAILS(siltstone_repair(path, &is_good, NULL), SILTSTONE_CODE_REFUSED, "encrypted");
  OK(siltstone_verify_with(path, wrong, &is_good, NULL));
  CHECK(is_good);
  OK(siltstone_repair_with(path, wrong, &is_good, NULL));
  CHECK(is_good);
  /* From the first key to the second one. */
  FAILS(siltstone_rekey(path, NULL, NULL), SILTSTONE_CODE_INVALID, "'options'");
  FAILS(siltstone_rekey(NULL, wrong, NULL), SILTSTONE_CODE_INVALID, "'path'");
  OK(siltstone_rekey(path, wrong, &json));
  CHECK(strstr(json, "\"damaged\":[]") && !strstr(json, "\"rewrapped\":0"));
  siltstone_free(json);
  OK(siltstone_rekey(path, wrong, NULL));
  FAILS(siltstone_open(path, options, &db), SILTSTONE_CODE_REFUSED, "key");
  siltstone_options_free(options);
  options = siltstone_options_create();
  OK(siltstone_options_add_key(options, second, 32));
  OK(siltstone_verify_with(path, options, &is_good, NULL));
  CHECK(is_good);
  siltstone_options_free(options);
  siltstone_options_free(wrong);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  const struct {
    const char *name;
    void (*run)(void);
  } parts[] = {{"merge", merge}, {"hear", hear}, {"encrypt", encrypt}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    snprintf(path, sizeof path, "%s/%s", argv[1], parts[i].name);
    parts[i].run();
  }
  puts("ok");
  return 0;
}
