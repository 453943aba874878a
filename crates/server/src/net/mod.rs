//! Sockets: from listening to the bytes of each client.
//!
//! ```text
//! accept ──▶ worker 0: poll ▶ read, run ▶ apply, sync ▶ send ─┐
//!        └─▶ worker 1: …   ▲──────────────────────────────────┘
//! ```
//!
//! | module | one idea |
//! | --- | --- |
//! | [`listen`] | making a listening socket |
//! | [`accept`] | taking clients in, up to the limit |
//! | [`worker`] | a turn: read and run, then sync, then answer |
//! | [`dialect`] | what a client speaks |
//! | [`connection`] | the buffers of one client |
//! | [`timeouts`] | which clients have taken too long |

pub(crate) mod accept;
pub(crate) mod connection;
pub(crate) mod dialect;
pub(crate) mod listen;
pub(crate) mod timeouts;
pub(crate) mod worker;
