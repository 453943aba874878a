package siltstone;

import static siltstone.Check.bytes;
import static siltstone.Check.equal;
import static siltstone.Check.fails;
import static siltstone.Check.text;

import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** The change feed. */
final class ChangesTests {
  private static final Duration LONG = Duration.ofMinutes(1);

  private ChangesTests() {}

  private static void withLog(Path scratch, Check.TableTest test) throws Exception {
    try (Store store = Store.openOrCreate(scratch.resolve("store"));
        Table table = store.tableOrCreate("t", "lsm", Map.of("log_retention", "64MiB"))) {
      test.run(table);
    }
  }

  static void changes_showEveryOperation(Path scratch) throws Exception {
    withLog(
        scratch,
        table -> {
          table.setMergeOperator(Table.mergeAppend(bytes(",")));
          try (Batch batch = new Batch()) {
            batch.put(bytes("a"), bytes(""));
            batch.delete(bytes("b"));
            batch.deleteRange(bytes("c"), bytes("d"));
            batch.deleteRange(bytes("x"), null);
            batch.merge(bytes("e"), bytes("1"));
            table.writeSync(batch);
          }
          table.clear();
          try (Changes changes = table.changes(0);
              Batch copy = new Batch()) {
            Change change = changes.next(LONG);
            equal(change.kind(), Change.Kind.WRITE);
            equal(change.sequence() + " " + change.part(), "5 0");
            StringBuilder shown = new StringBuilder();
            for (Change.Operation op : change.operations()) {
              equal(op.expiresAt(), null);
              shown.append(op.kind() + " " + text(op.key()) + "=" + text(op.value()) + "; ");
            }
            String want =
                "PUT a=; DELETE b=null; DELETE_RANGE c=d; DELETE_RANGE x=null; MERGE e=1; ";
            equal(shown.toString(), want);
            equal(changes.position(), change.sequence());
            changes.appendTo(copy);
            equal(copy.size(), 5L);
            Change cleared = changes.next(LONG);
            equal(cleared.kind(), Change.Kind.CLEARED);
            equal(cleared.operations(), List.of());
            fails(Code.INVALID, () -> changes.appendTo(copy));
            equal(changes.next(Duration.ZERO), null);
          }
        });
  }

  static void changes_resumeAndWaitForDurability(Path scratch) throws Exception {
    withLog(
        scratch,
        table -> {
          Instant expiry = Instant.ofEpochMilli(1L << 42);
          table.put(bytes("a"), bytes("1"), expiry);
          table.put(bytes("b"), bytes("2"));
          try (Changes durable = table.changes(0);
              Changes all = table.changes(0, true);
              Snapshot snapshot = table.snapshot()) {
            equal(durable.next(Duration.ZERO), null);
            Change first = all.next(LONG);
            equal(first.operations().get(0).expiresAt(), expiry);
            table.sync();
            equal(durable.next(LONG).sequence(), first.sequence());
            try (Changes resumed = table.changes(first.sequence())) {
              Change second = resumed.next(LONG);
              equal(text(second.operations().get(0).key()), "b");
              equal(snapshot.sequence(), second.sequence());
            }
            fails(Code.CHANGES_UNAVAILABLE, () -> table.changes(1000));
          }
        });
  }

  static void close_endsAWaitingCall(Path scratch) throws Exception {
    withLog(
        scratch,
        table -> {
          Changes changes = table.changes(0);
          try (ExecutorService threads = Executors.newSingleThreadExecutor()) {
            Future<?> waiting =
                threads.submit(
                    () -> fails(Code.CLOSED, () -> changes.next(Duration.ofSeconds(Long.MAX_VALUE))));
            changes.close();
            waiting.get();
          }
          fails(Code.CLOSED, changes::position);
        });
  }
}
