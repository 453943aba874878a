//! `cluster backup`: has a node back the cluster up, and waits for the end.

use clap::Args;
use siltstone_server::{NodeClient, Reply};

use super::access::{Access, POLL_INTERVAL};
use crate::interrupt::Interrupt;
use crate::outcome::{CommandResult, Failure, Outcome};

/// Have a node back up the whole cluster into its repository, and wait until it has
///
/// The node is the one at the address, and was started with --backup. The backup has every write
/// that was acknowledged before the command. The user needs the rights for BGSAVE and INFO. Exit
/// status 3 if the backup fails; the node's log says why. An interrupted command leaves the node to
/// complete its backup.
#[derive(Args)]
pub(super) struct Backup {
    #[command(flatten)]
    access: Access,
}

impl Backup {
    pub(super) fn run(self) -> CommandResult {
        let interrupt = Interrupt::watch()?;
        let (access, address) = (self.access.node_access(), &self.access.address);
        let mut node = NodeClient::connect(address, &access).map_err(Failure::Store)?;
        let failed = |reason: &str| Failure::Store(format!("{address}: {reason}"));
        let before = info(&mut node).map_err(|reason| failed(&reason))?;
        let number = |text: &str, field| value(text, field).and_then(|n| n.parse::<u64>().ok());
        if number(&before, "siltstone_backup_repository") != Some(1) {
            return Err(Failure::Usage(format!(
                "{address}: this server has no repository for backups; start it with --backup \
                 REPOSITORY"
            )));
        }
        let reply = node.call(&["BGSAVE"]).map_err(|reason| failed(&reason))?;
        if let Reply::Error(text) = reply {
            return Err(failed(text.strip_prefix("ERR ").unwrap_or(&text)));
        }
        let text = loop {
            interrupt.check()?;
            let text = info(&mut node).map_err(|reason| failed(&reason))?;
            if number(&text, "rdb_bgsave_in_progress") == Some(0) {
                break text;
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        if value(&text, "rdb_last_bgsave_status") != Some("ok") {
            return Err(failed("the backup has failed; the node's log says why"));
        }
        let seconds = number(&text, "rdb_last_bgsave_time_sec").unwrap_or_default();
        println!("{address}: the backup is complete, after {seconds} s");
        Ok(Outcome::Done)
    }
}

fn info(node: &mut NodeClient) -> Result<String, String> {
    match node.call(&["INFO", "persistence"])? {
        Reply::Bulk(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        reply => Err(reply.to_text()),
    }
}

/// The value of a field of INFO.
fn value<'t>(text: &'t str, field: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
}
