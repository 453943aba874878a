package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

/**
 * A table of a store. Several can be open of one table: they have the same content and
 * transactions.
 *
 * <p>Writes are buffered: they survive a crash of the process, and a power cut once {@link #sync},
 * {@link #writeSync}, {@link Transaction#commitSync} or {@link #transactSync} has returned. Errors
 * of all writes: {@link Code#TOO_LARGE} and a full disk: nothing was written; {@link
 * Code#READ_ONLY}; {@link Code#REFUSED} by a store that is open read-only; {@link Code#CLOSED}.
 * After another {@link Code#IO} the outcome is unknown until the store is reopened.
 */
public final class Table extends NativeReads implements AutoCloseable {
  private static final MethodHandle FREE = Library.procedure("table_free", ADDRESS);
  private static final Functions FUNCTIONS = Functions.of("table");
  private static final Writes WRITES = Writes.of("table");
  private static final MethodHandle WRITE =
      Library.fallible("table_write", ADDRESS, ADDRESS, JAVA_BOOLEAN);
  private static final MethodHandle TRY_WRITE =
      Library.fallible("table_try_write", ADDRESS, ADDRESS, ADDRESS);
  private static final MethodHandle DELETE_RANGE =
      Library.fallible("table_delete_range", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG);
  private static final MethodHandle COMPACT_RANGE =
      Library.fallible("table_compact_range", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG);
  private static final MethodHandle SET_OPTIONS =
      Library.fallible("table_set_options", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS);
  private static final MethodHandle SET_MERGE_OPERATOR =
      Library.fallible("table_set_merge_operator", ADDRESS, ADDRESS);
  private static final MethodHandle MERGE =
      Library.fallible("table_merge", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG);
  private static final MethodHandle COMPARE_AND_SWAP =
      Library.fallible(
          "table_compare_and_swap",
          ADDRESS,
          ADDRESS,
          JAVA_LONG,
          ADDRESS,
          JAVA_LONG,
          ADDRESS,
          JAVA_LONG,
          ADDRESS);
  private static final MethodHandle POP_FIRST =
      Library.fallible("table_pop_first", ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS);
  private static final MethodHandle POP_LAST =
      Library.fallible("table_pop_last", ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS);
  private static final MethodHandle INGEST =
      Library.fallible("table_ingest", ADDRESS, JAVA_LONG, ADDRESS, JAVA_INT, ADDRESS);
  private static final MethodHandle CLEAR = Library.fallible("table_clear", ADDRESS);
  private static final MethodHandle SYNC = Library.fallible("table_sync", ADDRESS);
  private static final MethodHandle FLUSH = Library.fallible("table_flush", ADDRESS);
  private static final MethodHandle MAINTAIN = Library.fallible("table_maintain", ADDRESS);
  private static final MethodHandle STATS = Library.fallible("table_stats", ADDRESS, ADDRESS);
  private static final MethodHandle COUNT = Library.fallible("table_count", ADDRESS, ADDRESS);
  private static final MethodHandle APPROXIMATE_LEN =
      Library.fallible("table_approximate_len", ADDRESS, ADDRESS);
  private static final MethodHandle SNAPSHOT = Library.fallible("snapshot_create", ADDRESS, ADDRESS);
  private static final MethodHandle SNAPSHOT_AT =
      Library.fallible("snapshot_create_at", ADDRESS, JAVA_LONG, ADDRESS);
  private static final MethodHandle CHANGES =
      Library.fallible("table_changes", ADDRESS, JAVA_LONG, JAVA_BOOLEAN, ADDRESS);
  private static final MethodHandle BEGIN = Library.fallible("transaction_begin", ADDRESS, ADDRESS);

  /** The merge operator that adds integers of 8 bytes, little-endian. */
  public static final String MERGE_COUNTER = "siltstone.counter";

  Table(MemorySegment table) {
    super(new Handle(table, "table", FREE), FUNCTIONS);
  }

  /** Sets the value of a key. Waits while background work is behind. */
  public void put(byte[] key, byte[] value) {
    WRITES.put(handle, key, value);
  }

  /** Sets the value of a key, which expires after a time. */
  public void put(byte[] key, byte[] value, Duration ttl) {
    put(key, value, Library.after(ttl));
  }

  /** Sets the value of a key, which expires at a time. */
  public void put(byte[] key, byte[] value, Instant expiresAt) {
    WRITES.put(handle, key, value, expiresAt);
  }

  /** Removes a key. Removing a missing key is not an error. */
  public void delete(byte[] key) {
    WRITES.delete(handle, key);
  }

  /**
   * Removes every key from {@code start} to before {@code end}, at a cost independent of their
   * number; null is no bound. Earlier snapshots still show the keys. On the engine lsm only.
   *
   * <p>Errors: {@link Code#UNSUPPORTED}; {@link Code#INVALID} for a range that starts after its
   * end.
   */
  public void deleteRange(byte[] start, byte[] end) {
    Writes.callRange(DELETE_RANGE, handle, start, end);
  }

  /** The name of the merge operator that joins values with a separator. */
  public static String mergeAppend(byte[] separator) {
    return "siltstone.append:" + HexFormat.of().formatHex(separator);
  }

  /**
   * Sets the merge operator of the table, {@link #MERGE_COUNTER} or one of {@link #mergeAppend}. It
   * is recorded, and set again when the table is opened. The table takes no values that expire
   * then. On the engine lsm only.
   *
   * <p>Errors: {@link Code#UNSUPPORTED}; {@link Code#INVALID} for an unknown operator, for another
   * one than the recorded one, and for a table with values that expire.
   */
  public void setMergeOperator(String name) {
    MemorySegment table = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      Library.run(SET_MERGE_OPERATOR, table, Library.text(arena, name, "name"));
    } finally {
      handle.release();
    }
  }

  /**
   * Merges an operand into a key without reading its value. On the engine lsm only.
   *
   * <p>Errors: {@link Code#UNSUPPORTED}; {@link Code#INVALID} without a merge operator, or if it
   * refuses the operand.
   */
  public void merge(byte[] key, byte[] operand) {
    Writes.call(MERGE, handle, key, operand);
  }

  /**
   * Sets the value of a key to {@code value}, or removes the key if that is null, if its value is
   * {@code expected}, or if it has none and {@code expected} is null; atomically and buffered. The
   * new value does not expire. Returns whether the value was the expected one.
   */
  public boolean compareAndSwap(byte[] key, byte[] expected, byte[] value) {
    MemorySegment table = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment isSwapped = arena.allocate(JAVA_BOOLEAN);
      Library.run(
          COMPARE_AND_SWAP,
          table,
          Library.bytes(arena, key),
          (long) key.length,
          expected == null ? MemorySegment.NULL : Library.bytes(arena, expected),
          expected == null ? 0L : expected.length,
          value == null ? MemorySegment.NULL : Library.bytes(arena, value),
          value == null ? 0L : value.length,
          isSwapped);
      return isSwapped.get(JAVA_BOOLEAN, 0);
    } finally {
      handle.release();
    }
  }

  /**
   * Removes the entry with the smallest key, buffered, and returns it; null if the table is empty.
   * Concurrent calls return different entries. On the engine lsm only.
   *
   * <p>Errors: {@link Code#UNSUPPORTED}; those of reads and writes.
   */
  public Map.Entry<byte[], byte[]> popFirst() {
    return pop(POP_FIRST);
  }

  /** {@link #popFirst}, for the greatest key. */
  public Map.Entry<byte[], byte[]> popLast() {
    return pop(POP_LAST);
  }

  private Map.Entry<byte[], byte[]> pop(MethodHandle pop) {
    MemorySegment table = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment key = arena.allocate(ADDRESS);
      MemorySegment keyLength = arena.allocate(JAVA_LONG);
      MemorySegment value = arena.allocate(ADDRESS);
      MemorySegment valueLength = arena.allocate(JAVA_LONG);
      Library.run(pop, table, key, keyLength, value, valueLength);
      byte[] popped = Library.take(key.get(ADDRESS, 0), keyLength.get(JAVA_LONG, 0));
      byte[] of = Library.take(value.get(ADDRESS, 0), valueLength.get(JAVA_LONG, 0));
      return popped == null ? null : Map.entry(popped, of);
    } finally {
      handle.release();
    }
  }

  /** Applies a batch atomically. The batch stays as it is, and can be changed and applied again. */
  public void write(Batch batch) {
    write(batch, false);
  }

  /** {@link #write}, and the batch survives a power cut once it returns. */
  public void writeSync(Batch batch) {
    write(batch, true);
  }

  /**
   * {@link #write}, unless the write would have to wait: for background work, for another writer,
   * or beside open transactions. Then it returns false, and nothing was written: call {@link
   * #write} on a thread that may wait. lsm, trie and silt; on the other engines always false.
   */
  public boolean tryWrite(Batch batch) {
    MemorySegment table = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment isWritten = arena.allocate(JAVA_BOOLEAN);
      Batch.useAll(
          List.of(batch), objects -> Library.run(TRY_WRITE, table, objects.get(0), isWritten));
      return isWritten.get(JAVA_BOOLEAN, 0);
    } finally {
      handle.release();
    }
  }

  /** Begins a use of the table, which {@link #release} ends. */
  MemorySegment acquire() {
    return handle.acquire();
  }

  void release() {
    handle.release();
  }

  private void write(Batch batch, boolean synced) {
    MemorySegment table = handle.acquire();
    try {
      batch.apply(WRITE, table, synced);
    } finally {
      handle.release();
    }
  }

  private void run(MethodHandle function) {
    MemorySegment table = handle.acquire();
    try {
      Library.run(function, table);
    } finally {
      handle.release();
    }
  }

  /** Removes every key, durably. Earlier snapshots still show the keys. */
  public void clear() {
    run(CLEAR);
  }

  /**
   * Makes every write that has returned durable against a power cut.
   *
   * <p>Errors: {@link Code#IO}: it is unknown which of these writes are durable, and the table is
   * read-only from then on; {@link Code#READ_ONLY}; {@link Code#CLOSED}.
   */
  public void sync() {
    run(SYNC);
  }

  /** Writes buffered data to the engine's files, durably. */
  public void flush() {
    run(FLUSH);
  }

  /** Runs background work (flushes, compactions) until none is due. */
  public void maintain() {
    run(MAINTAIN);
  }

  /**
   * Compacts the keys from {@code start} to before {@code end} down to their deepest level, beside
   * other work; null is no bound. On the engine lsm only.
   *
   * <p>Errors: {@link Code#UNSUPPORTED}; {@link Code#INVALID} for a range that starts after its
   * end; {@link Code#IO}.
   */
  public void compactRange(byte[] start, byte[] end) {
    Writes.callRange(COMPACT_RANGE, handle, start, end);
  }

  /**
   * Changes options of the table, durably, and returns the names of those that take effect when the
   * table is opened next, as a JSON array.
   *
   * <p>Errors: {@link Code#INVALID_OPTIONS} with every mistake, among them options that never
   * change; {@link Code#REFUSED}; {@link Code#IO}. Nothing has changed then.
   */
  public String setOptions(Map<String, String> options) {
    MemorySegment table = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment json = arena.allocate(ADDRESS);
      MemorySegment list = Library.options(arena, options);
      Library.run(SET_OPTIONS, table, list, (long) options.size(), json);
      return Library.takeString(json);
    } finally {
      handle.release();
    }
  }

  /**
   * Makes sorted files ({@link SortedFile}) a part of the table, all at once and durably, without
   * rewriting them, and returns a report as a JSON object. Their entries replace older ones of the
   * same keys; the files must not overlap one another. On the engine lsm only.
   *
   * <p>Errors: {@link Code#UNSUPPORTED}; {@link Code#INVALID} for files that overlap or are no
   * complete sorted files; {@link Code#CORRUPTION} in a file. Nothing has changed then.
   */
  public String ingest(List<Path> paths, IngestMode mode) {
    MemorySegment table = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment json = arena.allocate(ADDRESS);
      List<String> texts = paths.stream().map(Path::toString).toList();
      MemorySegment list = Library.texts(arena, texts, "paths");
      Library.run(INGEST, table, (long) texts.size(), list, mode.ordinal(), json);
      return Library.takeString(json);
    } finally {
      handle.release();
    }
  }

  /** Counters and sizes as a JSON object. */
  public String stats() {
    MemorySegment table = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment json = arena.allocate(ADDRESS);
      Library.run(STATS, table, json);
      return Library.takeString(json);
    } finally {
      handle.release();
    }
  }

  /** Counts the keys by a scan. The cost grows with their number. */
  public long count() {
    return number(COUNT);
  }

  /**
   * Estimates the number of keys without reading any. Entries that were overwritten or deleted count
   * until compaction has removed them; exact on the engine mica.
   *
   * <p>Errors: {@link Code#UNSUPPORTED} on skimpy.
   */
  public long approximateLen() {
    return number(APPROXIMATE_LEN);
  }

  /** Returns the number that a function returns in its second argument. */
  private long number(MethodHandle function) {
    MemorySegment table = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment number = arena.allocate(JAVA_LONG);
      Library.run(function, table, number);
      return number.get(JAVA_LONG, 0);
    } finally {
      handle.release();
    }
  }

  /** Returns the pointer that a function returns in its second argument. */
  private MemorySegment create(MethodHandle function) {
    MemorySegment table = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment created = arena.allocate(ADDRESS);
      Library.run(function, table, created);
      return created.get(ADDRESS, 0);
    } finally {
      handle.release();
    }
  }

  /**
   * A view of the table at this moment, unaffected by later writes.
   *
   * <p>Errors: {@link Code#UNSUPPORTED} on the engines trie, silt and mica; {@link Code#CLOSED}.
   */
  public Snapshot snapshot() {
    return new Snapshot(create(SNAPSHOT));
  }

  /**
   * A view of the table at a time, with the writes of that millisecond. On the engine skimpy only:
   * it keeps history for the time that its option {@code retention} says.
   *
   * <p>Errors: {@link Code#UNSUPPORTED}; {@link Code#BELOW_WATERMARK} if the history does not reach
   * back so far; {@link Code#INVALID} for a time in the future; {@link Code#CLOSED}.
   */
  public Snapshot snapshotAt(Instant time) {
    MemorySegment table = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment created = arena.allocate(ADDRESS);
      Library.run(SNAPSHOT_AT, table, Library.milliseconds(time), created);
      return new Snapshot(created.get(ADDRESS, 0));
    } finally {
      handle.release();
    }
  }

  /** The changes of the table that are durable, after a sequence number. */
  public Changes changes(long since) {
    return changes(since, false);
  }

  /**
   * Follows the changes of the table after the sequence number {@code since}; 0: from the first one
   * on. A consumer stores the sequence number of the last change that it has applied, and resumes
   * there. A change is shown once it is durable, or with {@code includeUnsynced} at once: a power
   * cut may then take changes that were shown. On the engine lsm only.
   *
   * <p>Errors: {@link Code#CHANGES_UNAVAILABLE} if the log does not reach back so far: copy the
   * table from a snapshot, and resume after {@link Snapshot#sequence}. {@link Code#UNSUPPORTED};
   * {@link Code#CORRUPTION}; {@link Code#IO}; {@link Code#CLOSED}.
   */
  public Changes changes(long since, boolean includeUnsynced) {
    MemorySegment table = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment changes = arena.allocate(ADDRESS);
      Library.run(CHANGES, table, since, includeUnsynced, changes);
      return new Changes(changes.get(ADDRESS, 0));
    } finally {
      handle.release();
    }
  }

  /**
   * Begins a transaction. End it with {@link Transaction#commit}, or with {@code close}, which
   * discards its writes.
   *
   * <p>Errors: {@link Code#UNSUPPORTED} on the engines trie, silt and mica; {@link Code#CLOSED}.
   */
  public Transaction begin() {
    return new Transaction(create(BEGIN));
  }

  /**
   * Runs {@code work} in a transaction, commits it, and returns what {@code work} returned. If
   * {@code work} throws, the writes are discarded. After a conflict, or another exception of the
   * store that is retryable, it runs again from its beginning, up to 16 times with growing pauses.
   *
   * <p>Errors: {@link Code#CONFLICT} of the last try; others as of {@link Transaction#commit}.
   */
  public <T, E extends Exception> T transact(Transaction.Work<T, E> work) throws E {
    return transact(work, false);
  }

  /** {@link #transact}, and the writes survive a power cut once it returns. */
  public <T, E extends Exception> T transactSync(Transaction.Work<T, E> work) throws E {
    return transact(work, true);
  }

  private <T, E extends Exception> T transact(Transaction.Work<T, E> work, boolean synced)
      throws E {
    return Transaction.retry(
        () -> {
          try (Transaction transaction = begin()) {
            T result = work.run(transaction);
            transaction.commit(synced);
            return result;
          }
        });
  }

  /**
   * Releases this object. The table in the store stays as it is, and snapshots, transactions and
   * cursors can still be used.
   */
  @Override
  public void close() {
    handle.close();
  }
}
