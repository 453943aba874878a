package siltstone;

/** What happens to the files of {@link Table#ingest}. */
public enum IngestMode {
  /** They are copied. */
  COPY,

  /**
   * They are linked into the table where the file system can, and copied otherwise. They must not
   * be changed afterwards.
   */
  LINK,

  /** As {@link #LINK}, and removed from their place once the ingestion is durable. */
  MOVE,
}
