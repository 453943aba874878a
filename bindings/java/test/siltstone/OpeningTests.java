package siltstone;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static siltstone.Check.bytes;
import static siltstone.Check.equal;
import static siltstone.Check.fails;
import static siltstone.Check.get;
import static siltstone.Check.holds;
import static siltstone.Check.text;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;

/** What a store is opened with: keys, merge operators, listeners; and readers beside it. */
final class OpeningTests {
  private OpeningTests() {}

  /** Keeps the longest of the value and the operands. */
  private static class Longest implements MergeOperator {
    @Override
    public String name() {
      return "test.longest";
    }

    @Override
    public byte[] merge(byte[] key, byte[] value, List<byte[]> operands) {
      byte[] longest = value == null ? new byte[0] : value;
      for (byte[] operand : operands) {
        if (text(operand).equals("refused")) {
          throw new IllegalArgumentException("no such operand");
        }
        longest = operand.length > longest.length ? operand : longest;
      }
      return longest;
    }
  }

  static void mergeOperator_mergesInReadsAndCompactions(Path scratch) {
    for (String want : List.of("ccc", "dddd")) {
      Options options = new Options().mergeOperator("t", new Longest());
      try (Store store = Store.openOrCreate(scratch.resolve("store"), options);
          Table table = store.tableOrCreate("t", "lsm")) {
        for (String operand : List.of("a", want, "bb")) {
          table.merge(bytes("k"), bytes(operand));
        }
        equal(get(table, "k"), want);
        table.compactRange(null, null);
        equal(get(table, "k"), want);
        table.merge(bytes("l"), bytes("refused"));
        try {
          table.get(bytes("l"));
          holds(false);
        } catch (SiltstoneException failed) {
          holds(failed.getMessage().contains("no such operand"));
        }
        table.put(bytes("l"), bytes(""));
      }
    }
  }

  static void mergeOperator_foldsOperandsBetweenSnapshots(Path scratch) {
    AtomicInteger count = new AtomicInteger();
    MergeOperator partial =
        new Longest() {
          @Override
          public byte[] partialMerge(byte[] key, List<byte[]> operands) {
            count.incrementAndGet();
            return merge(key, null, operands);
          }
        };
    Options options = new Options().mergeOperator("t", partial);
    try (Store store = Store.openOrCreate(scratch.resolve("store"), options);
        Table table = store.tableOrCreate("t", "lsm")) {
      table.merge(bytes("k"), bytes("a"));
      try (Snapshot snapshot = table.snapshot()) {
        table.merge(bytes("k"), bytes("ccc"));
        table.merge(bytes("k"), bytes("bb"));
        table.compactRange(null, null);
        equal(get(snapshot, "k") + get(table, "k"), "accc");
      }
    }
    holds(count.get() > 0);
  }

  static void mergeOperator_ofReservedNameIsRefused(Path scratch) {
    MergeOperator reserved =
        new Longest() {
          @Override
          public String name() {
            return "siltstone.mine";
          }
        };
    Options options = new Options().mergeOperator("t", reserved);
    fails(Code.INVALID, () -> Store.openOrCreate(scratch.resolve("store"), options));
  }

  static void listener_getsFlushesBeforeTheStoreHasClosed(Path scratch) {
    List<Event> events = Collections.synchronizedList(new ArrayList<>());
    Options options = new Options().listener(events::add);
    try (Store store = Store.openOrCreate(scratch.resolve("store"), options);
        Table table = store.tableOrCreate("t", "lsm")) {
      table.put(bytes("k"), new byte[1000]);
      table.flush();
    }
    List<Event> flushes =
        events.stream().filter(event -> event.kind().name().startsWith("FLUSH")).toList();
    equal(flushes.size(), 2);
    Event begun = flushes.get(0);
    Event completed = flushes.get(1);
    equal(begun.kind(), Event.Kind.FLUSH_BEGUN);
    equal(completed.kind(), Event.Kind.FLUSH_COMPLETED);
    equal(begun.job(), completed.job());
    equal(completed.table(), "t");
    holds(!completed.isFailed() && completed.message().contains("flush"));
    holds(completed.outputBytes() > 0 && !completed.duration().isZero());
    holds(completed.at().isAfter(Instant.now().minusSeconds(3600)));
  }

  static void listener_thatThrowsIsCalledAgain(Path scratch) {
    AtomicInteger count = new AtomicInteger();
    Options options =
        new Options()
            .listener(
                event -> {
                  Thread.currentThread().setUncaughtExceptionHandler((thread, thrown) -> {});
                  count.incrementAndGet();
                  throw new IllegalStateException("thrown by the test");
                });
    try (Store store = Store.openOrCreate(scratch.resolve("store"), options);
        Table table = store.tableOrCreate("t", "lsm")) {
      table.put(bytes("k"), bytes("v"));
      table.flush();
    }
    holds(count.get() >= 2);
  }

  static void key_encryptsTheStore(Path scratch) throws IOException {
    byte[] key = new byte[32];
    byte[] other = new byte[32];
    new SecureRandom().nextBytes(key);
    new SecureRandom().nextBytes(other);
    Path path = scratch.resolve("store");
    String secret = "a sentence that is not on the disk";
    try (Store store = Store.openOrCreate(path, new Options().key(key));
        Table table = store.tableOrCreate("t", "lsm")) {
      table.put(bytes("k"), bytes(secret));
      table.flush();
    }
    try (Stream<Path> files = Files.walk(path)) {
      for (Path file : files.filter(Files::isRegularFile).toList()) {
        holds(!new String(Files.readAllBytes(file), ISO_8859_1).contains(secret));
      }
    }
    for (Options options : List.of(new Options(), new Options().key(other))) {
      try {
        Store.open(path, options).close();
        holds(false);
      } catch (SiltstoneException refused) {
        holds(!refused.getMessage().isEmpty());
      }
    }
    fails(Code.INVALID, () -> new Options().key(new byte[5]));
    Options both = new Options().key(other).key(key);
    try (Store store = Store.open(path, both);
        Table table = store.table("t")) {
      equal(get(table, "k"), secret);
    }
    fails(Code.REFUSED, () -> Store.verify(path));
    fails(Code.REFUSED, () -> Store.repair(path));
    fails(Code.REFUSED, () -> Store.rekey(path, new Options().key(key)));
    holds(Store.verify(path, both).isIntact());
    holds(Store.repair(path, both).isLossless());
    holds(Store.rekey(path, both).contains("\"damaged\":[]"));
    Store.open(path, new Options().key(other)).close();
  }

  static void reader_catchesUpWithTheWriter(Path scratch) {
    Path path = scratch.resolve("store");
    try (Store store = Store.openOrCreate(path);
        Table table = store.tableOrCreate("t", "lsm")) {
      table.put(bytes("k"), bytes("1"));
      StoreReader reader = StoreReader.openReader(path);
      Table before = reader.table("t");
      table.put(bytes("k"), bytes("2"));
      holds(reader.catchUp());
      holds(!reader.catchUp());
      Table after = reader.table("t");
      equal(get(before, "k") + get(after, "k"), "12");
      fails(Code.REFUSED, () -> after.put(bytes("k"), bytes("")));
      fails(Code.INVALID, () -> reader.table("u"));
      reader.close();
      fails(Code.CLOSED, reader::catchUp);
      equal(get(after, "k"), "2");
      before.close();
      after.close();
    }
    fails(Code.REFUSED, () -> StoreReader.openReader(scratch));
  }
}
