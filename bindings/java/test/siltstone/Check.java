package siltstone;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.file.Path;
import java.util.Objects;

/** Assertions, and stores and keys of tests. */
final class Check {
  private Check() {}

  /** What a test runs. */
  interface Action {
    void run() throws Exception;
  }

  static void equal(Object got, Object want) {
    if (!Objects.equals(got, want)) {
      throw new AssertionError("got " + got + ", want " + want);
    }
  }

  static void holds(boolean condition) {
    if (!condition) {
      throw new AssertionError("does not hold");
    }
  }

  /** Runs an action that must fail, and returns its error. */
  static SiltstoneException fails(Code code, Action action) {
    try {
      action.run();
    } catch (SiltstoneException failed) {
      equal(failed.code(), code);
      holds(!failed.getMessage().isEmpty());
      return failed;
    } catch (Exception other) {
      throw new AssertionError(other);
    }
    throw new AssertionError("no error, want " + code);
  }

  static byte[] bytes(String text) {
    return text.getBytes(UTF_8);
  }

  static String text(byte[] bytes) {
    return bytes == null ? null : new String(bytes, UTF_8);
  }

  static String get(Reads reads, String key) {
    return text(reads.get(bytes(key)));
  }

  /** The entries of a cursor as text. Closes the cursor. */
  static String list(Cursor cursor) {
    StringBuilder list = new StringBuilder();
    try (cursor) {
      while (cursor.next()) {
        list.append(text(cursor.key())).append('=').append(text(cursor.value())).append(' ');
      }
    }
    return list.toString();
  }

  /** A test with the table "t" of a new store. */
  interface TableTest {
    void run(Table table) throws Exception;
  }

  static void withTable(Path scratch, String engine, TableTest test) throws Exception {
    try (Store store = Store.openOrCreate(scratch.resolve("store"));
        Table table = store.tableOrCreate("t", engine)) {
      test.run(table);
    }
  }
}
