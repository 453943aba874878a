//! Atomics for the lock-free code of this crate, from the standard library or loom.
//!
//! With `--cfg loom`, every atomic operation becomes a point where loom may switch threads or
//! return an older value that the memory model allows. [`PublishedCell`] extends the check to plain
//! data written before a pointer to it is published: with loom, reading it without a happens-before
//! edge from its creation fails the test; otherwise it is the bare value at no cost.
//!
//! Invariant: lock-free code of this crate uses only these atomics.
//!
//! Source: loom follows Norris and Demsky, "CDSChecker", OOPSLA 2013.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

/// Plain data that is written once, before a pointer to it is published with release ordering.
#[cfg(not(loom))]
#[repr(transparent)]
pub(crate) struct PublishedCell<T>(T);

#[cfg(not(loom))]
impl<T: Copy> PublishedCell<T> {
    /// Wraps the value, before it is published.
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }

    /// Reads the value; the reader must have acquired the pointer that published it.
    #[inline(always)]
    pub(crate) fn get(&self) -> T {
        self.0
    }
}

/// Plain data that is written once, before a pointer to it is published with release ordering.
#[cfg(loom)]
pub(crate) struct PublishedCell<T>(loom::cell::UnsafeCell<T>);

#[cfg(loom)]
impl<T: Copy> PublishedCell<T> {
    /// Wraps the value; loom counts this as a write by the calling thread.
    pub(crate) fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    /// Reads the value; loom fails the test if its creation does not happen before this read.
    pub(crate) fn get(&self) -> T {
        self.0.with(|value| {
            // SAFETY: no one writes after `new`, and loom has just checked that `new` came before.
            unsafe { *value }
        })
    }
}
