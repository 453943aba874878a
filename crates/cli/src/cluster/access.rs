//! How operators reach the nodes: address, user, certificates.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use siltstone_server::{ClientTlsFiles, NodeAccess};

/// The time between two looks at what nodes do.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How to reach the nodes.
#[derive(Args)]
pub(super) struct Access {
    /// The address for clients of any node of the group that runs
    #[arg(value_name = "HOST:PORT")]
    pub(super) address: String,
    /// The user; by default the default user
    #[arg(long)]
    user: Option<String>,
    /// The user's password (or set SILTSTONE_PASSWORD)
    #[arg(long)]
    password: Option<String>,
    /// Use TLS; the certificates of the authorities of the nodes' servers (PEM)
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// A certificate to show to the nodes (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"])]
    tls_cert: Option<PathBuf>,
    /// The private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl Access {
    pub(super) fn of_node(&self) -> NodeAccess {
        let own = self.tls_cert.clone().zip(self.tls_key.clone());
        NodeAccess {
            user: self.user.clone(),
            password: self.password.clone().or_else(|| std::env::var("SILTSTONE_PASSWORD").ok()),
            tls: self.tls_ca.clone().map(|ca| ClientTlsFiles { ca, own }),
        }
    }
}
