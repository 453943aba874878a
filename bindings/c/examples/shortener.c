/*
 * A URL shortener: a table of addresses by code, and a transaction per visit.
 *
 *   shortener DIR         shortens an address, and visits it twice
 */

#include <siltstone.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the error's text. */
static void check(siltstone_error *error) {
  if (!error) return;
  fprintf(stderr, "shortener: %s\n", siltstone_error_message(error));
  siltstone_error_free(error);
  exit(1);
}

/* A key of the table: a letter for its kind, and the code. */
static void make_key(char key[16], char kind, const char *code) {
  snprintf(key, 16, "%c/%s", kind, code);
}

/* What a visit reads and writes, in a transaction that runs again after a conflict. */
static bool count_visit(siltstone_transaction *tx, void *code) {
  char key[16], text[24], *visits;
  size_t len;
  make_key(key, 'v', code);
  check(siltstone_transaction_get(tx, key, strlen(key), &visits, &len));
  snprintf(text, sizeof text, "%d", (visits ? atoi(visits) : 0) + 1);
  siltstone_free(visits); /* NULL if there was none */
  check(siltstone_transaction_put(tx, key, strlen(key), text, strlen(text)));
  return true;
}

static void shorten(siltstone_table *links, const char *code, const char *address) {
  char key[16];
  siltstone_batch *batch = siltstone_batch_create();
  make_key(key, 'a', code);
  check(siltstone_batch_put(batch, key, strlen(key), address, strlen(address)));
  make_key(key, 'v', code);
  check(siltstone_batch_put(batch, key, strlen(key), "0", 1));
  check(siltstone_table_write(links, batch, true)); /* both or none, and safe from a power cut */
  siltstone_batch_free(batch);
}

static void visit(siltstone_table *links, const char *code) {
  bool is_committed;
  check(siltstone_table_transact(links, count_visit, (void *)code, false, &is_committed));
}

/* Prints every address with its visits, as of one moment. */
static void report(siltstone_table *links) {
  siltstone_snapshot *snapshot;
  siltstone_cursor *cursor;
  check(siltstone_snapshot_create(links, &snapshot));
  check(siltstone_snapshot_cursor_prefix(snapshot, "a/", 2, &cursor));
  for (check(siltstone_cursor_first(cursor)); siltstone_cursor_valid(cursor);
       check(siltstone_cursor_next(cursor))) {
    size_t key_len, address_len, visits_len;
    char key[16], *visits;
    const char *code = siltstone_cursor_key(cursor, &key_len);
    const char *address = siltstone_cursor_value(cursor, &address_len);
    snprintf(key, sizeof key, "v/%.*s", (int)key_len - 2, code + 2);
    check(siltstone_snapshot_get(snapshot, key, strlen(key), &visits, &visits_len));
    printf("%.*s visited %s times\n", (int)address_len, address, visits);
    siltstone_free(visits);
  }
  siltstone_cursor_free(cursor);
  siltstone_snapshot_free(snapshot);
}

int main(int argc, char **argv) {
  siltstone_db *db;
  siltstone_table *links;
  if (argc != 2) {
    fprintf(stderr, "usage: shortener DIR\n");
    return 2;
  }
  check(siltstone_open_or_create(argv[1], NULL, &db));
  check(siltstone_table_open_or_create(db, "links", "lsm", NULL, 0, &links));
  shorten(links, "x7", "https://example.org/a/long/address");
  visit(links, "x7");
  visit(links, "x7");
  report(links);
  siltstone_table_free(links);
  check(siltstone_close(db));
  siltstone_db_free(db);
  return 0;
}
