package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;

/** An open store. One process at a time has a store open for writing. */
public final class Store implements AutoCloseable {
  private static final MethodHandle FREE = Library.procedure("db_free", ADDRESS);
  private static final MethodHandle OPEN = Library.fallible("open", ADDRESS, ADDRESS, ADDRESS);
  private static final MethodHandle OPEN_OR_CREATE =
      Library.fallible("open_or_create", ADDRESS, ADDRESS, ADDRESS);
  private static final MethodHandle CLOSE = Library.fallible("close", ADDRESS);
  private static final MethodHandle TABLE_OPEN =
      Library.fallible("table_open", ADDRESS, ADDRESS, ADDRESS);
  private static final MethodHandle TABLE_OPEN_OR_CREATE =
      Library.fallible(
          "table_open_or_create", ADDRESS, ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS);
  private static final MethodHandle TABLE_DROP = Library.fallible("table_drop", ADDRESS, ADDRESS);
  private static final MethodHandle TABLE_RENAME =
      Library.fallible("table_rename", ADDRESS, ADDRESS, ADDRESS);
  private static final MethodHandle TABLES = Library.fallible("tables", ADDRESS, ADDRESS);
  private static final MethodHandle DISK_USAGE =
      Library.fallible("disk_usage", ADDRESS, ADDRESS);
  private static final MethodHandle WRITE =
      Library.fallible("write", ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, JAVA_BOOLEAN);
  private static final MethodHandle SNAPSHOT_CREATE_ALL =
      Library.fallible("snapshot_create_all", ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);
  private static final MethodHandle TRANSACTION_BEGIN_ALL =
      Library.fallible("transaction_begin_all", ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);
  private static final MethodHandle SYNC = Library.fallible("sync", ADDRESS);
  private static final MethodHandle CHECKPOINT = Library.fallible("checkpoint", ADDRESS, ADDRESS);
  private static final MethodHandle VERIFY_OPEN =
      Library.fallible("verify_open", ADDRESS, ADDRESS, ADDRESS);
  private static final MethodHandle VERIFY =
      Library.fallible("verify_with", ADDRESS, ADDRESS, ADDRESS, ADDRESS);
  private static final MethodHandle REPAIR =
      Library.fallible("repair_with", ADDRESS, ADDRESS, ADDRESS, ADDRESS);
  private static final MethodHandle REKEY =
      Library.fallible("rekey", ADDRESS, ADDRESS, ADDRESS);

  private final Handle handle;

  private Store(MemorySegment db) {
    handle = new Handle(db, "store", FREE);
  }

  /** The version of the C library, e.g. "0.1.0". */
  public static String libraryVersion() {
    return Library.version();
  }

  /** Opens an existing store with the default options. */
  public static Store open(Path path) {
    return open(path, new Options());
  }

  /**
   * Opens the existing store in a directory.
   *
   * <p>Errors: {@link Code#REFUSED} if the directory is not a store; {@link Code#LOCKED}; {@link
   * Code#CORRUPTION} of the list of tables; {@link Code#IO}.
   */
  public static Store open(Path path, Options options) {
    return open(OPEN, path, options);
  }

  /** Opens or creates a store with the default options. */
  public static Store openOrCreate(Path path) {
    return openOrCreate(path, new Options());
  }

  /**
   * Opens the store in a directory, or creates one if the directory is missing or empty. With
   * {@link Options#readOnly} nothing is created. Errors are as of {@link #open}.
   */
  public static Store openOrCreate(Path path, Options options) {
    return open(OPEN_OR_CREATE, path, options);
  }

  private static Store open(MethodHandle open, Path path, Options options) {
    return new Store(openWith(open, path, options));
  }

  /** Calls a function with a directory and options, and returns its output. */
  static MemorySegment openWith(MethodHandle open, Path path, Options options) {
    MemorySegment built = options.build();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment opened = arena.allocate(ADDRESS);
      Library.run(open, Library.text(arena, path.toString(), "path"), built, opened);
      return opened.get(ADDRESS, 0);
    } finally {
      Options.free(built);
    }
  }

  /**
   * Opens an existing table.
   *
   * <p>Errors: {@link Code#INVALID} if there is no such table; {@link Code#CORRUPTION}; {@link
   * Code#IO}.
   */
  public Table table(String name) {
    MemorySegment db = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment table = arena.allocate(ADDRESS);
      Library.run(TABLE_OPEN, db, Library.text(arena, name, "name"), table);
      return new Table(table.get(ADDRESS, 0));
    } finally {
      handle.release();
    }
  }

  /** Opens a table, or creates it with the engine's default options. */
  public Table tableOrCreate(String name, String engine) {
    return tableOrCreate(name, engine, Map.of());
  }

  /**
   * Opens a table, or creates it on the engine "lsm", "trie", "silt", "mica" or "skimpy" with
   * options, e.g. {@code Map.of("memtable", "8MiB")}. Options of an existing table that differ are
   * applied or refused.
   *
   * <p>Errors: {@link Code#INVALID_OPTIONS} with every mistake; {@link Code#INVALID} if the table
   * is on another engine; {@link Code#IO}.
   */
  public Table tableOrCreate(String name, String engine, Map<String, String> options) {
    MemorySegment db = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment list = Library.options(arena, options);
      MemorySegment table = arena.allocate(ADDRESS);
      Library.run(
          TABLE_OPEN_OR_CREATE,
          db,
          Library.text(arena, name, "name"),
          Library.text(arena, engine, "engine"),
          list,
          (long) options.size(),
          table);
      return new Table(table.get(ADDRESS, 0));
    } finally {
      handle.release();
    }
  }

  /**
   * Removes a table with all of its files. Calls with its other objects throw {@link Code#CLOSED}.
   *
   * <p>Errors: {@link Code#INVALID} if there is no such table; {@link Code#IO}.
   */
  public void dropTable(String name) {
    MemorySegment db = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      Library.run(TABLE_DROP, db, Library.text(arena, name, "name"));
    } finally {
      handle.release();
    }
  }

  /**
   * Renames a table that is not in use: close every {@link Table} of it first.
   *
   * <p>Errors: {@link Code#INVALID} if there is no such table, or if the new name is taken; {@link
   * Code#REFUSED} if the table is in use.
   */
  public void renameTable(String name, String newName) {
    MemorySegment db = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      Library.run(
          TABLE_RENAME,
          db,
          Library.text(arena, name, "name"),
          Library.text(arena, newName, "newName"));
    } finally {
      handle.release();
    }
  }

  /**
   * Begins to move a table to an engine with options, while it is in use. It may be its own engine,
   * with other options. Nothing is copied yet. End the move with {@link TableMove#finish}, or with
   * {@code close}, which cancels it. Snapshots, the history of skimpy and change feeds do not move.
   *
   * <p>Errors: {@link Code#INVALID} if there is no such table, or if it is moving already; {@link
   * Code#INVALID_OPTIONS}; {@link Code#UNSUPPORTED} for a table with a merge operator and an engine
   * without merges; {@link Code#REFUSED} in a read-only store; {@link Code#IO}.
   */
  public TableMove beginMove(String name, String engine, Map<String, String> options) {
    MemorySegment db = handle.acquire();
    try {
      return TableMove.begin(db, name, engine, options);
    } finally {
      handle.release();
    }
  }

  /**
   * The tables with their engines and options as a JSON object, e.g. {@code
   * {"stock":{"engine":"lsm","options":{"memtable":"8MiB"}}}}.
   */
  public String tables() {
    return json(TABLES);
  }

  /** The bytes of the files of each table as a JSON object, e.g. {@code {"stock":4096}}. */
  public String diskUsage() {
    return json(DISK_USAGE);
  }

  private String json(MethodHandle function) {
    MemorySegment db = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment json = arena.allocate(ADDRESS);
      Library.run(function, db, json);
      return Library.takeString(json);
    } finally {
      handle.release();
    }
  }

  /**
   * Applies batches to tables of the store, to all of them or to none. The tables are on lsm, trie
   * or silt. The batches stay as they are.
   *
   * <p>Errors: {@link Code#INVALID} for a table of another store, and for a batch that is given
   * twice; {@link Code#UNSUPPORTED} by other engines; those of all writes.
   */
  public void write(Map<Table, Batch> batches) {
    write(batches, false);
  }

  /** {@link #write}, and all of it survives a power cut once it returns. */
  public void writeSync(Map<Table, Batch> batches) {
    write(batches, true);
  }

  private void write(Map<Table, Batch> batches, boolean synced) {
    List<Table> tables = List.copyOf(batches.keySet());
    List<Batch> parts = tables.stream().map(batches::get).toList();
    if (new HashSet<>(parts).size() < parts.size()) {
      throw new SiltstoneException(Code.INVALID, "a batch is given for two tables");
    }
    MemorySegment db = handle.acquire();
    List<Table> acquired = new ArrayList<>();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment tableList = arena.allocate(ADDRESS, tables.size());
      for (Table table : tables) {
        tableList.setAtIndex(ADDRESS, acquired.size(), table.acquire());
        acquired.add(table);
      }
      MemorySegment batchList = arena.allocate(ADDRESS, tables.size());
      Batch.useAll(
          parts,
          objects -> {
            for (int i = 0; i < objects.size(); i++) {
              batchList.setAtIndex(ADDRESS, i, objects.get(i));
            }
            Library.run(WRITE, db, (long) tables.size(), tableList, batchList, synced);
          });
    } finally {
      acquired.forEach(Table::release);
      handle.release();
    }
  }

  /**
   * Snapshots of several tables as of one moment, in the order of the tables. Waits for the writes
   * in progress on these tables.
   *
   * <p>Errors: {@link Code#UNSUPPORTED} unless all tables are on lsm; {@link Code#INVALID} for a
   * table of another store, or one that is there twice; {@link Code#CLOSED}.
   */
  public List<Snapshot> snapshots(Table... tables) {
    return createAll(SNAPSHOT_CREATE_ALL, List.of(tables)).stream().map(Snapshot::new).toList();
  }

  /**
   * Begins a transaction over several tables. End it with {@link StoreTransaction#commit}, or with
   * {@code close}, which discards its writes.
   *
   * <p>Errors: as of {@link #snapshots}.
   */
  public StoreTransaction begin(Table... tables) {
    List<Table> list = List.of(tables);
    List<MemorySegment> parts = createAll(TRANSACTION_BEGIN_ALL, list);
    return new StoreTransaction(list, parts.stream().map(Transaction::new).toList());
  }

  /** Runs {@code work} in a transaction over several tables; as {@link Table#transact}. */
  public <T, E extends Exception> T transact(
      StoreTransaction.Work<T, E> work, Table... tables) throws E {
    return transact(work, false, tables);
  }

  /** {@link #transact}, and the writes survive a power cut once it returns. */
  public <T, E extends Exception> T transactSync(
      StoreTransaction.Work<T, E> work, Table... tables) throws E {
    return transact(work, true, tables);
  }

  private <T, E extends Exception> T transact(
      StoreTransaction.Work<T, E> work, boolean synced, Table... tables) throws E {
    return Transaction.retry(
        () -> {
          try (StoreTransaction transaction = begin(tables)) {
            T result = work.run(transaction);
            transaction.commit(synced);
            return result;
          }
        });
  }

  /** Calls a function that creates an object for each of several tables. */
  private List<MemorySegment> createAll(MethodHandle create, List<Table> tables) {
    MemorySegment db = handle.acquire();
    List<Table> acquired = new ArrayList<>();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment list = arena.allocate(ADDRESS, tables.size());
      for (Table table : tables) {
        list.setAtIndex(ADDRESS, acquired.size(), table.acquire());
        acquired.add(table);
      }
      MemorySegment created = arena.allocate(ADDRESS, tables.size());
      Library.run(create, db, (long) tables.size(), list, created);
      List<MemorySegment> objects = new ArrayList<>();
      for (int i = 0; i < tables.size(); i++) {
        objects.add(created.getAtIndex(ADDRESS, i));
      }
      return objects;
    } finally {
      acquired.forEach(Table::release);
      handle.release();
    }
  }

  /** Makes every write that has returned, to any table, durable against a power cut. */
  public void sync() {
    MemorySegment db = handle.acquire();
    try {
      Library.run(SYNC, db);
    } finally {
      handle.release();
    }
  }

  /**
   * Copies every table, each as of a moment during the call, into a new directory, while the store
   * is in use. Files are linked where both directories are on one file system. The copy is a store.
   *
   * <p>Errors: {@link Code#REFUSED} if the directory exists or is inside a store; {@link Code#IO}.
   * There is no partial copy then.
   */
  public void checkpoint(Path path) {
    MemorySegment db = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      Library.run(CHECKPOINT, db, Library.text(arena, path.toString(), "path"));
    } finally {
      handle.release();
    }
  }

  /**
   * Reads and checks every byte of the open store. Damage is in the report, and is not an error.
   *
   * <p>Errors: {@link Code#IO}: a file could not be read.
   */
  public VerifyReport verify() {
    MemorySegment db = handle.acquire();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment outputs = Library.outputs(arena);
      Library.run(VERIFY_OPEN, db, outputs.asSlice(8), outputs);
      return new VerifyReport(outputs.get(JAVA_BOOLEAN, 8), Library.takeString(outputs));
    } finally {
      handle.release();
    }
  }

  /**
   * Reads and checks every byte of the store in a directory, which no process has open. Changes
   * nothing. Damage is in the report, also that of the list of tables, and is not an error.
   *
   * <p>Errors: {@link Code#REFUSED} if the directory is not a store, or is an encrypted one; {@link
   * Code#LOCKED}; {@link Code#IO}.
   */
  public static VerifyReport verify(Path path) {
    return verify(path, new Options());
  }

  /** {@link #verify(Path)}, for a store that is opened with options: with its keys. */
  public static VerifyReport verify(Path path, Options options) {
    MemorySegment built = options.build();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment outputs = Library.outputs(arena);
      MemorySegment name = Library.text(arena, path.toString(), "path");
      Library.run(VERIFY, name, built, outputs.asSlice(8), outputs);
      return new VerifyReport(outputs.get(JAVA_BOOLEAN, 8), Library.takeString(outputs));
    } finally {
      Options.free(built);
    }
  }

  /**
   * Repairs the store in a directory, which no process has open, as far as possible. Damaged files
   * are kept as {@code *.damaged}.
   *
   * <p>Errors: {@link Code#REFUSED} if the directory is not a store, or is an encrypted one; {@link
   * Code#LOCKED}; {@link Code#IO}.
   */
  public static RepairReport repair(Path path) {
    return repair(path, new Options());
  }

  /** {@link #repair(Path)}, for a store that is opened with options: with its keys. */
  public static RepairReport repair(Path path, Options options) {
    MemorySegment built = options.build();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment outputs = Library.outputs(arena);
      MemorySegment name = Library.text(arena, path.toString(), "path");
      Library.run(REPAIR, name, built, outputs.asSlice(8), outputs);
      return new RepairReport(outputs.get(JAVA_BOOLEAN, 8), Library.takeString(outputs));
    } finally {
      Options.free(built);
    }
  }

  /**
   * Changes the master key of the encrypted store in a directory, which no process has open, to the
   * first key of the options; the others are earlier ones. Contents are not encrypted again: each
   * file has a key of its own, which the master key encrypts. Earlier master keys are not needed
   * afterwards. The call may be repeated after an interruption. Returns a report: {@code
   * {"files":9,"rewrapped":9,"damaged":[{"file":F,"offset":0,"reason":R}]}}.
   *
   * <p>Errors: {@link Code#REFUSED} if the store is not encrypted, or with a key that is not among
   * those of the options; {@link Code#LOCKED}; {@link Code#IO}.
   */
  public static String rekey(Path path, Options options) {
    return Library.takeText(openWith(REKEY, path, options));
  }

  /**
   * Finishes background work, makes everything durable and releases the directory. Calls with the
   * tables, snapshots and transactions of the store throw {@link Code#CLOSED} from then on. Closing
   * again does nothing.
   *
   * <p>Errors: {@link Code#IO} and {@link Code#READ_ONLY}. The store is closed in any case; some
   * writes may not be durable then.
   */
  @Override
  public void close() {
    MemorySegment db = handle.acquireIfOpen();
    if (db == null) {
      return;
    }
    try {
      Library.run(CLOSE, db);
    } finally {
      handle.release();
      handle.close();
    }
  }
}
