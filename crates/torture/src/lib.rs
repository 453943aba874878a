//! Tests the `siltstone` program as a black box, by processes, files and sockets, under faults.
//!
//! ```text
//!   runner ── history: one store, one fault class, one seed
//!                │
//!                ├─ process   siltstone serve DIR …      signals, limits, standard error
//!                ├─ load      lanes, one thread each ──► client: RESP2 over loopback
//!                │               └─ oracle               possible values per key
//!                └─ fault     kill, term, full-disk …    runs beside the load
//! ```
//!
//! It uses no crate of the store, so it cannot share a bug with them. Its requirements are those
//! that the book states to clients.

pub mod client;
pub mod corruption;
pub mod engines;
pub mod faults;
pub mod finding;
pub mod history;
pub mod lane;
pub mod load;
pub mod losses;
pub mod oracle;
pub mod process;
pub mod program;
pub mod random;
pub mod report;
pub mod runner;
pub mod settings;
pub mod tmpfs;
pub mod tree;
pub mod values;
