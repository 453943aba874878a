//! A client's socket, with TLS or without.
//!
//! Without TLS each call is one of the socket's, and one branch.

use std::io::{self, Read, Write};
use std::net::Shutdown;

use mio::net::TcpStream;

use crate::tls::TlsStream;

/// A client's socket.
pub(crate) struct Transport {
    pub(crate) socket: TcpStream,
    tls: Option<TlsStream>,
}

impl Transport {
    pub(crate) fn new(socket: TcpStream, tls: Option<TlsStream>) -> Self {
        Transport { socket, tls }
    }

    /// Reads into a buffer. Returns the number of bytes, 0 at the end of the stream, and whether
    /// there may be more.
    #[inline]
    pub(crate) fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<(usize, bool)> {
        match &mut self.tls {
            None => self.socket.read(buffer).map(|count| (count, count == buffer.len())),
            Some(tls) => tls.read(&mut self.socket, buffer),
        }
    }

    /// Writes what the socket, or a buffer of bounded size, takes.
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.write(bytes),
            Some(tls) => tls.write(&mut self.socket, bytes),
        }
    }

    /// Sends what was written and not taken by the socket.
    ///
    /// # Errors
    /// `WouldBlock` if the socket has not taken all.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(tls) => tls.flush(&mut self.socket),
        }
    }

    /// Whether something was written that the socket has not taken.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(TlsStream::has_unsent)
    }

    /// Whether the handshake of TLS is incomplete.
    #[inline]
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(TlsStream::is_handshaking)
    }

    /// Ends the own side of the stream.
    pub(crate) fn end(&mut self) {
        if let Some(tls) = &mut self.tls {
            // A peer that takes nothing is closed without.
            let _ = tls.end(&mut self.socket);
        }
    }

    /// Ends the own side of the stream, and of the socket.
    pub(crate) fn shut_down(&mut self) -> io::Result<()> {
        self.end();
        self.socket.shutdown(Shutdown::Write)
    }
}
