//! The threads that accept connections and read them.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::encryption::Stream;
use super::event::{HelloRefusal, TransportEvent};
use super::outgoing::prepare;
use super::shared::Shared;
use crate::codec::{
    Answer, FrameError, Hello, MAX_BODY_BYTES, MAX_HELLO_BYTES, decode_packet, decode_publication,
    is_ping, push_frame, read_frame,
};

/// The buffer of a connection, in bytes.
const READ_BYTES: usize = 64 << 10;

/// Why a connection ends.
enum CloseReason {
    Refused(HelloRefusal),
    Failed(String),
}

impl From<std::io::Error> for CloseReason {
    fn from(error: std::io::Error) -> Self {
        CloseReason::Failed(error.to_string())
    }
}

impl From<FrameError> for CloseReason {
    fn from(error: FrameError) -> Self {
        CloseReason::Failed(error.to_string())
    }
}

/// Accepts connections until the transport is stopped.
pub(super) fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    loop {
        let accepted = listener.accept();
        if shared.is_stopped.load(Relaxed) {
            return;
        }
        let Ok((stream, address)) = accepted else {
            // Too many open files, for example: try again later.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        // Strangers must not keep nodes away, however slowly they introduce themselves.
        let is_full = shared.incoming() >= shared.options.max_incoming;
        let reason = match is_full && !shared.close_oldest_stranger() {
            true => "too many connections are open".into(),
            false => match spawn_reader(shared, stream, address) {
                Ok(()) => continue,
                Err(error) => error.to_string(),
            },
        };
        shared.report(TransportEvent::Closed { address, reason });
    }
}

fn spawn_reader(
    shared: &Arc<Shared>,
    stream: TcpStream,
    address: SocketAddr,
) -> std::io::Result<()> {
    let id = shared.add_incoming(&stream)?;
    let of_thread = shared.clone();
    let read = move || {
        let outcome = serve(&of_thread, id, stream, address);
        of_thread.remove_incoming(id);
        match outcome {
            Ok(never) => match never {},
            Err(CloseReason::Refused(refusal)) => {
                of_thread.report(TransportEvent::Refused { address, refusal });
            }
            Err(CloseReason::Failed(reason)) => {
                of_thread.report(TransportEvent::Closed { address, reason });
            }
        }
    };
    let spawned = std::thread::Builder::new().name("raft-receive".into()).spawn(read);
    spawned.map(|_| ()).inspect_err(|_| shared.remove_incoming(id))
}

/// Reads a connection until it ends.
fn serve(
    shared: &Shared,
    id: u64,
    socket: TcpStream,
    address: SocketAddr,
) -> Result<std::convert::Infallible, CloseReason> {
    prepare(&socket, &shared.options)?;
    let clone = socket.try_clone()?;
    let mut stream: Box<dyn Stream> = match &shared.options.encryption {
        None => Box::new(clone),
        Some(encryption) => encryption.accept(clone)?,
    };
    let mut body = Vec::new();
    read_first_frame(shared, &mut stream, &mut body)?;
    let hello = Hello::decode(&body)?;
    let checked = shared.check_hello(&hello).and_then(|()| shared.identify(id, &hello));
    let mut out = Vec::new();
    push_frame(&mut out, |out| shared.hello(hello.from).push(out));
    let refusal = checked.as_ref().err().map(ToString::to_string);
    push_frame(&mut out, |out| Answer { refusal }.push(out));
    stream.write_all(&out)?;
    stream.flush()?;
    checked.map_err(CloseReason::Refused)?;
    shared.report(TransportEvent::Accepted { node: hello.from, address });
    socket.set_read_timeout(Some(shared.options.idle_timeout))?;
    let mut stream = BufReader::with_capacity(READ_BYTES, stream);
    loop {
        read_frame(&mut stream, &mut body, MAX_BODY_BYTES)?;
        if is_ping(&body) {
            continue;
        }
        if let Some(publication) = decode_publication(&body)? {
            shared.publications.received.fetch_add(1, Relaxed);
            (shared.options.publication_listener)(publication);
            body.shrink_to(4 * READ_BYTES);
            continue;
        }
        let envelope = decode_packet(&body)?;
        let from = envelope.packet.from();
        if from != hello.from {
            let reason = format!("node {} sends as node {from}", hello.from);
            return Err(CloseReason::Failed(reason));
        }
        shared.deliver(envelope);
        body.shrink_to(4 * READ_BYTES);
    }
}

/// Reads the first frame. One that begins as TLS does is recognized.
fn read_first_frame(
    shared: &Shared,
    stream: &mut impl Read,
    body: &mut Vec<u8>,
) -> Result<(), CloseReason> {
    // A TLS record with a handshake. As a frame's length it would be above the limit of a first
    // one.
    let mut start = [0; 3];
    stream.read_exact(&mut start)?;
    if matches!(start, [22, 3, 1..=4]) && shared.options.encryption.is_none() {
        let reason = "the other side speaks TLS, and this node has no certificate for it: start it \
                      with --cluster-tls-cert, --cluster-tls-key and --cluster-tls-ca";
        return Err(CloseReason::Failed(reason.into()));
    }
    Ok(read_frame(&mut start.as_slice().chain(stream), body, MAX_HELLO_BYTES)?)
}
