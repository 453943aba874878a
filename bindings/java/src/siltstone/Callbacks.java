package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/**
 * Functions in Java that the C library calls: merge operators and listeners.
 *
 * <p>There is one function for all objects of a kind. Its argument is the object's number, not a
 * pointer. The library lets go of a number when nothing will call it any more. An exception must
 * not reach the library: the virtual machine would end.
 */
final class Callbacks {
  private static final ConcurrentHashMap<Long, Object> OBJECTS = new ConcurrentHashMap<>();
  private static final AtomicLong NUMBERS = new AtomicLong(1);

  private static final MethodHandle APPEND =
      Library.fallible("merge_output_append", ADDRESS, ADDRESS, JAVA_LONG);

  /** {@code siltstone_event}. */
  private static final MemoryLayout EVENT =
      MemoryLayout.structLayout(
          JAVA_INT.withName("kind"),
          JAVA_BOOLEAN.withName("is_failed"),
          MemoryLayout.paddingLayout(3),
          ADDRESS.withName("table"),
          ADDRESS.withName("message"),
          JAVA_LONG.withName("at"),
          JAVA_LONG.withName("job"),
          JAVA_LONG.withName("duration_us"),
          JAVA_LONG.withName("input_bytes"),
          JAVA_LONG.withName("output_bytes"));

  static final MemorySegment ON_EVENT = stub("onEvent", null, ADDRESS, ADDRESS);
  static final MemorySegment MERGE = mergeStub("merge");
  static final MemorySegment PARTIAL_MERGE = mergeStub("partialMerge");
  static final MemorySegment FORGET = stub("forget", null, ADDRESS);

  private Callbacks() {}

  /** Keeps an object until the library forgets it, and returns the argument for the library. */
  static MemorySegment keep(Object object) {
    long number = NUMBERS.getAndIncrement();
    OBJECTS.put(number, object);
    return MemorySegment.ofAddress(number);
  }

  private static MemorySegment mergeStub(String name) {
    return stub(
        name,
        JAVA_BOOLEAN,
        ADDRESS,
        ADDRESS,
        JAVA_LONG,
        ADDRESS,
        JAVA_LONG,
        JAVA_LONG,
        ADDRESS,
        ADDRESS,
        ADDRESS);
  }

  /** The address of a method of this class. */
  private static MemorySegment stub(String name, MemoryLayout result, MemoryLayout... arguments) {
    FunctionDescriptor descriptor =
        result == null
            ? FunctionDescriptor.ofVoid(arguments)
            : FunctionDescriptor.of(result, arguments);
    MethodType type = descriptor.toMethodType();
    try {
      MethodHandle method = MethodHandles.lookup().findStatic(Callbacks.class, name, type);
      return Linker.nativeLinker().upcallStub(method, descriptor, Arena.global());
    } catch (ReflectiveOperationException missing) {
      throw new AssertionError(missing);
    }
  }

  private static void forget(MemorySegment number) {
    OBJECTS.remove(number.address());
  }

  private static void onEvent(MemorySegment number, MemorySegment address) {
    try {
      @SuppressWarnings("unchecked")
      Consumer<Event> listener = (Consumer<Event>) OBJECTS.get(number.address());
      listener.accept(event(address.reinterpret(EVENT.byteSize())));
    } catch (Throwable thrown) {
      Thread thread = Thread.currentThread();
      thread.getUncaughtExceptionHandler().uncaughtException(thread, thrown);
    }
  }

  private static Event event(MemorySegment event) {
    return new Event(
        Event.Kind.of(event.get(JAVA_INT, offset("kind"))),
        event.get(JAVA_BOOLEAN, offset("is_failed")),
        Library.string(event.get(ADDRESS, offset("table"))),
        Library.string(event.get(ADDRESS, offset("message"))),
        Instant.ofEpochMilli(event.get(JAVA_LONG, offset("at"))),
        event.get(JAVA_LONG, offset("job")),
        Duration.ofNanos(1000 * event.get(JAVA_LONG, offset("duration_us"))),
        event.get(JAVA_LONG, offset("input_bytes")),
        event.get(JAVA_LONG, offset("output_bytes")));
  }

  private static long offset(String field) {
    return EVENT.byteOffset(MemoryLayout.PathElement.groupElement(field));
  }

  private static boolean merge(
      MemorySegment number,
      MemorySegment key,
      long keyLength,
      MemorySegment value,
      long valueLength,
      long count,
      MemorySegment operands,
      MemorySegment lengths,
      MemorySegment output) {
    try {
      byte[] before = value.address() == 0 ? null : Library.copy(value, valueLength);
      MergeOperator operator = (MergeOperator) OBJECTS.get(number.address());
      byte[] merged =
          operator.merge(Library.copy(key, keyLength), before, list(count, operands, lengths));
      append(output, merged);
      return true;
    } catch (Throwable thrown) {
      append(output, thrown.toString().getBytes(StandardCharsets.UTF_8));
      return false;
    }
  }

  private static boolean partialMerge(
      MemorySegment number,
      MemorySegment key,
      long keyLength,
      MemorySegment value,
      long valueLength,
      long count,
      MemorySegment operands,
      MemorySegment lengths,
      MemorySegment output) {
    try {
      MergeOperator operator = (MergeOperator) OBJECTS.get(number.address());
      byte[] merged =
          operator.partialMerge(Library.copy(key, keyLength), list(count, operands, lengths));
      if (merged != null) {
        append(output, merged);
      }
      return merged != null;
    } catch (Throwable thrown) {
      // The operands are stored one by one, and the reads report what is wrong with them.
      return false;
    }
  }

  private static List<byte[]> list(long count, MemorySegment operands, MemorySegment lengths) {
    MemorySegment data = operands.reinterpret(count * ADDRESS.byteSize());
    MemorySegment sizes = lengths.reinterpret(count * JAVA_LONG.byteSize());
    List<byte[]> list = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      list.add(Library.copy(data.getAtIndex(ADDRESS, i), sizes.getAtIndex(JAVA_LONG, i)));
    }
    return list;
  }

  private static void append(MemorySegment output, byte[] bytes) {
    try (Arena arena = Arena.ofConfined()) {
      Library.run(APPEND, output, Library.bytes(arena, bytes), (long) bytes.length);
    }
  }
}
