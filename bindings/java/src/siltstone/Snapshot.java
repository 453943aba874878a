package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

/**
 * A table as of the creation of the snapshot. While it lives, the versions that it shows stay on
 * disk. One that is not used for {@link Options#idle} expires.
 */
public final class Snapshot extends NativeReads implements AutoCloseable {
  private static final MethodHandle FREE = Library.procedure("snapshot_free", ADDRESS);
  private static final Functions FUNCTIONS = Functions.of("snapshot");
  private static final MethodHandle SEQUENCE =
      Library.function("snapshot_sequence", JAVA_LONG, ADDRESS);

  Snapshot(MemorySegment snapshot) {
    super(new Handle(snapshot, "snapshot", FREE), FUNCTIONS);
  }

  /**
   * The sequence number up to which the snapshot shows writes: a change feed resumes after it.
   */
  public long sequence() {
    MemorySegment snapshot = handle.acquire();
    try {
      return (long) Library.call(SEQUENCE, snapshot);
    } finally {
      handle.release();
    }
  }

  /** Releases the snapshot. Its cursors can still be used. */
  @Override
  public void close() {
    handle.close();
  }
}
