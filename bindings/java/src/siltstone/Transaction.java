package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;

/**
 * A transaction on one table: reads show the table as of its beginning with its own writes, and its
 * writes are applied together if nothing that it has read has changed. One that is not used for
 * {@link Options#idle} expires. {@link #close} discards the writes of one that was not committed.
 *
 * <p>Errors of its writes: {@link Code#TOO_LARGE}; {@link Code#INVALID} if it was committed; {@link
 * Code#CLOSED}.
 */
public final class Transaction extends NativeReads implements AutoCloseable {
  private static final MethodHandle FREE = Library.procedure("transaction_free", ADDRESS);
  private static final Functions FUNCTIONS = Functions.of("transaction");
  private static final Writes WRITES = Writes.of("transaction");
  private static final MethodHandle WRITE =
      Library.fallible("transaction_write", ADDRESS, ADDRESS);
  private static final MethodHandle COMMIT =
      Library.fallible("transaction_commit", ADDRESS, JAVA_BOOLEAN);

  /** What {@link Table#transact} runs. */
  @FunctionalInterface
  public interface Work<T, E extends Exception> {
    /** Reads and writes; must neither commit nor keep the transaction. */
    T run(Transaction transaction) throws E;
  }

  /** What {@link #retry} runs. */
  interface Attempt<T, E extends Exception> {
    T run() throws E;
  }

  private static final int MAX_TRIES = 16;
  private static final long FIRST_PAUSE_NS = 100_000;
  private static final long MAX_PAUSE_NS = 10_000_000;

  /** Runs an attempt again after exceptions of the store that are retryable. */
  static <T, E extends Exception> T retry(Attempt<T, E> attempt) throws E {
    long limit = FIRST_PAUSE_NS;
    for (int number = 1; ; number++) {
      try {
        return attempt.run();
      } catch (SiltstoneException failed) {
        if (!failed.isRetryable() || number == MAX_TRIES) {
          throw failed;
        }
      }
      LockSupport.parkNanos(ThreadLocalRandom.current().nextLong(limit));
      limit = Math.min(2 * limit, MAX_PAUSE_NS);
    }
  }

  Transaction(MemorySegment transaction) {
    super(new Handle(transaction, "transaction", FREE), FUNCTIONS);
  }

  @Override
  public synchronized byte[] get(byte[] key) {
    return super.get(key);
  }

  @Override
  public synchronized boolean contains(byte[] key) {
    return super.contains(key);
  }

  @Override
  public synchronized byte[][] multiGet(byte[]... keys) {
    return super.multiGet(keys);
  }

  @Override
  public synchronized Cursor range(byte[] start, byte[] end) {
    return super.range(start, end);
  }

  @Override
  public synchronized Cursor prefix(byte[] prefix) {
    return super.prefix(prefix);
  }

  /** Sets the value of a key at the commit. */
  public synchronized void put(byte[] key, byte[] value) {
    WRITES.put(handle, key, value);
  }

  /** Sets the value of a key at the commit. The value expires after a time, counted from now. */
  public void put(byte[] key, byte[] value, Duration ttl) {
    put(key, value, Library.after(ttl));
  }

  /** Sets the value of a key at the commit. The value expires at a time. */
  public synchronized void put(byte[] key, byte[] value, Instant expiresAt) {
    WRITES.put(handle, key, value, expiresAt);
  }

  /** Removes a key at the commit. */
  public synchronized void delete(byte[] key) {
    WRITES.delete(handle, key);
  }

  /** Adds all writes of a batch. */
  public synchronized void write(Batch batch) {
    MemorySegment transaction = handle.acquire();
    try {
      batch.apply(WRITE, transaction, false);
    } finally {
      handle.release();
    }
  }

  /**
   * Applies all writes, or none, and ends the transaction in any case.
   *
   * <p>Errors: {@link Code#CONFLICT}: what it has read has changed, and {@link Code#EXPIRED}:
   * nothing was applied, run it again from its beginning. {@link Code#INVALID} if it has ended
   * already. Others as of the writes of {@link Table}.
   */
  public void commit() {
    commit(false);
  }

  /** {@link #commit}, and the writes survive a power cut once it returns. */
  public void commitSync() {
    commit(true);
  }

  synchronized void commit(boolean synced) {
    MemorySegment transaction = handle.acquire();
    try {
      Library.run(COMMIT, transaction, synced);
    } finally {
      handle.release();
    }
  }

  /** Frees the transaction, and discards its writes if it was not committed. */
  @Override
  public void close() {
    handle.close();
  }
}
