package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * The committed changes of a table, from one sequence number on: see {@link Table#changes}. A feed
 * keeps no log: the options log_retention and log_retention_time of the table say how much of it is
 * kept.
 */
public final class Changes implements AutoCloseable {
  private static final MethodHandle FREE = Library.procedure("changes_free", ADDRESS);
  private static final MethodHandle NEXT =
      Library.fallible("changes_next", ADDRESS, JAVA_LONG, ADDRESS);
  private static final MethodHandle KIND = Library.function("changes_kind", JAVA_INT, ADDRESS);
  private static final MethodHandle SEQUENCE =
      Library.function("changes_sequence", JAVA_LONG, ADDRESS);
  private static final MethodHandle PART = Library.function("changes_part", JAVA_LONG, ADDRESS);
  private static final MethodHandle COUNT = Library.function("changes_count", JAVA_LONG, ADDRESS);
  private static final MethodHandle OP =
      Library.function("changes_op", JAVA_BOOLEAN, ADDRESS, JAVA_LONG, ADDRESS);
  private static final MethodHandle APPEND_TO =
      Library.fallible("changes_append_to", ADDRESS, ADDRESS);

  /** The longest time for which a call waits in the C library: {@code close} waits for it. */
  private static final long MAX_WAIT_NS = 50_000_000;

  /** The size of a siltstone_change_op: kind, key, its length, value, its length, expiry. */
  private static final long OP_BYTES = 48;

  private final Handle handle;

  Changes(MemorySegment changes) {
    handle = new Handle(changes, "change feed", FREE);
  }

  /**
   * The next change; waits up to {@code timeout} for one. Null if none came: a later call may find
   * one.
   *
   * <p>Errors: as of {@link Table#changes}, and {@link Code#CLOSED}, also if the feed is closed
   * meanwhile. The position is the same then.
   */
  public synchronized Change next(Duration timeout) {
    long all = TimeUnit.NANOSECONDS.convert(timeout);
    long began = System.nanoTime();
    while (true) {
      long left = Math.max(0, all - (System.nanoTime() - began));
      // Part of a millisecond counts as one, so that the rest of a time is waited for.
      Change change = next((Math.min(left, MAX_WAIT_NS) + 999_999) / 1_000_000);
      if (change != null || left == 0) {
        return change;
      }
    }
  }

  private Change next(long milliseconds) {
    MemorySegment feed = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment isFound = arena.allocate(JAVA_BOOLEAN);
      Library.run(NEXT, feed, milliseconds, isFound);
      if (!isFound.get(JAVA_BOOLEAN, 0)) {
        return null;
      }
      long count = (long) Library.call(COUNT, feed);
      MemorySegment op = arena.allocate(OP_BYTES, ADDRESS.byteAlignment());
      List<Change.Operation> operations = new ArrayList<>();
      for (long i = 0; i < count; i++) {
        Library.call(OP, feed, i, op);
        operations.add(operation(op));
      }
      return new Change(
          Change.Kind.of((int) Library.call(KIND, feed)),
          (long) Library.call(SEQUENCE, feed),
          (long) Library.call(PART, feed),
          List.copyOf(operations));
    } finally {
      handle.release();
    }
  }

  private static Change.Operation operation(MemorySegment op) {
    MemorySegment value = op.get(ADDRESS, 24);
    return new Change.Operation(
        Change.OperationKind.of(op.get(JAVA_INT, 0)),
        Library.copy(op.get(ADDRESS, 8), op.get(JAVA_LONG, 16)),
        value.address() == 0 ? null : Library.copy(value, op.get(JAVA_LONG, 32)),
        Library.instant(op.get(JAVA_LONG, 40)));
  }

  /**
   * The sequence number of the last change that was returned, or the one after which the feed
   * begins.
   */
  public synchronized long position() {
    MemorySegment feed = handle.acquire();
    try {
      return (long) Library.call(SEQUENCE, feed);
    } finally {
      handle.release();
    }
  }

  /**
   * Adds copies of the operations of the last change to a batch, e.g. to apply them to another
   * table, which must have the same merge operator if there are merges.
   *
   * <p>Errors: {@link Code#INVALID} if the last change has no operations, or {@link #next} has found
   * none.
   */
  public synchronized void appendTo(Batch batch) {
    MemorySegment feed = handle.acquire();
    try {
      batch.apply(APPEND_TO, feed, false);
    } finally {
      handle.release();
    }
  }

  /** Releases the feed. */
  @Override
  public void close() {
    handle.close();
  }
}
