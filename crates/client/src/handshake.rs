//! Handshake with a server: a hello is answered by a welcome with the server's ports and a cookie.
//!
//! The cookie validates the client's address. A lost hello is retransmitted every 50 ms; packets
//! with another sequence number are ignored. See [`hello`] for the packet formats.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::error::{ClientError, Result};
use crate::gso::OutPacket;
use crate::link::Link;
use crate::options::ClientOptions;
use crate::recv_buffer::RecvBuffer;
use crate::wire::hello::{self, Welcome};
use crate::wire::{Header, Kind, WireError};

/// Time to wait for a welcome before the hello is retransmitted.
const HELLO_WAIT: Duration = Duration::from_millis(50);

/// Sends hellos until a welcome arrives, and returns it with the cookie.
pub(crate) fn handshake(
    link: &mut Link,
    server: SocketAddr,
    options: &ClientOptions,
    deadline: Instant,
    buffers: &mut [RecvBuffer],
) -> Result<(Welcome, u64)> {
    let sequence = RandomState::new().hash_one(0);
    let password = options.password.as_deref().unwrap_or_default();
    let hello = hello::hello(sequence, password.as_bytes());
    let mut next = Instant::now();
    loop {
        let now = Instant::now();
        if now >= deadline {
            return Err(ClientError::Deadline { unanswered: 0 });
        }
        if now >= next {
            link.send(&mut [OutPacket::exact(&hello, server)])?;
            next = now + HELLO_WAIT;
        }
        let count = link.receive(buffers, true)?;
        let from_server = buffers[..count].iter().filter(|buffer| buffer.sender() == Some(server));
        for packet in from_server.flat_map(RecvBuffer::packets) {
            match Header::parse(packet) {
                Ok((header, body)) if header.sequence == sequence => match header.kind {
                    Kind::Welcome => {
                        let welcome = Welcome::parse(body);
                        let welcome = welcome.map_err(|m| ClientError::Refused(Some(m)))?;
                        return Ok((welcome, header.cookie));
                    }
                    Kind::Unverified => return Err(ClientError::Refused(None)),
                    _ => {}
                },
                Err(error @ WireError::Version(_)) => {
                    return Err(ClientError::Refused(Some(error)));
                }
                _ => {}
            }
        }
    }
}
