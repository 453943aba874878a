//! `serve --node-id` and `serve --join`: serves a node of a replicated table.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use siltstone::catalogue::Catalogue;
use siltstone_backup::Repository;
use siltstone_server::{
    BackupOptions, ClientTlsFiles, ClusterOptions, JoinOptions, Member, NodeAccess,
    NodeCheckpointer, NodeTlsFiles, Server, ServerOptions,
};

use super::{DEFAULT_LISTEN, FsyncArg, Serve};
use crate::backup;
use crate::outcome::{CommandResult, Failure, Outcome};

impl Serve {
    /// Serves this node of a replicated table.
    pub(super) fn run_replicated(&self, dir: &Path, mut options: ServerOptions) -> CommandResult {
        if is_store(dir) {
            let dir = dir.display();
            return Err(Failure::Usage(format!(
                "{dir} is a store, not the directory of a node of a replicated table; name another \
                 directory, and copy the keys with redis-cli or a program"
            )));
        }
        if matches!(self.fsync, FsyncArg::No) {
            return Err(Failure::Usage(
                "--fsync no: a replicated table syncs every write at a majority of its nodes; leave \
                 the option out"
                    .into(),
            ));
        }
        let table = match self.tables.as_slice() {
            [] => BTreeMap::new(),
            [table] => table.replicated()?,
            [_, other, ..] => {
                return Err(Failure::Usage(format!(
                    "--table {}: a replicated server has one table; leave the others out",
                    other.name
                )));
            }
        };
        let (certificate, key) = (self.cluster_tls_cert.clone(), self.cluster_tls_key.clone());
        let tls = certificate.zip(key).zip(self.cluster_tls_ca.clone());
        let tls = tls.map(|((certificate, key), ca)| NodeTlsFiles { certificate, key, ca });
        let (node, members) = (self.node_id.unwrap_or_default(), self.initial_cluster.clone());
        let cluster = ClusterOptions {
            encryption: crate::store::keys(),
            table,
            groups: self.groups,
            election_timeout: self.election_timeout,
            join: self.join_options(&options)?,
            tls,
            replaces_users: self.replace_users,
            snapshot_bytes_per_second: self.snapshot_rate,
            max_log_bytes: self.max_log,
            ..ClusterOptions::new(self.cluster_id, node, members, dir.to_owned())
        };
        let own = match &cluster.join {
            Some(join) => Some(join.own),
            None => cluster.members.iter().find(|member| member.node == node).copied(),
        };
        if let Some(own) = own.filter(|_| options.listen.to_string() == DEFAULT_LISTEN) {
            options.listen = own.client;
        }
        // Known once the node has started, and before the server runs.
        let checkpointer: Arc<OnceLock<NodeCheckpointer>> = Arc::default();
        options.backup = self.node_backups(checkpointer.clone())?;
        let server = Server::bind_replicated(&cluster, options)?;
        if let Some(of_node) = server.node_checkpointer() {
            checkpointer.get_or_init(|| of_node);
        }
        let _signals = server.stop_on_signal()?;
        eprintln!("serving {} on {}", dir.display(), server.local_addr());
        if let Some((number, own)) = server.node().zip(own) {
            eprintln!("node {number}, for the other nodes on {}", own.bus);
        }
        if let Some(metrics) = server.metrics_addr() {
            eprintln!("metrics on http://{metrics}/metrics, a console on http://{metrics}/");
        }
        server.run()?;
        Ok(Outcome::Done)
    }

    /// The backups of this node, if there is a place for them.
    fn node_backups(
        &self,
        checkpointer: Arc<OnceLock<NodeCheckpointer>>,
    ) -> Result<Option<BackupOptions>, Failure> {
        let Some(place) = &self.backup else { return Ok(None) };
        let repository = backup::ServedRepository::at(place)?;
        let take = move |repository: &Repository| {
            let Some(node) = checkpointer.get() else { return Err(siltstone::Error::Closed) };
            let checkpoint = |target: &Path| node.checkpoint(target);
            repository.back_up_checkpoint(node.dir(), node.name(), &checkpoint, &mut |_, _| {})
        };
        let take = backup::of_served(repository, self.backup_keep, take);
        Ok(Some(BackupOptions { take, interval: self.backup_interval, archive: None }))
    }

    /// How a new node joins, if it does.
    fn join_options(&self, options: &ServerOptions) -> Result<Option<JoinOptions>, Failure> {
        let Some(seed) = self.join.clone() else { return Ok(None) };
        let own = match self.cluster_announce {
            Some(own) => own,
            None => Member::at(0, &self.listen.to_string()).map_err(Failure::Usage)?,
        };
        let tls = self.join_tls_ca.clone().map(|ca| ClientTlsFiles { ca, own: None });
        let (user, password) = (self.join_user.clone(), options.password.clone());
        let access = NodeAccess { user, password, tls };
        Ok(Some(JoinOptions { seed, access, own }))
    }
}

/// Whether a directory has the catalogue of a store.
fn is_store(dir: &Path) -> bool {
    let entries = dir.read_dir().into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).any(|n| Catalogue::owns(&n))
}
