/* Write batches, and those with an index. */

#include "check.h"

static void *options, *wo, *ro, *db, *family;

static void add_put(void *state, const char *k, size_t klen, const char *v, size_t vlen) {
  sprintf((char *)state + strlen(state), "%.*s=%.*s ", (int)klen, k, (int)vlen, v);
}

static void add_delete(void *state, const char *k, size_t klen) {
  sprintf((char *)state + strlen(state), "-%.*s ", (int)klen, k);
}

static void add_put_cf(void *state, uint32_t id, const char *k, size_t klen, const char *v,
                       size_t vlen) {
  sprintf((char *)state + strlen(state), "%u:%.*s=%.*s ", id, (int)klen, k, (int)vlen, v);
}

static void add_delete_cf(void *state, uint32_t id, const char *k, size_t klen) {
  sprintf((char *)state + strlen(state), "%u:-%.*s ", id, (int)klen, k);
}

static void add_merge_cf(void *state, uint32_t id, const char *k, size_t klen, const char *v,
                         size_t vlen) {
  sprintf((char *)state + strlen(state), "%u:%.*s+%.*s ", id, (int)klen, k, (int)vlen, v);
}

static const char *pieces[2] = {"p", "q"}, *ends[2] = {"p", "r"};
static const size_t piece_lens[2] = {1, 1};

static void plain(void) {
  char text[400] = "";
  size_t size;
  void *batch = rocksdb_writebatch_create(), *copy;
  CHECK(rocksdb_writebatch_data(batch, &size) && size == 12);
  rocksdb_writebatch_put(batch, S("x"), S("0"));
  rocksdb_writebatch_clear(batch);
  rocksdb_writebatch_put(batch, S("a"), S("1"));
  rocksdb_writebatch_put_log_data(batch, S("log"));
  rocksdb_writebatch_put_cf(batch, family, S("b"), S("2"));
  rocksdb_writebatch_putv(batch, 2, pieces, piece_lens, 1, pieces, piece_lens);
  rocksdb_writebatch_putv_cf(batch, family, 1, pieces, piece_lens, 2, pieces, piece_lens);
  rocksdb_writebatch_delete(batch, S("a"));
  rocksdb_writebatch_delete_cf(batch, family, S("x"));
  rocksdb_writebatch_singledelete(batch, S("y"));
  rocksdb_writebatch_singledelete_cf(batch, family, S("z"));
  rocksdb_writebatch_deletev(batch, 1, pieces, piece_lens);
  rocksdb_writebatch_deletev_cf(batch, family, 1, ends, piece_lens);
  CHECK(rocksdb_writebatch_count(batch) == 10);
  rocksdb_writebatch_iterate(batch, text, add_put, add_delete);
  const char *expected = "a=1 b=2 pq=p p=pq -a -x -y -z -p -p ";
  CHECK(!strcmp(text, expected));
  *text = 0;
  rocksdb_writebatch_iterate_ld(batch, text, add_put, add_delete, add_delete);
  CHECK(!strcmp(text, expected));
  rocksdb_writebatch_set_save_point(batch);
  rocksdb_writebatch_delete_range(batch, S("a"), S("z"));
  rocksdb_writebatch_delete_range_cf(batch, family, S("a"), S("z"));
  rocksdb_writebatch_delete_rangev(batch, 2, pieces, piece_lens, ends, piece_lens);
  rocksdb_writebatch_delete_rangev_cf(batch, family, 2, pieces, piece_lens, ends, piece_lens);
  rocksdb_writebatch_merge(batch, S("m"), S("1"));
  rocksdb_writebatch_merge_cf(batch, family, S("m"), S("2"));
  rocksdb_writebatch_mergev(batch, 1, pieces, piece_lens, 1, pieces, piece_lens);
  rocksdb_writebatch_mergev_cf(batch, family, 1, pieces, piece_lens, 1, pieces, piece_lens);
  CHECK(rocksdb_writebatch_count(batch) == 18);
  OK(rocksdb_writebatch_verify_checksum(batch, &err));
  const char *data = rocksdb_writebatch_data(batch, &size);
  copy = rocksdb_writebatch_create_from(data, size);
  *text = 0;
  rocksdb_writebatch_iterate_cf(copy, text, add_put_cf, add_delete_cf, add_merge_cf);
  uint32_t id = rocksdb_column_family_handle_get_id(family);
  CHECK(id == 1 && strstr(text, "0:a=1 1:b=2 0:pq=p ") && strstr(text, "0:m+1 1:m+2 0:p+p 1:p+p "));
  char again[400] = "";
  rocksdb_writebatch_iterate_cf_ld(copy, again, add_put_cf, add_delete_cf, add_merge_cf, NULL);
  CHECK(!strcmp(text, again));
  rocksdb_writebatch_destroy(copy);
  OK(rocksdb_writebatch_rollback_to_save_point(batch, &err));
  CHECK(rocksdb_writebatch_count(batch) == 10);
  FAILS(rocksdb_writebatch_rollback_to_save_point(batch, &err), "NotFound: ");
  rocksdb_writebatch_set_save_point(batch);
  OK(rocksdb_writebatch_pop_save_point(batch, &err));
  OK(rocksdb_write(db, wo, batch, &err));
  CHECK(holds(db, ro, "pq", "p") && holds(db, ro, "a", NULL) && holds_cf(db, ro, family, "b", "2"));
  rocksdb_writebatch_destroy(batch);

  batch = rocksdb_writebatch_create_with_params(0, 0, 0, 0);
  rocksdb_writebatch_put_cf_with_ts(batch, family, S("k"), S("t"), S("v"));
  rocksdb_writebatch_delete_cf_with_ts(batch, family, S("k"), S("t"));
  rocksdb_writebatch_singledelete_cf_with_ts(batch, family, S("k"), S("t"));
  FAILS(rocksdb_write(db, wo, batch, &err), "Not implemented: ");
  rocksdb_writebatch_destroy(batch);
  batch = rocksdb_writebatch_create_from(S("not a batch of this library"));
  FAILS(rocksdb_write(db, wo, batch, &err), "Invalid argument: ");
  rocksdb_writebatch_destroy(batch);
}

static bool in_batch(void *batch, const char *key, const char *expected) {
  size_t len;
  char *value = rocksdb_writebatch_wi_get_from_batch(batch, options, S(key), &len, &err);
  CHECK(!err);
  return take(value, len, expected);
}

static bool in_both(void *batch, const char *key, const char *expected) {
  size_t len;
  char *value = rocksdb_writebatch_wi_get_from_batch_and_db(batch, db, ro, S(key), &len, &err);
  CHECK(!err);
  return take(value, len, expected);
}

static void indexed(void) {
  char text[400] = "";
  size_t size;
  for (const char *key = "aceg"; *key; key++) {
    OK(rocksdb_put(db, wo, key, 1, S("old"), &err));
    OK(rocksdb_put_cf(db, wo, family, key, 1, S("old"), &err));
  }
  OK(rocksdb_delete(db, wo, S("pq"), &err));
  void *batch = rocksdb_writebatch_wi_create(0, 1);
  rocksdb_writebatch_wi_put(batch, S("z"), S("0"));
  rocksdb_writebatch_wi_clear(batch);
  rocksdb_writebatch_wi_put(batch, S("b"), S("new"));
  rocksdb_writebatch_wi_put(batch, S("c"), S("new"));
  rocksdb_writebatch_wi_delete(batch, S("e"));
  rocksdb_writebatch_wi_put(batch, S("h"), S("new"));
  rocksdb_writebatch_wi_put_log_data(batch, S("log"));
  CHECK(in_batch(batch, "b", "new") && in_batch(batch, "a", NULL) && in_batch(batch, "e", NULL));
  CHECK(in_both(batch, "a", "old") && in_both(batch, "c", "new") && in_both(batch, "e", NULL));
  void *pinned;
  OK(pinned = rocksdb_writebatch_wi_get_pinned_from_batch_and_db(batch, db, ro, S("c"), &err));
  CHECK(take_pinned(pinned, "new"));
  void *iterator = rocksdb_writebatch_wi_create_iterator_with_base(
      batch, rocksdb_create_iterator(db, ro));
  /* It turns around between the entries of both sources. */
  rocksdb_iter_seek(iterator, S("bb"));
  CHECK(is_on(iterator, "c", "new"));
  rocksdb_iter_prev(iterator);
  CHECK(is_on(iterator, "b", "new"));
  rocksdb_iter_prev(iterator);
  CHECK(is_on(iterator, "a", "old"));
  rocksdb_iter_next(iterator);
  rocksdb_iter_next(iterator);
  rocksdb_iter_next(iterator);
  CHECK(is_on(iterator, "g", "old"));
  rocksdb_iter_prev(iterator);
  CHECK(is_on(iterator, "c", "new"));
  rocksdb_iter_seek_for_prev(iterator, S("f"));
  CHECK(is_on(iterator, "c", "new"));
  rocksdb_iter_seek(iterator, S("i"));
  CHECK(is_on(iterator, NULL, NULL));
  CHECK(has_keys(iterator, "a b c g h "));
  void *bounded = rocksdb_readoptions_create();
  rocksdb_readoptions_set_iterate_lower_bound(bounded, S("b"));
  rocksdb_readoptions_set_iterate_upper_bound(bounded, S("h"));
  CHECK(has_keys(rocksdb_writebatch_wi_create_iterator_with_base_readopts(
                     batch, rocksdb_create_iterator(db, bounded), bounded), "b c g "));
  rocksdb_readoptions_destroy(bounded);

  rocksdb_writebatch_wi_set_save_point(batch);
  rocksdb_writebatch_wi_put_cf(batch, family, S("b"), S("new"));
  rocksdb_writebatch_wi_delete_cf(batch, family, S("e"));
  rocksdb_writebatch_wi_singledelete(batch, S("a"));
  rocksdb_writebatch_wi_singledelete_cf(batch, family, S("a"));
  rocksdb_writebatch_wi_putv(batch, 2, pieces, piece_lens, 1, pieces, piece_lens);
  rocksdb_writebatch_wi_putv_cf(batch, family, 2, pieces, piece_lens, 1, pieces, piece_lens);
  rocksdb_writebatch_wi_deletev(batch, 1, pieces, piece_lens);
  rocksdb_writebatch_wi_deletev_cf(batch, family, 1, pieces, piece_lens);
  CHECK(rocksdb_writebatch_wi_count(batch) == 12);
  char *value = rocksdb_writebatch_wi_get_from_batch_cf(batch, options, family, S("pq"), &size, &err);
  CHECK(take(value, size, "p"));
  value = rocksdb_writebatch_wi_get_from_batch_and_db_cf(batch, db, ro, family, S("c"), &size, &err);
  CHECK(take(value, size, "old"));
  OK(pinned = rocksdb_writebatch_wi_get_pinned_from_batch_and_db_cf(batch, db, ro, family, S("e"),
                                                                    &err));
  CHECK(take_pinned(pinned, NULL));
  CHECK(has_keys(rocksdb_writebatch_wi_create_iterator_with_base_cf(
                     batch, rocksdb_create_iterator_cf(db, ro, family), family), "b c g pq "));
  CHECK(has_keys(rocksdb_writebatch_wi_create_iterator_with_base_cf_readopts(
                     batch, rocksdb_create_iterator_cf(db, ro, family), family, ro), "b c g pq "));
  rocksdb_writebatch_wi_iterate(batch, text, add_put, add_delete);
  CHECK(strstr(text, "b=new c=new -e h=new b=new -e "));
  const char *data = rocksdb_writebatch_wi_data(batch, &size);
  void *copy = rocksdb_writebatch_create_from(data, size);
  CHECK(rocksdb_writebatch_count(copy) == 12);
  rocksdb_writebatch_destroy(copy);
  OK(rocksdb_writebatch_wi_rollback_to_save_point(batch, &err));
  CHECK(rocksdb_writebatch_wi_count(batch) == 4 && in_both(batch, "a", "old"));
  rocksdb_writebatch_wi_merge(batch, S("h"), S("1"));
  rocksdb_writebatch_wi_merge_cf(batch, family, S("m"), S("1"));
  rocksdb_writebatch_wi_mergev(batch, 1, pieces, piece_lens, 1, pieces, piece_lens);
  rocksdb_writebatch_wi_mergev_cf(batch, family, 1, pieces, piece_lens, 1, pieces, piece_lens);
  FAILS(rocksdb_write_writebatch_wi(db, wo, batch, &err), "Invalid argument: ");
  rocksdb_writebatch_wi_clear(batch);
  rocksdb_writebatch_wi_put(batch, S("w"), S("1"));
  OK(rocksdb_write_writebatch_wi(db, wo, batch, &err));
  CHECK(holds(db, ro, "w", "1"));
  rocksdb_writebatch_wi_delete_range(batch, S("a"), S("b"));
  FAILS(rocksdb_write_writebatch_wi(db, wo, batch, &err), "Not implemented: ");
  rocksdb_writebatch_wi_destroy(batch);
  batch = rocksdb_writebatch_wi_create_with_params(NULL, 0, 1, 0, 0);
  rocksdb_writebatch_wi_delete_range_cf(batch, family, S("a"), S("b"));
  rocksdb_writebatch_wi_delete_rangev(batch, 1, pieces, piece_lens, ends, piece_lens);
  rocksdb_writebatch_wi_delete_rangev_cf(batch, family, 1, pieces, piece_lens, ends, piece_lens);
  FAILS(rocksdb_write_writebatch_wi(db, wo, batch, &err), "Not implemented: ");
  rocksdb_writebatch_wi_destroy(batch);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  options = new_options();
  wo = rocksdb_writeoptions_create();
  ro = rocksdb_readoptions_create();
  OK(db = rocksdb_open(options, path_of(argv, "db"), &err));
  OK(family = rocksdb_create_column_family(db, options, "one", &err));
  plain();
  indexed();
  rocksdb_column_family_handle_destroy(family);
  rocksdb_close(db);
  rocksdb_options_destroy(options);
  rocksdb_writeoptions_destroy(wo);
  rocksdb_readoptions_destroy(ro);
  puts("ok");
  return 0;
}
