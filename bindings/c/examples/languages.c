/* Counts visits by language, and prints all counts: the program of the book's page "Other languages". */

// ANCHOR: program
#include <siltstone.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(siltstone_error *error) {
  if (!error) return;
  fprintf(stderr, "%s\n", siltstone_error_message(error));
  siltstone_error_free(error);
  exit(1);
}

static bool count_visit(siltstone_transaction *tx, void *unused) {
  char *text, count[24];
  size_t len;
  (void)unused;
  check(siltstone_transaction_get(tx, "c", 1, &text, &len));
  snprintf(count, sizeof count, "%d", (text ? atoi(text) : 0) + 1);
  siltstone_free(text);
  check(siltstone_transaction_put(tx, "c", 1, count, strlen(count)));
  return true;
}

int main(int argc, char **argv) {
  siltstone_db *db;
  siltstone_table *visits;
  siltstone_cursor *cursor;
  bool is_committed;
  check(siltstone_open_or_create(argc > 1 ? argv[1] : "/tmp/visits", NULL, &db));
  check(siltstone_table_open_or_create(db, "visits", "lsm", NULL, 0, &visits));
  check(siltstone_table_transact(visits, count_visit, NULL, false, &is_committed));
  check(siltstone_table_cursor(visits, NULL, 0, NULL, 0, &cursor));
  while (check(siltstone_cursor_next(cursor)), siltstone_cursor_valid(cursor)) {
    size_t key_len, value_len;
    const char *key = siltstone_cursor_key(cursor, &key_len);
    const char *value = siltstone_cursor_value(cursor, &value_len);
    printf("%.*s %.*s\n", (int)key_len, key, (int)value_len, value);
  }
  siltstone_cursor_free(cursor);
  siltstone_table_free(visits);
  check(siltstone_close(db));
  siltstone_db_free(db);
  return 0;
}
// ANCHOR_END: program
