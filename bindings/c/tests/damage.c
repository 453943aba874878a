/*
 * Damaged stores: damage is reported with its file, and repaired as far as possible.
 *
 *   damage DIR    DIR is an empty directory, in which it makes a store
 */

#include "check.h"

#include <dirent.h>
#include <sys/stat.h>

static char path[4096];

static void overwrite(const char *file, long offset, const char *text) {
  FILE *f = fopen(file, "r+b");
  CHECK(f && !fseek(f, offset, SEEK_SET) && fwrite(text, strlen(text), 1, f) == 1 && !fclose(f));
}

/* Damages the largest file of the table; returns its name. */
static const char *damage_table(void) {
  static char name[512];
  char file[4800];
  long size = -1;
  snprintf(file, sizeof file, "%s/table-t", path);
  DIR *dir = opendir(file);
  CHECK(dir);
  for (struct dirent *entry; (entry = readdir(dir));) {
    struct stat status;
    snprintf(file, sizeof file, "%s/table-t/%s", path, entry->d_name);
    if (!stat(file, &status) && S_ISREG(status.st_mode) && status.st_size > size) {
      size = status.st_size;
      snprintf(name, sizeof name, "%s", entry->d_name);
    }
  }
  closedir(dir);
  CHECK(size > 20000);
  snprintf(file, sizeof file, "%s/table-t/%s", path, name);
  overwrite(file, 10000, "damage damage damage");
  return name;
}

int main(int argc, char **argv) {
  siltstone_db *db;
  siltstone_table *table;
  char key[32], *json;
  bool is_intact, is_lossless;
  uint64_t count;
  CHECK(argc == 2);
  snprintf(path, sizeof path, "%s/store", argv[1]);
  FAILS(siltstone_verify(path, &is_intact, &json), SILTSTONE_CODE_REFUSED, "no such directory");
  OK(siltstone_open_or_create(path, NULL, &db));
  const char *options[] = {"triad.log=off"};
  OK(siltstone_table_open_or_create(db, "t", "lsm", options, 1, &table));
  for (int i = 0; i < 5000; i++) {
    snprintf(key, sizeof key, "key%06d", i);
    OK(siltstone_table_put(table, S(key), S("a value that takes some space")));
  }
  OK(siltstone_table_flush(table));
  FAILS(siltstone_verify(path, &is_intact, &json), SILTSTONE_CODE_LOCKED, "in use");
  OK(siltstone_close(db));
  siltstone_table_free(table);
  siltstone_db_free(db);

  /* The list of tables: nothing opens, and nothing is lost. */
  char catalog[4200];
  snprintf(catalog, sizeof catalog, "%s/CATALOG", path);
  overwrite(catalog, 0, "damage");
  FAILS(siltstone_open(path, NULL, &db), SILTSTONE_CODE_CORRUPTION, "CATALOG");
  CHECK(db == NULL);
  OK(siltstone_verify(path, &is_intact, &json));
  CHECK(!is_intact && strstr(json, "CATALOG"));
  siltstone_free(json);
  OK(siltstone_repair(path, &is_lossless, NULL));
  CHECK(is_lossless);

  /* A file of the table: reads of it fail, the rest is kept. */
  const char *name = damage_table();
  OK(siltstone_verify(path, &is_intact, &json));
  CHECK(!is_intact && strstr(json, name));
  siltstone_free(json);
  OK(siltstone_open(path, NULL, &db));
  OK(siltstone_table_open(db, "t", &table));
  FAILS(siltstone_table_count(table, &count), SILTSTONE_CODE_CORRUPTION, name);
  CHECK(count == 0);
  OK(siltstone_close(db));
  siltstone_db_free(db);
  siltstone_table_free(table);
  OK(siltstone_repair(path, &is_lossless, &json));
  CHECK(!is_lossless && strstr(json, name));
  siltstone_free(json);
  OK(siltstone_open(path, NULL, &db));
  OK(siltstone_table_open(db, "t", &table));
  OK(siltstone_table_count(table, &count));
  CHECK(count > 4000 && count < 5000);
  siltstone_table_free(table);
  siltstone_db_free(db);
  puts("ok");
  return 0;
}
