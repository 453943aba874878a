package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

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
  private static final MethodHandle ADD_KEY =
      Library.fallible("options_add_key", ADDRESS, ADDRESS, JAVA_LONG);
  private static final MethodHandle ADD_MERGE_OPERATOR =
      Library.fallible(
          "options_add_merge_operator",
          ADDRESS,
          ADDRESS,
          ADDRESS,
          ADDRESS,
          ADDRESS,
          ADDRESS,
          ADDRESS);
  private static final MethodHandle ADD_LISTENER =
      Library.fallible("options_add_listener", ADDRESS, ADDRESS, ADDRESS, ADDRESS);

  private boolean readOnly;
  private boolean directReads;
  private Integer threads;
  private Integer maxOpenFiles;
  private long cacheBytes;
  private Duration idle = Duration.ofMinutes(5);
  private Long transactionMemoryBytes;
  private final List<byte[]> keys = new ArrayList<>();
  private final Map<String, MergeOperator> mergeOperators = new TreeMap<>();
  private final List<Consumer<Event>> listeners = new ArrayList<>();

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

  /**
   * Adds a key of an encrypted store: 32 bytes from a secure random number generator. The first one
   * encrypts a new store and new files; the others are those of existing files, after the key was
   * replaced. Default: the store is not encrypted.
   */
  public Options key(byte[] key) {
    if (key.length != 32) {
      throw new SiltstoneException(
          Code.INVALID, "a key has 32 bytes, and this one has " + key.length);
    }
    keys.add(key.clone());
    return this;
  }

  /**
   * Sets the merge operator of a table, which must be on lsm. It is needed at each open: without it
   * keys with operands cannot be read.
   */
  public Options mergeOperator(String table, MergeOperator operator) {
    mergeOperators.put(table, operator);
    return this;
  }

  /**
   * Adds a listener for the events of all tables: flushes, compactions, write stalls, failures and
   * damage. It gets one event after the other on a thread of the store, may take its time and use
   * the store, but must not close it. {@link Store#close} waits until it has got all of them.
   */
  public Options listener(Consumer<Event> listener) {
    listeners.add(listener);
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
    try {
      addObjects(options);
    } catch (Throwable thrown) {
      free(options);
      throw thrown;
    }
    return options;
  }

  /** Adds keys, merge operators and listeners. */
  private void addObjects(MemorySegment options) {
    try (Arena arena = Arena.ofConfined()) {
      for (byte[] key : keys) {
        Library.run(ADD_KEY, options, Library.bytes(arena, key), (long) key.length);
      }
      for (Map.Entry<String, MergeOperator> entry : mergeOperators.entrySet()) {
        MergeOperator operator = entry.getValue();
        MemorySegment table = Library.text(arena, entry.getKey(), "table");
        MemorySegment name = Library.text(arena, operator.name(), "name");
        Library.run(
            ADD_MERGE_OPERATOR,
            options,
            table,
            name,
            Callbacks.MERGE,
            Callbacks.PARTIAL_MERGE,
            Callbacks.keep(operator),
            Callbacks.FORGET);
      }
      for (Consumer<Event> listener : listeners) {
        Library.run(
            ADD_LISTENER, options, Callbacks.ON_EVENT, Callbacks.keep(listener), Callbacks.FORGET);
      }
    }
  }

  static void free(MemorySegment options) {
    Library.call(FREE, options);
  }
}
