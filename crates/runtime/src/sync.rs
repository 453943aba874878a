//! Atomics, locks and threads of the group commit, from the standard library or loom.
//!
//! With `--cfg loom`, every operation becomes a point where loom may switch threads or return an
//! older value that the memory model allows.

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::{
        Mutex,
        atomic::{AtomicPtr, AtomicU32, Ordering},
    },
    thread::{self, Thread},
};
#[cfg(not(loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::{
        Mutex,
        atomic::{AtomicPtr, AtomicU32, Ordering},
    },
    thread::{self, Thread},
};
