//! How commands reach running servers: user, password, certificates.
//!
//! A password is an option or an environment variable. Other users of the machine can see options,
//! but not the environment.

use std::path::PathBuf;

use clap::Args;
use siltstone_server::{ClientTlsFiles, NodeAccess};

/// The environment variable that has the password of a server.
pub(crate) const PASSWORD_VARIABLE: &str = "SILTSTONE_PASSWORD";

/// The password that an option gives, or else the one in the environment variable.
pub(crate) fn password_or_variable(given: Option<String>, variable: &str) -> Option<String> {
    given.or_else(|| std::env::var(variable).ok())
}

/// The options for connections to servers, except for address and password.
#[derive(Args)]
pub(crate) struct Credentials {
    /// The user; by default the default user
    #[arg(long)]
    user: Option<String>,
    /// Use TLS; the certificates of the server's authorities (PEM)
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// A certificate to show to the server (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"])]
    tls_cert: Option<PathBuf>,
    /// The private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl Credentials {
    /// How to connect with these options and this password.
    pub(crate) fn node_access(&self, password: Option<String>) -> NodeAccess {
        let own = self.tls_cert.clone().zip(self.tls_key.clone());
        NodeAccess {
            user: self.user.clone(),
            password,
            tls: self.tls_ca.clone().map(|ca| ClientTlsFiles { ca, own }),
        }
    }
}
