// Counts visits by language, and prints all counts: the program of the book's page "Other
// languages".

// ANCHOR: program
import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.file.Path;
import siltstone.Cursor;
import siltstone.Store;
import siltstone.Table;
import siltstone.Transaction;

public class Languages {
  static int countVisit(Transaction tx) {
    byte[] key = "java".getBytes(UTF_8);
    byte[] text = tx.get(key);
    int count = text == null ? 1 : Integer.parseInt(new String(text, UTF_8)) + 1;
    tx.put(key, Integer.toString(count).getBytes(UTF_8));
    return count;
  }

  public static void main(String[] args) {
    Path path = Path.of(args.length > 0 ? args[0] : "/tmp/visits");
    try (Store store = Store.openOrCreate(path);
        Table visits = store.tableOrCreate("visits", "lsm")) {
      visits.transact(Languages::countVisit);
      try (Cursor cursor = visits.cursor()) {
        while (cursor.next()) {
          String language = new String(cursor.key(), UTF_8);
          System.out.println(language + " " + new String(cursor.value(), UTF_8));
        }
      }
    }
  }
}
// ANCHOR_END: program
