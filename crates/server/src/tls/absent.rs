//! In place of TLS, for builds without the feature `tls`: no state and no stream exists.

use std::convert::Infallible;
use std::io;

use mio::net::TcpStream;

use siltstone_cluster::transport::{Encryption, Stream};

use super::options::{ClientTlsFiles, NodeTlsFiles, TlsFiles};

pub(crate) struct CheckedConfig(Infallible);

pub(crate) struct TlsState(Infallible);

pub(crate) struct TlsStream(Infallible);

pub(crate) struct NodeTls(Infallible);

const ABSENT: &str = "this program was built without TLS; build it with the feature tls";

pub(crate) fn connect_client(
    _files: &ClientTlsFiles,
    _host: &str,
    _socket: std::net::TcpStream,
) -> io::Result<Box<dyn Stream>> {
    Err(io::Error::other(ABSENT))
}

impl TlsState {
    pub(crate) fn open(_files: &TlsFiles) -> Result<Self, String> {
        Err(ABSENT.to_owned())
    }

    pub(crate) fn files(&self) -> TlsFiles {
        match self.0 {}
    }

    pub(crate) fn prepare(&self, _files: TlsFiles) -> Result<CheckedConfig, String> {
        match self.0 {}
    }

    pub(crate) fn replace(&self, prepared: CheckedConfig) {
        match prepared.0 {}
    }

    pub(crate) fn reload(&self) -> Result<(), String> {
        match self.0 {}
    }

    pub(crate) fn accept(&self) -> io::Result<TlsStream> {
        match self.0 {}
    }
}

impl TlsStream {
    pub(crate) fn read(
        &mut self,
        _socket: &mut TcpStream,
        _buffer: &mut [u8],
    ) -> io::Result<(usize, bool)> {
        match self.0 {}
    }

    pub(crate) fn write(&mut self, _socket: &mut TcpStream, _bytes: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn flush(&mut self, _socket: &mut TcpStream) -> io::Result<()> {
        match self.0 {}
    }

    pub(crate) fn has_unsent(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn end(&mut self, _socket: &mut TcpStream) -> io::Result<()> {
        match self.0 {}
    }
}

impl NodeTls {
    pub(crate) fn open(_files: &NodeTlsFiles) -> Result<Self, String> {
        Err(ABSENT.to_owned())
    }

    pub(crate) fn reload(&self) -> Result<(), String> {
        match self.0 {}
    }
}

impl Encryption for NodeTls {
    fn connect(&self, _socket: std::net::TcpStream) -> io::Result<Box<dyn Stream>> {
        match self.0 {}
    }

    fn accept(&self, _socket: std::net::TcpStream) -> io::Result<Box<dyn Stream>> {
        match self.0 {}
    }
}
