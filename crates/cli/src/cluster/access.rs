//! How operators reach the nodes of a group: through the address of any one.

use std::time::Duration;

use clap::Args;
use siltstone_server::NodeAccess;

use crate::access::{Credentials, PASSWORD_VARIABLE, password_or_variable};

/// The time between two requests for the state of the nodes, while a command waits for it.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How to reach the nodes.
#[derive(Args)]
pub(super) struct Access {
    /// The address for clients of any node of the group that runs
    #[arg(value_name = "HOST:PORT")]
    pub(super) address: String,
    #[command(flatten)]
    credentials: Credentials,
    /// The user's password (or set SILTSTONE_PASSWORD)
    #[arg(long)]
    password: Option<String>,
}

impl Access {
    /// How to connect to each node.
    pub(super) fn node_access(&self) -> NodeAccess {
        let password = password_or_variable(self.password.clone(), PASSWORD_VARIABLE);
        self.credentials.node_access(password)
    }
}
