package siltstone;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A pointer to an object of the C library, and a count of the calls that use the object, so that it
 * is not freed under them: {@link #close} frees it if there are none, otherwise the last call does.
 * The collector closes a handle that nobody can reach.
 */
final class Handle {
  private static final Cleaner CLEANER = Cleaner.create();

  private final State state;
  private final String name;
  private final Cleaner.Cleanable closing;

  Handle(MemorySegment pointer, String name, MethodHandle free) {
    state = new State(pointer, free);
    this.name = name;
    closing = CLEANER.register(this, state);
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
    return state.acquire() ? state.pointer : null;
  }

  void release() {
    state.release();
    // Not closed by the collector during the call.
    Reference.reachabilityFence(this);
  }

  /** Closing again does nothing. */
  void close() {
    closing.clean();
  }

  /** What remains of a handle that nobody can reach: it does not refer to the handle. */
  private static final class State implements Runnable {
    /** The sign bit of {@code uses}. */
    private static final int CLOSED = Integer.MIN_VALUE;

    private final MemorySegment pointer;
    private final MethodHandle free;

    /** The number of calls in progress, and {@link #CLOSED}. */
    private final AtomicInteger uses = new AtomicInteger();

    State(MemorySegment pointer, MethodHandle free) {
      this.pointer = pointer;
      this.free = free;
    }

    boolean acquire() {
      while (true) {
        int count = uses.get();
        if (count < 0) {
          return false;
        }
        if (uses.compareAndSet(count, count + 1)) {
          return true;
        }
      }
    }

    void release() {
      if (uses.decrementAndGet() == CLOSED) {
        Library.call(free, pointer);
      }
    }

    /** Closes the handle. */
    @Override
    public void run() {
      int count = uses.getAndUpdate(now -> now | CLOSED);
      if (count == 0) {
        Library.call(free, pointer);
      }
    }
  }
}
