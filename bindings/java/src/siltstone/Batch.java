package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.time.Duration;
import java.time.Instant;

/**
 * A list of writes that is applied in order, completely or not at all, by {@link Table#write} or
 * {@link Transaction#write}.
 */
public final class Batch implements AutoCloseable {
  private static final MethodHandle CREATE = Library.function("batch_create", ADDRESS);
  private static final MethodHandle FREE = Library.procedure("batch_free", ADDRESS);
  private static final Writes WRITES = Writes.of("batch");
  private static final MethodHandle CLEAR = Library.fallible("batch_clear", ADDRESS);
  private static final MethodHandle COUNT = Library.function("batch_count", JAVA_LONG, ADDRESS);

  private final Handle handle =
      new Handle((MemorySegment) Library.call(CREATE), "batch", FREE);

  /** An empty batch. */
  public Batch() {}

  /** Adds the assignment of a value to a key. */
  public synchronized void put(byte[] key, byte[] value) {
    WRITES.put(handle, key, value);
  }

  /** Adds the assignment of a value that expires after a time, counted from now. */
  public void put(byte[] key, byte[] value, Duration ttl) {
    put(key, value, Instant.now().plus(ttl));
  }

  /** Adds the assignment of a value that expires at a time. */
  public synchronized void put(byte[] key, byte[] value, Instant expiresAt) {
    WRITES.put(handle, key, value, expiresAt);
  }

  /** Adds the removal of a key. Removing a missing key is not an error. */
  public synchronized void delete(byte[] key) {
    WRITES.delete(handle, key);
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

  /** Frees the batch. */
  @Override
  public void close() {
    handle.close();
  }
}
