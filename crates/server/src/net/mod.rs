//! TCP connections: from the listener to the bytes of each client.
//!
//! ```text
//! accept ──▶ worker 0: poll ▶ read, run ▶ apply, sync ▶ send ─┐
//!        └─▶ worker 1: …   ▲──────────────────────────────────┘
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`listen`] | listening sockets |
//! | [`unix_socket`] | a listener on a Unix socket |
//! | [`accept`] | accepting clients, up to the limit |
//! | [`inbox`] | hands new clients to the workers |
//! | [`worker`] | the event loop: read and run, sync, send |
//! | [`protocol`] | protocol of a connection: RESP or memcached |
//! | [`connection`] | buffers of one client |
//! | [`receive_buffer`] | what the connections of an iteration have received |
//! | [`held_replies`] | replies of a replicated table that wait for a commit |
//! | [`transport`] | the socket of one client, with TLS or without |
//! | [`timeouts`] | idle and stalled clients, deadlines of parked commands |
//! | [`wakeups`] | wakes a worker for connections that another thread has changed |

pub(crate) mod accept;
pub(crate) mod connection;
mod held_replies;
pub(crate) mod inbox;
pub(crate) mod listen;
pub(crate) mod protocol;
mod receive_buffer;
pub(crate) mod timeouts;
pub(crate) mod transport;
pub(crate) mod unix_socket;
pub(crate) mod wakeups;
pub(crate) mod worker;
