//! Events and long operations for `tracing`, behind the feature `tracing`.
//!
//! | in `tracing` | of |
//! | --- | --- |
//! | spans `flush`, `compaction` | a job, by the events of its begin and completion |
//! | spans `open`, `open_table`, `checkpoint`, `verify`, `repair` | a call, on its thread |
//! | events at `info` | jobs |
//! | events at `debug` | slowdowns |
//! | events at `warn` | other stalls, failures that are retried, dropped events |
//! | events at `error` | read-only, corruption |
//!
//! The target of all is `siltstone`. Events arrive on the thread of listeners, so spans of jobs
//! have no parent, and their exact duration is the field `duration_ms`.

/// Enters a span until the end of the block; without the feature, nothing.
macro_rules! span {
    ($name:literal, $($field:ident = $value:expr),*) => {
        #[cfg(feature = "tracing")]
        let _span = tracing::info_span!(target: "siltstone", $name, $($field = %$value),*).entered();
    };
}

pub(crate) use span;

#[cfg(feature = "tracing")]
pub use listener::TracingListener;

#[cfg(feature = "tracing")]
mod listener {
    use std::collections::BTreeMap;

    use parking_lot::Mutex;
    use tracing::{Span, debug, error, info, info_span, warn};

    use crate::{Event, EventKind, EventListener, Job, WriteStall};

    /// Passes events on to `tracing`: a member of [`DbOptions::listeners`](crate::DbOptions).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use siltstone::{Db, DbOptions, TracingListener};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// let listener = Arc::new(TracingListener::default());
    /// let options = DbOptions { listeners: vec![listener], ..DbOptions::default() };
    /// let db = Db::open_or_create(scratch.path().join("s"), options)?;
    /// # db.close()?;
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    #[derive(Debug, Default)]
    pub struct TracingListener {
        /// The spans of running jobs, by number.
        running: Mutex<BTreeMap<u64, Span>>,
    }

    impl TracingListener {
        fn begin(&self, job: &Job, span: Span) {
            info!(target: "siltstone", parent: &span, input_bytes = job.input_bytes(), "begun");
            self.running.lock().insert(job.id, span);
        }

        fn complete(&self, job: &Job) {
            // Missing if its begin was dropped.
            let span = self.running.lock().remove(&job.id).unwrap_or_else(Span::none);
            let (files, bytes) = (job.outputs.len(), job.output_bytes());
            let duration_ms = job.duration.as_millis() as u64;
            match &job.error {
                None => {
                    info!(target: "siltstone", parent: &span, files, bytes, duration_ms, "completed");
                }
                Some(error) => {
                    warn!(target: "siltstone", parent: &span, %error, duration_ms, "failed");
                }
            }
        }
    }

    impl EventListener for TracingListener {
        fn on_event(&self, event: &Event) {
            let table = &*event.table;
            match &event.kind {
                EventKind::FlushBegun(job) => {
                    let span =
                        info_span!(target: "siltstone", parent: None, "flush", table, job = job.id);
                    self.begin(job, span);
                }
                EventKind::CompactionBegun(job) => {
                    let (reason, level, output_level) = (job.reason, job.level, job.output_level);
                    let span = info_span!(
                        target: "siltstone", parent: None,
                        "compaction", table, job = job.id, reason, level, output_level
                    );
                    self.begin(job, span);
                }
                EventKind::FlushCompleted(job) | EventKind::CompactionCompleted(job) => {
                    self.complete(job);
                }
                EventKind::StallBegun { cause: WriteStall::Slowdown }
                | EventKind::StallEnded { cause: WriteStall::Slowdown, .. } => {
                    debug!(target: "siltstone", "{event}");
                }
                EventKind::StallBegun { cause } => {
                    warn!(target: "siltstone", table, cause = cause.name(), "write stall begun");
                }
                EventKind::StallEnded { cause, duration } => {
                    let (cause, duration_ms) = (cause.name(), duration.as_millis() as u64);
                    warn!(target: "siltstone", table, cause, duration_ms, "write stall ended");
                }
                EventKind::BackgroundError { error } => {
                    warn!(target: "siltstone", table, %error, "background work failed");
                }
                EventKind::ReadOnly { cause } => {
                    error!(target: "siltstone", table, cause, "read-only");
                }
                EventKind::Corruption(damage) => {
                    let (file, offset, reason) = (&damage.file, damage.offset, &damage.reason);
                    error!(target: "siltstone", table, file, offset, reason, "corruption");
                }
                _ => warn!(target: "siltstone", "{event}"),
            }
        }
    }
}
