//! The interface for encryption and authentication of connections between nodes.
//!
//! The transport does no cryptography itself. It is given an [`Encryption`], which turns a socket
//! into a stream to an authenticated node, on both sides. The hello frames then travel inside it.
//!
//! Invariant: with an encryption no byte of a frame is read or written outside of it.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// A connection that blocks. Its reads and writes obey the timeouts of its socket.
pub trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// Turns sockets into encrypted streams between nodes that have authenticated each other.
pub trait Encryption: Send + Sync {
    /// The stream to a node that was connected to.
    ///
    /// # Errors
    /// Why there is none, for an operator.
    fn connect(&self, socket: TcpStream) -> io::Result<Box<dyn Stream>>;

    /// The stream of a connection that another node has opened.
    ///
    /// # Errors
    /// Why there is none, for an operator.
    fn accept(&self, socket: TcpStream) -> io::Result<Box<dyn Stream>>;
}
