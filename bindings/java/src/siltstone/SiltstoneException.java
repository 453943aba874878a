package siltstone;

/** An error of the store. The message says what happened, where, and what to do. */
public final class SiltstoneException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final Code code;
  private final boolean isRetryable;
  private final boolean isDiskFull;

  SiltstoneException(Code code, String message) {
    this(code, message, false, false);
  }

  SiltstoneException(Code code, String message, boolean isRetryable, boolean isDiskFull) {
    super(message);
    this.code = code;
    this.isRetryable = isRetryable;
    this.isDiskFull = isDiskFull;
  }

  /** The kind of the error. */
  public Code code() {
    return code;
  }

  /** Whether a transaction that failed with this error may succeed if it is run again. */
  public boolean isRetryable() {
    return isRetryable;
  }

  /**
   * Whether a write failed for lack of space. Nothing was written, and writes succeed again when
   * there is space.
   */
  public boolean isDiskFull() {
    return isDiskFull;
  }
}
