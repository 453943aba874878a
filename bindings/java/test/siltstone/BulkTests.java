package siltstone;

import static siltstone.Check.bytes;
import static siltstone.Check.equal;
import static siltstone.Check.fails;
import static siltstone.Check.get;
import static siltstone.Check.holds;
import static siltstone.Check.withTable;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.time.Instant;
import java.util.List;
import java.util.Map;

/** What concerns more than one key: ranges, merges, options, several tables, sorted files. */
final class BulkTests {
  private BulkTests() {}

  static void ranges_areDeletedAndCompacted(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          for (String key : List.of("a", "b", "c", "d")) {
            table.put(bytes(key), bytes("1"));
          }
          table.deleteRange(bytes("b"), bytes("d"));
          equal(get(table, "b") + get(table, "d"), "null1");
          try (Batch batch = new Batch()) {
            batch.deleteRange(null, bytes("b"));
            batch.put(bytes("e"), bytes("2"));
            fails(Code.INVALID, () -> batch.deleteRange(bytes("z"), bytes("b")));
            table.write(batch);
          }
          equal(get(table, "a") + get(table, "e"), "null2");
          table.compactRange(null, null);
          fails(Code.INVALID, () -> table.compactRange(bytes("z"), bytes("b")));
        });
  }

  static void options_change(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          String later = table.setOptions(Map.of("cache", "2MiB", "levels", "64MiB:1GiB:10GiB"));
          equal(later, "[\"levels\"]");
          fails(Code.INVALID_OPTIONS, () -> table.setOptions(Map.of("cache", "many")));
        });
  }

  static void operands_areMerged(Path scratch) throws Exception {
    byte[] three = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(3).array();
    withTable(
        scratch,
        "lsm",
        table -> {
          fails(Code.INVALID, () -> table.merge(bytes("k"), three));
          fails(Code.INVALID, () -> table.setMergeOperator("mine"));
          table.setMergeOperator(Table.MERGE_COUNTER);
          table.merge(bytes("k"), three);
          try (Batch batch = new Batch()) {
            batch.merge(bytes("k"), three);
            table.write(batch);
          }
          ByteBuffer sum = ByteBuffer.wrap(table.get(bytes("k"))).order(ByteOrder.LITTLE_ENDIAN);
          equal(sum.getLong(), 6L);
          fails(Code.INVALID, () -> table.setMergeOperator(Table.mergeAppend(bytes(", "))));
        });
  }

  static void batches_areWrittenOverTables(Path scratch) throws Exception {
    try (Store store = Store.openOrCreate(scratch.resolve("store"));
        Table left = store.tableOrCreate("left", "lsm");
        Table right = store.tableOrCreate("right", "trie");
        Batch from = new Batch()) {
      Batch closed;
      from.put(bytes("k"), bytes("1"));
      try (Batch to = new Batch()) {
        to.put(bytes("k"), bytes("2"));
        store.writeSync(Map.of(left, from, right, to));
        closed = to;
      }
      equal(get(left, "k") + get(right, "k"), "12");
      fails(Code.INVALID, () -> store.write(Map.of(left, from, right, from)));
      store.write(Map.of());
      fails(Code.CLOSED, () -> store.write(Map.of(left, from, right, closed)));
    }
  }

  static void sortedFiles_areIngested(Path scratch) throws Exception {
    Path path = scratch.resolve("rows.sorted");
    withTable(
        scratch,
        "lsm",
        table -> {
          table.put(bytes("gone"), bytes("1"));
          try (SortedFile file = SortedFile.create(path, Map.of("compression", "none"))) {
            file.put(bytes("fresh"), bytes("1"), Instant.now().plusSeconds(3600));
            file.delete(bytes("gone"));
            file.put(bytes("new"), bytes("3"));
            fails(Code.INVALID, () -> file.put(bytes("a"), bytes("")));
            file.finish();
            fails(Code.INVALID, file::finish);
          }
          holds(table.ingest(List.of(path), IngestMode.MOVE).contains("\"entries\":3"));
          equal(get(table, "fresh") + get(table, "gone") + get(table, "new"), "1null3");
          fails(Code.IO, () -> table.ingest(List.of(path), IngestMode.LINK));
        });
  }
}
