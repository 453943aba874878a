//! memcached's commands in datagrams. Off by default.
//!
//! ```text
//! 0             2              4            6            8
//! request u16   sequence u16   total u16    0 u16        commands …        big-endian
//! ```
//!
//! A request is one datagram (sequence 0, total 1). The answer is as many as it takes, of 1,400 bytes
//! at most each, with the request's number and theirs.
//!
//! **Amplification.** The protocol cannot know who asks: whoever forges a sender's address has the
//! answers sent there, and a `get` is much shorter than its value. That cannot be mended without
//! breaking the protocol, so the port is for clients on this machine only: any other address is
//! refused, and so is a server with a password, since nobody could send it. Our own UDP protocol
//! ([`crate::udp`]) has neither limit.
//!
//! Source: memcached's `doc/protocol.txt`, "UDP protocol".

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use super::talk::{Step, Talk};
use crate::Fsync;
use crate::resp::Replies;
use crate::shared::Shared;
use crate::store::turn::Turn;

pub(crate) const HEADER: usize = 8;
/// Bytes of a datagram of an answer, header included.
pub(crate) const DATAGRAM: usize = 1400;
/// Bytes of an answer: as many datagrams as there are numbers for would be 90 MB.
const MAX_ANSWER: usize = 1 << 20;
/// The answer to a command whose end is missing.
pub(crate) const UNFINISHED: &[u8] = b"CLIENT_ERROR the command goes on beyond its datagram\r\n";
/// How long a stop may go unnoticed.
const PATIENCE: Duration = Duration::from_millis(100);

/// Answers datagrams until the server stops.
pub(crate) fn run(socket: &UdpSocket, shared: &Shared) -> std::io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; 64 << 10];
    let mut turn = Turn::new(shared.databases.len());
    while !shared.stop.is_stopping() {
        let (count, peer) = match socket.recv_from(&mut buffer) {
            Ok(received) => received,
            Err(error) if is_transient(&error) => continue,
            Err(error) => return Err(error),
        };
        let answer = answer(shared, &mut turn, &buffer[..count]);
        for datagram in answer {
            // Like any datagram it may be lost.
            let _ = socket.send_to(&datagram, peer);
        }
    }
    Ok(())
}

/// Nothing came, or what was sent before could not be delivered.
fn is_transient(error: &std::io::Error) -> bool {
    use ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock | ConnectionRefused)
}

/// The datagrams that answer one.
pub(crate) fn answer(shared: &Shared, turn: &mut Turn, datagram: &[u8]) -> Vec<Vec<u8>> {
    let Some((header, commands)) = datagram.split_first_chunk::<HEADER>() else {
        return Vec::new();
    };
    let mut replies = Replies::new(MAX_ANSWER);
    turn.clock = Instant::now();
    if header[2..6] == [0, 0, 0, 1] {
        let mut talk = Talk::new(shared);
        let mut used = 0;
        while used < commands.len() && !talk.is_closing && !replies.has_overflowed() {
            match talk.step(shared, &mut replies, turn, &commands[used..]) {
                Step::Used(count) => used += count,
                Step::Incomplete => {
                    replies.raw(UNFINISHED);
                    break;
                }
            }
        }
    } else {
        replies.raw(b"SERVER_ERROR multi-packet request not supported\r\n");
    }
    if replies.has_overflowed() {
        replies = Replies::new(MAX_ANSWER);
        replies.raw(b"SERVER_ERROR the answer is too large for datagrams; use TCP\r\n");
    }
    if shared.options.fsync == Fsync::Always && turn.sync(&shared.databases).is_err() {
        replies = Replies::new(MAX_ANSWER);
        replies.raw(b"SERVER_ERROR the write may not be durable\r\n");
    }
    turn.end();
    let parts: Vec<_> = replies.unsent().chunks(DATAGRAM - HEADER).collect();
    let frame = |(number, part): (usize, &&[u8])| {
        let numbers = [number as u16, parts.len() as u16, 0];
        let mut datagram = header[..2].to_vec();
        datagram.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        datagram.extend_from_slice(part);
        datagram
    };
    parts.iter().enumerate().map(frame).collect()
}
