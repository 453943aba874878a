//! The client of a `mica` table that is served over UDP.
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
//! The client hashes the keys and sends each request to the port of its key's partition, many in a
//! packet ([`Client::ask`]); it sends packets again that are not answered in time, until a deadline.
//! The server does a packet once, however often it comes, and answers it again from memory.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`client`] | what is asked, where it goes, what is waited for |
//! | [`options`], [`error`] | how it asks, and why there is no answer |
//! | `greet` | where the server's ports are |
//! | [`flights`] | packets under way, and when to send them again |
//! | [`wire`] | the packets, byte by byte |
//! | [`link`] | a port: a socket, and a queue past the kernel where there is one |
//! | `looks` | whether a thread looks before it sleeps |
//! | [`mmsg`], [`slot`] | datagrams in bursts, and room for them |
//! | [`segments`] | datagrams that the system carries as one |
//! | [`bundle`] | packets that share a datagram |
//! | `address` | addresses as the system has them |
//! | [`xdp`] | past the kernel's network |
//!
//! # What is promised
//! * An answer is that of the store to this request, done once, between the call and its return.
//! * Whoever gets [`ClientError::Deadline`], [`ClientError::Restarted`] or [`ClientError::Forgotten`]
//!   knows of each request without an answer that it was done once or not at all.
//! * A packet that does not carry the server's cookie, which only sender and receiver know, is ignored.
//!
//! Nothing is encrypted, as over the server's other ports.
//!
//! Source: H. Lim, "Resource-Efficient Data-Intensive System Designs for High Performance and
//! Capacity", CMU-CS-15-132, 2015, section 5.3.2.

mod address;
pub mod bundle;
pub mod client;
pub mod error;
pub mod flights;
mod greet;
pub mod link;
mod looks;
pub mod mmsg;
pub mod options;
pub mod segments;
pub mod slot;
pub mod wire;
pub mod xdp;

pub use client::{Client, Counters, Reply};
pub use error::ClientError;
pub use options::ClientOptions;
pub use siltstone_mica::{Action, Answer, Meta, Outcome, Value};
