//! The threads that accept connections and read them.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::event::{HelloRefusal, TransportEvent};
use super::outgoing::prepare;
use super::shared::Shared;
use crate::codec::{
    Answer, FrameError, Hello, MAX_BODY_BYTES, MAX_HELLO_BYTES, decode_packet, is_ping, push_frame,
    read_frame,
};

/// The connections that may be open; more are closed at once.
const MAX_CONNECTIONS: usize = 1024;
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
        let reason = match shared.incoming() >= MAX_CONNECTIONS {
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
    mut stream: TcpStream,
    address: SocketAddr,
) -> Result<std::convert::Infallible, CloseReason> {
    prepare(&stream, &shared.options)?;
    let mut body = Vec::new();
    read_frame(&mut stream, &mut body, MAX_HELLO_BYTES)?;
    let hello = Hello::decode(&body)?;
    let checked = shared.check_hello(&hello).and_then(|()| shared.identify(id, &hello));
    let mut out = Vec::new();
    push_frame(&mut out, |out| shared.hello(hello.from).push(out));
    let refusal = checked.as_ref().err().map(ToString::to_string);
    push_frame(&mut out, |out| Answer { refusal }.push(out));
    stream.write_all(&out)?;
    checked.map_err(CloseReason::Refused)?;
    shared.report(TransportEvent::Accepted { node: hello.from, address });
    stream.set_read_timeout(Some(shared.options.idle_timeout))?;
    let mut stream = BufReader::with_capacity(READ_BYTES, stream);
    loop {
        read_frame(&mut stream, &mut body, MAX_BODY_BYTES)?;
        if is_ping(&body) {
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
