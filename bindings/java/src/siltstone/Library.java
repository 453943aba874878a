package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;

/**
 * Loads the C library, and converts arguments, results and errors.
 *
 * <p>A function of the C library that can fail returns an error object, {@link #check}. Byte
 * strings are copied to memory of an arena for a call. Lengths ({@code size_t}) are {@code long}:
 * 64-bit systems only.
 */
final class Library {
  private static final Linker LINKER = Linker.nativeLinker();
  private static final SymbolLookup SYMBOLS = load();

  private static final MethodHandle ERROR_CODE = function("error_code", JAVA_INT, ADDRESS);
  private static final MethodHandle ERROR_MESSAGE = function("error_message", ADDRESS, ADDRESS);
  private static final MethodHandle ERROR_IS_RETRYABLE =
      function("error_is_retryable", JAVA_BOOLEAN, ADDRESS);
  private static final MethodHandle ERROR_IS_DISK_FULL =
      function("error_is_disk_full", JAVA_BOOLEAN, ADDRESS);
  private static final MethodHandle ERROR_FREE = procedure("error_free", ADDRESS);
  private static final MethodHandle FREE = procedure("free", ADDRESS);
  private static final MethodHandle VERSION = function("version", ADDRESS);

  private Library() {}

  private static SymbolLookup load() {
    String path = System.getProperty("siltstone.library");
    if (path != null) {
      return SymbolLookup.libraryLookup(Path.of(path), Arena.global());
    }
    System.loadLibrary("siltstone");
    return SymbolLookup.loaderLookup();
  }

  /** A function of the C library, by its name without prefix. */
  static MethodHandle function(String name, MemoryLayout result, MemoryLayout... arguments) {
    return handle(name, FunctionDescriptor.of(result, arguments));
  }

  /** A function without a result. */
  static MethodHandle procedure(String name, MemoryLayout... arguments) {
    return handle(name, FunctionDescriptor.ofVoid(arguments));
  }

  /** A function that returns an error. */
  static MethodHandle fallible(String name, MemoryLayout... arguments) {
    return function(name, ADDRESS, arguments);
  }

  private static MethodHandle handle(String name, FunctionDescriptor descriptor) {
    MemorySegment address =
        SYMBOLS
            .find("siltstone_" + name)
            .orElseThrow(() -> new UnsatisfiedLinkError("libsiltstone has no siltstone_" + name));
    return LINKER.downcallHandle(address, descriptor);
  }

  /** Calls a function that is not called often. */
  static Object call(MethodHandle function, Object... arguments) {
    try {
      return function.invokeWithArguments(arguments);
    } catch (Throwable thrown) {
      throw unexpected(thrown);
    }
  }

  /** Calls a function that is not called often, and throws the error that it returns. */
  static void run(MethodHandle function, Object... arguments) {
    check((MemorySegment) call(function, arguments));
  }

  /** What a call of a function of the C library throws, none of which is expected. */
  static RuntimeException unexpected(Throwable thrown) {
    switch (thrown) {
      case RuntimeException exception -> throw exception;
      case Error error -> throw error;
      default -> throw new AssertionError(thrown);
    }
  }

  /** Throws and frees an error of the C library; NULL is none. */
  static void check(MemorySegment error) {
    if (error.address() == 0) {
      return;
    }
    try {
      throw new SiltstoneException(
          Code.of((int) call(ERROR_CODE, error)),
          string((MemorySegment) call(ERROR_MESSAGE, error)),
          (boolean) call(ERROR_IS_RETRYABLE, error),
          (boolean) call(ERROR_IS_DISK_FULL, error));
    } finally {
      call(ERROR_FREE, error);
    }
  }

  static String version() {
    return string((MemorySegment) call(VERSION));
  }

  /** Text of the C library. */
  static String string(MemorySegment text) {
    return text.reinterpret(Long.MAX_VALUE).getString(0);
  }

  /** Text for the C library. */
  static MemorySegment text(Arena arena, String text, String name) {
    if (text.indexOf(0) >= 0) {
      throw new SiltstoneException(
          Code.INVALID, "the argument '" + name + "' contains a NUL: " + text.replace('\0', '?'));
    }
    return arena.allocateFrom(text);
  }

  /** A list of texts for the C library. */
  static MemorySegment texts(Arena arena, List<String> texts, String name) {
    MemorySegment list = arena.allocate(ADDRESS, texts.size());
    for (int i = 0; i < texts.size(); i++) {
      list.setAtIndex(ADDRESS, i, text(arena, texts.get(i), name));
    }
    return list;
  }

  /** Options of a table for the C library, sorted. */
  static MemorySegment options(Arena arena, Map<String, String> options) {
    List<String> list =
        options.entrySet().stream().map(o -> o.getKey() + "=" + o.getValue()).sorted().toList();
    return texts(arena, list, "options");
  }

  /** A time of the C library, in unsigned milliseconds since 1970; null for 0. */
  static Instant instant(long milliseconds) {
    if (milliseconds == 0) {
      return null;
    }
    return Instant.ofEpochMilli(milliseconds < 0 ? Long.MAX_VALUE : milliseconds);
  }

  /** A time for the C library, within its limits; not 0, which would be "never". */
  static long milliseconds(Instant time) {
    if (time.isAfter(Instant.ofEpochMilli(Long.MAX_VALUE))) {
      return Long.MAX_VALUE;
    }
    return time.isBefore(Instant.EPOCH) ? 1 : Math.max(1, time.toEpochMilli());
  }

  /** The time after a duration from now on, within the limits of {@code Instant}. */
  static Instant after(Duration ttl) {
    try {
      return Instant.now().plus(ttl);
    } catch (DateTimeException | ArithmeticException beyond) {
      return ttl.isNegative() ? Instant.MIN : Instant.MAX;
    }
  }

  /** Bytes for the C library; not NULL, not even for no bytes. */
  static MemorySegment bytes(Arena arena, byte[] bytes) {
    MemorySegment segment = arena.allocate(Math.max(bytes.length, 1));
    MemorySegment.copy(bytes, 0, segment, JAVA_BYTE, 0, bytes.length);
    return segment;
  }

  /** Copies bytes of the C library. */
  static byte[] copy(MemorySegment data, long length) {
    return data.reinterpret(length).toArray(JAVA_BYTE);
  }

  /** Copies and frees bytes that a call has returned; null for NULL. */
  static byte[] take(MemorySegment data, long length) {
    if (data.address() == 0) {
      return null;
    }
    try {
      return copy(data, length);
    } finally {
      free(data);
    }
  }

  /** Copies and frees the text that a call has returned in an output argument. */
  static String takeString(MemorySegment output) {
    return takeText(output.get(ADDRESS, 0));
  }

  /** Copies and frees text that a call has returned. */
  static String takeText(MemorySegment text) {
    try {
      return string(text);
    } finally {
      free(text);
    }
  }

  /** Frees memory that a call has returned; NULL is allowed. */
  static void free(MemorySegment data) {
    try {
      FREE.invokeExact(data);
    } catch (Throwable thrown) {
      throw unexpected(thrown);
    }
  }

  /** An output argument for a pointer or a length, and a second one after it. */
  static MemorySegment outputs(Arena arena) {
    return arena.allocate(ADDRESS.byteSize() + JAVA_LONG.byteSize(), ADDRESS.byteAlignment());
  }
}
