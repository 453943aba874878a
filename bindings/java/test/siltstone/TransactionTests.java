package siltstone;

import static siltstone.Check.bytes;
import static siltstone.Check.equal;
import static siltstone.Check.fails;
import static siltstone.Check.get;
import static siltstone.Check.holds;
import static siltstone.Check.list;
import static siltstone.Check.text;
import static siltstone.Check.withTable;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Transactions. */
final class TransactionTests {
  private TransactionTests() {}

  static void transaction_readsItsWritesAndCommits(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          table.put(bytes("k"), bytes("1"));
          table.put(bytes("m"), bytes("1"));
          Transaction tx = table.begin();
          equal(get(tx, "k"), "1");
          tx.put(bytes("k"), bytes("22"));
          tx.put(bytes("l"), bytes("3"), Instant.now().plusSeconds(60));
          tx.put(bytes("o"), bytes("4"), Duration.ofHours(1));
          tx.delete(bytes("m"));
          Batch batch = new Batch();
          batch.put(bytes("n"), bytes("5"));
          tx.write(batch);
          holds(!tx.contains(bytes("m")));
          equal(text(tx.multiGet(bytes("k"), bytes("m"))[0]), "22");
          String want = "k=22 l=3 n=5 o=4 ";
          equal(list(tx.cursor()), want);
          equal(list(tx.prefix(bytes("l"))), "l=3 ");
          equal(list(tx.range(bytes("l"), bytes("o"))), "l=3 n=5 ");
          equal(get(table, "k"), "1");
          tx.commitSync();
          equal(list(table.cursor()), want);

          fails(Code.INVALID, tx::commit);
          fails(Code.INVALID, () -> tx.put(bytes("k"), bytes("v")));
          fails(Code.INVALID, () -> get(tx, "k"));
          tx.close();
          tx.close();
          fails(Code.CLOSED, tx::commit);
          fails(Code.CLOSED, () -> tx.delete(bytes("k")));
          fails(Code.CLOSED, () -> tx.write(batch));
          batch.close();
        });
  }

  static void transaction_conflictAppliesNothing(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          try (Transaction tx = table.begin()) {
            equal(get(tx, "k"), null);
            tx.put(bytes("n"), bytes("1"));
            table.put(bytes("k"), bytes("other"));
            SiltstoneException conflict = fails(Code.CONFLICT, tx::commit);
            holds(conflict.isRetryable() && !conflict.isDiskFull());
            holds(conflict.getMessage().contains("'k'"));
          }
          equal(get(table, "n"), null);
        });
  }

  static void transaction_closeDiscards(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          try (Transaction tx = table.begin()) {
            tx.put(bytes("n"), bytes("1"));
          }
          equal(get(table, "n"), null);
        });
  }

  static void transaction_expiresWhenIdle(Path scratch) throws Exception {
    Options options = new Options().idle(Duration.ofMillis(1));
    try (Store store = Store.openOrCreate(scratch, options);
        Table table = store.tableOrCreate("t", "lsm");
        Transaction tx = table.begin()) {
      for (int i = 0; i < 10; i++) {
        Thread.sleep(5);
        table.put(bytes("k"), bytes("v")); // looks for idle transactions
      }
      fails(Code.EXPIRED, () -> get(tx, "k"));
    }
  }

  /** Adds 1 to the number at a key, and returns it. */
  static int increment(Transaction tx, String key) {
    String text = get(tx, key);
    int count = text == null ? 1 : Integer.parseInt(text) + 1;
    tx.put(bytes(key), bytes(Integer.toString(count)));
    return count;
  }

  static void transact_countsEveryIncrementOfManyThreads(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          List<Future<?>> all = new ArrayList<>();
          try (ExecutorService threads = Executors.newFixedThreadPool(4)) {
            for (int i = 0; i < 4; i++) {
              all.add(threads.submit(() -> incrementOften(table, 50)));
            }
          }
          for (Future<?> one : all) {
            one.get();
          }
          equal(get(table, "count"), "200");
        });
  }

  private static void incrementOften(Table table, int times) {
    for (int done = 0; done < times; ) {
      try {
        table.transact(tx -> increment(tx, "count"));
        done++;
      } catch (SiltstoneException lost) { // all tries
        equal(lost.code(), Code.CONFLICT);
      }
    }
  }

  private static int disturb(Table table, int times, int[] runs) {
    runs[0] = 0;
    return table.transactSync(
        tx -> {
          int count = increment(tx, "count");
          if (++runs[0] <= times) {
            table.put(bytes("count"), bytes("100"));
          }
          return count;
        });
  }

  static void transact_runsAgainAfterConflicts(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          int[] runs = new int[1];
          equal(disturb(table, 3, runs), 101);
          equal(runs[0], 4);
          equal(get(table, "count"), "101");
          fails(Code.CONFLICT, () -> disturb(table, 1000, runs));
          equal(runs[0], 16);
        });
  }

  static void transact_throwsTheExceptionOfWorkAndDiscards(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          int[] runs = new int[1];
          try {
            table.transact(
                tx -> {
                  runs[0]++;
                  tx.put(bytes("k"), bytes("v"));
                  throw new IOException("sold out");
                });
            holds(false);
          } catch (IOException thrown) {
            equal(thrown.getMessage(), "sold out");
          }
          equal(runs[0], 1);
          equal(get(table, "k"), null);
          fails(
              Code.INVALID,
              () ->
                  table.transact(
                      tx -> {
                        tx.commit();
                        return null;
                      }));
        });
  }
}
