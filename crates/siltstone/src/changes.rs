//! The change feed of a table, for replication, notifications and incremental copies.
//!
//! ```
//! # use std::time::Duration;
//! # use siltstone::{Change, Db, DbOptions, Durability, WriteBatch};
//! # let scratch = tempfile::tempdir().unwrap();
//! # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
//! let options = [("log_retention".to_owned(), "256MiB".to_owned())].into();
//! let table = db.table_or_create("orders", "lsm", &options)?;
//! table.write(WriteBatch::new().put(b"7", b"paid").delete(b"6"), Durability::Synced)?;
//!
//! let mut changes = table.changes(0)?;
//! let change = changes.next_timeout(Duration::from_secs(1))?.expect("one batch was written");
//! assert_eq!((change.first_sequence, change.sequence), (1, 2));
//! assert!(matches!(change.change, Change::Write(batch) if batch.len() == 2));
//! assert!(changes.next().is_none());
//!
//! // Later, also after a restart:
//! let mut changes = table.changes(change.sequence)?;
//! # assert!(changes.try_next()?.is_none());
//! # Ok::<(), siltstone::Error>(())
//! ```

use std::fmt;
use std::time::{Duration, Instant};

use siltstone_engine::{ChangeBatch, ChangeCursor, ChangeOptions, Result};

use crate::Table;

/// The first and the longest pause between two polls of the log. The feed polls, so that writers
/// need not wake anyone; it doubles the pause each time.
const MIN_PAUSE: Duration = Duration::from_micros(100);
const MAX_PAUSE: Duration = Duration::from_millis(10);

/// The committed changes of a table, from one sequence number on.
///
/// As an iterator it ends where there are no more changes yet, and goes on when it is called again.
pub struct Changes {
    cursor: Box<dyn ChangeCursor>,
    position: u64,
    /// Counts as a use of the table, e.g. for `Db::rename_table`.
    table: Table,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("table", &self.table.name())
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl Table {
    /// The durable changes after the sequence number `since`, batch by batch; 0: from the first
    /// change on. Only `lsm`: see [`Capabilities::change_feed`](crate::Capabilities::change_feed).
    ///
    /// The feed reads the log. The option `log_retention` says how many bytes of it are kept after
    /// they are no longer needed; a feed does not keep any. A consumer that is not in the log
    /// copies the table from a [snapshot](Table::snapshot) and resumes after its
    /// [sequence number](crate::Snapshot::sequence).
    ///
    /// A change is shown once it is durable, because a power cut may take others: after a synced
    /// write to the table, [`sync`](Table::sync), or a flush. [`changes_with`](Self::changes_with)
    /// can show all. Commits of concurrent transactions may be one batch. Rows that expire or are
    /// dropped or changed by a compaction filter are not changes.
    ///
    /// # Errors
    /// [`ChangesUnavailable`](crate::Error::ChangesUnavailable) with the oldest sequence number
    /// from which a feed can resume; `Unsupported` by other engines; `Corruption` and `Io` from the
    /// log.
    pub fn changes(&self, since: u64) -> Result<Changes> {
        self.changes_with(ChangeOptions::since(since))
    }

    /// As [`changes`](Self::changes), with options.
    ///
    /// # Errors
    /// The same.
    pub fn changes_with(&self, options: ChangeOptions) -> Result<Changes> {
        let cursor = self.engine().changes(options)?;
        Ok(Changes { cursor, position: options.since, table: self.clone() })
    }
}

impl Changes {
    /// The next change, if there is one now.
    ///
    /// # Errors
    /// [`ChangesUnavailable`](crate::Error::ChangesUnavailable) if its log was removed meanwhile;
    /// `Corruption` and `Io` from the log; `Closed`.
    pub fn try_next(&mut self) -> Result<Option<ChangeBatch>> {
        let change = self.cursor.next()?;
        if let Some(change) = &change {
            self.position = change.sequence;
        }
        Ok(change)
    }

    /// The next change; waits for one, up to `timeout`. Latency: up to 10 ms if none came for a
    /// while.
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next).
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<ChangeBatch>> {
        let began = Instant::now();
        let mut pause = MIN_PAUSE;
        loop {
            if let Some(change) = self.try_next()? {
                return Ok(Some(change));
            }
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(pause.min(left));
            pause = (2 * pause).min(MAX_PAUSE);
        }
    }

    /// The sequence number of the last change that was returned, or the one to resume after.
    pub fn position(&self) -> u64 {
        self.position
    }
}

impl Iterator for Changes {
    type Item = Result<ChangeBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.try_next().transpose()
    }
}
