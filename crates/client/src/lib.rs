//! UDP client of a `mica` table.
//!
//! ```no_run
//! use siltstone_client::{Client, ClientOptions};
//!
//! let mut client = Client::connect("127.0.0.1:6380", ClientOptions::default())?;
//! client.put(b"apples", b"3")?;
//! assert_eq!(client.get(b"apples")?.as_deref(), Some(&b"3"[..]));
//! # Ok::<(), siltstone_client::ClientError>(())
//! ```
//!
//! The client hashes each key, sends the request to the port of the key's partition with many
//! requests per packet ([`Client::execute`]), and retransmits unanswered packets until a deadline.
//! The server executes a packet once, however often it arrives, and answers duplicates from its
//! response cache.
//!
//! | module | contents |
//! | --- | --- |
//! | [`client`] | API, request routing, response handling |
//! | [`options`], [`error`] | options, errors |
//! | `handshake` | server discovery and address validation |
//! | [`in_flight`] | packets in flight and their retransmission |
//! | [`wire`] | packet formats |
//! | [`link`] | a UDP port: socket and optional AF_XDP queue |
//! | `adaptive_poll` | spin-then-block receive |
//! | [`mmsg`], [`recv_buffer`] | batched system calls and receive buffers |
//! | [`gso`] | segmentation offload: several datagrams per message |
//! | [`coalesce`] | several packets per datagram |
//! | `address` | `sockaddr` encoding |
//! | [`xdp`] | kernel bypass with AF_XDP |
//!
//! # Guarantees
//! - A response is the result of executing this request once, between the call and its return.
//! - After [`ClientError::Deadline`], [`ClientError::Restarted`] or [`ClientError::Forgotten`],
//!   each request without a response was executed once or not at all.
//! - A packet without the server's cookie, which only sender and receiver know, is ignored.
//!
//! Nothing is encrypted, as on the server's other ports.
//!
//! Source: H. Lim, "Resource-Efficient Data-Intensive System Designs for High Performance and
//! Capacity", CMU-CS-15-132, 2015, section 5.3.2.

mod adaptive_poll;
mod address;
pub mod client;
pub mod coalesce;
pub mod error;
pub mod gso;
mod handshake;
pub mod in_flight;
pub mod link;
pub mod mmsg;
pub mod options;
pub mod recv_buffer;
pub mod wire;
pub mod xdp;

pub use client::{Client, ClientCounters, Reply};
pub use error::ClientError;
pub use options::ClientOptions;
pub use siltstone_mica::{Action, Answer, Meta, Outcome, Value};
