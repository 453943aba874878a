package siltstone;

/** Kinds of errors. */
public enum Code {
  /** Stored bytes are damaged. The message names the file and the offset. */
  CORRUPTION(1),
  /** An I/O request failed. See also {@link SiltstoneException#isDiskFull}. */
  IO(2),
  /** A key, value or batch is over its limit. Nothing has changed. */
  TOO_LARGE(3),
  /** The engine of the table does not have this operation. */
  UNSUPPORTED(4),
  /** The time is before the watermark of the table's history. */
  BELOW_WATERMARK(5),
  /** Invalid options; the message lists every mistake. Nothing was opened. */
  INVALID_OPTIONS(6),
  /**
   * The directory is not a store, has a newer format, or is open read-only; or a table is in use.
   */
  REFUSED(7),
  /** The store is open already, in this process or in another one. */
  LOCKED(8),
  /** An earlier error made the table read-only. Reopen the store. */
  READ_ONLY(9),
  /** Another writer changed what the transaction has read. Run it again. */
  CONFLICT(10),
  /** The snapshot or transaction was idle for too long. Begin a new one. */
  EXPIRED(11),
  /** The store or the object is closed. */
  CLOSED(12),
  /** An invalid argument. The message names it. */
  INVALID(13),
  /** A defect of the library. Please report it with the message; close the store. */
  INTERNAL(14),
  /**
   * A change feed cannot resume there. The message has the oldest position that is left.
   */
  CHANGES_UNAVAILABLE(15),
  /** A kind of a later version of the library. */
  OTHER(0);

  private final int number;

  Code(int number) {
    this.number = number;
  }

  static Code of(int number) {
    for (Code code : values()) {
      if (code.number == number) {
        return code;
      }
    }
    return OTHER;
  }
}
