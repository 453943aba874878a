//! Replicated groups: one node's part of a Raft group over a table of Siltstone.
//!
//! ```text
//!   propose ─▶ Raft ─▶ log append, one sync ─▶ messages ─▶ committed ─▶ table, events
//!                      crates/cluster/src/log                            one batch with the
//!                                                                        applied index
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`group`] | [`Group`]: the state machine that a caller drives with ticks and packets |
//! | [`log`] | [`RaftLog`]: entries, hard state and compaction on the record log |
//! | [`applied`] | how far a table has applied the log, in the table itself |
//! | [`node`] | [`Node`]: a group that runs in a thread, and its handles |
//! | [`network`] | what a node needs of a network |
//! | [`transport`] | a network over TCP |
//! | [`codec`] | its frames, byte by byte |
//! | [`packet`] | what nodes send to each other |
//! | [`publication`] | messages of publish and subscribe that nodes pass on |
//! | `identities` | the directories of nodes: this one's and the others', in a file |
//! | `directory_rows` | those that the group has committed, in rows of the table |
//! | [`membership`] | changes of membership, and the rules that they obey |
//! | `store` | the log and the applied state as Raft sees them |
//! | `stream` | snapshots as streams of chunks, and the table that receives one |
//! | `budget` | the rate at which snapshots are sent |
//! | `requests` | proposals and reads whose outcome is pending |
//!
//! The consensus algorithm is the crate `raft` (decision record 0044). A [`Group`] has no threads,
//! no clock and no network: the caller counts time in ticks, delivers packets, and calls
//! [`Group::ready`] after every few calls. With the same calls and seed a run repeats exactly. A
//! [`Node`] is such a caller (decision record 0051).
//!
//! Invariants:
//! * What a node acknowledges (a vote, an appended entry) is synced before the packet is returned.
//! * A table's applied index is written in the batch that it describes, so a table may lose its
//!   last writes in a power cut: the log has them.
//! * The log is compacted only up to what the table holds durably, and it is replaced only when the
//!   snapshot's table is durable.
//! * A node whose log is damaged or missing does not open, so it neither votes nor serves. One that
//!   was created again under its old id does not either, nor an older copy of a directory that
//!   another node recognizes.

pub mod applied;
mod budget;
pub mod codec;
mod directory_rows;
pub mod group;
mod identities;
pub mod log;
pub mod membership;
pub mod network;
pub mod node;
pub mod packet;
mod planted;
pub mod publication;
mod requests;
#[cfg(test)]
mod sim;
mod store;
mod stream;
pub mod transport;

pub use applied::{Applied, OWN_ROWS, POINT_KEY, RESERVED_PREFIX};
pub use group::{Group, GroupOptions, Output, TableFilter};
pub use log::{LogIdentity, Marker, RaftLog};
pub use membership::Change;
pub use node::{Node, NodeHandle, NodeOptions};
pub use packet::{Chunk, ChunkAck, Envelope, NodeMessage, Packet, StreamId};
pub use requests::{Event, Rejection, RequestId};
pub use stream::OpenTable;
