//! The watermark: the least timestamp that anyone may still ask for.
//!
//! ```text
//!   floor ≤ watermark = least of: snapshots held, now − retention, what is visible
//!   discarded by      │
//!   ──────────────────┼──────────────▶ timestamps
//!    may be refused   │ every version stays
//! ```
//!
//! The paper's clients report the timestamps of their last operations; here a client's report is the
//! snapshot that it holds, and one that is gone holds none. The floor, the highest watermark that anything
//! was discarded by, is what reads are refused below; it is kept on the medium.
//!
//! Invariant: a point that was given stays at or above every watermark from then on until it is dropped.
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
    held: BTreeMap<u64, usize>,
    floor: u64,
}

/// Keeps the versions that a point sees.
pub(crate) struct Hold {
    state: Arc<Mutex<State>>,
    at: u64,
}

impl History {
    pub(crate) fn new(floor: u64) -> Self {
        let state = State { floor, ..State::default() };
        History { state: Arc::new(Mutex::new(state)) }
    }

    /// Holds the moment that `at` tells, which is asked under the lock; `Err` with the floor if it is below.
    pub(crate) fn hold(&self, at: impl FnOnce() -> u64) -> Result<Hold, u64> {
        let mut state = self.state.lock();
        let at = at();
        if at < state.floor {
            return Err(state.floor);
        }
        *state.held.entry(at).or_default() += 1;
        Ok(Hold { state: self.state.clone(), at })
    }

    /// The watermark as of now, where nobody asks below `bound`; what is discarded by it is noted.
    pub(crate) fn advance(&self, bound: impl FnOnce() -> u64) -> u64 {
        let mut state = self.state.lock();
        let held = state.held.first_key_value().map_or(u64::MAX, |(at, _)| *at);
        let watermark = bound().min(held).max(state.floor);
        state.floor = watermark;
        watermark
    }

    pub(crate) fn floor(&self) -> u64 {
        self.state.lock().floor
    }

    pub(crate) fn held(&self) -> usize {
        self.state.lock().held.values().sum()
    }

    /// Whether a hold was given here.
    pub(crate) fn owns(&self, hold: &Hold) -> bool {
        Arc::ptr_eq(&self.state, &hold.state)
    }
}

impl Hold {
    pub(crate) fn at(&self) -> u64 {
        self.at
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if let Some(count) = state.held.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                state.held.remove(&self.at);
            }
        }
    }
}
