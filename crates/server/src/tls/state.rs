//! The TLS configuration in force.
//!
//! It is made from files, and replaced as a whole: by new files, or by the same ones read again.
//! Files that do not fit together are refused, and the configuration in force remains. Connections
//! keep the configuration that they began with.
//!
//! Invariant: all cryptography is that of `ring`, which needs only a C compiler to build.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};

use super::options::{ClientAuth, TlsFiles, TlsVersion};
use super::stream::TlsStream;

/// The TLS configuration in force.
pub(crate) struct TlsState {
    current: RwLock<CheckedConfig>,
}

/// A checked configuration.
#[derive(Clone)]
pub(crate) struct CheckedConfig {
    files: TlsFiles,
    config: Arc<ServerConfig>,
}

impl TlsState {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn open(files: &TlsFiles) -> Result<Self, String> {
        let config = configure(files)?;
        Ok(TlsState { current: RwLock::new(CheckedConfig { files: files.clone(), config }) })
    }

    /// The files in force.
    pub(crate) fn files(&self) -> TlsFiles {
        self.current.read().files.clone()
    }

    /// Reads files that are to replace those in force.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn prepare(&self, files: TlsFiles) -> Result<CheckedConfig, String> {
        let config = configure(&files)?;
        Ok(CheckedConfig { files, config })
    }

    /// Uses a configuration for the connections from now on.
    pub(crate) fn replace(&self, prepared: CheckedConfig) {
        *self.current.write() = prepared;
    }

    /// Reads the files in force again.
    ///
    /// # Errors
    /// What is wrong with them; then nothing has changed.
    pub(crate) fn reload(&self) -> Result<(), String> {
        self.replace(self.prepare(self.files())?);
        Ok(())
    }

    /// TLS for a new connection.
    pub(crate) fn accept(&self) -> io::Result<TlsStream> {
        let config = self.current.read().config.clone();
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(TlsStream::new(connection))
    }
}

fn configure(files: &TlsFiles) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let versions: &[&SupportedProtocolVersion] = match files.min_version {
        TlsVersion::V1_2 => &[&TLS12, &TLS13],
        TlsVersion::V1_3 => &[&TLS13],
    };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| error.to_string())?;
    let builder = match client_verifier(files, provider)? {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| format!("the key {}: {error}", files.key.display()))?;
    let config = builder.with_single_cert(chain, key).map_err(|error| {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        format!("the certificate {certificate} with the key {key}: {error}")
    })?;
    Ok(Arc::new(config))
}

/// Checks the certificates of clients.
fn client_verifier(
    files: &TlsFiles,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    if files.client_auth == ClientAuth::No {
        return Ok(None);
    }
    let Some(path) = &files.client_ca else {
        return Err("certificates of clients need a file of their authorities".to_owned());
    };
    let roots = authorities(path)?;
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match files.client_auth {
        ClientAuth::Optional => builder.allow_unauthenticated(),
        ClientAuth::No | ClientAuth::Required => builder,
    };
    let verifier = builder.build();
    verifier.map(Some).map_err(|error| format!("the authorities {}: {error}", path.display()))
}

/// The certificates of a file, as those of authorities.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| format!("the authorities {}: {error}", path.display()))?;
    }
    Ok(roots)
}

/// The certificates of a file; at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let shown = path.display();
    let failed = |error: &dyn std::fmt::Display| format!("the certificates {shown}: {error}");
    let read = CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))?;
    let certificates: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| failed(&error))?;
    if certificates.is_empty() {
        return Err(failed(&"the file has none"));
    }
    Ok(certificates)
}
