package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.time.Instant;

/**
 * A position among the entries of a table, as of the creation of the cursor.
 *
 * <p>A new cursor is not on an entry: {@link #next} moves to the first one, and {@link #prev} to
 * the last one. A move returns whether the cursor is on an entry. A cursor that has left its range
 * stays there until it is positioned by {@code first}, {@code last}, {@code seek} or {@code
 * seekBack}. On engines without order only {@code first} and {@code next} work. An open cursor
 * keeps files that compaction has replaced, so close it.
 *
 * <p>Errors of all moves: {@link Code#UNSUPPORTED}; {@link Code#EXPIRED} of a snapshot or
 * transaction; {@link Code#CORRUPTION}; {@link Code#IO}; {@link Code#CLOSED}. The cursor is not on
 * an entry then, and can be positioned again.
 */
public final class Cursor implements AutoCloseable {
  private static final MethodHandle FREE = Library.procedure("cursor_free", ADDRESS);
  private static final MethodHandle SKIP_VALUES = Library.fallible("cursor_skip_values", ADDRESS);
  private static final MethodHandle FIRST = Library.fallible("cursor_first", ADDRESS);
  private static final MethodHandle LAST = Library.fallible("cursor_last", ADDRESS);
  private static final MethodHandle NEXT = Library.fallible("cursor_next", ADDRESS);
  private static final MethodHandle PREV = Library.fallible("cursor_prev", ADDRESS);
  private static final MethodHandle SEEK =
      Library.fallible("cursor_seek", ADDRESS, ADDRESS, JAVA_LONG);
  private static final MethodHandle SEEK_BACK =
      Library.fallible("cursor_seek_back", ADDRESS, ADDRESS, JAVA_LONG);
  private static final MethodHandle VALID =
      Library.function("cursor_valid", JAVA_BOOLEAN, ADDRESS);
  private static final MethodHandle KEY =
      Library.function("cursor_key", ADDRESS, ADDRESS, ADDRESS);
  private static final MethodHandle VALUE =
      Library.function("cursor_value", ADDRESS, ADDRESS, ADDRESS);
  private static final MethodHandle EXPIRES_AT =
      Library.function("cursor_expires_at", JAVA_LONG, ADDRESS);

  private final Handle handle;
  private byte[] key;
  private byte[] value;
  private long expiresAt;

  Cursor(MemorySegment cursor) {
    handle = new Handle(cursor, "cursor", FREE);
  }

  /** From the next move on, values may be empty where reading them would cost more. */
  public synchronized void skipValues() {
    MemorySegment cursor = handle.acquire();
    try {
      Library.run(SKIP_VALUES, cursor);
    } finally {
      handle.release();
    }
  }

  /** Moves to the first entry. */
  public boolean first() {
    return move(FIRST, null);
  }

  /** Moves to the last entry. */
  public boolean last() {
    return move(LAST, null);
  }

  /** Moves to the next entry; from a new cursor, to the first. */
  public boolean next() {
    return move(NEXT, null);
  }

  /** Moves to the previous entry; from a new cursor, to the last. */
  public boolean prev() {
    return move(PREV, null);
  }

  /** Moves to the first entry whose key is not less than {@code key}. */
  public boolean seek(byte[] key) {
    return move(SEEK, key);
  }

  /** Moves to the last entry whose key is not greater than {@code key}. */
  public boolean seekBack(byte[] key) {
    return move(SEEK_BACK, key);
  }

  private synchronized boolean move(MethodHandle move, byte[] target) {
    key = null;
    value = null;
    expiresAt = 0;
    MemorySegment cursor = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment error;
      if (target == null) {
        error = (MemorySegment) move.invokeExact(cursor);
      } else {
        MemorySegment bytes = Library.bytes(arena, target);
        error = (MemorySegment) move.invokeExact(cursor, bytes, (long) target.length);
      }
      Library.check(error);
      if (!(boolean) VALID.invokeExact(cursor)) {
        return false;
      }
      MemorySegment length = arena.allocate(JAVA_LONG);
      MemorySegment data = (MemorySegment) KEY.invokeExact(cursor, length);
      byte[] newKey = Library.copy(data, length.get(JAVA_LONG, 0));
      data = (MemorySegment) VALUE.invokeExact(cursor, length);
      value = Library.copy(data, length.get(JAVA_LONG, 0));
      expiresAt = (long) EXPIRES_AT.invokeExact(cursor);
      key = newKey;
      return true;
    } catch (Throwable thrown) {
      throw Library.unexpected(thrown);
    } finally {
      handle.release();
    }
  }

  /** Whether the cursor is on an entry. */
  public synchronized boolean isValid() {
    return key != null;
  }

  /** The key under the cursor; null if the cursor is not on an entry. */
  public synchronized byte[] key() {
    return key;
  }

  /** The value under the cursor; null if the cursor is not on an entry. */
  public synchronized byte[] value() {
    return value;
  }

  /** When the entry under the cursor expires; null: never, or the cursor is not on an entry. */
  public synchronized Instant expiresAt() {
    return Library.instant(expiresAt);
  }

  /** Frees the cursor. */
  @Override
  public void close() {
    handle.close();
  }
}
