package siltstone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.List;

/**
 * A transaction over several tables of a store: all of them are read as of one moment, and the
 * writes are applied to all tables or to none. {@link #close} discards the writes of one that was
 * not committed.
 */
public final class StoreTransaction implements AutoCloseable {
  private static final MethodHandle COMMIT_ALL =
      Library.fallible("transaction_commit_all", JAVA_LONG, ADDRESS, JAVA_BOOLEAN);

  /** What {@link Store#transact} runs. */
  @FunctionalInterface
  public interface Work<T, E extends Exception> {
    /** Reads and writes; must neither commit nor keep the transaction. */
    T run(StoreTransaction transaction) throws E;
  }

  private final List<Table> tables;
  private final List<Transaction> parts;

  StoreTransaction(List<Table> tables, List<Transaction> parts) {
    this.tables = tables;
    this.parts = parts;
  }

  /**
   * The transaction on one of the tables, to read and write there. It is neither committed nor
   * closed by itself.
   *
   * <p>Errors: {@link Code#INVALID} for a table that was not named at the beginning.
   */
  public Transaction on(Table table) {
    int index = tables.indexOf(table);
    if (index < 0) {
      throw new SiltstoneException(
          Code.INVALID, "the table is not in this transaction; name it at the beginning");
    }
    return parts.get(index);
  }

  /**
   * Applies all writes to all tables, or none, and ends the transaction in any case. Errors are as
   * of {@link Transaction#commit}.
   */
  public void commit() {
    commit(false);
  }

  /** {@link #commit}, and the writes survive a power cut once it returns. */
  public void commitSync() {
    commit(true);
  }

  void commit(boolean synced) {
    try (Arena arena = Arena.ofConfined()) {
      commit(0, arena.allocate(ADDRESS, parts.size()), synced);
    }
  }

  /** Commits while no other thread uses a part: {@code list} has those before {@code from}. */
  private void commit(int from, MemorySegment list, boolean synced) {
    if (from == parts.size()) {
      Library.run(COMMIT_ALL, (long) parts.size(), list, synced);
      return;
    }
    Transaction part = parts.get(from);
    synchronized (part) {
      list.setAtIndex(ADDRESS, from, part.handle.acquire());
      try {
        commit(from + 1, list, synced);
      } finally {
        part.handle.release();
      }
    }
  }

  /** Frees the transaction, and discards its writes if it was not committed. */
  @Override
  public void close() {
    parts.forEach(Transaction::close);
  }
}
