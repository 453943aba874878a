package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.time.Instant;

/**
 * The writes of one key, of tables, batches and transactions: the functions for one type of
 * objects.
 */
record Writes(MethodHandle put, MethodHandle putUntil, MethodHandle delete) {
  static Writes of(String type) {
    return new Writes(
        Library.fallible(type + "_put", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG),
        Library.fallible(
            type + "_put_until", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_LONG),
        Library.fallible(type + "_delete", ADDRESS, ADDRESS, JAVA_LONG));
  }

  void put(Handle handle, byte[] key, byte[] value) {
    MemorySegment of = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      Library.check(
          (MemorySegment)
              put.invokeExact(
                  of,
                  Library.bytes(arena, key),
                  (long) key.length,
                  Library.bytes(arena, value),
                  (long) value.length));
    } catch (Throwable thrown) {
      throw Library.unexpected(thrown);
    } finally {
      handle.release();
    }
  }

  void put(Handle handle, byte[] key, byte[] value, Instant expiresAt) {
    long milliseconds = Library.milliseconds(expiresAt);
    MemorySegment of = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      Library.check(
          (MemorySegment)
              putUntil.invokeExact(
                  of,
                  Library.bytes(arena, key),
                  (long) key.length,
                  Library.bytes(arena, value),
                  (long) value.length,
                  milliseconds));
    } catch (Throwable thrown) {
      throw Library.unexpected(thrown);
    } finally {
      handle.release();
    }
  }

  void delete(Handle handle, byte[] key) {
    MemorySegment of = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      Library.check(
          (MemorySegment)
              delete.invokeExact(of, Library.bytes(arena, key), (long) key.length));
    } catch (Throwable thrown) {
      throw Library.unexpected(thrown);
    } finally {
      handle.release();
    }
  }

  /** Calls a function of an object and a key with a second argument of bytes. */
  static void call(MethodHandle function, Handle handle, byte[] key, byte[] argument) {
    MemorySegment of = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment bytes = Library.bytes(arena, argument);
      Library.run(
          function,
          of,
          Library.bytes(arena, key),
          (long) key.length,
          bytes,
          (long) argument.length);
    } finally {
      handle.release();
    }
  }

  /** Calls a function of an object and a range of keys; null is no bound. */
  static void callRange(MethodHandle function, Handle handle, byte[] start, byte[] end) {
    MemorySegment of = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      Library.run(
          function,
          of,
          bound(arena, start),
          start == null ? 0L : (long) start.length,
          bound(arena, end),
          end == null ? 0L : (long) end.length);
    } finally {
      handle.release();
    }
  }

  private static MemorySegment bound(Arena arena, byte[] key) {
    return key == null ? MemorySegment.NULL : Library.bytes(arena, key);
  }
}
