//! `cluster check`: compares the tables of all nodes as of one entry of the log.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use siltstone::options::parse_duration;
use siltstone_server::{NodeAccess, NodeClient, Reply};

use super::access::{Access, POLL_INTERVAL};
use super::nodes::{NodeStatus, call_leader, leader_status};
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

/// What a node says of an entry.
enum Answer {
    /// Its checksums, or why there are none.
    Table(Result<Buckets, String>),
    /// It reads its table.
    Running,
    /// It has not applied the entry, or not lately.
    Unknown,
}

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
        // The leader first: what it has applied then includes the entry.
        let mut members = leader.members.clone();
        members.sort_by_key(|member| member.node != leader.node);
        let mut applied = None;
        for member in &members {
            let node = member.client.to_string();
            let table = loop {
                interrupt.check()?;
                let status = NodeStatus::of(access, &node, group);
                let answer = result(access, &node, &id, group);
                let status = status.ok().filter(|_| matches!(answer, Answer::Unknown));
                if let Some(reason) = status.and_then(|status| why_never(&status, &leader, applied))
                {
                    break Err(reason);
                }
                match answer {
                    Answer::Table(table) => break table,
                    Answer::Running | Answer::Unknown if Instant::now() > deadline => {
                        break Err("it has no checksums in time".to_owned());
                    }
                    Answer::Running | Answer::Unknown => std::thread::sleep(POLL_INTERVAL),
                }
            };
            let is_leader = member.node == leader.node;
            if is_leader {
                applied = NodeStatus::of(access, &node, group).ok().map(|status| status.applied);
            }
            let is_lost = is_leader && table.is_err();
            tables.insert(member.node, table);
            if is_lost {
                break;
            }
        }
        Ok(report(&tables))
    }
}

/// Why a node that does not know the entry will not have its checksums, as far as its status shows
/// that. `applied` is what the leader had applied when it had the entry.
fn why_never(status: &NodeStatus, leader: &NodeStatus, applied: Option<u64>) -> Option<String> {
    if status.node == leader.node {
        let leads = status.role == "leader" && status.term == leader.term;
        let reason = "it has lost the leadership before the entry was committed; check again";
        return (!leads).then(|| reason.to_owned());
    }
    let is_behind = applied.is_none_or(|applied| status.applied < applied);
    let reason =
        "it was started since, or has received a snapshot in place of the entry; check again";
    (!is_behind).then(|| reason.to_owned())
}

/// The checksums of a node, if it has them.
fn result(access: &NodeAccess, node: &str, id: &str, group: u64) -> Answer {
    let number = group.to_string();
    let words = ["CLUSTER", "CHECK", "RESULT", id, &number];
    let words = if group == 0 { &words[..4] } else { &words[..] };
    let called = NodeClient::connect(node, access).and_then(|mut client| client.call(words));
    match called {
        Err(problem) => Answer::Table(Err(problem)),
        Ok(Reply::Error(text)) => Answer::Table(Err(text)),
        Ok(Reply::Bulk(text)) => Answer::Table(Ok(parse(&String::from_utf8_lossy(&text)))),
        Ok(Reply::Null) => Answer::Unknown,
        Ok(_) => Answer::Running,
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
