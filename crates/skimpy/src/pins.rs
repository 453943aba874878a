//! Pins of running readers: a block is not erased while a reader may be in it.
//!
//! A reader pins the current age. Retiring a block begins a new age; the block is erased when no
//! reader of an earlier age is left. The lock is held for a few instructions, never over I/O.
//!
//! Invariant: a reader that finds the location of a page after it has entered can read the page
//! until its pin is dropped.
//!
//! Source: epoch-based reclamation (Fraser, "Practical lock-freedom", 2004). An epoch of that paper
//! is an *age* here, because pages have epochs of another kind.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The running readers of a table.
#[derive(Default)]
pub(crate) struct Pins(Mutex<Ages>);

#[derive(Default)]
struct Ages {
    now: u64,
    /// The number of readers, by the age in which they began.
    readers: BTreeMap<u64, usize>,
}

/// The pin of a running reader.
pub(crate) struct Pin<'p> {
    pins: &'p Pins,
    age: u64,
}

impl Pins {
    /// Pins the current age until the pin is dropped.
    pub(crate) fn enter(&self) -> Pin<'_> {
        let mut ages = self.0.lock();
        let age = ages.now;
        *ages.readers.entry(age).or_default() += 1;
        Pin { pins: self, age }
    }

    /// Begins a new age; returns the previous one.
    pub(crate) fn next_age(&self) -> u64 {
        let mut ages = self.0.lock();
        ages.now += 1;
        ages.now - 1
    }

    /// Whether a reader of this age or an earlier one is running.
    pub(crate) fn is_read(&self, age: u64) -> bool {
        self.0.lock().readers.range(..=age).next().is_some()
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut ages = self.pins.0.lock();
        if let Some(count) = ages.readers.get_mut(&self.age) {
            *count -= 1;
            if *count == 0 {
                ages.readers.remove(&self.age);
            }
        }
    }
}
