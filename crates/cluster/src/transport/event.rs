//! The events that a transport reports: connections, refusals and lost packets.

use std::net::SocketAddr;

/// Why a node refuses a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HelloRefusal {
    /// The other node is of another cluster.
    #[error(
        "node {node} belongs to cluster {found:016x}, not to {own:016x}; check addresses and ids"
    )]
    OtherCluster {
        /// The other node.
        node: u64,
        /// This cluster.
        own: u64,
        /// Its cluster.
        found: u64,
    },
    /// The other node's cluster has another number of groups.
    #[error("node {node} has {found} groups, this one {own}; give both the same --groups")]
    OtherGroups {
        /// The other node.
        node: u64,
        /// The number here.
        own: u32,
        /// Its number.
        found: u32,
    },
    /// The other node is no peer of this one.
    #[error(
        "node {node} is unknown here: it is not a member of the group, or was removed; a node joins \
         with an empty directory and a new number"
    )]
    UnknownNode {
        /// The other node.
        node: u64,
    },
    /// The other node says that it is this one.
    #[error("another process says that it is node {node}, as this one; stop one of the two")]
    OwnNode {
        /// This node.
        node: u64,
    },
    /// The connection has reached another node than the one that was meant.
    #[error(
        "node {expected} is expected at this address, and node {found} is there; check addresses"
    )]
    OtherNode {
        /// The node that was meant.
        expected: u64,
        /// The node that was reached.
        found: u64,
    },
    /// The two have no version of the format in common.
    #[error(
        "node {node} speaks versions {} to {} of the protocol, this one {} to {}; upgrade the older \
         program", .found.0, .found.1, .own.0, .own.1
    )]
    Version {
        /// The other node.
        node: u64,
        /// The versions of this node.
        own: (u16, u16),
        /// Its versions.
        found: (u16, u16),
    },
    /// A process that another one with the same id has replaced is back.
    #[error(
        "two processes run as node {node}; stop the one that is not meant, and restart the other"
    )]
    Duplicate {
        /// The node's id.
        node: u64,
    },
}

/// Something that an operator wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportEvent {
    /// Packets can be sent to a node.
    Connected {
        /// The node.
        node: u64,
        /// Its address.
        address: SocketAddr,
    },
    /// Packets cannot be sent to a node. Reported once until it is connected.
    Disconnected {
        /// The node.
        node: u64,
        /// Why.
        reason: String,
    },
    /// A node has connected to this one.
    Accepted {
        /// The node.
        node: u64,
        /// Its address.
        address: SocketAddr,
    },
    /// This node has refused a connection.
    Refused {
        /// The address of the other side.
        address: SocketAddr,
        /// Why.
        refusal: HelloRefusal,
    },
    /// Another node has refused this one. Reported once until the reason changes.
    RefusedBy {
        /// The node.
        node: u64,
        /// Its reason.
        reason: String,
    },
    /// An incoming connection was closed, because it failed or sent something malformed.
    Closed {
        /// The address of the other side.
        address: SocketAddr,
        /// Why.
        reason: String,
    },
    /// A packet was too large for a frame, and was dropped.
    TooLarge {
        /// The receiver.
        node: u64,
    },
}
