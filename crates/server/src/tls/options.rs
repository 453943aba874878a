//! Options of TLS.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Addresses that are served over TLS, beside those without, and the files that TLS needs.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// Address of Redis clients, if any.
    pub listen: Option<SocketAddr>,
    /// Address of memcached clients, if any.
    pub memcached: Option<SocketAddr>,
    /// Address of the metrics port (HTTPS), if any.
    pub metrics: Option<SocketAddr>,
    /// Certificate and private key of the server.
    pub files: TlsFiles,
}

/// Certificates and key, and who must have a certificate. They can change while the server runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, followed by those of its issuers (PEM).
    pub certificate: PathBuf,
    /// Its private key (PEM).
    pub key: PathBuf,
    /// Certificates of the authorities that issue clients' certificates (PEM).
    pub client_ca: Option<PathBuf>,
    /// Whether clients need a certificate.
    pub client_auth: ClientAuth,
    /// The oldest version of TLS that is spoken.
    pub min_version: TlsVersion,
}

/// Whether clients need a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientAuth {
    /// They are not asked for one.
    #[default]
    No,
    /// One that is sent must be valid.
    Optional,
    /// Clients without a valid one are rejected.
    Required,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// Files of TLS between the nodes of a replicated table. Read again at SIGHUP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTlsFiles {
    /// This node's certificate, followed by those of its issuers (PEM), for both sides of a
    /// connection.
    pub certificate: PathBuf,
    /// Its private key (PEM).
    pub key: PathBuf,
    /// Certificates of the authorities of the cluster (PEM): whoever has a certificate of theirs is
    /// accepted as a node.
    pub ca: PathBuf,
}

/// Files of a client that uses TLS.
#[derive(Debug, Clone)]
pub struct ClientTlsFiles {
    /// Certificates of the authorities that issue servers' certificates (PEM).
    pub ca: PathBuf,
    /// The client's certificate and private key (PEM), if servers ask for one.
    pub own: Option<(PathBuf, PathBuf)>,
}
