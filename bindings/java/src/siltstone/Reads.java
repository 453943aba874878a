package siltstone;

/**
 * What can be read: a {@link Table}, a {@link Snapshot} of it, or a {@link Transaction} on it.
 *
 * <p>Errors of all reads: {@link Code#TOO_LARGE} for a key that is too long; {@link
 * Code#CORRUPTION}; {@link Code#IO}; {@link Code#CLOSED}; and {@link Code#EXPIRED} of snapshots and
 * transactions.
 */
public interface Reads {
  /** The value of a key; null if the key has no value. */
  byte[] get(byte[] key);

  /** Whether a key has a value. */
  boolean contains(byte[] key);

  /**
   * The values of keys in their order; null for each that has no value. On the engine lsm all
   * values are of one moment.
   */
  byte[][] multiGet(byte[]... keys);

  /** A cursor over all entries. */
  Cursor cursor();

  /**
   * A cursor over the keys from {@code start} to before {@code end}; null is no bound. Engines
   * without order have no bounds.
   *
   * <p>Errors: {@link Code#INVALID} for a range that starts after its end; {@link
   * Code#UNSUPPORTED}.
   */
  Cursor range(byte[] start, byte[] end);

  /** A cursor over the keys that start with {@code prefix}. Engines with an order only. */
  Cursor prefix(byte[] prefix);
}
