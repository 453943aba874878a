//! Tortures the `siltstone` program from outside, as processes, files and sockets, and checks what it keeps.
//!
//! ```text
//!   runner ── history: one store, one fault class, one seed
//!                │
//!                ├─ process   siltstone serve DIR …      signals, limits, what it says
//!                ├─ load      lanes, a thread each  ──►  client, RESP2 over loopback
//!                │               └─ oracle               what each key may hold
//!                └─ fault     kill, term, full-disk …    strikes beside the load
//! ```
//!
//! It uses no crate of the store, so that a bug in them cannot hide itself here: all that it knows is
//! what the book promises to a client.

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
pub mod tmpfs;
pub mod tree;
pub mod values;
