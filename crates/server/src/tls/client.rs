//! TLS of a client of a node, which blocks.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use siltstone_cluster::transport::Stream;

use super::options::ClientTlsFiles;
use super::state::{authorities, certificates};

/// The stream to a server, whose certificate must be one for `host`.
///
/// # Errors
/// Files that do not fit; a failed handshake.
pub(crate) fn connect_client(
    files: &ClientTlsFiles,
    host: &str,
    mut socket: TcpStream,
) -> io::Result<Box<dyn Stream>> {
    let roots = authorities(&files.ca).map_err(io::Error::other)?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    let config = match &files.own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate).map_err(io::Error::other)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
            builder.with_client_auth_cert(chain, key).map_err(io::Error::other)?
        }
    };
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    Ok(Box::new(StreamOwned::new(connection, socket)))
}
