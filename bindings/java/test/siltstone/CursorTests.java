package siltstone;

import static siltstone.Check.bytes;
import static siltstone.Check.equal;
import static siltstone.Check.fails;
import static siltstone.Check.holds;
import static siltstone.Check.list;
import static siltstone.Check.text;
import static siltstone.Check.withTable;

import java.nio.file.Path;
import java.time.Instant;
import java.time.temporal.ChronoUnit;

/** Cursors. */
final class CursorTests {
  private CursorTests() {}

  private static void on(Cursor cursor, boolean moved, String key) {
    equal(moved, key != null);
    equal(cursor.isValid(), moved);
    equal(text(cursor.key()), key);
    equal(cursor.value() != null, moved);
  }

  static void cursor_movesInBothDirections(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          Instant expiry = Instant.now().plusSeconds(60).truncatedTo(ChronoUnit.MILLIS);
          table.put(bytes("a"), bytes("1"));
          table.put(bytes("b1"), bytes(""));
          table.put(bytes("b2"), bytes("3"));
          table.put(bytes("c"), bytes("4"), expiry);
          Cursor cursor = table.cursor();
          on(cursor, cursor.isValid(), null);
          on(cursor, cursor.next(), "a");
          on(cursor, cursor.next(), "b1");
          equal(cursor.value().length, 0);
          on(cursor, cursor.prev(), "a");
          on(cursor, cursor.prev(), null);
          on(cursor, cursor.next(), null);
          on(cursor, cursor.last(), "c");
          equal(cursor.expiresAt(), expiry);
          equal(text(cursor.value()), "4");
          on(cursor, cursor.seek(bytes("b")), "b1");
          equal(cursor.expiresAt(), null);
          on(cursor, cursor.seekBack(bytes("b")), "a");
          on(cursor, cursor.seek(bytes("d")), null);
          table.put(bytes("a0"), bytes("later"));
          on(cursor, cursor.first(), "a");
          on(cursor, cursor.next(), "b1"); // as of its creation
          cursor.skipValues();
          on(cursor, cursor.first(), "a");
          cursor.close();
          cursor.close();
          fails(Code.CLOSED, cursor::first);
          on(cursor, false, null);
          fails(Code.CLOSED, cursor::skipValues);
        });
  }

  static void cursor_keepsToItsRange(Path scratch) throws Exception {
    withTable(
        scratch,
        "lsm",
        table -> {
          for (String key : new String[] {"", "a", "b1", "b2", "c"}) {
            table.put(bytes(key), bytes(key));
          }
          String all = "= a=a b1=b1 b2=b2 c=c ";
          equal(list(table.range(null, null)), all);
          equal(list(table.range(bytes(""), null)), all);
          equal(list(table.range(null, bytes(""))), "");
          equal(list(table.range(bytes("a0"), bytes("c"))), "b1=b1 b2=b2 ");
          equal(list(table.range(bytes("b2"), null)), "b2=b2 c=c ");
          fails(Code.INVALID, () -> table.range(bytes("z"), bytes("a")));
          equal(list(table.prefix(bytes("b"))), "b1=b1 b2=b2 ");
          equal(list(table.prefix(bytes(""))), all);
        });
  }

  /** A cursor of a closed store shows entries that are in memory, or fails. */
  static void cursor_outlivesItsStore(Path scratch) {
    Store store = Store.openOrCreate(scratch.resolve("store"));
    Table table = store.tableOrCreate("t", "lsm");
    table.put(bytes("a"), bytes("1"));
    try (Cursor cursor = table.cursor()) {
      store.close();
      table.close();
      try {
        holds(cursor.first());
        equal(text(cursor.key()), "a");
      } catch (SiltstoneException closed) {
        equal(closed.code(), Code.CLOSED);
      }
    }
    fails(Code.CLOSED, table::cursor);
  }
}
