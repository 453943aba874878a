//! memcached over UDP. Off by default.
//!
//! ```text
//! 0             2              4            6            8
//! request u16   sequence u16   total u16    0 u16        commands …        big-endian
//! ```
//!
//! A request is one datagram (sequence 0, total 1). The response takes as many datagrams as needed,
//! of up to 1,400 bytes each, with the request's number and their own.
//!
//! **Amplification.** The protocol does not validate addresses: responses to a forged sender
//! address go to its victim, and a `get` is much shorter than its value. So the port is for clients
//! on the same machine only: other addresses are rejected, and so is a server with a password,
//! which this protocol cannot carry. Our own UDP protocol ([`crate::udp`]) has neither limitation.
//!
//! Source: memcached's `doc/protocol.txt`, "UDP protocol".

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use super::session::{MemcachedSession, Progress};
use crate::Fsync;
use crate::resp::Replies;
use crate::shared::Shared;
use crate::store::write_batcher::WriteBatcher;

pub(crate) const HEADER_BYTES: usize = 8;
/// Maximum bytes of a response datagram, including the header.
pub(crate) const MAX_DATAGRAM_BYTES: usize = 1400;
/// Maximum bytes of a response; the sequence numbers would allow 90 MB.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Response to an incomplete command.
pub(crate) const INCOMPLETE: &[u8] = b"CLIENT_ERROR the command exceeds its datagram\r\n";
/// Maximum delay until a stop is noticed.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Serves until the server stops.
pub(crate) fn run(socket: &UdpSocket, shared: &Shared) -> std::io::Result<()> {
    socket.set_read_timeout(Some(STOP_POLL_INTERVAL))?;
    let mut buffer = vec![0; 64 << 10];
    let mut batcher = WriteBatcher::new(shared.databases.len());
    while !shared.stop.is_stopping() {
        let (count, peer) = match socket.recv_from(&mut buffer) {
            Ok(received) => received,
            Err(error) if is_transient(&error) => continue,
            Err(error) => return Err(error),
        };
        let response = respond(shared, &mut batcher, &buffer[..count]);
        for datagram in response {
            // Like any datagram it may be lost.
            let _ = socket.send_to(&datagram, peer);
        }
    }
    Ok(())
}

/// Nothing arrived, or an earlier response could not be delivered.
fn is_transient(error: &std::io::Error) -> bool {
    use ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock | ConnectionRefused)
}

/// Response datagrams to a request datagram.
pub(crate) fn respond(
    shared: &Shared,
    batcher: &mut WriteBatcher,
    datagram: &[u8],
) -> Vec<Vec<u8>> {
    let Some((header, commands)) = datagram.split_first_chunk::<HEADER_BYTES>() else {
        return Vec::new();
    };
    let mut replies = Replies::new(MAX_RESPONSE_BYTES);
    batcher.clock = Instant::now();
    if header[2..6] == [0, 0, 0, 1] {
        let mut session = MemcachedSession::new(shared);
        let mut used = 0;
        while used < commands.len() && !session.is_closing && !replies.has_overflowed() {
            match session.step(shared, &mut replies, batcher, &commands[used..]) {
                Progress::Consumed(count) => used += count,
                Progress::Incomplete => {
                    replies.raw(INCOMPLETE);
                    break;
                }
            }
        }
    } else {
        replies.raw(b"SERVER_ERROR multi-packet request not supported\r\n");
    }
    if replies.has_overflowed() {
        replies = Replies::new(MAX_RESPONSE_BYTES);
        replies.raw(b"SERVER_ERROR the response is too large for UDP; use TCP\r\n");
    }
    if shared.options.fsync == Fsync::Always && batcher.sync(&shared.databases).is_err() {
        replies = Replies::new(MAX_RESPONSE_BYTES);
        replies.raw(b"SERVER_ERROR the write may not be durable\r\n");
    }
    batcher.finish_iteration();
    let parts: Vec<_> = replies.unsent().chunks(MAX_DATAGRAM_BYTES - HEADER_BYTES).collect();
    let frame = |(number, part): (usize, &&[u8])| {
        let numbers = [number as u16, parts.len() as u16, 0];
        let mut datagram = header[..2].to_vec();
        datagram.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        datagram.extend_from_slice(part);
        datagram
    };
    parts.iter().enumerate().map(frame).collect()
}
