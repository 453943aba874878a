//! Checkpoints of a running node: the tables of all groups in a directory, from which a new cluster
//! can begin ([`super::origin`]).
//!
//! ```text
//!   barrier of each group      the leader says what is committed; this node has applied it
//!   checkpoint of each table   one after the other, each as of one entry of its log
//!   CLUSTER-ORIGIN             the number of the cluster, and of its groups
//! ```
//!
//! Each node has all groups, so one node's checkpoint is the whole cluster's. Between groups
//! nothing is consistent but this: each has everything that was acknowledged before the first
//! barrier. No command writes to two groups.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use siltstone::encryption::Keys;
use siltstone_cluster::node::{NodeDirectory, NodeHandle};
use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::Disk;

use super::origin::Origin;

/// The time until a barrier without an outcome is repeated.
const REPEAT_INTERVAL: Duration = Duration::from_millis(500);
/// How long the barriers may take: an election, or a node that has to catch up.
const BARRIER_TIMEOUT: Duration = Duration::from_secs(30);

/// Takes checkpoints of a running node of a replicated table.
#[derive(Clone)]
pub struct NodeCheckpointer {
    pub(super) dir: PathBuf,
    pub(super) encryption: Keys,
    pub(super) cluster: u64,
    pub(super) node: u64,
    pub(super) groups: Vec<NodeHandle>,
}

impl fmt::Debug for NodeCheckpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeCheckpointer").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl NodeCheckpointer {
    /// The directory of the node.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The node as text: its number, its cluster and its directory.
    pub fn name(&self) -> String {
        format!("node {} of cluster {}, {}", self.node, self.cluster, self.dir.display())
    }

    /// Copies the tables of all groups into the new directory `target`, durably: each as of one
    /// entry of its log, with every write that was acknowledged anywhere before this call.
    /// The copy is encrypted with the keys of the node, if it has any. Immutable files are linked if
    /// the directory is on the same file system. The node goes on
    /// meanwhile; this call waits for a majority of its group.
    ///
    /// # Errors
    /// `Refused` if a group has no leader for 30 s, or this node does not catch up in that time;
    /// errors of the tables; I/O errors. There may be part of a copy then.
    pub fn checkpoint(&self, target: &Path) -> Result<()> {
        let deadline = Instant::now() + BARRIER_TIMEOUT;
        for (index, group) in self.groups.iter().enumerate() {
            wait_for_barrier(group, deadline).map_err(|reason| Error::Refused {
                path: self.dir.display().to_string(),
                reason: format!("group {index}: {reason}; see siltstone cluster status"),
            })?;
        }
        // With the same keys and paths, so that encrypted files can be linked.
        let target = self.encryption.wrap(Arc::new(Disk::create(target)?));
        let groups = self.groups.len() as u16;
        for (index, group) in (0..).zip(&self.groups) {
            match groups {
                1 => group.checkpoint(target.as_ref())?,
                _ => {
                    let of_group = target.subdirectory(&NodeDirectory::group_name(index))?;
                    group.checkpoint(of_group.as_ref())?;
                }
            }
        }
        // A directory with this file is complete.
        Origin { cluster: self.cluster, groups }.write(target.as_ref())?;
        target.sync_dir(Purpose::Maintenance)
    }
}

/// Waits until the node has applied all that its group has committed before this call.
///
/// # Errors
/// Why it has not, as text.
fn wait_for_barrier(group: &NodeHandle, deadline: Instant) -> Result<(), String> {
    let (done, outcomes) = channel();
    let mut reason = "no leader has answered in time".to_owned();
    while Instant::now() < deadline {
        let done = done.clone();
        // Nobody receives a late answer to the last one.
        group.barrier(move |outcome| drop(done.send(outcome)));
        let repeat_at = Instant::now() + REPEAT_INTERVAL;
        // The outcome of an earlier barrier is as good as that of the last one.
        while let Ok(outcome) = outcomes.recv_timeout(repeat_at - Instant::now().min(repeat_at)) {
            match outcome {
                Ok(_) => return Ok(()),
                Err(refusal) => reason = refusal.to_string(),
            }
        }
        if group.status().is_stopped {
            return Err("the node has stopped".to_owned());
        }
    }
    Err(reason)
}
