package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

/**
 * The reads of tables, snapshots and transactions, which differ in the functions that they call.
 */
abstract sealed class NativeReads implements Reads permits Table, Snapshot, Transaction {
  /** The functions for one type of objects. */
  record Functions(
      MethodHandle get,
      MethodHandle contains,
      MethodHandle multiGet,
      MethodHandle cursor,
      MethodHandle cursorPrefix) {
    static Functions of(String type) {
      return new Functions(
          Library.fallible(type + "_get", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS),
          Library.fallible(type + "_contains", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS),
          Library.fallible(
              type + "_multi_get", ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS, ADDRESS),
          Library.fallible(
              type + "_cursor", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS),
          Library.fallible(type + "_cursor_prefix", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS));
    }
  }

  final Handle handle;
  private final Functions functions;

  NativeReads(Handle handle, Functions functions) {
    this.handle = handle;
    this.functions = functions;
  }

  @Override
  public byte[] get(byte[] key) {
    MemorySegment of = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment outputs = Library.outputs(arena);
      Library.check(
          (MemorySegment)
              functions.get.invokeExact(
                  of, Library.bytes(arena, key), (long) key.length, outputs, outputs.asSlice(8)));
      return Library.take(outputs.get(ADDRESS, 0), outputs.get(JAVA_LONG, 8));
    } catch (Throwable thrown) {
      throw Library.unexpected(thrown);
    } finally {
      handle.release();
    }
  }

  @Override
  public boolean contains(byte[] key) {
    MemorySegment of = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment isFound = arena.allocate(JAVA_BOOLEAN);
      Library.check(
          (MemorySegment)
              functions.contains.invokeExact(
                  of, Library.bytes(arena, key), (long) key.length, isFound));
      return isFound.get(JAVA_BOOLEAN, 0);
    } catch (Throwable thrown) {
      throw Library.unexpected(thrown);
    } finally {
      handle.release();
    }
  }

  @Override
  public byte[][] multiGet(byte[]... keys) {
    byte[][] results = new byte[keys.length][];
    MemorySegment of = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment pointers = arena.allocate(ADDRESS, keys.length);
      MemorySegment lengths = arena.allocate(JAVA_LONG, keys.length);
      MemorySegment values = arena.allocate(ADDRESS, keys.length);
      MemorySegment valueLengths = arena.allocate(JAVA_LONG, keys.length);
      for (int i = 0; i < keys.length; i++) {
        pointers.setAtIndex(ADDRESS, i, Library.bytes(arena, keys[i]));
        lengths.setAtIndex(JAVA_LONG, i, keys[i].length);
      }
      Library.run(
          functions.multiGet, of, (long) keys.length, pointers, lengths, values, valueLengths);
      for (int i = 0; i < keys.length; i++) {
        results[i] =
            Library.take(values.getAtIndex(ADDRESS, i), valueLengths.getAtIndex(JAVA_LONG, i));
      }
      return results;
    } finally {
      handle.release();
    }
  }

  @Override
  public Cursor cursor() {
    return range(null, null);
  }

  @Override
  public Cursor range(byte[] start, byte[] end) {
    MemorySegment of = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment cursor = arena.allocate(ADDRESS);
      Library.run(
          functions.cursor,
          of,
          start == null ? MemorySegment.NULL : Library.bytes(arena, start),
          start == null ? 0L : start.length,
          end == null ? MemorySegment.NULL : Library.bytes(arena, end),
          end == null ? 0L : end.length,
          cursor);
      return new Cursor(cursor.get(ADDRESS, 0));
    } finally {
      handle.release();
    }
  }

  @Override
  public Cursor prefix(byte[] prefix) {
    MemorySegment of = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment cursor = arena.allocate(ADDRESS);
      Library.run(
          functions.cursorPrefix,
          of,
          Library.bytes(arena, prefix),
          (long) prefix.length,
          cursor);
      return new Cursor(cursor.get(ADDRESS, 0));
    } finally {
      handle.release();
    }
  }
}
