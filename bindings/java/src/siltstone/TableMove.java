package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.Map;

/**
 * A table on its way to another engine, from {@link Store#beginMove}. Threads may share it: one
 * copies, and others read the progress or cancel the move.
 */
public final class TableMove implements AutoCloseable {
  private static final MethodHandle BEGIN =
      Library.fallible("move_begin", ADDRESS, ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS);
  private static final MethodHandle FREE = Library.procedure("move_free", ADDRESS);
  private static final MethodHandle COPY = Library.fallible("move_copy", ADDRESS, ADDRESS);
  private static final MethodHandle ROWS = Library.function("move_rows", JAVA_LONG, ADDRESS);
  private static final MethodHandle CHANGES = Library.function("move_changes", JAVA_LONG, ADDRESS);
  private static final MethodHandle RESTARTS =
      Library.function("move_restarts", JAVA_LONG, ADDRESS);
  private static final MethodHandle CANCEL = Library.procedure("move_cancel", ADDRESS);
  private static final MethodHandle FINISH = Library.fallible("move_finish", ADDRESS, ADDRESS);

  /**
   * How far a move is.
   *
   * @param rows rows that were copied since the copy last began
   * @param changes rows that were copied again because they were written meanwhile
   * @param restarts how often the copy began again, after a removal of ranges or of all keys
   */
  public record Progress(long rows, long changes, long restarts) {}

  private final Handle handle;

  private TableMove(MemorySegment moving) {
    handle = new Handle(moving, "move", FREE);
  }

  static TableMove begin(
      MemorySegment db, String name, String engine, Map<String, String> options) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment moving = arena.allocate(ADDRESS);
      Library.run(
          BEGIN,
          db,
          Library.text(arena, name, "name"),
          Library.text(arena, engine, "engine"),
          Library.options(arena, options),
          (long) options.size(),
          moving);
      return new TableMove(moving.get(ADDRESS, 0));
    }
  }

  /**
   * Copies all rows, then those that were written meanwhile, until few are left. Readers and
   * writers go on. Returns false if the move was cancelled.
   *
   * <p>Errors: {@link Code#REFUSED} for a value that the new engine does not take, or if it has no
   * room; those of reads and writes. The table is as before.
   */
  public boolean copy() {
    MemorySegment moving = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment isCopied = arena.allocate(JAVA_BOOLEAN);
      Library.run(COPY, moving, isCopied);
      return isCopied.get(JAVA_BOOLEAN, 0);
    } finally {
      handle.release();
    }
  }

  /** How far the move is, also while another thread copies. */
  public Progress progress() {
    MemorySegment moving = handle.acquire();
    try {
      return new Progress(
          (long) Library.call(ROWS, moving),
          (long) Library.call(CHANGES, moving),
          (long) Library.call(RESTARTS, moving));
    } finally {
      handle.release();
    }
  }

  /**
   * Cancels a move that is not finished: a call that copies ends after at most one more batch of
   * rows, and the table stays as it is. Close the move afterwards.
   */
  public void cancel() {
    MemorySegment moving = handle.acquireIfOpen();
    if (moving == null) {
      return;
    }
    try {
      Library.call(CANCEL, moving);
    } finally {
      handle.release();
    }
  }

  /**
   * Copies what is left, puts the copy in the place of the table, durably, and returns it. Writers
   * wait for the last few rows. Calls with other objects of the table throw {@link Code#CLOSED}
   * from then on. A crash leaves the old table or the new one. The move is over in any case; after
   * an error the table is as it was, or it has moved if only its old files could not be removed.
   *
   * <p>Errors: those of {@link #copy}; {@link Code#INVALID} if the move was cancelled, or is
   * finished; {@link Code#IO}.
   */
  public Table finish() {
    MemorySegment moving = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment table = arena.allocate(ADDRESS);
      Library.run(FINISH, moving, table);
      return new Table(table.get(ADDRESS, 0));
    } finally {
      handle.release();
    }
  }

  /** Frees the object. A move that is not finished is cancelled: the table stays as it is. */
  @Override
  public void close() {
    cancel();
    handle.close();
  }
}
