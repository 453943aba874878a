/*
 * LevelDB's C interface (1.23) as Siltstone implements it: see bindings/leveldb/README.md.
 *
 * Generated from bindings/leveldb/src by `UPDATE=1 cargo test -p siltstone-leveldb`; do not edit. Programs
 * can be compiled with LevelDB's own header as well.
 *
 * Errors are malloc()ed strings behind `char **errptr`, which must be NULL or such a string; a new one
 * replaces it. All other pointers must be valid, except where NULL is mentioned. Databases and
 * snapshots can be used by several threads at the same time, other objects by one at a time.
 */


#ifndef STORAGE_LEVELDB_INCLUDE_C_H_
#define STORAGE_LEVELDB_INCLUDE_C_H_

#include <stddef.h>
#include <stdint.h>

/*
 A cache: its capacity.
 */
typedef struct leveldb_cache_t leveldb_cache_t;

/*
 A comparator, of which only the name matters.
 */
typedef struct leveldb_comparator_t leveldb_comparator_t;

/*
 The operating system.
 */
typedef struct leveldb_env_t leveldb_env_t;

/*
 A filter policy: the bits per key of a Bloom filter, or one of the program, which is not used.
 */
typedef struct leveldb_filterpolicy_t leveldb_filterpolicy_t;

/*
 An iterator over a database as of its creation.
 */
typedef struct leveldb_iterator_t leveldb_iterator_t;

/*
 A log of messages, which no function makes.
 */
typedef struct leveldb_logger_t leveldb_logger_t;

/*
 Options of a database.
 */
typedef struct leveldb_options_t leveldb_options_t;

/*
 Options of reads.
 */
typedef struct leveldb_readoptions_t leveldb_readoptions_t;

/*
 A database as of the creation of the snapshot, or why there is no snapshot.
 */
typedef struct leveldb_snapshot_t leveldb_snapshot_t;

/*
 An open database.
 */
typedef struct leveldb_t leveldb_t;

/*
 Writes that are applied together.
 */
typedef struct leveldb_writebatch_t leveldb_writebatch_t;

/*
 Options of writes.
 */
typedef struct leveldb_writeoptions_t leveldb_writeoptions_t;

/*
 A function that frees the state of a comparator or filter policy.
 */
typedef void (*leveldb_destructor)(void *state);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 A new, empty batch.
 */
leveldb_writebatch_t *leveldb_writebatch_create(void);

/*
 Frees a batch.
 */
void leveldb_writebatch_destroy(leveldb_writebatch_t *batch);

/*
 Removes all operations.
 */
void leveldb_writebatch_clear(leveldb_writebatch_t *batch);

/*
 Adds the assignment of a value to a key.
 */
void leveldb_writebatch_put(leveldb_writebatch_t *batch,
                            const char *key,
                            size_t klen,
                            const char *val,
                            size_t vlen);

/*
 Adds the removal of a key.
 */
void leveldb_writebatch_delete(leveldb_writebatch_t *batch, const char *key, size_t klen);

/*
 Calls `put` or `deleted` for each operation, in order. Keys and values are valid during the
 call.
 */
void leveldb_writebatch_iterate(const leveldb_writebatch_t *batch,
                                void *state,
                                void (*put)(void *state,
                                            const char *k,
                                            size_t klen,
                                            const char *v,
                                            size_t vlen),
                                void (*deleted)(void *state, const char *k, size_t klen));

/*
 Adds all operations of another batch.
 */
void leveldb_writebatch_append(leveldb_writebatch_t *destination,
                               const leveldb_writebatch_t *source);

/*
 Opens the database in the directory `name`. NULL after an error.
 */
leveldb_t *leveldb_open(const leveldb_options_t *options, const char *name, char **errptr);

/*
 Closes and frees a database. Destroy its iterators and release its snapshots before.
 */
void leveldb_close(leveldb_t *db);

/*
 Sets the value of a key.
 */
void leveldb_put(const leveldb_t *db,
                 const leveldb_writeoptions_t *options,
                 const char *key,
                 size_t keylen,
                 const char *val,
                 size_t vallen,
                 char **errptr);

/*
 Removes a key.
 */
void leveldb_delete(const leveldb_t *db,
                    const leveldb_writeoptions_t *options,
                    const char *key,
                    size_t keylen,
                    char **errptr);

/*
 Applies a batch atomically.
 */
void leveldb_write(const leveldb_t *db,
                   const leveldb_writeoptions_t *options,
                   const leveldb_writebatch_t *batch,
                   char **errptr);

/*
 A copy of the value of a key, to be freed with leveldb_free(). NULL if there is none, and after
 an error.
 */
char *leveldb_get(const leveldb_t *db,
                  const leveldb_readoptions_t *options,
                  const char *key,
                  size_t keylen,
                  size_t *vallen,
                  char **errptr);

/*
 The database as of now. Release it with leveldb_release_snapshot().
 */
const leveldb_snapshot_t *leveldb_create_snapshot(const leveldb_t *db);

/*
 Releases a snapshot.
 */
void leveldb_release_snapshot(const leveldb_t *_db, const leveldb_snapshot_t *snapshot);

/*
 Compacts the keys from one to another, both included; a null key is the first or the last one.
 */
void leveldb_compact_range(const leveldb_t *db,
                           const char *start_key,
                           size_t start_key_len,
                           const char *limit_key,
                           size_t limit_key_len);

/*
 Removes a database with all of its entries. A missing one is not an error.
 */
void leveldb_destroy_db(const leveldb_options_t *_options, const char *name, char **errptr);

/*
 Repairs a database that is not open, as far as possible. Damaged files are kept as *.damaged.
 */
void leveldb_repair_db(const leveldb_options_t *_options, const char *name, char **errptr);

/*
 An iterator over the database as of now, or at the snapshot of the options. It is on no entry.
 An error is reported by leveldb_iter_get_error(). Destroy it before the database is closed.
 */
leveldb_iterator_t *leveldb_create_iterator(const leveldb_t *db,
                                            const leveldb_readoptions_t *options);

/*
 Frees an iterator.
 */
void leveldb_iter_destroy(leveldb_iterator_t *iterator);

/*
 Whether the iterator is on an entry.
 */
uint8_t leveldb_iter_valid(const leveldb_iterator_t *iterator);

/*
 Moves to the first entry.
 */
void leveldb_iter_seek_to_first(leveldb_iterator_t *iterator);

/*
 Moves to the last entry.
 */
void leveldb_iter_seek_to_last(leveldb_iterator_t *iterator);

/*
 Moves to the first entry whose key is not less than `k`.
 */
void leveldb_iter_seek(leveldb_iterator_t *iterator, const char *k, size_t klen);

/*
 Moves to the next entry. Does nothing if the iterator is on no entry.
 */
void leveldb_iter_next(leveldb_iterator_t *iterator);

/*
 Moves to the previous entry. Does nothing if the iterator is on no entry.
 */
void leveldb_iter_prev(leveldb_iterator_t *iterator);

/*
 The key under the iterator, until the next move. NULL if it is on no entry.
 */
const char *leveldb_iter_key(const leveldb_iterator_t *iterator, size_t *klen);

/*
 The value under the iterator, until the next move. NULL if it is on no entry.
 */
const char *leveldb_iter_value(const leveldb_iterator_t *iterator, size_t *vlen);

/*
 The error of the last move.
 */
void leveldb_iter_get_error(const leveldb_iterator_t *iterator, char **errptr);

/*
 New options with LevelDB's defaults.
 */
leveldb_options_t *leveldb_options_create(void);

/*
 Frees options.
 */
void leveldb_options_destroy(leveldb_options_t *options);

/*
 A comparator of another name than "leveldb.BytewiseComparator" is refused when the database is
 opened. NULL: bytewise.
 */
void leveldb_options_set_comparator(leveldb_options_t *options,
                                    const leveldb_comparator_t *comparator);

/*
 A Bloom filter policy sets the bits per key of new files; others are ignored. NULL: as they
 were, 10 in a new database.
 */
void leveldb_options_set_filter_policy(leveldb_options_t *options,
                                       const leveldb_filterpolicy_t *policy);

/*
 Whether a missing database is created. Default: false.
 */
void leveldb_options_set_create_if_missing(leveldb_options_t *options, uint8_t value);

/*
 Whether an existing database is an error. Default: false.
 */
void leveldb_options_set_error_if_exists(leveldb_options_t *options, uint8_t value);

/*
 Ignored: every byte read is checked.
 */
void leveldb_options_set_paranoid_checks(leveldb_options_t *_options, uint8_t _value);

/*
 Ignored: the environment is the operating system.
 */
void leveldb_options_set_env(leveldb_options_t *_options, const leveldb_env_t *_env);

/*
 Ignored: there is no log of messages.
 */
void leveldb_options_set_info_log(leveldb_options_t *_options, leveldb_logger_t *_log);

/*
 The size of the memtable, in bytes. Default: 4 MiB.
 */
void leveldb_options_set_write_buffer_size(leveldb_options_t *options, size_t bytes);

/*
 The maximum number of open files, from 64 to 50000. Default: 1000.
 */
void leveldb_options_set_max_open_files(leveldb_options_t *options, int files);

/*
 The size of the block cache is the cache's capacity; it is not shared with other databases.
 NULL: 64 MiB.
 */
void leveldb_options_set_cache(leveldb_options_t *options, const leveldb_cache_t *cache);

/*
 The block size of new files, in bytes. Default: 4 KiB.
 */
void leveldb_options_set_block_size(leveldb_options_t *options, size_t bytes);

/*
 The restart interval of new files. Default: 16.
 */
void leveldb_options_set_block_restart_interval(leveldb_options_t *options, int interval);

/*
 The size of new files, in bytes. Default: 2 MiB.
 */
void leveldb_options_set_max_file_size(leveldb_options_t *options, size_t bytes);

/*
 The compression of new files: 0 none, 1 fast (lz4 in place of Snappy), 2 zstd. Default: 1.
 */
void leveldb_options_set_compression(leveldb_options_t *options, int compression);

/*
 A comparator. The order of keys is bytewise, so `compare` is never called: see
 leveldb_options_set_comparator().
 */
leveldb_comparator_t *leveldb_comparator_create(void *state,
                                                leveldb_destructor destructor,
                                                int (*_compare)(void *state,
                                                                const char *a,
                                                                size_t alen,
                                                                const char *b,
                                                                size_t blen),
                                                const char *(*name)(void *state));

/*
 Frees a comparator, and calls its destructor.
 */
void leveldb_comparator_destroy(leveldb_comparator_t *comparator);

/*
 A filter policy of the program. It is never called: the store has its own filters, with the same
 results for reads.
 */
leveldb_filterpolicy_t *leveldb_filterpolicy_create(void *state,
                                                    leveldb_destructor destructor,
                                                    char *(*_create_filter)(void *state,
                                                                            const char *const *key_array,
                                                                            const size_t *key_length_array,
                                                                            int num_keys,
                                                                            size_t *filter_length),
                                                    uint8_t (*_key_may_match)(void *state,
                                                                              const char *key,
                                                                              size_t length,
                                                                              const char *filter,
                                                                              size_t filter_length),
                                                    const char *(*_name)(void *state));

/*
 A Bloom filter policy.
 */
leveldb_filterpolicy_t *leveldb_filterpolicy_create_bloom(int bits_per_key);

/*
 Frees a filter policy, and calls its destructor.
 */
void leveldb_filterpolicy_destroy(leveldb_filterpolicy_t *policy);

/*
 A cache of `capacity` bytes: see leveldb_options_set_cache().
 */
leveldb_cache_t *leveldb_cache_create_lru(size_t capacity);

/*
 Frees a cache.
 */
void leveldb_cache_destroy(leveldb_cache_t *cache);

/*
 The operating system as environment.
 */
leveldb_env_t *leveldb_create_default_env(void);

/*
 Frees an environment.
 */
void leveldb_env_destroy(leveldb_env_t *env);

/*
 A directory for tests, which exists: TEST_TMPDIR, or /tmp/leveldbtest-UID. Free it with
 leveldb_free(). NULL if it cannot be created.
 */
char *leveldb_env_get_test_directory(const leveldb_env_t *_env);

/*
 New options of reads.
 */
leveldb_readoptions_t *leveldb_readoptions_create(void);

/*
 Frees options of reads.
 */
void leveldb_readoptions_destroy(leveldb_readoptions_t *options);

/*
 Ignored: every byte read is checked.
 */
void leveldb_readoptions_set_verify_checksums(leveldb_readoptions_t *_options, uint8_t _value);

/*
 Ignored: all blocks read are cached.
 */
void leveldb_readoptions_set_fill_cache(leveldb_readoptions_t *_options, uint8_t _value);

/*
 Reads show the snapshot, which they keep even after its release. NULL: the present.
 */
void leveldb_readoptions_set_snapshot(leveldb_readoptions_t *options,
                                      const leveldb_snapshot_t *snapshot);

/*
 New options of writes.
 */
leveldb_writeoptions_t *leveldb_writeoptions_create(void);

/*
 Frees options of writes.
 */
void leveldb_writeoptions_destroy(leveldb_writeoptions_t *options);

/*
 Whether a write survives a power cut once it returns. Default: false.
 */
void leveldb_writeoptions_set_sync(leveldb_writeoptions_t *options, uint8_t value);

/*
 The value of a property, to be freed with leveldb_free(): leveldb.num-files-at-level<N>,
 leveldb.stats, leveldb.sstables, leveldb.approximate-memory-usage. NULL for another name.
 */
char *leveldb_property_value(const leveldb_t *db, const char *propname);

/*
 Estimates the bytes of keys and values in each of `num_ranges` ranges, from a start key to
 before a limit key. Reads up to 100000 entries per range. 0 after an error.
 */
void leveldb_approximate_sizes(const leveldb_t *db,
                               int num_ranges,
                               const char *const *range_start_key,
                               const size_t *range_start_key_len,
                               const char *const *range_limit_key,
                               const size_t *range_limit_key_len,
                               uint64_t *sizes);

/*
 Calls free(). NULL is allowed.
 */
void leveldb_free(void *ptr);

/*
 The version of LevelDB whose interface this is: 1.23.
 */
int32_t leveldb_major_version(void);

/*
 See leveldb_major_version().
 */
int32_t leveldb_minor_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STORAGE_LEVELDB_INCLUDE_C_H_ */
