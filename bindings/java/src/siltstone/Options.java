package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** Options of opening a store. New ones have the defaults. One thread at a time may use them. */
public final class Options {
  private static final MethodHandle CREATE = Library.function("options_create", ADDRESS);
  private static final MethodHandle FREE = Library.procedure("options_free", ADDRESS);
  private static final MethodHandle SET_READ_ONLY = setter("read_only", JAVA_BOOLEAN);
  private static final MethodHandle SET_DIRECT_READS = setter("direct_reads", JAVA_BOOLEAN);
  private static final MethodHandle SET_THREADS = setter("threads", JAVA_LONG);
  private static final MethodHandle SET_MAX_OPEN_FILES = setter("max_open_files", JAVA_LONG);
  private static final MethodHandle SET_CACHE_BYTES = setter("cache_bytes", JAVA_LONG);
  private static final MethodHandle SET_IDLE_MS = setter("idle_ms", JAVA_LONG);
  private static final MethodHandle SET_TRANSACTION_MEMORY_BYTES =
      setter("transaction_memory_bytes", JAVA_LONG);

  private boolean readOnly;
  private boolean directReads;
  private Integer threads;
  private Integer maxOpenFiles;
  private long cacheBytes;
  private Duration idle = Duration.ofMinutes(5);
  private Long transactionMemoryBytes;

  /** The defaults. */
  public Options() {}

  private static MethodHandle setter(String name, java.lang.foreign.MemoryLayout layout) {
    return Library.procedure("options_set_" + name, ADDRESS, layout);
  }

  /**
   * Opens the store read-only: nothing in its directory changes, writes fail, and other processes
   * may read it at the same time, but none may write it. Default: false.
   */
  public Options readOnly(boolean readOnly) {
    this.readOnly = readOnly;
    return this;
  }

  /**
   * Reads bypass the page cache, so that memory holds only the engines' own caches. Default: false.
   */
  public Options directReads(boolean directReads) {
    this.directReads = directReads;
    return this;
  }

  /**
   * Threads for background work, 1 to 256, besides one for flushes. Default: one per core, up to 4.
   */
  public Options threads(int threads) {
    this.threads = atLeast("threads", 1, threads);
    return this;
  }

  /** The maximum number of files that the store has open. Default: 256. */
  public Options maxOpenFiles(int files) {
    this.maxOpenFiles = atLeast("files", 1, files);
    return this;
  }

  /** The size of one block cache for all tables. 0: one per table, which is the default. */
  public Options cacheBytes(long bytes) {
    this.cacheBytes = atLeast("bytes", 0, bytes);
    return this;
  }

  /**
   * The time after which an idle snapshot or transaction expires, in whole milliseconds. Zero:
   * never. Default: 5 minutes.
   */
  public Options idle(Duration idle) {
    atLeast("idle", 0, milliseconds(idle));
    this.idle = idle;
    return this;
  }

  /** Memory per table for the keys written while transactions are open. Default: 32 MiB. */
  public Options transactionMemoryBytes(long bytes) {
    this.transactionMemoryBytes = atLeast("bytes", 0, bytes);
    return this;
  }

  private static long milliseconds(Duration duration) {
    return TimeUnit.MILLISECONDS.convert(duration);
  }

  private static <N extends Number> N atLeast(String name, long minimum, N number) {
    if (number.longValue() < minimum) {
      throw new SiltstoneException(
          Code.INVALID, "the argument '" + name + "' is " + number + ", less than " + minimum);
    }
    return number;
  }

  /** The options for the C library, to be freed. */
  MemorySegment build() {
    MemorySegment options = (MemorySegment) Library.call(CREATE);
    Library.call(SET_READ_ONLY, options, readOnly);
    Library.call(SET_DIRECT_READS, options, directReads);
    if (threads != null) {
      Library.call(SET_THREADS, options, threads.longValue());
    }
    if (maxOpenFiles != null) {
      Library.call(SET_MAX_OPEN_FILES, options, maxOpenFiles.longValue());
    }
    Library.call(SET_CACHE_BYTES, options, cacheBytes);
    Library.call(SET_IDLE_MS, options, idle.isZero() ? 0 : Math.max(1, milliseconds(idle)));
    if (transactionMemoryBytes != null) {
      Library.call(SET_TRANSACTION_MEMORY_BYTES, options, transactionMemoryBytes);
    }
    return options;
  }

  static void free(MemorySegment options) {
    Library.call(FREE, options);
  }
}
