package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.time.Duration;
import java.time.Instant;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/**
 * A list of writes that is applied in order, completely or not at all, by {@link Table#write},
 * {@link Store#write} or {@link Transaction#write}.
 */
public final class Batch implements AutoCloseable {
  private static final MethodHandle CREATE = Library.function("batch_create", ADDRESS);
  private static final MethodHandle FREE = Library.procedure("batch_free", ADDRESS);
  private static final Writes WRITES = Writes.of("batch");
  private static final MethodHandle DELETE_RANGE =
      Library.fallible("batch_delete_range", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG);
  private static final MethodHandle MERGE =
      Library.fallible("batch_merge", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG);
  private static final MethodHandle CLEAR = Library.fallible("batch_clear", ADDRESS);
  private static final MethodHandle COUNT = Library.function("batch_count", JAVA_LONG, ADDRESS);

  private static final AtomicLong CREATED = new AtomicLong();

  private final Handle handle =
      new Handle((MemorySegment) Library.call(CREATE), "batch", FREE);

  /** The number of batches that were created before. */
  private final long number = CREATED.getAndIncrement();

  /** The acquired object during {@link #useAll}. */
  private MemorySegment object;

  /** An empty batch. */
  public Batch() {}

  /** Adds the assignment of a value to a key. */
  public synchronized void put(byte[] key, byte[] value) {
    WRITES.put(handle, key, value);
  }

  /** Adds the assignment of a value that expires after a time, counted from now. */
  public void put(byte[] key, byte[] value, Duration ttl) {
    put(key, value, Library.after(ttl));
  }

  /** Adds the assignment of a value that expires at a time. */
  public synchronized void put(byte[] key, byte[] value, Instant expiresAt) {
    WRITES.put(handle, key, value, expiresAt);
  }

  /** Adds the removal of a key. Removing a missing key is not an error. */
  public synchronized void delete(byte[] key) {
    WRITES.delete(handle, key);
  }

  /**
   * Adds the removal of every key from {@code start} to before {@code end}; null is no bound. On
   * the engine lsm only.
   *
   * <p>Errors: {@link Code#INVALID} for a range that starts after its end.
   */
  public synchronized void deleteRange(byte[] start, byte[] end) {
    Writes.callRange(DELETE_RANGE, handle, start, end);
  }

  /**
   * Adds the merge of an operand into a key, with the merge operator of the table. On the engine
   * lsm only.
   */
  public synchronized void merge(byte[] key, byte[] operand) {
    Writes.call(MERGE, handle, key, operand);
  }

  /** Removes all operations and keeps the memory for later ones. */
  public synchronized void clear() {
    MemorySegment batch = handle.acquire();
    try {
      Library.run(CLEAR, batch);
    } finally {
      handle.release();
    }
  }

  /** The number of operations. */
  public synchronized long size() {
    MemorySegment batch = handle.acquire();
    try {
      return (long) Library.call(COUNT, batch);
    } finally {
      handle.release();
    }
  }

  /** Calls a function whose first two arguments are {@code of} and this batch. */
  synchronized void apply(MethodHandle write, MemorySegment of, boolean synced) {
    MemorySegment batch = handle.acquire();
    try {
      if (write.type().parameterCount() == 2) {
        Library.run(write, of, batch);
      } else {
        Library.run(write, of, batch, synced);
      }
    } finally {
      handle.release();
    }
  }

  /**
   * Passes the objects of batches to {@code use}, while no other thread uses them. All calls take
   * them in the order of their creation, so that no two wait for each other.
   */
  static void useAll(List<Batch> batches, Consumer<List<MemorySegment>> use) {
    List<Batch> ordered = batches.stream().sorted(Comparator.comparingLong(b -> b.number)).toList();
    useAll(ordered, 0, () -> use.accept(batches.stream().map(b -> b.object).toList()));
  }

  private static void useAll(List<Batch> ordered, int from, Runnable use) {
    if (from == ordered.size()) {
      use.run();
      return;
    }
    Batch batch = ordered.get(from);
    synchronized (batch) {
      batch.object = batch.handle.acquire();
      try {
        useAll(ordered, from + 1, use);
      } finally {
        batch.handle.release();
      }
    }
  }

  /** Frees the batch. */
  @Override
  public void close() {
    handle.close();
  }
}
