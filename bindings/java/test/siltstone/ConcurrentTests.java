package siltstone;

import static siltstone.Check.bytes;
import static siltstone.Check.equal;
import static siltstone.Check.holds;
import static siltstone.Check.text;
import static siltstone.Check.withTable;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Threads that share a store. */
final class ConcurrentTests {
  private ConcurrentTests() {}

  /** Writers set four keys to one number, atomically. */
  static void readers_seeWholeBatchesOfWriters(Path scratch) throws Exception {
    byte[][] keys = {bytes("a"), bytes("b"), bytes("c"), bytes("d")};
    withTable(
        scratch,
        "lsm",
        table -> {
          AtomicInteger writers = new AtomicInteger(2);
          List<Future<?>> all = new ArrayList<>();
          try (ExecutorService threads = Executors.newFixedThreadPool(4)) {
            for (int i = 0; i < 2; i++) {
              int writer = i;
              all.add(threads.submit(() -> write(table, keys, writer, writers)));
              all.add(threads.submit(() -> read(table, keys, writers)));
            }
          }
          for (Future<?> one : all) {
            one.get();
          }
        });
  }

  private static void write(Table table, byte[][] keys, int writer, AtomicInteger writers) {
    try (Batch batch = new Batch()) {
      for (int i = 0; i < 300; i++) {
        batch.clear();
        for (byte[] key : keys) {
          batch.put(key, bytes(Integer.toString(2 * i + writer)));
        }
        table.write(batch);
      }
    } finally {
      writers.decrementAndGet();
    }
  }

  private static void read(Table table, byte[][] keys, AtomicInteger writers) {
    while (writers.get() > 0) {
      byte[][] values = table.multiGet(keys);
      for (byte[] value : values) {
        equal(text(value), text(values[0]));
      }
      try (Snapshot snapshot = table.snapshot();
          Cursor cursor = snapshot.cursor()) {
        String first = cursor.next() ? text(cursor.value()) : null;
        while (cursor.next()) {
          equal(text(cursor.value()), first);
        }
      }
    }
  }

  /**
   * Closes a store and its objects under threads that use them: each call works or throws CLOSED.
   */
  static void close_whileInUse(Path scratch) throws Exception {
    for (int round = 0; round < 20; round++) {
      closeInUse(Files.createDirectory(scratch.resolve("store" + round)), round);
    }
  }

  private static void closeInUse(Path path, int round) throws Exception {
    Store store = Store.openOrCreate(path);
    Table table = store.tableOrCreate("t", "lsm");
    table.put(bytes("k"), bytes("v"));
    Snapshot snapshot = table.snapshot();
    Cursor cursor = table.cursor();
    Transaction tx = table.begin();
    Batch batch = new Batch();
    List<Check.Action> uses =
        List.of(
            () -> table.get(bytes("k")),
            () -> table.put(bytes("k"), bytes("w")),
            () -> snapshot.multiGet(bytes("k"), bytes("l")),
            cursor::first,
            () -> tx.put(bytes("l"), bytes("w")),
            () -> {
              batch.put(bytes("m"), bytes("w"));
              table.write(batch);
            },
            store::tables,
            () -> table.transact(one -> TransactionTests.increment(one, "n")));
    CountDownLatch started = new CountDownLatch(uses.size());
    List<Future<Code>> all = new ArrayList<>();
    try (ExecutorService threads = Executors.newFixedThreadPool(uses.size())) {
      for (Check.Action use : uses) {
        all.add(threads.submit(() -> useUntilClosed(use, started)));
      }
      holds(started.await(60, TimeUnit.SECONDS));
      List<AutoCloseable> closes = List.of(store, table, snapshot, cursor, tx, batch);
      for (int i = 0; i < closes.size(); i++) {
        closes.get((i + round) % closes.size()).close();
      }
    }
    for (Future<Code> one : all) {
      equal(one.get(), Code.CLOSED);
    }
    holds(Store.verify(path).isIntact());
  }

  /** A table that is still in use could not be renamed. */
  static void collector_freesWhatNobodyClosed(Path scratch) throws Exception {
    try (Store store = Store.openOrCreate(scratch)) {
      leave(store);
      for (int tries = 0; !isRenamed(store); tries++) {
        holds(tries < 1000);
        System.gc();
        Thread.sleep(5);
      }
    }
  }

  private static void leave(Store store) {
    Table table = store.tableOrCreate("t", "lsm");
    table.put(bytes("k"), bytes("v"));
    holds(table.cursor().next());
    table.begin().put(bytes("k"), bytes("w"));
    table.snapshot();
  }

  private static boolean isRenamed(Store store) {
    try {
      store.renameTable("t", "u");
      return true;
    } catch (SiltstoneException used) {
      equal(used.code(), Code.REFUSED);
      return false;
    }
  }

  private static Code useUntilClosed(Check.Action use, CountDownLatch started) throws Exception {
    try {
      while (true) {
        use.run();
        started.countDown();
      }
    } catch (SiltstoneException failed) {
      return failed.code();
    }
  }
}
