package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.time.Instant;
import java.util.Map;

/** A file of sorted entries that is being written, for {@link Table#ingest}. */
public final class SortedFile implements AutoCloseable {
  private static final MethodHandle CREATE =
      Library.fallible("sorted_file_create", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS);
  private static final MethodHandle FREE = Library.procedure("sorted_file_free", ADDRESS);
  private static final Writes WRITES =
      new Writes(
          Library.fallible("sorted_file_put", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG),
          Library.fallible(
              "sorted_file_put_until", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_LONG),
          Library.fallible("sorted_file_delete", ADDRESS, ADDRESS, JAVA_LONG));
  private static final MethodHandle FINISH = Library.fallible("sorted_file_finish", ADDRESS);

  private final Handle handle;

  private SortedFile(MemorySegment file) {
    handle = new Handle(file, "sorted file", FREE);
  }

  /**
   * Creates a file, which must not exist. The options are those of a table on the engine lsm, of
   * which block size, compression and filters matter.
   *
   * <p>Errors: {@link Code#INVALID_OPTIONS}; {@link Code#IO}.
   */
  public static SortedFile create(Path path, Map<String, String> options) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment file = arena.allocate(ADDRESS);
      MemorySegment name = Library.text(arena, path.toString(), "path");
      MemorySegment list = Library.options(arena, options);
      Library.run(CREATE, name, list, (long) options.size(), file);
      return new SortedFile(file.get(ADDRESS, 0));
    }
  }

  /**
   * Adds a key with its value. Each key must be above the one before.
   *
   * <p>Errors: {@link Code#INVALID} for a key that is not: the file is unchanged. {@link Code#IO}:
   * the file cannot be finished.
   */
  public synchronized void put(byte[] key, byte[] value) {
    WRITES.put(handle, key, value);
  }

  /** Adds a key with a value that expires at a time. */
  public synchronized void put(byte[] key, byte[] value, Instant expiresAt) {
    WRITES.put(handle, key, value, expiresAt);
  }

  /** Adds the removal of a key from the table that ingests the file. */
  public synchronized void delete(byte[] key) {
    WRITES.delete(handle, key);
  }

  /**
   * Completes the file, durably.
   *
   * <p>Errors: {@link Code#INVALID} for a file without entries; {@link Code#IO}. The file is
   * removed then.
   */
  public synchronized void finish() {
    MemorySegment file = handle.acquire();
    try {
      Library.run(FINISH, file);
    } finally {
      handle.release();
    }
  }

  /** Frees the object. A file that is not finished is removed. */
  @Override
  public void close() {
    handle.close();
  }
}
