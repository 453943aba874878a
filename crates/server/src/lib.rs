//! Serves a Siltstone store over the Redis protocol, memcached's, and `mica`'s own over UDP.
//!
//! ```text
//! bytes ─▶ resp::request ─▶ command::execute ─▶ handlers ─▶ store (locks, overlays) ─▶ engine
//!   ▲                                                                                    │
//!   └───────────── net::worker sends ◀── resp::reply ◀── sync (Fsync::Always) ◀──────────┘
//! ```
//!
//! `memcached` has the other dialect of a connection, `udp` threads and sockets of its own; all three
//! meet in `store`.
//!
//! A [`Server`] is given tables and options, listens, and runs until it is told to stop. Each of
//! its threads polls its own clients; what is ready at once is run in one turn, synced once, and
//! answered.
//!
//! ```no_run
//! use siltstone::{Db, DbOptions};
//! use siltstone_server::{Server, ServerOptions};
//!
//! let db = Db::open_or_create("/var/lib/stock", DbOptions::default())?;
//! let table = db.table_or_create("default", "lsm", &Default::default())?;
//! let server = Server::bind(vec![table], ServerOptions::default())?;
//! server.run_until_signal()?;
//! db.close()?;
//! # Ok::<(), siltstone::Error>(())
//! ```
//!
//! # What is promised
//! * A write that was acknowledged is as durable as [`Fsync`] says.
//! * Commands on one key are atomic; MULTI/EXEC is applied whole or not at all.
//! * A client holds no more memory than its limits: a request, and its replies, as far as they
//!   have arrived.
//! * Without a password the server can be reached from its own machine only.
//!
//! # Where it differs from Redis
//! * Values are strings; there are no lists, hashes, sets or streams.
//! * An empty key is refused; a value may be as large as the engine takes.
//! * A transaction writes to one table; COPY to another table stands outside of one.
//! * DBSIZE is an estimate beyond a million keys; SCAN's cursors are forgotten after many others
//!   and   then stand for the beginning, and on engines without an order SCAN may return a key
//!   twice that   was written meanwhile.
//!
//! The book's page on protocols has the whole list.

mod clients;
mod command;
pub mod fuzzing;
mod glob;
mod memcached;
mod metrics;
mod net;
mod options;
mod process;
pub mod resp;
mod server;
mod shared;
mod stop;
mod store;
mod udp;

pub use options::{Fsync, ServerOptions};
pub use server::{Server, SignalGuard};
pub use stop::StopHandle;
