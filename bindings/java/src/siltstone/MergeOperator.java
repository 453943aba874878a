package siltstone;

import java.util.List;

/**
 * Computes the value of a key from operands that {@link Table#merge} has written. It must depend on
 * its arguments alone: it is called in reads, flushes and compactions, at any time, on several
 * threads at the same time. It must not use the store.
 */
public interface MergeOperator {
  /**
   * The name, which is recorded in the table, and stands for the format of the operands. Names with
   * the prefix "siltstone." are reserved.
   */
  String name();

  /**
   * The value of a key after operands, at least one, the oldest first. {@code value} is the one
   * before, or null if the key was missing. If it throws, reads of the key fail with the exception
   * as the reason.
   */
  byte[] merge(byte[] key, byte[] value, List<byte[]> operands);

  /**
   * One operand with the effect of all of these, at least two, the oldest first; null if there is
   * none, which is the default.
   */
  default byte[] partialMerge(byte[] key, List<byte[]> operands) {
    return null;
  }
}
