//! TLS of one connection over a socket that does not block.
//!
//! ```text
//! socket ─▶ records ─▶ rustls ─▶ plaintext ─▶ buffer of the caller
//! socket ◀─ records ◀─ rustls ◀─ plaintext ◀─ replies
//! ```
//!
//! Memory: rustls keeps at most one incomplete record or handshake message, the plaintext of the
//! last read, and [`MAX_UNSENT_BYTES`] of plaintext as unsent records. Nothing is read from the
//! socket while plaintext is left.
//!
//! Invariant: reading writes what the handshake answers. What the socket does not take is sent by
//! [`TlsStream::flush`].

use std::io::{self, ErrorKind, Read, Write};

use mio::net::TcpStream;
use rustls::ServerConnection;

/// Plaintext that is encrypted before the socket has taken it, in bytes.
const MAX_UNSENT_BYTES: usize = 64 << 10;

/// TLS of one connection.
pub(crate) struct TlsStream {
    connection: Box<ServerConnection>,
}

impl TlsStream {
    pub(super) fn new(mut connection: ServerConnection) -> Self {
        connection.set_buffer_limit(Some(MAX_UNSENT_BYTES));
        TlsStream { connection: Box::new(connection) }
    }

    /// Reads plaintext until the buffer is full or the socket has nothing more. Returns the number
    /// of bytes, 0 at the end of the stream, and whether there may be more.
    ///
    /// # Errors
    /// `WouldBlock`; `InvalidData`, after an alert was sent, if the peer does not speak TLS or has
    /// no valid certificate.
    pub(crate) fn read(
        &mut self,
        socket: &mut TcpStream,
        buffer: &mut [u8],
    ) -> io::Result<(usize, bool)> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.connection.reader().read(&mut buffer[filled..]) {
                // The peer has ended its stream; it is reported once the rest was returned.
                Ok(0) => return Ok((filled, true)),
                Ok(count) => {
                    filled += count;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The peer has closed without ending its stream, as many clients do.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok((filled, true));
                }
                Err(error) => return Err(error),
            }
            match self.connection.read_tls(socket) {
                Ok(_) => self.process(socket)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && filled > 0 => {
                    return Ok((filled, false));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((filled, true))
    }

    /// Processes received records, and sends what they cause.
    fn process(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        let processed = self.connection.process_new_packets();
        // Otherwise it is sent with the replies. An alert is sent now or never.
        let flushed = self.flush(socket);
        if let Err(error) = processed {
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        match flushed {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Encrypts a part of the plaintext, and sends what the socket takes. Returns the length of
    /// that part.
    pub(crate) fn write(&mut self, socket: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
        self.flush(socket)?;
        let count = self.connection.writer().write(bytes)?;
        match self.flush(socket) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Sends all records.
    ///
    /// # Errors
    /// `WouldBlock` if the socket has not taken all.
    pub(crate) fn flush(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether records are left that the socket has not taken.
    pub(crate) fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Ends the own side of the stream (close_notify), so that the peer knows that it has all.
    pub(crate) fn end(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        self.connection.send_close_notify();
        self.flush(socket)
    }
}
