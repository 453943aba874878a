//! Listeners: a callable gets what happens in a store as events.

use pyo3::prelude::*;
use siltstone::{EventKind, EventListener, Job};

/// Something that has happened in a store.
#[pyclass(module = "siltstone", frozen, get_all)]
pub(crate) struct Event {
    /// What has happened: "flush_begun", "flush_completed", "compaction_begun",
    /// "compaction_completed", "stall_begun", "stall_ended", "background_error", "read_only",
    /// "corruption", "dropped" or "other".
    kind: &'static str,
    /// The name of the table; empty if it is no event of a table.
    table: String,
    /// One line for a log, with the names of files.
    message: String,
    /// In seconds since 1970.
    at: f64,
    /// The number of a flush or compaction, which both of its events have.
    job: Option<u64>,
    /// Whether a completed job has failed.
    failed: bool,
    /// How long a completed job or a stall took, in seconds.
    duration: f64,
    /// The bytes of the files that a job reads.
    input_bytes: u64,
    /// The bytes of the files that a completed job has written.
    output_bytes: u64,
}

#[pymethods]
impl Event {
    fn __repr__(&self) -> String {
        format!("<siltstone.Event '{}': {}>", self.kind, self.message)
    }
}

impl Event {
    fn new(event: &siltstone::Event) -> Self {
        let (kind, job) = kind(&event.kind);
        let duration = match &event.kind {
            EventKind::StallEnded { duration, .. } => *duration,
            _ => job.map(|job| job.duration).unwrap_or_default(),
        };
        Event {
            kind,
            table: event.table.to_string(),
            message: event.to_string(),
            at: event.at as f64 / 1000.0,
            job: job.map(|job| job.id),
            failed: job.is_some_and(|job| job.error.is_some()),
            duration: duration.as_secs_f64(),
            input_bytes: job.map_or(0, Job::input_bytes),
            output_bytes: job.map_or(0, Job::output_bytes),
        }
    }
}

fn kind(kind: &EventKind) -> (&'static str, Option<&Job>) {
    match kind {
        EventKind::FlushBegun(job) => ("flush_begun", Some(job)),
        EventKind::FlushCompleted(job) => ("flush_completed", Some(job)),
        EventKind::CompactionBegun(job) => ("compaction_begun", Some(job)),
        EventKind::CompactionCompleted(job) => ("compaction_completed", Some(job)),
        EventKind::StallBegun { .. } => ("stall_begun", None),
        EventKind::StallEnded { .. } => ("stall_ended", None),
        EventKind::BackgroundError { .. } => ("background_error", None),
        EventKind::ReadOnly { .. } => ("read_only", None),
        EventKind::Corruption(_) => ("corruption", None),
        EventKind::Dropped { .. } => ("dropped", None),
        _ => ("other", None),
    }
}

/// Calls a Python callable with each event, on the thread of the listeners.
pub(crate) struct Listener(pub(crate) Py<PyAny>);

impl EventListener for Listener {
    fn on_event(&self, event: &siltstone::Event) {
        // Without an interpreter, when it has ended, there is nobody to call.
        let _ = Python::try_attach(|py| {
            let listener = self.0.bind(py);
            if let Err(error) = listener.call1((Event::new(event),)) {
                error.write_unraisable(py, Some(listener));
            }
        });
    }
}
