//! The packets that the nodes of a group send to each other.
//!
//! Packets may be lost, delayed, repeated and reordered. They must not be altered, and they must
//! come from members: a transport authenticates its peers and checks its frames.

use raft::eraftpb::Message;
use siltstone_engine::Timestamp;

/// A packet of a group on its way.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    /// The group.
    pub group: u64,
    /// The id of the sender's directory, random and never used again.
    pub directory: u64,
    /// The packet.
    pub packet: Packet,
}

/// A packet between two nodes.
#[derive(Debug, Clone, PartialEq)]
pub enum Packet {
    /// A message of the consensus algorithm.
    Raft(Message),
    /// A part of a snapshot.
    Chunk(Chunk),
    /// The answer to one.
    Ack(ChunkAck),
    /// The first packet of a node that is new, or seems to be.
    Register(Register),
    /// The answer to it, or to a packet of another directory than the known one.
    Registered(Registered),
    /// A message to the user of the other node's handle.
    Message(NodeMessage),
    /// The first packet of a node that has been started again.
    Start(Start),
    /// The answer to it.
    Started(Started),
}

impl Packet {
    /// The receiver.
    pub fn to(&self) -> u64 {
        match self {
            Packet::Raft(message) => message.to,
            Packet::Chunk(chunk) => chunk.to,
            Packet::Ack(ack) => ack.stream.node,
            Packet::Register(register) => register.to,
            Packet::Registered(registered) => registered.to,
            Packet::Message(message) => message.to,
            Packet::Start(start) => start.to,
            Packet::Started(started) => started.to,
        }
    }

    /// The sender.
    pub fn from(&self) -> u64 {
        match self {
            Packet::Raft(message) => message.from,
            Packet::Chunk(chunk) => chunk.stream.node,
            Packet::Ack(ack) => ack.from,
            Packet::Register(register) => register.from,
            Packet::Registered(registered) => registered.from,
            Packet::Message(message) => message.from,
            Packet::Start(start) => start.from,
            Packet::Started(started) => started.from,
        }
    }
}

/// A stream of one snapshot, unique for all time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamId {
    /// The sending node.
    pub node: u64,
    /// The incarnation of that node.
    pub incarnation: u64,
    /// Ascending within the incarnation.
    pub number: u64,
}

/// Consecutive rows of a snapshot, in key order.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// The stream.
    pub stream: StreamId,
    /// The receiver.
    pub to: u64,
    /// The sender's term.
    pub term: u64,
    /// 0 for the first chunk of the stream.
    pub sequence: u64,
    /// The rows.
    pub rows: Vec<Row>,
    /// In the last chunk: the message that the snapshot belongs to, with index, term and members.
    pub last: Option<Box<Message>>,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// The receiver's answer to a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkAck {
    /// The stream.
    pub stream: StreamId,
    /// The receiver.
    pub from: u64,
    /// The next chunk that it expects; 0 if it does not have the stream's beginning.
    pub next: u64,
}

/// Asks a node to note the directory of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register {
    /// The sender.
    pub from: u64,
    /// The receiver.
    pub to: u64,
}

/// Tells a node the directory by which the sender knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    /// The sender.
    pub from: u64,
    /// The receiver.
    pub to: u64,
    /// The receiver's directory, as the sender knows it; durably.
    pub directory: u64,
    /// Whether the group has committed it.
    pub is_committed: bool,
}

/// A start of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StartId {
    /// Higher than those of all earlier starts of the directory in which the node took part.
    pub number: u64,
    /// Random: two copies of a directory begin the same number.
    pub random: u64,
}

/// Asks a node to note a start of the sender, and says what the sender has durably.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The sender.
    pub from: u64,
    /// The receiver.
    pub to: u64,
    /// The start.
    pub id: StartId,
    /// A random number of the process. Processes that have not taken part share a start.
    pub process: u64,
    /// The term.
    pub term: u64,
    /// The vote in this term; 0 for none.
    pub vote: u64,
    /// The index of the last entry of the log.
    pub last: u64,
}

/// The answer to a [`Start`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// The sender.
    pub from: u64,
    /// The receiver.
    pub to: u64,
    /// That of the [`Start`].
    pub process: u64,
    /// What the receiver has forgotten; `None`: its start is noted durably.
    pub forgotten: Option<ForgottenState>,
}

/// Why a directory is an older copy of another node's present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForgottenState {
    /// The same or a later start.
    #[error("its start {0}")]
    Start(u64),
    /// A term.
    #[error("that it had reached term {0}")]
    Term(u64),
    /// A vote.
    #[error("its vote in term {0}")]
    Vote(u64),
    /// An entry that it has acknowledged, or whose commit it has heard of.
    #[error("that it had entry {0}")]
    Entry(u64),
}

/// A message between the users of two nodes' handles. The group does not look into it. It arrives
/// once or never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMessage {
    /// The sender.
    pub from: u64,
    /// The receiver.
    pub to: u64,
    /// What it says.
    pub bytes: Vec<u8>,
}
