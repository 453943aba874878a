package siltstone;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A pointer to an object of the C library, and a count of the calls that use the object, so that it
 * is not freed under them: {@link #close} frees it if there are none, otherwise the last call does.
 */
final class Handle {
  /** The sign bit of {@code uses}. */
  private static final int CLOSED = Integer.MIN_VALUE;

  private final MemorySegment pointer;
  private final String name;
  private final MethodHandle free;

  /** The number of calls in progress, and {@link #CLOSED}. */
  private final AtomicInteger uses = new AtomicInteger();

  Handle(MemorySegment pointer, String name, MethodHandle free) {
    this.pointer = pointer;
    this.name = name;
    this.free = free;
  }

  /** Begins a call, which {@link #release} ends, and returns the object. */
  MemorySegment acquire() {
    MemorySegment object = acquireIfOpen();
    if (object == null) {
      throw new SiltstoneException(Code.CLOSED, "the " + name + " is closed");
    }
    return object;
  }

  /** As {@link #acquire}, but returns null if the handle is closed. */
  MemorySegment acquireIfOpen() {
    while (true) {
      int count = uses.get();
      if (count < 0) {
        return null;
      }
      if (uses.compareAndSet(count, count + 1)) {
        return pointer;
      }
    }
  }

  void release() {
    if (uses.decrementAndGet() == CLOSED) {
      Library.call(free, pointer);
    }
  }

  /** Closing again does nothing. */
  void close() {
    int count = uses.getAndUpdate(now -> now | CLOSED);
    if (count == 0) {
      Library.call(free, pointer);
    }
  }
}
