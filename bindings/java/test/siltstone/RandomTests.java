package siltstone;

import static siltstone.Check.bytes;
import static siltstone.Check.equal;
import static siltstone.Check.get;
import static siltstone.Check.text;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;

/** Random operations on a table, snapshots of it and transactions on it, compared with maps. */
final class RandomTests {
  private static final long SEED = 7;

  private final Random random = new Random(SEED);
  private TreeMap<String, String> model = new TreeMap<>();

  private RandomTests() {}

  static void table_randomOperationsMatchAMap(Path scratch) {
    RandomTests test = new RandomTests();
    for (int round = 0; round < 5; round++) {
      try (Store store = Store.openOrCreate(scratch.resolve("store"));
          Table table = store.tableOrCreate("t", "lsm", Map.of("memtable", "64KiB"))) {
        test.match(table, test.model);
        for (int i = 0; i < 400; i++) {
          test.step(table);
        }
        test.match(table, test.model);
        if (round == 2) {
          table.clear();
          test.model.clear();
        }
      }
    }
  }

  private String key() {
    return "k%02d".formatted(random.nextInt(60));
  }

  private String value() {
    return Integer.toString(random.nextInt(1000)).repeat(random.nextInt(100));
  }

  private void step(Table table) {
    String key = key();
    switch (random.nextInt(10)) {
      case 0, 1, 2, 3 -> {
        String value = value();
        table.put(bytes(key), bytes(value));
        model.put(key, value);
      }
      case 4 -> {
        table.delete(bytes(key));
        model.remove(key);
      }
      case 5 -> {
        try (Batch batch = new Batch()) {
          for (int i = random.nextInt(5); i > 0; i--) {
            String other = key();
            String value = value();
            batch.put(bytes(other), bytes(value));
            model.put(other, value);
          }
          batch.delete(bytes(key));
          model.remove(key);
          table.write(batch);
        }
      }
      case 6 -> {
        TreeMap<String, String> changed = new TreeMap<>(model);
        try (Transaction tx = table.begin()) {
          for (int i = random.nextInt(5); i > 0; i--) {
            String other = key();
            String value = value();
            tx.put(bytes(other), bytes(value));
            changed.put(other, value);
          }
          tx.delete(bytes(key));
          changed.remove(key);
          match(tx, changed);
          if (random.nextBoolean()) {
            tx.commit();
            model = changed;
          }
        }
      }
      case 7 -> {
        TreeMap<String, String> before = new TreeMap<>(model);
        try (Snapshot snapshot = table.snapshot()) {
          table.put(bytes(key), bytes("after"));
          model.put(key, "after");
          match(snapshot, before);
        }
      }
      case 8 -> {
        if (random.nextInt(10) == 0) {
          table.flush();
        }
      }
      default -> match(table, model);
    }
  }

  /** Compares all entries in both directions, gets, and random seeks and ranges. */
  private void match(Reads reads, TreeMap<String, String> want) {
    List<String> keys = new ArrayList<>();
    try (Cursor cursor = reads.cursor()) {
      while (cursor.next()) {
        keys.add(text(cursor.key()));
        equal(text(cursor.value()), want.get(text(cursor.key())));
      }
      equal(keys, List.copyOf(want.keySet()));
      List<String> backward = new ArrayList<>();
      for (boolean on = cursor.last(); on; on = cursor.prev()) {
        backward.add(text(cursor.key()));
      }
      equal(backward.reversed(), keys);
      String key = key();
      cursor.seek(bytes(key));
      equal(text(cursor.key()), want.ceilingKey(key));
      cursor.seekBack(bytes(key));
      equal(text(cursor.key()), want.floorKey(key));
    }
    String[] some = {key(), key(), key()};
    byte[][] values = reads.multiGet(bytes(some[0]), bytes(some[1]), bytes(some[2]));
    for (int i = 0; i < some.length; i++) {
      equal(text(values[i]), want.get(some[i]));
      equal(get(reads, some[i]), want.get(some[i]));
      equal(reads.contains(bytes(some[i])), want.containsKey(some[i]));
    }
    String start = some[0].compareTo(some[1]) < 0 ? some[0] : some[1];
    String end = start.equals(some[0]) ? some[1] : some[0];
    int count = 0;
    try (Cursor cursor = reads.range(bytes(start), bytes(end))) {
      while (cursor.next()) {
        count++;
      }
    }
    equal(count, want.subMap(start, end).size());
  }
}
