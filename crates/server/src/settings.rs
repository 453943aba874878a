//! Settings that CONFIG SET changes while the server runs.
//!
//! Invariant: a setting is one atomic value, read where it takes effect, without a lock.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::ServerOptions;
use crate::encoding_settings::EncodingSettings;

/// Settings that CONFIG SET changes.
pub(crate) struct Settings {
    /// Held by CONFIG SET, so that settings that depend on each other change together.
    pub(crate) changing: Mutex<()>,
    /// Maximum number of connections.
    pub(crate) max_clients: AtomicUsize,
    /// Maximum silence of a client in milliseconds; 0: unlimited.
    idle_timeout_ms: AtomicU64,
    /// Duration in microseconds from which a command is logged as slow; negative: none.
    pub(crate) slow_command_us: AtomicI64,
    /// Maximum number of logged slow commands.
    pub(crate) slow_log_len: AtomicUsize,
    /// Duration in milliseconds from which a latency is recorded; 0: none.
    pub(crate) latency_threshold_ms: AtomicU64,
    /// Milliseconds after which a script is busy.
    pub(crate) busy_threshold_ms: AtomicU64,
    /// Maximum memory of a script in bytes; 0: unlimited.
    pub(crate) script_memory_bytes: AtomicUsize,
    /// Entries of which trimming with `~` deletes a multiple; 0: as many as asked for.
    pub(crate) stream_node_entries: AtomicUsize,
    /// Sizes up to which Redis would store collections compactly.
    pub(crate) encodings: EncodingSettings,
    /// Duration in nanoseconds from which a command is slow for either; `u64::MAX`: none.
    slow_ns: AtomicU64,
}

impl Settings {
    pub(crate) fn new(options: &ServerOptions) -> Self {
        let idle = options.idle_timeout.map_or(0, |timeout| timeout.as_millis() as u64);
        let settings = Settings {
            changing: Mutex::new(()),
            max_clients: AtomicUsize::new(options.max_clients),
            idle_timeout_ms: AtomicU64::new(idle),
            slow_command_us: AtomicI64::new(10_000),
            slow_log_len: AtomicUsize::new(128),
            latency_threshold_ms: AtomicU64::new(0),
            busy_threshold_ms: AtomicU64::new(5000),
            script_memory_bytes: AtomicUsize::new(256 << 20),
            stream_node_entries: AtomicUsize::new(100),
            encodings: EncodingSettings::default(),
            slow_ns: AtomicU64::new(u64::MAX),
        };
        settings.update();
        settings
    }

    pub(crate) fn idle_timeout(&self) -> Option<Duration> {
        let timeout_ms = self.idle_timeout_ms.load(Relaxed);
        (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms))
    }

    pub(crate) fn set_idle_timeout_seconds(&self, seconds: u64) {
        self.idle_timeout_ms.store(seconds.saturating_mul(1000), Relaxed);
    }

    /// Time after which a script is busy, and other clients get an error.
    pub(crate) fn busy_threshold(&self) -> Duration {
        match self.busy_threshold_ms.load(Relaxed) {
            0 => Duration::MAX,
            millis => Duration::from_millis(millis),
        }
    }

    /// Updates what is derived from the durations.
    pub(crate) fn update(&self) {
        let slow = u64::try_from(self.slow_command_us.load(Relaxed));
        let slow_ns = slow.map_or(u64::MAX, |us| us.saturating_mul(1000));
        let latency_ns = match self.latency_threshold_ms.load(Relaxed) {
            0 => u64::MAX,
            ms => ms.saturating_mul(1_000_000),
        };
        self.slow_ns.store(slow_ns.min(latency_ns), Relaxed);
    }

    /// Whether a command of this duration is logged or recorded. Cost: one atomic load.
    #[inline]
    pub(crate) fn is_slow(&self, duration: Duration) -> bool {
        duration.as_nanos() >= u128::from(self.slow_ns.load(Relaxed))
    }
}
