package siltstone;

import static siltstone.Check.bytes;
import static siltstone.Check.equal;
import static siltstone.Check.fails;
import static siltstone.Check.get;
import static siltstone.Check.holds;

import java.nio.file.Path;
import java.util.Map;

/** Moves of tables to other engines. */
final class MoveTests {
  private MoveTests() {}

  private static Table words(Store store) {
    Table words = store.tableOrCreate("words", "lsm");
    for (int i = 0; i < 1000; i++) {
      words.put(bytes(String.format("%08d", i)), bytes("1"));
    }
    return words;
  }

  static void tableInUse_movesToAnotherEngine(Path scratch) {
    try (Store store = Store.openOrCreate(scratch.resolve("store"));
        Table words = words(store);
        TableMove moving = store.beginMove("words", "silt", Map.of())) {
      holds(moving.copy());
      equal(moving.progress(), new TableMove.Progress(1000, 0, 0));
      words.put(bytes("meanwhile"), bytes("2"));
      words.delete(bytes("00000007"));
      try (Table moved = moving.finish()) {
        equal(moving.progress(), new TableMove.Progress(1000, 2, 0));
        equal(get(moved, "00000008") + get(moved, "meanwhile"), "12");
        equal(get(moved, "00000007"), null);
      }
      holds(store.tables().contains("\"words\":{\"engine\":\"silt\""));
      fails(Code.CLOSED, () -> words.put(bytes("k"), bytes("v")));
      fails(Code.INVALID, moving::finish);
    }
  }

  static void closedMove_isClosed(Path scratch) {
    try (Store store = Store.openOrCreate(scratch.resolve("store"));
        Table words = words(store)) {
      TableMove moving = store.beginMove("words", "silt", Map.of());
      moving.close();
      moving.cancel();
      fails(Code.CLOSED, moving::copy);
      fails(Code.CLOSED, moving::progress);
      words.put(bytes("k"), bytes("v"));
    }
  }

  static void moveThatIsNotFinished_leavesTheTable(Path scratch) {
    try (Store store = Store.openOrCreate(scratch.resolve("store"));
        Table words = words(store)) {
      try (TableMove moving = store.beginMove("words", "trie", Map.of())) {
        fails(Code.INVALID, () -> store.beginMove("words", "silt", Map.of()));
        moving.cancel();
        holds(!moving.copy());
        fails(Code.INVALID, moving::finish);
      }
      try (TableMove moving = store.beginMove("words", "silt", Map.of())) {
        holds(moving.copy());
      }
      words.put(bytes("k"), bytes("v"));
      fails(Code.INVALID, () -> store.beginMove("none", "silt", Map.of()));
      fails(
          Code.INVALID_OPTIONS, () -> store.beginMove("words", "lsm", Map.of("memtable", "many")));
    }
  }
}
