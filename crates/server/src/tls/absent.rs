//! In place of TLS, for builds without the feature `tls`: no state and no stream exists.

use std::convert::Infallible;
use std::io;

use mio::net::TcpStream;

use super::options::TlsFiles;

pub(crate) struct Prepared(Infallible);

pub(crate) struct TlsState(Infallible);

pub(crate) struct TlsStream(Infallible);

impl TlsState {
    pub(crate) fn open(_files: &TlsFiles) -> Result<Self, String> {
        Err("this program was built without TLS; build it with the feature tls".to_owned())
    }

    pub(crate) fn files(&self) -> TlsFiles {
        match self.0 {}
    }

    pub(crate) fn prepare(&self, _files: TlsFiles) -> Result<Prepared, String> {
        match self.0 {}
    }

    pub(crate) fn replace(&self, prepared: Prepared) {
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
