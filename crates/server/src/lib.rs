//! Serves a Siltstone store over the Redis protocol, memcached's protocols, and the UDP protocol of
//! `mica`.
//!
//! ```text
//! bytes ─▶ resp::request ─▶ command::execute ─▶ handlers ─▶ store (locks, overlays) ─▶ engine
//!   ▲                                                                                    │
//!   └───────────── net::worker sends ◀── resp::reply ◀── sync (Fsync::Always) ◀──────────┘
//! ```
//!
//! `memcached` implements the other TCP protocol, `udp` has its own threads and sockets; all three
//! share `store`.
//!
//! A [`Server`] takes tables and options, listens, and runs until it is stopped. Each worker thread
//! polls its own clients. In one iteration of its event loop it runs the commands of all ready
//! clients, syncs once, and sends the replies.
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
//! # Guarantees
//! - An acknowledged write is as durable as [`Fsync`] states.
//! - Commands on one key are atomic; MULTI/EXEC is applied completely or not at all.
//! - Memory per client is bounded by the limits of requests, replies and pushed messages.
//! - A server without a password is reachable from its own machine only.
//!
//! # Differences from Redis
//! - Hashes, lists, sets, sorted sets and streams exist on ordered engines (`lsm`) only.
//! - The maximum value size is that of the engine.
//! - A transaction or script writes to one table; COPY to another table is not part of it.
//! - DBSIZE is an estimate above a million keys, unless there are collections. SCAN cursors are
//!   evicted after many others and then restart the scan. On unordered engines SCAN may return a
//!   key twice that was written during the scan.
//!
//! The book's page on protocols has the full list.

mod acl;
mod archive;
mod backups;
mod clients;
mod command;
mod encoding_settings;
pub mod fuzzing;
mod glob;
mod holdable_clock;
mod keyspace_events;
mod latency;
mod mailbox;
mod memcached;
mod metrics;
mod monitors;
mod net;
mod node_client;
mod options;
mod password;
mod pause;
mod process;
mod pubsub;
mod replace_file;
mod replication;
pub mod resp;
mod script;
mod server;
mod settings;
mod shared;
mod signals;
mod slow_log;
mod stop;
mod store;
mod table_moves;
mod ticket_queue;
mod tls;
mod tracking;
mod udp;

pub use archive::{ArchiveChanges, ArchiveOptions, ArchiveStep};
pub use backups::{BackupOptions, TakeBackup};
pub use holdable_clock::HoldableClock;
pub use node_client::{NodeAccess, NodeClient, Reply};
pub use options::{Fsync, ServerOptions};
pub use replication::checkpoint::NodeCheckpointer;
pub use replication::options::{ClusterOptions, JoinOptions, Member};
pub use server::Server;
pub use signals::SignalGuard;
pub use stop::StopHandle;
pub use store::flags_trailer::stored_string;
pub use tls::{ClientAuth, ClientTlsFiles, NodeTlsFiles, TlsFiles, TlsOptions, TlsVersion};
