//! What the faulty file system guarantees, and every outcome that the contract allows.
//!
//! Most tests run over many seeds. Where the contract allows several outcomes, each must occur for
//! some seed: a file system that is kinder than the contract would hide bugs.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod injected_faults;
mod pmem_power_cut;
mod power_cut;
mod process_crash;
mod support;
mod surviving_bytes;
mod surviving_names;
