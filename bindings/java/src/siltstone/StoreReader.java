package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;

/**
 * A store that another process may write at the same time, as of the last catch-up. It shows a
 * prefix of the writes of each table, in whole batches, also those that are not durable yet.
 */
public final class StoreReader implements AutoCloseable {
  private static final MethodHandle FREE = Library.procedure("reader_free", ADDRESS);
  private static final MethodHandle OPEN =
      Library.fallible("reader_open", ADDRESS, ADDRESS, ADDRESS);
  private static final MethodHandle CATCH_UP =
      Library.fallible("reader_catch_up", ADDRESS, ADDRESS);
  private static final MethodHandle TABLE =
      Library.fallible("reader_table", ADDRESS, ADDRESS, ADDRESS);

  private final Handle handle;

  private StoreReader(MemorySegment reader) {
    handle = new Handle(reader, "reader", FREE);
  }

  /** Opens a store for reading with the default options. */
  public static StoreReader openReader(Path path) {
    return openReader(path, new Options());
  }

  /**
   * Opens the store in a directory for reading, also while another process has it open for writing.
   * Nothing is locked or written there. {@link Options#maxOpenFiles} is ignored: a reader keeps all
   * files that it shows open, also those that the writer has removed.
   *
   * <p>Errors: those of {@link Store#open} but {@link Code#LOCKED}.
   */
  public static StoreReader openReader(Path path, Options options) {
    return new StoreReader(Store.openWith(OPEN, path, options));
  }

  /**
   * Reads what the writer has written since, in all tables, and returns whether there is anything.
   * Open tables stay as they are: open them again. Cost: reads the logs, up to the size of the
   * memtables, and opens every file.
   *
   * <p>Errors: those of {@link #openReader}; the reader stays as it is.
   */
  public boolean catchUp() {
    MemorySegment reader = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment hasChanged = arena.allocate(JAVA_BOOLEAN);
      Library.run(CATCH_UP, reader, hasChanged);
      return hasChanged.get(JAVA_BOOLEAN, 0);
    } finally {
      handle.release();
    }
  }

  /**
   * Opens a table as of the last catch-up. It does not change; writes to it throw {@link
   * Code#REFUSED}. Close it after a catch-up: it keeps its files open.
   *
   * <p>Errors: {@link Code#INVALID} if there is no such table; {@link Code#UNSUPPORTED} on mica and
   * skimpy, with persistent memory (pmem.size) and with fast_dir.
   */
  public Table table(String name) {
    MemorySegment reader = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment table = arena.allocate(ADDRESS);
      Library.run(TABLE, reader, Library.text(arena, name, "name"), table);
      return new Table(table.get(ADDRESS, 0));
    } finally {
      handle.release();
    }
  }

  /** Releases the reader. Its tables can still be used. */
  @Override
  public void close() {
    handle.close();
  }
}
