//! Learning where a server's ports are: hello and welcome, with a cookie that proves the address.
//!
//! A hello that is lost is sent again; what does not answer this very hello is ignored.
//!
//! Source: ours; see `hello` for the packets.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::error::{ClientError, Result};
use crate::link::Link;
use crate::options::ClientOptions;
use crate::segments::Outgoing;
use crate::slot::Slot;
use crate::wire::hello::{self, Welcome};
use crate::wire::{Header, Kind, Mistake};

/// How long to wait for a welcome before the hello is sent again.
const HELLO_WAIT: Duration = Duration::from_millis(50);

/// Says hello until a welcome comes.
pub(crate) fn greet(
    link: &mut Link,
    server: SocketAddr,
    options: &ClientOptions,
    deadline: Instant,
    slots: &mut [Slot],
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
            link.send(&mut [Outgoing::exact(&hello, server)])?;
            next = now + HELLO_WAIT;
        }
        let count = link.receive(slots, true)?;
        let from_it = slots[..count].iter().filter(|slot| slot.sender() == Some(server));
        for packet in from_it.flat_map(Slot::packets) {
            match Header::parse(packet) {
                Ok((header, body)) if header.sequence == sequence => match header.kind {
                    Kind::Welcome => {
                        let welcome = Welcome::parse(body);
                        let welcome = welcome.map_err(|m| ClientError::Refused(Some(m)))?;
                        return Ok((welcome, header.cookie));
                    }
                    Kind::Stranger => return Err(ClientError::Refused(None)),
                    _ => {}
                },
                Err(mistake @ Mistake::Version(_)) => {
                    return Err(ClientError::Refused(Some(mistake)));
                }
                _ => {}
            }
        }
    }
}
