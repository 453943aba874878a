//! TLS between the nodes of a replicated table: both sides show a certificate of one authority.
//!
//! Whoever has a certificate of this authority is a node. So the authority is the cluster's own,
//! and the names in the certificates are not checked: nodes are distinguished by their numbers, and
//! a node that could pretend to have another number could as well vote in its place.
//!
//! The files can be read again while the node runs. Connections keep what they began with.
//!
//! Invariants: TLS 1.3 only; a connection without a valid certificate carries no frame.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct,
    RootCertStore, ServerConfig, ServerConnection, SignatureScheme, StreamOwned,
};
use siltstone_cluster::transport::{Encryption, Stream};

use super::options::NodeTlsFiles;
use super::state::{authorities, certificates};

/// TLS between nodes, as it is in force.
pub(crate) struct NodeTls {
    files: NodeTlsFiles,
    current: RwLock<Configs>,
}

#[derive(Clone)]
struct Configs {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl NodeTls {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn open(files: &NodeTlsFiles) -> Result<Self, String> {
        let current = RwLock::new(configure(files)?);
        Ok(NodeTls { files: files.clone(), current })
    }

    /// Reads the files again, for the connections from now on.
    ///
    /// # Errors
    /// What is wrong with them; then nothing has changed.
    pub(crate) fn reload(&self) -> Result<(), String> {
        let configs = configure(&self.files)?;
        *self.current.write() = configs;
        Ok(())
    }
}

impl Encryption for NodeTls {
    fn connect(&self, mut socket: TcpStream) -> io::Result<Box<dyn Stream>> {
        let config = self.current.read().client.clone();
        // The name is not checked, and an address is not sent.
        let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
        let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).map_err(explain)?;
        }
        Ok(Box::new(ExplainingStream(StreamOwned::new(connection, socket))))
    }

    fn accept(&self, mut socket: TcpStream) -> io::Result<Box<dyn Stream>> {
        let config = self.current.read().server.clone();
        let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).map_err(explain)?;
        }
        Ok(Box::new(ExplainingStream(StreamOwned::new(connection, socket))))
    }
}

/// A stream whose errors say what to do.
struct ExplainingStream<S>(S);

impl<S: Read> Read for ExplainingStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(explain)
    }
}

impl<S: Write> Write for ExplainingStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(explain)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(explain)
    }
}

/// The error for an operator: a certificate that the other side refuses, for example.
fn explain(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::UnexpectedEof {
        return io::Error::new(
            ErrorKind::UnexpectedEof,
            "the other node has closed the connection",
        );
    }
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let Some(cause) = cause else { return error };
    let text = match cause {
        rustls::Error::InvalidMessage(_) => {
            "the other node does not speak TLS; start it with --cluster-tls-cert, --cluster-tls-key \
             and --cluster-tls-ca"
                .to_owned()
        }
        rustls::Error::NoCertificatesPresented => {
            "the other side has shown no certificate; is it a node of this cluster?".to_owned()
        }
        rustls::Error::InvalidCertificate(reason) => {
            format!("the certificate of the other node {}", explain_certificate(reason))
        }
        rustls::Error::AlertReceived(alert) => explain_alert(*alert),
        other => format!("TLS: {other}"),
    };
    io::Error::new(error.kind(), text)
}

fn explain_certificate(reason: &CertificateError) -> String {
    match reason {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired; renew it there and send SIGHUP to that node".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet; check the clocks of both machines".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "is not issued by an authority of --cluster-tls-ca; all nodes need certificates of the \
             cluster's authority"
                .to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not for both sides of a connection; issue it with the extended key usages serverAuth \
             and clientAuth, or with none"
                .to_owned()
        }
        other => format!("is refused: {other}"),
    }
}

fn explain_alert(alert: AlertDescription) -> String {
    let reason = match alert {
        AlertDescription::CertificateExpired => {
            "it has expired (or is not valid yet); renew it and send SIGHUP to this node"
        }
        AlertDescription::UnknownCA => {
            "it is not issued by an authority that the other node trusts; all nodes need \
             certificates of the cluster's authority (--cluster-tls-ca)"
        }
        AlertDescription::CertificateRequired => "this node has shown none",
        AlertDescription::UnsupportedCertificate
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::DecryptError => {
            "issue it with the extended key usages serverAuth and clientAuth, or with none"
        }
        other => return format!("the other node has ended the handshake of TLS: {other:?}"),
    };
    format!("the other node refuses the certificate of this node: {reason}")
}

fn configure(files: &NodeTlsFiles) -> Result<Configs, String> {
    let provider = Arc::new(ring::default_provider());
    let roots = Arc::new(authorities(&files.ca)?);
    let chain = certificates(&files.certificate)?;
    let key = || {
        PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| format!("the key {}: {error}", files.key.display()))
    };
    let misfit = |error: rustls::Error| {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        format!("the certificate {certificate} with the key {key}: {error}")
    };
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|error| format!("the authorities {}: {error}", files.ca.display()))?;
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), key()?)
        .map_err(misfit)?;
    // A node that connects again shows its certificate again.
    server.send_tls13_tickets = 0;
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(NodeVerifier { roots, provider }))
        .with_client_auth_cert(chain, key()?)
        .map_err(misfit)?;
    client.enable_sni = false;
    Ok(Configs { client: Arc::new(client), server: Arc::new(server) })
}

/// Checks that a certificate is valid now and of an authority, whatever its names.
#[derive(Debug)]
struct NodeVerifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for NodeVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
