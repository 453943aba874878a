//! The thread of a link: it connects to the peer, sends the queued packets, and reconnects.
//!
//! ```text
//!   connect ── hello, answer ── send packets, pings ── error ── wait ── connect …
//! ```
//!
//! The wait doubles up to a limit, with a random part. A refused connection waits the longest.
//! After a connection has ended, the groups learn that packets may have been lost.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use siltstone_structures::SplitMix64;
use socket2::{SockRef, TcpKeepalive};

use super::encryption::Stream;
use super::event::{HelloRefusal, TransportEvent};
use super::link::{Link, Work};
use super::options::TransportOptions;
use super::shared::{Shared, random};
use crate::codec::{
    Answer, FrameError, Hello, MAX_HELLO_BYTES, PUBLICATION_VERSION, encode_packet, first_version,
    push_frame, push_ping, push_publication, read_frame,
};
use crate::packet::Packet;
use crate::publication::Publication;

/// The first wait between attempts to connect; it doubles.
const MIN_BACKOFF: Duration = Duration::from_millis(20);
/// Packets are written in pieces of about this size, in bytes.
const WRITE_BYTES: usize = 256 << 10;

/// Why a connection was not made.
enum ConnectError {
    Failed(String),
    /// The other node has refused this one.
    RefusedBy(String),
    Refused(SocketAddr, HelloRefusal),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        ConnectError::Failed(error.to_string())
    }
}

impl From<FrameError> for ConnectError {
    fn from(error: FrameError) -> Self {
        ConnectError::Failed(error.to_string())
    }
}

/// Runs until the link is closed.
pub(super) fn run(shared: &Arc<Shared>, link: &Link) {
    let node = link.node;
    let mut random = SplitMix64::new(random());
    let mut backoff = MIN_BACKOFF;
    let mut last_event = None;
    let mut report = |event: TransportEvent| {
        // The same failure is reported once.
        if last_event.as_ref() != Some(&event) {
            shared.report(event.clone());
            last_event = Some(event);
        }
    };
    loop {
        let max_backoff = shared.options.max_backoff;
        match connect(shared, link) {
            Ok(PeerConnection { socket, stream, address, process, version }) => {
                backoff = MIN_BACKOFF;
                link.open(socket, process);
                report(TransportEvent::Connected { node, address });
                let outcome = send(shared, link, stream, version);
                let dropped = link.reset() as u64;
                shared.publications.dropped.fetch_add(dropped, Relaxed);
                shared.report_unreachable(node);
                let Err(error) = outcome else { return };
                report(TransportEvent::Disconnected { node, reason: error.to_string() });
            }
            Err(ConnectError::Failed(reason)) => {
                report(TransportEvent::Disconnected { node, reason });
            }
            Err(ConnectError::RefusedBy(reason)) => {
                backoff = max_backoff;
                report(TransportEvent::RefusedBy { node, reason });
            }
            Err(ConnectError::Refused(address, refusal)) => {
                backoff = max_backoff;
                report(TransportEvent::Refused { address, refusal });
            }
        }
        // Half of it to all of it, so that nodes do not keep step.
        let half = backoff.as_micros() as u64 / 2;
        let wait = Duration::from_micros(half + random.below(half + 1));
        if !link.wait_to_connect(Instant::now() + wait) {
            return;
        }
        backoff = (backoff * 2).min(max_backoff);
    }
}

/// A connection to a peer.
struct PeerConnection {
    socket: TcpStream,
    stream: Box<dyn Stream>,
    address: SocketAddr,
    /// The peer's process.
    process: u64,
    /// The newest version of the protocol that it speaks.
    version: u16,
}

/// Connects and introduces both sides to each other.
fn connect(shared: &Shared, link: &Link) -> Result<PeerConnection, ConnectError> {
    let options = &shared.options;
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let connected = link.address.to_socket_addrs()?.find_map(|address| {
        match TcpStream::connect_timeout(&address, options.connect_timeout) {
            Ok(stream) => Some((stream, address)),
            Err(error) => {
                failure = error;
                None
            }
        }
    });
    let Some((socket, address)) = connected else { return Err(failure.into()) };
    prepare(&socket, options)?;
    let clone = socket.try_clone()?;
    let mut stream = match &options.encryption {
        None => Box::new(clone),
        Some(encryption) => encryption.connect(clone)?,
    };
    let mut out = Vec::new();
    push_frame(&mut out, |out| shared.hello(link.node).push(out));
    stream.write_all(&out)?;
    stream.flush()?;
    let mut body = Vec::new();
    read_frame(&mut stream, &mut body, MAX_HELLO_BYTES)?;
    let hello = Hello::decode(&body)?;
    let checked = match hello.from == link.node {
        true => shared.check_hello(&hello),
        false => Err(HelloRefusal::OtherNode { expected: link.node, found: hello.from }),
    };
    checked.map_err(|refusal| ConnectError::Refused(address, refusal))?;
    read_frame(&mut stream, &mut body, MAX_HELLO_BYTES)?;
    match Answer::decode(&body)?.refusal {
        Some(reason) => Err(ConnectError::RefusedBy(reason)),
        None => {
            let (process, version) = (hello.process, hello.versions.1);
            Ok(PeerConnection { socket, stream, address, process, version })
        }
    }
}

/// Sets the socket options that both sides of a connection need.
pub(super) fn prepare(stream: &TcpStream, options: &TransportOptions) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(options.hello_timeout))?;
    stream.set_write_timeout(Some(options.write_timeout))?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(options.idle_timeout))?;
    // Otherwise a peer that was cut off for a minute gets the next byte a minute later.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(options.ack_timeout))?;
    Ok(())
}

/// Sends packets and pings until the link is closed; no packets that the peer's version lacks.
fn send(shared: &Shared, link: &Link, mut stream: Box<dyn Stream>, version: u16) -> io::Result<()> {
    let mut out = Vec::new();
    loop {
        match link.take(Instant::now() + shared.options.ping_interval) {
            Work::Closed => return Ok(()),
            Work::Broken => return Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            Work::Idle => push_ping(&mut out),
            Work::Send(packets, publications) => {
                for envelope in packets {
                    if first_version(&envelope.packet) > version {
                        if let Packet::Start(_) = envelope.packet {
                            shared.report_earlier_version(envelope.group, link.node);
                        }
                        continue;
                    }
                    if !push_frame(&mut out, |out| encode_packet(out, &envelope)) {
                        shared.report(TransportEvent::TooLarge { node: link.node });
                    }
                    if out.len() >= WRITE_BYTES {
                        stream.write_all(&out)?;
                        out.clear();
                    }
                }
                let written = match version >= PUBLICATION_VERSION {
                    true => write_publications(&mut stream, &mut out, &publications),
                    false => Ok(0),
                };
                let sent = *written.as_ref().unwrap_or(&0);
                let dropped = publications.len() - sent;
                shared.publications.sent.fetch_add(sent as u64, Relaxed);
                shared.publications.dropped.fetch_add(dropped as u64, Relaxed);
                written?;
            }
        }
        stream.write_all(&out)?;
        stream.flush()?;
        out.clear();
        out.shrink_to(4 * WRITE_BYTES);
    }
}

/// Writes what is in `out`, and published messages behind it. Returns the number of those that fit
/// a frame.
fn write_publications(
    stream: &mut impl Write,
    out: &mut Vec<u8>,
    publications: &[Arc<Publication>],
) -> io::Result<usize> {
    let mut push = |of: &&Arc<Publication>| push_frame(out, |out| push_publication(out, of));
    let count = publications.iter().filter(|publication| push(publication)).count();
    stream.write_all(out)?;
    out.clear();
    Ok(count)
}
