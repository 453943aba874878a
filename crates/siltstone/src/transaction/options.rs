//! Limits of transactions and snapshots.

use std::time::Duration;

/// Limits of transactions and snapshots, per table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionOptions {
    /// A transaction or snapshot that is idle for this long expires, at the latest after twice this
    /// time, so that it does not hold old versions forever. `None`: never. Default: 5 minutes.
    pub idle: Option<Duration>,
    /// Memory for the keys written while transactions were open, in bytes. Over it the oldest are
    /// dropped. A transaction that began before them reads again at commit what it has read, as of
    /// its beginning and as of the commit, and fails with a conflict only if that differs. Default:
    /// 32 MiB, about 250,000 writes of 16-byte keys.
    pub remembered_bytes: usize,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        TransactionOptions { idle: Some(Duration::from_secs(300)), remembered_bytes: 32 << 20 }
    }
}
