package siltstone;

import java.time.Instant;
import java.util.List;

/**
 * One committed change of a table.
 *
 * @param kind what it does
 * @param sequence the sequence number of its last operation: a consumer that has applied the change
 *     resumes after it
 * @param part the number of the batch over several tables of which the change is a part, the same
 *     in the feeds of all of its tables; 0: none
 * @param operations the operations of a {@link Kind#WRITE}, in order
 */
public record Change(Kind kind, long sequence, long part, List<Operation> operations) {
  /** What a change does. */
  public enum Kind {
    /** The operations of one batch. */
    WRITE,
    /** Every key was removed. */
    CLEARED,
    /** Sorted files were ingested. Their content is not in the feed: read the table. */
    INGESTED,
    /** A kind of a later version of the library. */
    OTHER;

    static Kind of(int number) {
      return switch (number) {
        case 1 -> WRITE;
        case 2 -> CLEARED;
        case 3 -> INGESTED;
        default -> OTHER;
      };
    }
  }

  /** The kind of an operation. */
  public enum OperationKind {
    /** Sets the key to the value. */
    PUT,
    /** Removes the key. */
    DELETE,
    /** Removes every key from the key to before the value; to the end if the value is null. */
    DELETE_RANGE,
    /** Merges the operand, the value, into the value of the key. */
    MERGE,
    /** A kind of a later version of the library. */
    OTHER;

    static OperationKind of(int number) {
      return switch (number) {
        case 1 -> PUT;
        case 2 -> DELETE;
        case 3 -> DELETE_RANGE;
        case 4 -> MERGE;
        default -> OTHER;
      };
    }
  }

  /**
   * An operation of a change.
   *
   * @param kind its kind
   * @param key the key, or the start of a range
   * @param value the value, the operand of a merge, or the end of a range; null for a deletion
   * @param expiresAt when a value expires; null: never
   */
  public record Operation(OperationKind kind, byte[] key, byte[] value, Instant expiresAt) {}
}
