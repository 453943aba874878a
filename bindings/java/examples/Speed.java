import static java.nio.charset.StandardCharsets.US_ASCII;

import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import siltstone.Batch;
import siltstone.Cursor;
import siltstone.Store;
import siltstone.Table;

/**
 * Writes or reads a table and prints the seconds of each part, and those of CPU time of the thread,
 * for ../../compare-languages.
 *
 * <pre>java Speed write|read STORE COUNT</pre>
 */
public class Speed {
  private final Table table;
  private final byte[][] keys;

  private Speed(Table table, int count) {
    this.table = table;
    keys = new byte[count][];
    for (int i = 0; i < count; i++) {
      keys[i] = String.format("%016d", i * 7919L % count).getBytes(US_ASCII);
    }
  }

  private static byte[] value(byte[] key) {
    byte[] value = Arrays.copyOf(key, 100);
    Arrays.fill(value, 16, 100, (byte) '.');
    return value;
  }

  private static void check(byte[] key, byte[] value) {
    if (value == null || value.length != 100 || !Arrays.equals(key, 0, 16, value, 0, 16)) {
      throw new IllegalStateException("the value of " + new String(key, US_ASCII) + " is wrong");
    }
  }

  private void fill() {
    try (Batch batch = new Batch()) {
      for (int i = 0; i < keys.length; i++) {
        batch.put(keys[i], value(keys[i]));
        if (i % 100 == 99 || i == keys.length - 1) {
          table.write(batch);
          batch.clear();
        }
      }
    }
  }

  private void put() {
    for (byte[] key : keys) {
      table.put(key, value(key));
    }
  }

  private void scan() {
    int count = 0;
    try (Cursor cursor = table.cursor()) {
      while (cursor.next()) {
        check(cursor.key(), cursor.value());
        count++;
      }
    }
    if (count != keys.length) {
      throw new IllegalStateException(count + " entries instead of " + keys.length);
    }
  }

  private void get() {
    for (byte[] key : keys) {
      check(key, table.get(key));
    }
  }

  /** The CPU time of this thread, without that of the garbage collector and the compilers. */
  private static long cpuNanoseconds() {
    return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
  }

  private void timed(String name, Runnable part) {
    long start = System.nanoTime();
    long cpuStart = cpuNanoseconds();
    part.run();
    double seconds = (System.nanoTime() - start) / 1e9;
    double cpu = (cpuNanoseconds() - cpuStart) / 1e9;
    System.out.printf(Locale.ROOT, "%s %f %f%n", name, seconds, cpu);
    table.maintain();
  }

  /** Runs the program. */
  public static void main(String[] args) {
    try (Store store = Store.openOrCreate(Path.of(args[1]));
        Table table = store.tableOrCreate("speed", "lsm", Map.of("cache", "256MiB"))) {
      Speed speed = new Speed(table, Integer.parseInt(args[2]));
      if (args[0].equals("write")) {
        speed.timed("fill", speed::fill);
        speed.timed("put", speed::put);
      } else {
        speed.timed("scan", speed::scan);
        speed.timed("get", speed::get);
      }
    }
  }
}
