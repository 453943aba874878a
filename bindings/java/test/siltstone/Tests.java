package siltstone;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/**
 * Runs each static method of the test classes that takes a new directory. Prints "ok" at the end.
 */
public final class Tests {
  private static final List<Class<?>> CLASSES =
      List.of(
          TableTests.class,
          BulkTests.class,
          CursorTests.class,
          ChangesTests.class,
          TransactionTests.class,
          StoreTests.class,
          SeveralTests.class,
          MoveTests.class,
          OpeningTests.class,
          RandomTests.class,
          ConcurrentTests.class);

  private Tests() {}

  public static void main(String[] args) throws Exception {
    int count = 0;
    for (Class<?> tests : CLASSES) {
      for (Method test : tests.getDeclaredMethods()) {
        if (Modifier.isPrivate(test.getModifiers())
            || test.isSynthetic()
            || !List.of(test.getParameterTypes()).equals(List.of(Path.class))) {
          continue;
        }
        run(test);
        count++;
      }
    }
    Check.holds(count > 20);
    System.out.println(count + " tests\nok");
  }

  private static void run(Method test) throws Exception {
    String name = test.getDeclaringClass().getSimpleName() + "." + test.getName();
    Path scratch = Files.createTempDirectory("siltstone");
    try {
      test.invoke(null, scratch);
    } catch (InvocationTargetException failed) {
      throw new AssertionError(name, failed.getCause());
    } finally {
      remove(scratch);
    }
  }

  private static void remove(Path directory) throws IOException {
    try (Stream<Path> files = Files.walk(directory)) {
      for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
        Files.delete(file);
      }
    }
  }
}
