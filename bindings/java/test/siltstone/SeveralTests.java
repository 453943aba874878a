package siltstone;

import static siltstone.Check.bytes;
import static siltstone.Check.equal;
import static siltstone.Check.fails;
import static siltstone.Check.get;
import static siltstone.Check.holds;

import java.nio.file.Path;
import java.util.List;

/** Snapshots and transactions over several tables, and writes that do not wait. */
final class SeveralTests {
  private SeveralTests() {}

  static void snapshots_areOfOneMoment(Path scratch) {
    try (Store store = Store.openOrCreate(scratch.resolve("store"));
        Table stock = store.tableOrCreate("stock", "lsm");
        Table silt = store.tableOrCreate("s", "silt")) {
      Table orders = store.tableOrCreate("orders", "lsm");
      stock.put(bytes("pears"), bytes("5"));
      List<Snapshot> before = store.snapshots(orders, stock);
      stock.put(bytes("pears"), bytes("4"));
      orders.put(bytes("1"), bytes("pears"));
      equal(get(before.get(0), "1"), null);
      before.get(0).close();
      equal(get(before.get(1), "pears"), "5");
      before.get(1).close();
      fails(Code.INVALID, () -> store.snapshots(stock, stock));
      fails(Code.UNSUPPORTED, () -> store.snapshots(stock, silt));
      orders.close();
      fails(Code.CLOSED, () -> store.snapshots(stock, orders));
    }
  }

  static void transactionOverTables_isWholeOrAbsent(Path scratch) {
    try (Store store = Store.openOrCreate(scratch.resolve("store"));
        Table stock = store.tableOrCreate("stock", "lsm");
        Table orders = store.tableOrCreate("orders", "lsm")) {
      StoreTransaction tx = store.begin(stock, orders);
      tx.on(orders).put(bytes("1"), bytes("pears"));
      tx.on(stock).put(bytes("pears"), bytes("4"));
      equal(get(tx.on(orders), "1"), "pears");
      equal(get(orders, "1"), null);
      fails(Code.INVALID, () -> tx.on(stock).commit());
      tx.commitSync();
      equal(get(orders, "1") + get(stock, "pears"), "pears4");
      fails(Code.INVALID, tx::commit);
      tx.close();
      fails(Code.CLOSED, tx::commit);

      try (StoreTransaction late = store.begin(orders, stock)) {
        equal(get(late.on(stock), "pears"), "4");
        late.on(orders).put(bytes("2"), bytes("pears"));
        stock.put(bytes("pears"), bytes("9"));
        fails(Code.CONFLICT, late::commit);
        try (Table other = store.tableOrCreate("other", "lsm")) {
          fails(Code.INVALID, () -> late.on(other));
        }
      }
      equal(get(orders, "2"), null);
      fails(Code.INVALID, () -> store.begin(stock, stock));
    }
  }

  static void transactOverTables_runsAgainAfterConflict(Path scratch) {
    try (Store store = Store.openOrCreate(scratch.resolve("store"));
        Table stock = store.tableOrCreate("stock", "lsm");
        Table orders = store.tableOrCreate("orders", "lsm")) {
      int[] tries = {0};
      String value =
          store.transact(
              tx -> {
                String seen = get(tx.on(stock), "pears");
                if (tries[0]++ == 0) {
                  stock.put(bytes("pears"), bytes("7"));
                }
                tx.on(orders).put(bytes("1"), bytes("" + seen));
                return seen;
              },
              stock,
              orders);
      equal(tries[0], 2);
      equal(value + get(orders, "1"), "77");
      try {
        store.transactSync(
            tx -> {
              tx.on(orders).put(bytes("2"), bytes(""));
              throw new IllegalStateException("stop");
            },
            orders);
        holds(false);
      } catch (IllegalStateException stopped) {
        equal(get(orders, "2"), null);
      }
    }
  }

  static void tryWrite_writesUnlessItWaits(Path scratch) {
    try (Store store = Store.openOrCreate(scratch.resolve("store"));
        Table table = store.tableOrCreate("t", "lsm");
        Table mica = store.tableOrCreate("m", "mica");
        Batch batch = new Batch()) {
      batch.put(bytes("k"), bytes("v"));
      holds(table.tryWrite(batch));
      equal(get(table, "k"), "v");
      // mica cannot say that a write does not wait.
      holds(!mica.tryWrite(batch));
      equal(get(mica, "k"), null);
    }
  }
}
