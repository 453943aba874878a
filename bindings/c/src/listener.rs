//! Listeners: what happens in a store, as events.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use store::{Event, EventKind, Job};

use crate::callback::{CallbackArg, SiltstoneFreeCallback};
use crate::error::{SiltstoneError, c_string, guard, required};
use crate::options::SiltstoneOptions;

/// Kinds of events. Later versions may add numbers.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiltstoneEventKind {
    /// A kind that this version has no number for.
    Other = 0,
    /// A memtable is being written to files.
    FlushBegun = 1,
    /// A flush has ended; see `is_failed`.
    FlushCompleted = 2,
    /// Files are being compacted.
    CompactionBegun = 3,
    /// A compaction has ended; see `is_failed`.
    CompactionCompleted = 4,
    /// Writers are delayed or wait from now on.
    StallBegun = 5,
    /// Writers do not wait for this cause any more.
    StallEnded = 6,
    /// A background job has failed. It is retried, unless READ_ONLY follows.
    BackgroundError = 7,
    /// The table rejects writes until the store is reopened.
    ReadOnly = 8,
    /// Damage was found. The same damage is reported each time that it is found.
    Corruption = 9,
    /// The listener was too slow: events were dropped here.
    Dropped = 10,
}

/// Something that has happened. It is valid during the call of the listener. Later versions may add
/// fields at the end.
#[repr(C)]
#[derive(Debug)]
pub struct SiltstoneEvent {
    /// A number of siltstone_event_kind.
    pub kind: i32,
    /// Of a completed job: whether it failed.
    pub is_failed: bool,
    /// The name of the table; empty if it is no event of a table.
    pub table: *const c_char,
    /// One line in UTF-8 for a log, with the names of files, without the time.
    pub message: *const c_char,
    /// In milliseconds since 1970.
    pub at: u64,
    /// The number of a flush or compaction: both of its events have it. 0 for other events.
    pub job: u64,
    /// How long a completed job or a stall took, in microseconds; 0 for other events.
    pub duration_us: u64,
    /// The bytes of the files that a job reads.
    pub input_bytes: u64,
    /// The bytes of the files that a completed job has written.
    pub output_bytes: u64,
}

/// Receives an event. The store calls its listeners on a thread of its own, one event after the
/// other, in the order of the events. The function may take its time, and may use the store; but it
/// must not close it, unwind or jump out. `arg` is the argument of siltstone_options_add_listener().
pub type SiltstoneEventCallback =
    Option<unsafe extern "C" fn(arg: *mut c_void, event: &SiltstoneEvent)>;

struct CListener {
    on_event: unsafe extern "C" fn(*mut c_void, &SiltstoneEvent),
    arg: CallbackArg,
}

impl store::EventListener for CListener {
    fn on_event(&self, event: &Event) {
        let (table, message) = (c_string(&event.table), c_string(&event.to_string()));
        let (kind, job) = kind(&event.kind);
        let duration = match &event.kind {
            EventKind::StallEnded { duration, .. } => *duration,
            _ => job.map(|job| job.duration).unwrap_or_default(),
        };
        let event = SiltstoneEvent {
            kind: kind as i32,
            is_failed: job.is_some_and(|job| job.error.is_some()),
            table: table.as_ptr(),
            message: message.as_ptr(),
            at: event.at,
            job: job.map_or(0, |job| job.id),
            duration_us: duration.as_micros() as u64,
            input_bytes: job.map_or(0, Job::input_bytes),
            output_bytes: job.map_or(0, Job::output_bytes),
        };
        // SAFETY: the caller has passed a function that takes this argument. It uses the event only
        // during the call.
        unsafe { (self.on_event)(self.arg.get(), &event) }
    }
}

fn kind(kind: &EventKind) -> (SiltstoneEventKind, Option<&Job>) {
    match kind {
        EventKind::FlushBegun(job) => (SiltstoneEventKind::FlushBegun, Some(job)),
        EventKind::FlushCompleted(job) => (SiltstoneEventKind::FlushCompleted, Some(job)),
        EventKind::CompactionBegun(job) => (SiltstoneEventKind::CompactionBegun, Some(job)),
        EventKind::CompactionCompleted(job) => (SiltstoneEventKind::CompactionCompleted, Some(job)),
        EventKind::StallBegun { .. } => (SiltstoneEventKind::StallBegun, None),
        EventKind::StallEnded { .. } => (SiltstoneEventKind::StallEnded, None),
        EventKind::BackgroundError { .. } => (SiltstoneEventKind::BackgroundError, None),
        EventKind::ReadOnly { .. } => (SiltstoneEventKind::ReadOnly, None),
        EventKind::Corruption(_) => (SiltstoneEventKind::Corruption, None),
        EventKind::Dropped { .. } => (SiltstoneEventKind::Dropped, None),
        _ => (SiltstoneEventKind::Other, None),
    }
}

/// Adds a listener for the events of all tables of the stores that are opened with these options:
/// flushes, compactions, write stalls, failures and damage. siltstone_close() waits until it has
/// received all of them.
///
/// `free_arg`, which may be NULL, is called with `arg` when these options are freed and all stores
/// that were opened with them are closed; also after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_options_add_listener(
    options: Option<&mut SiltstoneOptions>,
    on_event: SiltstoneEventCallback,
    arg: *mut c_void,
    free_arg: SiltstoneFreeCallback,
) -> Option<Box<SiltstoneError>> {
    let arg = CallbackArg::new(arg, free_arg);
    guard(move || {
        let on_event = required(on_event, "on_event")?;
        required(options, "options")?.listeners.push(Arc::new(CListener { on_event, arg }));
        Ok(())
    })
}
