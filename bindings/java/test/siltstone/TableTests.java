package siltstone;

import static siltstone.Check.bytes;
import static siltstone.Check.equal;
import static siltstone.Check.fails;
import static siltstone.Check.get;
import static siltstone.Check.holds;
import static siltstone.Check.list;
import static siltstone.Check.text;
import static siltstone.Check.withTable;

import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Map;

/** Tables, batches and snapshots. */
final class TableTests {
  private TableTests() {}

  static void times_beyondThoseOfTheStoreAreItsLast(Path scratch) throws Exception {
    Duration forever = ChronoUnit.FOREVER.getDuration();
    fails(Code.INVALID, () -> new Options().idle(forever.negated()));
    try (Store store = Store.openOrCreate(scratch, new Options().idle(forever));
        Table table = store.tableOrCreate("t", "lsm")) {
      table.put(bytes("a"), bytes("1"), Instant.MAX);
      table.put(bytes("b"), bytes("2"), forever);
      table.put(bytes("c"), bytes("3"), Instant.MIN);
      table.put(bytes("d"), bytes("4"), forever.negated());
      try (Cursor cursor = table.cursor()) {
        holds(cursor.next() && cursor.expiresAt().equals(Instant.ofEpochMilli(Long.MAX_VALUE)));
        holds(cursor.next() && !cursor.next());
      }
    }
  }

  static void table_writesAndReads(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          table.put(bytes("apples"), bytes("3"));
          table.put(bytes("pears"), bytes(""));
          table.put(bytes(""), bytes("empty key"));
          table.put(bytes("stale"), bytes("x"), Instant.EPOCH.minusSeconds(5));
          table.put(bytes("fresh"), bytes("y"), Duration.ofHours(1));
          equal(get(table, "apples"), "3");
          equal(get(table, "pears"), "");
          equal(get(table, ""), "empty key");
          equal(get(table, "stale"), null);
          equal(get(table, "fresh"), "y");
          holds(table.contains(bytes("pears")));
          holds(!table.contains(bytes("stale")));
          equal(table.count(), 4L);

          byte[][] values =
              table.multiGet(bytes("fresh"), bytes(""), bytes("none"), bytes("pears"));
          equal(values.length, 4);
          equal(text(values[0]) + text(values[1]), "yempty key");
          equal(values[2], null);
          equal(text(values[3]), "");
          equal(table.multiGet().length, 0);

          table.delete(bytes("fresh"));
          table.delete(bytes("fresh"));
          equal(get(table, "fresh"), null);
          table.sync();
          table.flush();
          table.maintain();
          holds(table.approximateLen() >= 3);
          holds(table.stats().contains("\"engine\":\"lsm\""));
          table.clear();
          equal(get(table, "apples"), null);
        });
  }

  static void table_comparesAndSwaps(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          byte[] key = bytes("k");
          holds(!table.compareAndSwap(key, bytes("1"), bytes("1")));
          holds(!table.compareAndSwap(key, bytes(""), bytes("1")));
          holds(table.compareAndSwap(key, null, bytes("")));
          holds(!table.compareAndSwap(key, null, bytes("1")));
          holds(table.compareAndSwap(key, bytes(""), bytes("1")));
          equal(get(table, "k"), "1");
          holds(table.compareAndSwap(key, bytes("1"), null));
          equal(get(table, "k"), null);
        });
  }

  static void table_popsTheFirstAndTheLastEntry(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          for (String key : new String[] {"b", "a", "c"}) {
            table.put(bytes(key), bytes(key.equals("c") ? "" : key));
          }
          var first = table.popFirst();
          equal(text(first.getKey()) + "=" + text(first.getValue()), "a=a");
          var last = table.popLast();
          equal(text(last.getKey()) + "=" + text(last.getValue()), "c=");
          equal(text(table.popLast().getKey()), "b");
          holds(table.popFirst() == null && table.popLast() == null);
        });
  }

  static void snapshotAt_showsAPastTime(Path scratch) throws Exception {
    try (Store store = Store.openOrCreate(scratch);
        Table table =
            store.tableOrCreate(
                "t", "skimpy", Map.of("retention", "1h", "capacity", "16MiB"))) {
      table.put(bytes("k"), bytes("100"));
      Instant then = Instant.now();
      Thread.sleep(2);
      table.put(bytes("k"), bytes("120"));
      try (Snapshot snapshot = table.snapshotAt(then)) {
        equal(text(snapshot.get(bytes("k"))), "100");
      }
      fails(Code.INVALID, () -> table.snapshotAt(Instant.MAX));
    }
  }

  static void table_rejectsKeysOverTheLimit(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          byte[] key = new byte[1 << 20];
          fails(Code.TOO_LARGE, () -> table.put(key, key));
          fails(Code.TOO_LARGE, () -> table.get(key));
          fails(Code.TOO_LARGE, () -> table.contains(key));
          fails(Code.TOO_LARGE, () -> table.multiGet(bytes("k"), key));
        });
  }

  static void table_enginesWithoutOrderRefuseByName(Path scratch) throws Exception {
    withTable(
        scratch,
        "mica",
        table -> {
          table.put(bytes("k"), bytes("v"));
          holds(fails(Code.UNSUPPORTED, table::snapshot).getMessage().contains("mica"));
          fails(Code.UNSUPPORTED, table::begin);
          fails(Code.UNSUPPORTED, () -> table.transact(tx -> null));
          fails(Code.UNSUPPORTED, () -> table.range(bytes("a"), null));
          fails(Code.UNSUPPORTED, () -> table.prefix(bytes("a")));
          equal(list(table.cursor()), "k=v ");
          try (Cursor cursor = table.cursor()) {
            fails(Code.UNSUPPORTED, cursor::last);
            holds(cursor.first());
          }
        });
  }

  static void batch_appliesInOrder(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          table.put(bytes("apples"), bytes("3"));
          Batch batch = new Batch();
          batch.put(bytes("gone"), bytes("1"));
          batch.clear();
          equal(batch.size(), 0L);
          batch.put(bytes("plums"), bytes("1"));
          batch.put(bytes("plums"), bytes("7"));
          batch.put(bytes("stale"), bytes("1"), Instant.ofEpochMilli(1));
          batch.put(bytes("fresh"), bytes("2"), Duration.ofHours(1));
          batch.delete(bytes("apples"));
          equal(batch.size(), 5L);
          table.writeSync(batch);
          table.write(batch);
          equal(list(table.cursor()), "fresh=2 plums=7 ");
          batch.close();
          batch.close();
          fails(Code.CLOSED, batch::size);
          fails(Code.CLOSED, batch::clear);
          fails(Code.CLOSED, () -> batch.put(bytes("k"), bytes("v")));
          fails(Code.CLOSED, () -> table.write(batch));
        });
  }

  static void snapshot_showsItsMoment(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          table.put(bytes("k"), bytes("then"));
          Snapshot snapshot = table.snapshot();
          table.put(bytes("k"), bytes("now"));
          table.put(bytes("l"), bytes("now"));
          equal(get(snapshot, "k"), "then");
          equal(get(snapshot, "l"), null);
          holds(!snapshot.contains(bytes("l")));
          equal(text(snapshot.multiGet(bytes("l"), bytes("k"))[1]), "then");
          equal(list(snapshot.range(null, bytes("z"))), "k=then ");
          Cursor cursor = snapshot.prefix(bytes("k"));
          snapshot.close();
          snapshot.close();
          equal(list(cursor), "k=then ");
          fails(Code.CLOSED, () -> get(snapshot, "k"));
          fails(Code.CLOSED, snapshot::cursor);
        });
  }
}
