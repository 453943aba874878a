//! `cluster status`: prints role, progress and size of each node, and who leads each group.

use clap::Args;
use siltstone_server::{Member, NodeAccess};

use super::access::Access;
use super::nodes::NodeStatus;
use crate::outcome::{CommandResult, Failure, Outcome};

/// Show the nodes of a group: who leads, who lags behind, how large they are
///
/// Exit status 1 if a node is missing or the group has no leader.
#[derive(Args)]
pub(super) struct ShowStatus {
    #[command(flatten)]
    access: Access,
}

impl ShowStatus {
    pub(super) fn run(self) -> CommandResult {
        let access = self.access.node_access();
        let contact = NodeStatus::of(&access, &self.access.address, 0).map_err(Failure::Store)?;
        let statuses = statuses(&access, &contact.members, 0);
        let answers = || statuses.iter().filter_map(|(_, status)| status.as_ref().ok());
        let leader = leader(&statuses);
        if contact.groups > 1 {
            println!("{} groups; the nodes in group 0:", contact.groups);
        }
        let number = if contact.groups > 1 { 0 } else { contact.group };
        println!("{}", headline(&contact, &statuses, number));
        println!("");
        println!(
            "  {:>4}  {:<10}{:<28}{:>12}{:>10}{:>10}{:>10}",
            "node", "role", "address", "applied", "lag", "log", "table"
        );
        for (member, status) in &statuses {
            let mark =
                if leader.is_some_and(|leader| leader.node == member.node) { '*' } else { ' ' };
            let start = format!("{mark} {:>4}", member.node);
            let address = member.address();
            match status {
                Err(problem) => println!("{start}  {:<10}{address:<28}{problem}", "missing"),
                Ok(status) => {
                    let peer = leader.and_then(|leader| {
                        leader.peers.iter().find(|peer| peer.node == member.node)
                    });
                    let lag = match peer {
                        Some(peer) if peer.is_receiving_snapshot => "snapshot".to_owned(),
                        Some(peer) => peer.lag.to_string(),
                        None if mark == '*' => "0".to_owned(),
                        None => "?".to_owned(),
                    };
                    println!(
                        "{start}  {:<10}{address:<28}{:>12}{lag:>10}{:>10}{:>10}",
                        status.role,
                        status.applied,
                        format_bytes(status.log_bytes),
                        format_bytes(status.table_bytes)
                    );
                }
            }
        }
        for status in answers() {
            if !status.failure.is_empty() {
                println!("node {} has failed: {}", status.node, status.failure);
            }
            for missing in &status.unregistered_at {
                println!(
                    "node {} waits for the first start of node {missing}: a group begins once each \
                     of its first nodes has been started",
                    status.node
                );
            }
            for other in &status.refused_by {
                println!(
                    "node {} is refused by node {other}, which knows it by another directory",
                    status.node
                );
            }
            for refused in &status.refused_nodes {
                println!(
                    "node {} refuses node {refused}: it runs on another directory than before; \
                     remove it, and let it join in an empty directory",
                    status.node
                );
            }
        }
        let mut is_whole = leader.is_some() && answers().count() == statuses.len();
        for group in 1..contact.groups {
            let statuses = self::statuses(&access, &contact.members, group);
            println!("{}", headline(&contact, &statuses, group));
            is_whole &= self::leader(&statuses).is_some();
        }
        Ok(if is_whole { Outcome::Done } else { Outcome::No })
    }
}

/// The members of a group, each with its status or the reason why there is none.
type Statuses = Vec<(Member, Result<NodeStatus, String>)>;

fn statuses(access: &NodeAccess, members: &[Member], group: u64) -> Statuses {
    let of = |member: &Member| NodeStatus::of(access, &member.client.to_string(), group);
    members.iter().map(|member| (*member, of(member))).collect()
}

/// The status of the leader. Of several terms the last one counts.
fn leader(statuses: &Statuses) -> Option<&NodeStatus> {
    let answers = statuses.iter().filter_map(|(_, status)| status.as_ref().ok());
    answers.filter(|status| status.role == "leader").max_by_key(|status| status.term)
}

/// The state of a group in one line. `contact` is the status of the node that the user named.
fn headline(contact: &NodeStatus, statuses: &Statuses, group: u64) -> String {
    let leader = leader(statuses);
    let voters = leader.unwrap_or(contact).voters.clone();
    let answers = statuses.iter().filter_map(|(_, status)| status.as_ref().ok());
    let up = answers.filter(|status| voters.contains(&status.node)).count();
    let spare = up as i64 - (voters.len() as i64 / 2 + 1);
    let voters = voters.len();
    let Some(leader) = leader else {
        return format!(
            "group {group} has no leader: {up} of {voters} voters answer, and a majority is needed; \
             start the others"
        );
    };
    let safety = match spare {
        ..=0 => "no further node may fail".to_owned(),
        1 => "1 more node may fail".to_owned(),
        spare => format!("{spare} more nodes may fail"),
    };
    format!(
        "group {group}, term {}: node {} leads, {up} of {voters} voters answer, {safety}",
        leader.term, leader.node
    )
}

/// Bytes as text, e.g. `1.5GiB`.
fn format_bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes}B"),
        _ => format!("{value:.1}{}", units[unit]),
    }
}
