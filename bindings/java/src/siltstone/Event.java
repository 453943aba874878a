package siltstone;

import java.time.Duration;
import java.time.Instant;

/**
 * Something that has happened in a store, for {@link Options#listener}.
 *
 * @param isFailed whether a completed job has failed
 * @param table the name of the table; empty if it is no event of a table
 * @param message one line for a log, with the names of files, without the time
 * @param job the number of a flush or compaction, which both of its events have; 0 for other events
 * @param duration how long a completed job or a stall took
 * @param inputBytes the bytes of the files that a job reads
 * @param outputBytes the bytes of the files that a completed job has written
 */
public record Event(
    Kind kind,
    boolean isFailed,
    String table,
    String message,
    Instant at,
    long job,
    Duration duration,
    long inputBytes,
    long outputBytes) {
  /** Kinds of events, by their numbers in C. Later versions may add kinds. */
  public enum Kind {
    /** A kind that this version does not know. */
    OTHER,
    /** A memtable is being written to files. */
    FLUSH_BEGUN,
    /** A flush has ended. */
    FLUSH_COMPLETED,
    /** Files are being compacted. */
    COMPACTION_BEGUN,
    /** A compaction has ended. */
    COMPACTION_COMPLETED,
    /** Writers are delayed or wait from now on. */
    STALL_BEGUN,
    /** Writers do not wait for this cause any more. */
    STALL_ENDED,
    /** A background job has failed. It is retried, unless {@link #READ_ONLY} follows. */
    BACKGROUND_ERROR,
    /** The table rejects writes until the store is reopened. */
    READ_ONLY,
    /** Damage was found. The same damage is reported each time that it is found. */
    CORRUPTION,
    /** The listener was too slow: events were dropped here. */
    DROPPED;

    static Kind of(int number) {
      Kind[] kinds = values();
      return number > 0 && number < kinds.length ? kinds[number] : OTHER;
    }
  }
}
