//! Listening sockets.

use std::net::SocketAddr;

use mio::net::TcpListener;
use siltstone_engine::{Error, Result};
use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait to be accepted; the system may lower it.
pub(crate) const BACKLOG: i32 = 1024;

/// Listens on an address.
pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener> {
    let open = || -> std::io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // Otherwise the address stays in use for a minute after a server has ended.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket)
    };
    let socket = open().map_err(|error| Error::io("listen on", address.to_string(), &error))?;
    Ok(TcpListener::from_std(socket.into()))
}
