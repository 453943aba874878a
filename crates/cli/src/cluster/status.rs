//! `cluster status`: a picture of the nodes of a group.

use clap::Args;

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
        let access = self.access.of_node();
        let asked = NodeStatus::of(&access, &self.access.address).map_err(Failure::Store)?;
        let statuses: Vec<_> = asked
            .members
            .iter()
            .map(|member| (*member, NodeStatus::of(&access, &member.client.to_string())))
            .collect();
        let answers = || statuses.iter().filter_map(|(_, status)| status.as_ref().ok());
        // Of several terms the last one counts.
        let leader = answers().filter(|status| status.role == "leader").max_by_key(|s| s.term);
        let voters = leader.unwrap_or(&asked).voters.clone();
        let up = answers().filter(|status| voters.contains(&status.node)).count();
        let spare = up as i64 - (voters.len() as i64 / 2 + 1);
        println!("{}", headline(&asked, leader, voters.len(), up, spare));
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
                        size(status.log_bytes),
                        size(status.table_bytes)
                    );
                }
            }
        }
        for status in answers() {
            if !status.failure.is_empty() {
                println!("node {} has failed: {}", status.node, status.failure);
            }
            for refused in &status.refused_nodes {
                println!(
                    "node {} refuses node {refused}: it runs on another directory than before; \
                     remove it, and let it join in an empty directory",
                    status.node
                );
            }
        }
        let is_whole = leader.is_some() && answers().count() == statuses.len();
        Ok(if is_whole { Outcome::Done } else { Outcome::No })
    }
}

fn headline(
    asked: &NodeStatus,
    leader: Option<&NodeStatus>,
    voters: usize,
    up: usize,
    spare: i64,
) -> String {
    let group = asked.group;
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

/// Bytes for people.
fn size(bytes: u64) -> String {
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
