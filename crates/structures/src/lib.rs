//! In-memory data structures without I/O, one a file.
//!
//! A tour, from what holds data to what describes it:
//!
//! - [`hash`]: the hash of keys that filters and sketches take.
//!
//! Nothing here reads a clock, a file or a random device: what is random is so by a seed, and the
//! same calls give the same structure.

pub mod hash;

pub use hash::hash64;
