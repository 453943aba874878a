//! The watermark: the lowest timestamp that can still be read.
//!
//! ```text
//!   floor ≤ watermark = minimum of: pinned snapshots, now − retention, visible timestamp
//!   discarded by      │
//!   ──────────────────┼──────────────▶ timestamps
//!    may be refused   │ every version is kept
//! ```
//!
//! The paper's clients report the timestamps of their last operations. Here the pinned snapshots
//! take the place of these reports. The floor is the highest watermark by which a version was
//! discarded. Reads below it are refused; it is stored on the device.
//!
//! Invariant: a pinned timestamp stays at or above every later watermark until its pin is dropped.
//!
//! Source: SkimpyFTL, section 3.4, after Ding et al., "Centiman", SoCC 2015.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct History {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    pinned: BTreeMap<u64, usize>,
    floor: u64,
}

/// Keeps the versions that are visible at a timestamp.
pub(crate) struct SnapshotPin {
    state: Arc<Mutex<State>>,
    at: u64,
}

impl History {
    pub(crate) fn new(floor: u64) -> Self {
        let state = State { floor, ..State::default() };
        History { state: Arc::new(Mutex::new(state)) }
    }

    /// Pins the timestamp that `at` returns under the lock; `Err` with the floor if it is below
    /// that.
    pub(crate) fn pin(&self, at: impl FnOnce() -> u64) -> Result<SnapshotPin, u64> {
        let mut state = self.state.lock();
        let at = at();
        if at < state.floor {
            return Err(state.floor);
        }
        *state.pinned.entry(at).or_default() += 1;
        Ok(SnapshotPin { state: self.state.clone(), at })
    }

    /// Advances the watermark to at most `bound`, and returns it.
    pub(crate) fn advance(&self, bound: impl FnOnce() -> u64) -> u64 {
        let mut state = self.state.lock();
        let oldest = state.pinned.first_key_value().map_or(u64::MAX, |(at, _)| *at);
        let watermark = bound().min(oldest).max(state.floor);
        state.floor = watermark;
        watermark
    }

    pub(crate) fn floor(&self) -> u64 {
        self.state.lock().floor
    }

    pub(crate) fn pinned(&self) -> usize {
        self.state.lock().pinned.values().sum()
    }

    /// Whether a pin is of this history.
    pub(crate) fn owns(&self, pin: &SnapshotPin) -> bool {
        Arc::ptr_eq(&self.state, &pin.state)
    }
}

impl SnapshotPin {
    pub(crate) fn at(&self) -> u64 {
        self.at
    }
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if let Some(count) = state.pinned.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                state.pinned.remove(&self.at);
            }
        }
    }
}
