//! `cluster check`: compares the tables of all nodes as of one entry of the log.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use siltstone::options::parse_duration;
use siltstone_server::{NodeAccess, NodeClient, Reply};

use super::access::{Access, POLL_INTERVAL};
use super::nodes::{call_leader, leader_status};
use crate::interrupt::Interrupt;
use crate::outcome::{CommandResult, Failure, Outcome};

/// Buckets that are named if they differ.
const MAX_NAMED: usize = 8;

/// Compare the tables of all nodes as of one entry of the log (exit status 1 if they differ)
///
/// Each node reads its whole table while it serves. Keys that expire within an hour are not
/// compared. A node that does not answer, or has skipped the entry by a snapshot, is not compared,
/// which is reported and counts as a difference.
#[derive(Args)]
pub(super) struct Check {
    #[command(flatten)]
    access: Access,
    /// How long to wait for the nodes' checksums
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1h")]
    timeout: Duration,
}

/// Rows and checksum of each bucket.
type Buckets = BTreeMap<u64, (u64, String)>;

impl Check {
    pub(super) fn run(self) -> CommandResult {
        let interrupt = Interrupt::watch()?;
        let (access, address) = (self.access.node_access(), &self.access.address);
        let groups = leader_status(&access, address, 0)?.groups;
        let mut is_same = true;
        for group in 0..groups {
            if groups > 1 {
                print!("group {group}: ");
            }
            is_same &= self.check_group(&access, address, group, &interrupt)?;
        }
        Ok(if is_same { Outcome::Done } else { Outcome::No })
    }

    /// Compares the tables of a group; whether all nodes have the same rows.
    fn check_group(
        &self,
        access: &NodeAccess,
        address: &str,
        group: u64,
        interrupt: &Interrupt,
    ) -> Result<bool, Failure> {
        let leader = leader_status(access, address, group)?;
        let number = group.to_string();
        let start = ["CLUSTER", "CHECK", "START", &number];
        // Earlier versions have one group, and no such argument.
        let start = if group == 0 { &start[..3] } else { &start[..] };
        let id = call_leader(access, address, start)?.to_text();
        let deadline = Instant::now() + self.timeout;
        let mut tables: BTreeMap<u64, Result<Buckets, String>> = BTreeMap::new();
        for member in &leader.members {
            let node = member.client.to_string();
            let table = loop {
                interrupt.check()?;
                match result(access, &node, &id, group) {
                    Some(table) => break table,
                    None if Instant::now() > deadline => {
                        break Err("it has no checksums in time".to_owned());
                    }
                    None => std::thread::sleep(POLL_INTERVAL),
                }
            };
            tables.insert(member.node, table);
        }
        Ok(report(&tables))
    }
}

/// The checksums of a node; `None` if it does not have them yet.
fn result(
    access: &NodeAccess,
    node: &str,
    id: &str,
    group: u64,
) -> Option<Result<Buckets, String>> {
    let number = group.to_string();
    let words = ["CLUSTER", "CHECK", "RESULT", id, &number];
    let words = if group == 0 { &words[..4] } else { &words[..] };
    let called = NodeClient::connect(node, access).and_then(|mut client| client.call(words));
    match called {
        Err(problem) => Some(Err(problem)),
        Ok(Reply::Error(text)) => Some(Err(text)),
        Ok(Reply::Bulk(text)) => Some(Ok(parse(&String::from_utf8_lossy(&text)))),
        Ok(_) => None,
    }
}

fn parse(text: &str) -> Buckets {
    let row = |line: &str| {
        let mut words = line.split(' ');
        let (bucket, rows) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((bucket, (rows, words.next()?.to_owned())))
    };
    text.lines().filter_map(row).collect()
}

/// Prints the result; whether all nodes have the same rows.
fn report(tables: &BTreeMap<u64, Result<Buckets, String>>) -> bool {
    let mut is_same = true;
    let compared: Vec<_> =
        tables.iter().filter_map(|(node, table)| Some((*node, table.as_ref().ok()?))).collect();
    for (node, table) in tables {
        if let Err(problem) = table {
            println!("node {node} is not compared: {problem}");
            is_same = false;
        }
    }
    let buckets: std::collections::BTreeSet<_> =
        compared.iter().flat_map(|(_, table)| table.keys()).collect();
    let differs = |bucket: &&&u64| {
        compared.windows(2).any(|pair| pair[0].1.get(bucket) != pair[1].1.get(bucket))
    };
    let different: Vec<_> = buckets.iter().filter(differs).collect();
    for bucket in different.iter().take(MAX_NAMED) {
        let of_node = |(node, table): &(u64, &Buckets)| {
            let (rows, sum) = table.get(bucket).cloned().unwrap_or_default();
            format!("node {node} has {rows} rows, {sum}")
        };
        let nodes: Vec<_> = compared.iter().map(of_node).collect();
        println!("rows differ in part {bucket} of {}: {}", buckets.len(), nodes.join("; "));
    }
    if let Some(more) = different.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        println!("and in {more} more parts");
    }
    if !different.is_empty() {
        println!(
            "remove the node that differs from the majority, and let it join again in an empty \
             directory; keep its old directory for a report"
        );
        return false;
    }
    let rows: u64 = compared.first().map_or(0, |(_, table)| table.values().map(|row| row.0).sum());
    println!("{} nodes have the same {rows} rows", compared.len());
    is_same
}
