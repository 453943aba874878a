package siltstone;

import static siltstone.Check.bytes;
import static siltstone.Check.equal;
import static siltstone.Check.fails;
import static siltstone.Check.get;
import static siltstone.Check.holds;

import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Stream;

/** Stores: opening, tables, checkpoints, damage, and what follows after closing. */
final class StoreTests {
  private StoreTests() {}

  static void open_reportsWhyNot(Path scratch) {
    Path path = scratch.resolve("store");
    equal(Store.libraryVersion().split("\\.").length, 3);
    fails(Code.REFUSED, () -> Store.open(path));
    fails(Code.INVALID, () -> new Options().threads(0));
    Options options =
        new Options()
            .directReads(true)
            .threads(2)
            .maxOpenFiles(64)
            .cacheBytes(1 << 20)
            .idle(Duration.ZERO)
            .transactionMemoryBytes(1 << 20);
    Store store = Store.openOrCreate(path, options);
    fails(Code.LOCKED, () -> Store.open(path));
    fails(Code.LOCKED, () -> Store.verify(path));
    fails(Code.LOCKED, () -> Store.repair(path));
    try (Table table = store.tableOrCreate("t", "lsm")) {
      table.put(bytes("k"), bytes("v"));
    }
    store.close();
    store.close();
    try (Store reopened = Store.open(path, new Options().readOnly(true));
        Table table = reopened.table("t")) {
      equal(get(table, "k"), "v");
      fails(Code.REFUSED, () -> table.put(bytes("k"), bytes("w")));
    }
  }

  static void store_managesTables(Path scratch) {
    try (Store store = Store.openOrCreate(scratch)) {
      Table first =
          store.tableOrCreate("first", "lsm", Map.of("memtable", "8MiB", "triad.log", "off"));
      fails(Code.REFUSED, () -> store.renameTable("first", "second"));
      fails(Code.INVALID, () -> store.renameTable("none", "second"));
      first.close();
      first.close();
      fails(Code.CLOSED, () -> first.put(bytes("k"), bytes("v")));
      store.renameTable("first", "second");
      holds(store.tables().contains("\"memtable\":\"8MiB\""));
      holds(store.diskUsage().matches("\\{\".*\":[1-9][0-9]*\\}"));
      Map<String, String> wrong = Map.of("memtable", "1X", "nonsense", "1");
      String message =
          fails(Code.INVALID_OPTIONS, () -> store.tableOrCreate("x", "lsm", wrong)).getMessage();
      holds(message.contains("memtable") && message.contains("nonsense"));
      fails(Code.INVALID_OPTIONS, () -> store.tableOrCreate("x", "ism"));
      fails(Code.INVALID, () -> store.tableOrCreate("x", "lsm", Map.of("a\0b", "1")));
      holds(fails(Code.INVALID, () -> store.table("secnod")).getMessage().contains("second"));
      fails(Code.INVALID, () -> store.table("a\0b"));
      try (Table second = store.table("second")) {
        store.dropTable("second");
        fails(Code.CLOSED, () -> second.put(bytes("k"), bytes("v")));
      }
      fails(Code.INVALID, () -> store.dropTable("second"));
      store.sync();
    }
  }

  static void checkpoint_isAStore(Path scratch) {
    Path path = scratch.resolve("copy");
    try (Store store = Store.openOrCreate(scratch.resolve("store"));
        Table table = store.tableOrCreate("t", "lsm")) {
      table.put(bytes("k"), bytes("v"));
      store.checkpoint(path);
      fails(Code.REFUSED, () -> store.checkpoint(path));
      VerifyReport report = store.verify();
      holds(report.isIntact() && report.json().contains("\"t\":"));
    }
    holds(Store.verify(path).isIntact());
    RepairReport repaired = Store.repair(path);
    holds(repaired.isLossless() && repaired.json().contains("\"losses\":[]"));
    try (Store copy = Store.open(path);
        Table table = copy.table("t")) {
      equal(get(table, "k"), "v");
    }
  }

  static void close_everyLaterCallFails(Path scratch) {
    Store store = Store.openOrCreate(scratch);
    Table table = store.tableOrCreate("t", "lsm");
    Snapshot snapshot = table.snapshot();
    Transaction tx = table.begin();
    Batch batch = new Batch();
    byte[] key = bytes("k");
    Map<String, Check.Action> calls = new LinkedHashMap<>();
    calls.put("table", () -> store.table("t"));
    calls.put("tableOrCreate", () -> store.tableOrCreate("t", "lsm"));
    calls.put("dropTable", () -> store.dropTable("t"));
    calls.put("renameTable", () -> store.renameTable("t", "u"));
    calls.put("tables", store::tables);
    calls.put("diskUsage", store::diskUsage);
    calls.put("sync", store::sync);
    calls.put("checkpoint", () -> store.checkpoint(Path.of("x")));
    calls.put("verify", store::verify);
    calls.put("get", () -> table.get(key));
    calls.put("contains", () -> table.contains(key));
    calls.put("multiGet", () -> table.multiGet(key));
    calls.put("put", () -> table.put(key, key));
    calls.put("put with expiry", () -> table.put(key, key, Duration.ofHours(1)));
    calls.put("delete", () -> table.delete(key));
    calls.put("write", () -> table.write(batch));
    calls.put("clear", table::clear);
    calls.put("table.sync", table::sync);
    calls.put("flush", table::flush);
    calls.put("maintain", table::maintain);
    calls.put("count", table::count);
    calls.put("approximateLen", table::approximateLen);
    calls.put("compareAndSwap", () -> table.compareAndSwap(key, null, key));
    calls.put("popFirst", table::popFirst);
    calls.put("snapshot", table::snapshot);
    calls.put("begin", table::begin);
    calls.put("transact", () -> table.transact(any -> null));
    calls.put("cursor", table::cursor);
    calls.put("snapshot.get", () -> snapshot.get(key));
    calls.put("tx.get", () -> tx.get(key));
    store.close();
    calls.forEach((name, call) -> fails(Code.CLOSED, call));
    table.close();
    snapshot.close();
    tx.close();
    batch.close();
    calls.forEach((name, call) -> fails(Code.CLOSED, call));
  }

  static void repair_savesWhatIsNotDamaged(Path scratch) throws Exception {
    Path path = scratch.resolve("store");
    try (Store store = Store.openOrCreate(path);
        Table table = store.tableOrCreate("t", "lsm", Map.of("triad.log", "off"));
        Batch batch = new Batch()) {
      for (int i = 0; i < 5000; i++) {
        batch.put(bytes("key%06d".formatted(i)), bytes("a value that takes some space"));
      }
      table.write(batch);
      table.flush();
    }
    Path file;
    try (Stream<Path> files = Files.list(path.resolve("table-t"))) {
      file = files.max(Comparator.comparing(one -> one.toFile().length())).orElseThrow();
    }
    try (RandomAccessFile damaged = new RandomAccessFile(file.toFile(), "rw")) {
      holds(damaged.length() > 20000);
      damaged.seek(10000);
      damaged.write(bytes("damage damage damage"));
    }
    String name = file.getFileName().toString();
    VerifyReport report = Store.verify(path);
    holds(!report.isIntact() && report.json().contains(name));
    try (Store store = Store.open(path);
        Table table = store.table("t")) {
      holds(fails(Code.CORRUPTION, table::count).getMessage().contains(name));
    }
    RepairReport repaired = Store.repair(path);
    holds(!repaired.isLossless() && repaired.json().contains(name));
    try (Store store = Store.open(path);
        Table table = store.table("t")) {
      holds(table.count() > 4000 && table.count() < 5000);
    }
  }
}
