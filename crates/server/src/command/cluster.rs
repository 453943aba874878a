//! CLUSTER, READONLY and READWRITE: what clients and operators of a Redis Cluster ask.
//!
//! Each group of a replicated table is a shard that owns its slots; with one group these are all.
//! Its master is the leader of the group, its replicas are the other members. What describes a node
//! as a whole (ROLE, INFO) is the view of the first group that it leads, or of the first one.
//!
//! Source: the documentation of Redis's cluster commands; replies of Redis 7.2.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use siltstone_cluster::node::{Role, Status};

use super::cluster_admin;
use super::cluster_keys::{count_keys, get_keys};
use super::context::Context;
use super::definition::{FAST, NO_KEYS};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, bad_subcommand, reply_error, wrong_subcommand_arity};
use super::help;
use crate::replication::Replication;
use crate::replication::groups::Groups;
use crate::replication::options::Member;
use crate::replication::slots::{SLOTS, slot_of};
use crate::resp::Args;

const DISABLED: Failure = reply_error("ERR This instance has cluster support disabled");

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, handler, summary| {
        entry::command("cluster", name, arity, FAST, NO_KEYS, handler, summary)
    };
    vec![
        command("cluster", -2, cluster, "Describes the nodes of a replicated table."),
        command("asking", 1, asking, "Has no effect: slots do not migrate."),
        command("readonly", 1, readonly, "Lets followers answer reads, which may be stale."),
        command("readwrite", 1, readwrite, "Ends READONLY."),
    ]
}

fn groups<'a>(context: &Context<'a>) -> Result<&'a Groups, Failure> {
    context.shared.replication.as_ref().ok_or(DISABLED)
}

/// Nobody is redirected by ASK, so there is nothing to allow.
fn asking(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    groups(context)?;
    context.replies.ok();
    Ok(())
}

fn readonly(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    set_replica_reader(context, true)
}

fn readwrite(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    set_replica_reader(context, false)
}

fn set_replica_reader(context: &mut Context<'_>, is_replica_reader: bool) -> Outcome {
    groups(context)?;
    context.session.is_replica_reader = is_replica_reader;
    context.replies.ok();
    Ok(())
}

fn cluster(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let groups = groups(context)?;
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"info", 2) => context.replies.verbatim(&info(groups)),
        (b"nodes", 2) => {
            let lines: String = nodes(groups).iter().map(|node| node.line.clone() + "\n").collect();
            context.replies.verbatim(&lines);
        }
        (b"replicas" | b"slaves", 3) => replicas(context, groups, &args[2])?,
        (b"myid", 2) => context.replies.bulk(name(groups.first().id()).as_bytes()),
        (b"myshardid", 2) => {
            context.replies.bulk(shard_name(groups.shown()).as_bytes());
        }
        (b"links", 2) => links(context, groups),
        (b"failover", 2 | 3) => return cluster_admin::failover(context, groups, args),
        (b"slots", 2) => slots(context, groups),
        (b"shards", 2) => shards(context, groups),
        (b"keyslot", 3) => context.replies.int(slot_of(&args[2]).into()),
        (b"countkeysinslot", 3) => count_keys(context, groups, &args[2])?,
        (b"getkeysinslot", 4) => get_keys(context, groups, args)?,
        (b"help", 2) => return help::reply(context.replies, "CLUSTER", &HELP),
        (b"status", 2 | 3) => return cluster_admin::status(context, groups, args),
        (b"add-node", 4) => return cluster_admin::add_node(context, groups, args),
        (b"remove-node", 3 | 4) => {
            return cluster_admin::remove_node(context, groups.first(), args);
        }
        (b"move-leader", 3 | 4) => return cluster_admin::move_leader(context, groups, args),
        (b"check", 3..=5) => return cluster_admin::check(context, groups, args),
        (
            b"info" | b"nodes" | b"replicas" | b"slaves" | b"myid" | b"slots" | b"shards"
            | b"keyslot" | b"countkeysinslot" | b"getkeysinslot" | b"status" | b"add-node"
            | b"remove-node" | b"move-leader" | b"check" | b"myshardid" | b"links" | b"failover",
            _,
        ) => return Err(wrong_subcommand_arity("cluster", &args[1])),
        _ => return Err(bad_subcommand("CLUSTER", &args[1])),
    }
    Ok(())
}

/// The name of a node: 40 hexadecimal digits, as Redis's, of which the last are its number.
fn name(node: u64) -> String {
    format!("{node:040x}")
}

/// The name of the shard of a group: 40 hexadecimal digits, as Redis's.
fn shard_name(replication: &Replication) -> String {
    format!("{:040x}", replication.node.status().group)
}

/// The connections to and from other nodes.
fn links(context: &mut Context<'_>, groups: &Groups) {
    let connections = groups.connections();
    let replies = &mut *context.replies;
    replies.array(connections.len());
    for connection in connections {
        let since = connection.opened_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let waiting = connection.waiting_bytes as i64;
        let (direction, events) = if connection.is_outgoing { ("to", "w") } else { ("from", "r") };
        replies.map(6);
        replies.bulk(b"direction");
        replies.bulk(direction.as_bytes());
        replies.bulk(b"node");
        replies.bulk(name(connection.node).as_bytes());
        replies.bulk(b"create-time");
        replies.int(since.as_millis() as i64);
        replies.bulk(b"events");
        replies.bulk(events.as_bytes());
        for field in ["send-buffer-allocated", "send-buffer-used"] {
            replies.bulk(field.as_bytes());
            replies.int(waiting);
        }
    }
}

/// The leader, if it is known and its address is.
fn leader(replication: &Replication, status: &Status) -> Option<Member> {
    let leader = status.leader.as_ref()?.node;
    let is_gone = leader == replication.id() && replication.has_given_up();
    replication.member(leader).filter(|_| !is_gone)
}

/// Whether a node is a member that receives the table and does not answer reads yet.
fn is_loading(status: &Status, node: u64) -> bool {
    status.learners.contains(&node)
}

/// The leader first, then the others.
fn by_role(replication: &Replication, status: &Status) -> Vec<(Member, bool)> {
    let leader = leader(replication, status).map(|leader| leader.node);
    let members = replication.membership.members(status).into_iter();
    let mut members: Vec<_> = members.map(|member| (member, Some(member.node) == leader)).collect();
    members.sort_by_key(|(member, leads)| (!leads, member.node));
    members
}

/// A group with its status and slots, and its leader if it is known.
struct GroupView<'a> {
    replication: &'a Replication,
    status: Arc<Status>,
    slots: RangeInclusive<u16>,
    leader: Option<Member>,
}

fn served(groups: &Groups) -> Vec<GroupView<'_>> {
    let served = groups.iter().enumerate().map(|(group, replication)| {
        let status = replication.node.status();
        let leader = leader(replication, &status);
        GroupView { replication, slots: groups.slots(group), leader, status }
    });
    served.collect()
}

fn info(groups: &Groups) -> String {
    let served = served(groups);
    let serves = |group: &&GroupView<'_>| group.leader.is_some() && group.status.failure.is_none();
    let slots: usize = served.iter().filter(serves).map(|group| group.slots.len()).sum();
    let all = usize::from(SLOTS);
    let leaders: BTreeSet<_> = served.iter().filter_map(|group| Some(group.leader?.node)).collect();
    let term = served.iter().map(|group| group.status.term).max().unwrap_or_default();
    let first = &served[0];
    let publications = groups.publication_counts();
    let mut out = String::new();
    for (field, value) in [
        ("cluster_state", if slots == all { "ok" } else { "fail" }.to_owned()),
        ("cluster_slots_assigned", SLOTS.to_string()),
        ("cluster_slots_ok", slots.to_string()),
        ("cluster_slots_pfail", "0".to_owned()),
        ("cluster_slots_fail", (all - slots).to_string()),
        (
            "cluster_known_nodes",
            first.replication.membership.members(&first.status).len().to_string(),
        ),
        ("cluster_size", leaders.len().max(1).to_string()),
        ("cluster_current_epoch", term.to_string()),
        ("cluster_my_epoch", term.to_string()),
        ("cluster_stats_messages_publish_sent", publications.sent.to_string()),
        ("cluster_stats_messages_publish_received", publications.received.to_string()),
    ] {
        // Writing to a string does not fail.
        let _ = write!(out, "{field}:{value}\r\n");
    }
    out
}

/// The slots of the groups that a node leads, adjacent ones together.
fn slots_of_leader(served: &[GroupView<'_>], node: u64) -> Vec<RangeInclusive<u16>> {
    let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
    let leads = |group: &&GroupView<'_>| group.leader.is_some_and(|leader| leader.node == node);
    for group in served.iter().filter(leads) {
        match ranges.last_mut() {
            Some(last) if last.end() + 1 == *group.slots.start() => {
                *last = *last.start()..=*group.slots.end();
            }
            _ => ranges.push(group.slots.clone()),
        }
    }
    ranges
}

/// A node as CLUSTER NODES shows it.
struct NodeLine {
    node: u64,
    leads: bool,
    line: String,
}

/// A node that leads no group is shown as a replica of the first leader.
fn nodes(groups: &Groups) -> Vec<NodeLine> {
    let served = served(groups);
    let leader = first_leader(&served);
    let term = served.iter().map(|group| group.status.term).max().unwrap_or_default();
    let first = &served[0];
    let line = |member: Member| {
        let ranges = slots_of_leader(&served, member.node);
        let leads = !ranges.is_empty();
        let myself = if member.node == first.replication.id() { "myself," } else { "" };
        let role = if leads { "master" } else { "slave" };
        let master = leader.filter(|_| !leads).map_or("-".to_owned(), name);
        let mut line = format!(
            "{} {}@{} {myself}{role} {master} 0 0 {term} connected",
            name(member.node),
            member.client,
            member.bus.port(),
        );
        for range in ranges {
            // Writing to a string does not fail.
            let _ = write!(line, " {}-{}", range.start(), range.end());
        }
        NodeLine { node: member.node, leads, line }
    };
    first.replication.membership.members(&first.status).into_iter().map(line).collect()
}

fn first_leader(served: &[GroupView<'_>]) -> Option<u64> {
    served.iter().find_map(|group| group.leader).map(|leader| leader.node)
}

/// The nodes that [`nodes`] shows as replicas of `master`.
fn replicas(context: &mut Context<'_>, groups: &Groups, master: &[u8]) -> Outcome {
    let nodes = nodes(groups);
    let found = nodes.iter().find(|node| name(node.node).as_bytes() == master);
    let found = found.ok_or_else(|| {
        let shown = String::from_utf8_lossy(&master[..master.len().min(40)]);
        Failure::Text(format!("ERR Unknown node {shown}").into())
    })?;
    if !found.leads {
        return Err(reply_error("ERR The specified node is not a master"));
    }
    let is_first = first_leader(&served(groups)) == Some(found.node);
    let replicas: Vec<_> = nodes.iter().filter(|node| is_first && !node.leads).collect();
    context.replies.array(replicas.len());
    replicas.iter().for_each(|node| context.replies.bulk(node.line.as_bytes()));
    Ok(())
}

/// The slots of groups without a known leader are left out: nobody serves them at present.
fn slots(context: &mut Context<'_>, groups: &Groups) {
    let served = served(groups);
    let led: Vec<_> = served.iter().filter(|group| group.leader.is_some()).collect();
    let replies = &mut *context.replies;
    replies.array(led.len());
    for GroupView { replication, status, slots, .. } in led {
        let mut members = by_role(replication, status);
        members.retain(|(member, _)| !is_loading(status, member.node));
        replies.array(2 + members.len());
        replies.int((*slots.start()).into());
        replies.int((*slots.end()).into());
        for (member, _) in members {
            replies.array(4);
            replies.bulk(member.client.ip().to_string().as_bytes());
            replies.int(member.client.port().into());
            replies.bulk(name(member.node).as_bytes());
            replies.array(0);
        }
    }
}

/// A shard per group.
fn shards(context: &mut Context<'_>, groups: &Groups) {
    let served = served(groups);
    context.replies.array(served.len());
    served.iter().for_each(|group| shard(context, group));
}

fn shard(context: &mut Context<'_>, group: &GroupView<'_>) {
    let GroupView { replication, status, slots, .. } = group;
    let members = by_role(replication, status);
    let offset = |node: u64| match node == replication.id() {
        true => status.applied,
        false => {
            let peer = status.peers.iter().find(|peer| peer.node == node);
            peer.map_or(0, |peer| peer.matched)
        }
    };
    let replies = &mut *context.replies;
    replies.map(2);
    replies.bulk(b"slots");
    replies.array(2);
    replies.int((*slots.start()).into());
    replies.int((*slots.end()).into());
    replies.bulk(b"nodes");
    replies.array(members.len());
    for (member, leads) in members {
        let role = if leads { "master" } else { "replica" };
        let ip = member.client.ip().to_string();
        replies.map(7);
        replies.bulk(b"id");
        replies.bulk(name(member.node).as_bytes());
        replies.bulk(b"port");
        replies.int(member.client.port().into());
        for (field, value) in [("ip", ip.as_str()), ("endpoint", &ip), ("role", role)] {
            replies.bulk(field.as_bytes());
            replies.bulk(value.as_bytes());
        }
        replies.bulk(b"replication-offset");
        replies.int(offset(member.node) as i64);
        replies.bulk(b"health");
        let health = if is_loading(status, member.node) { "loading" } else { "online" };
        replies.bulk(health.as_bytes());
    }
}

/// The lines of INFO's section on replication.
pub(super) fn replication_info(groups: &Groups, out: &mut String) -> std::fmt::Result {
    if groups.are_several() {
        write!(out, "raft_groups:{}\r\n", groups.len())?;
        for (index, group) in groups.iter().enumerate() {
            let status = group.node.status();
            let leader = status.leader.as_ref().map_or(0, |leader| leader.node);
            write!(out, "raft_group{index}:leader={leader},term={},", status.term)?;
            write!(out, "commit={},applied={}\r\n", status.commit, status.applied)?;
        }
    }
    let replication = groups.shown();
    let status = replication.node.status();
    match leader(replication, &status).filter(|_| status.role != Role::Leader) {
        Some(leader) => {
            write!(out, "role:slave\r\nmaster_host:{}\r\n", leader.client.ip())?;
            write!(out, "master_port:{}\r\nmaster_link_status:up\r\n", leader.client.port())?;
            write!(out, "slave_repl_offset:{}\r\nslave_read_only:1\r\n", status.applied)?;
        }
        None if status.role == Role::Leader => write!(out, "role:master\r\n")?,
        None => write!(out, "role:slave\r\nmaster_link_status:down\r\n")?,
    }
    let others =
        status.peers.iter().filter_map(|peer| Some((replication.member(peer.node)?, peer.matched)));
    let others: Vec<_> = others.collect();
    write!(out, "connected_slaves:{}\r\n", others.len())?;
    for (index, (member, matched)) in others.iter().enumerate() {
        let (ip, port) = (member.client.ip(), member.client.port());
        write!(out, "slave{index}:ip={ip},port={port},state=online,offset={matched}\r\n")?;
    }
    write!(out, "master_failover_state:no-failover\r\n")?;
    write!(out, "master_repl_offset:{}\r\nraft_term:{}\r\n", status.commit, status.term)?;
    write!(out, "raft_log_first:{}\r\nraft_log_last:{}\r\n", status.log.0, status.log.1)?;
    let refused: Vec<_> = status.refused_nodes.iter().map(u64::to_string).collect();
    write!(out, "raft_refused_nodes:{}\r\n", refused.join(","))?;
    let missing: Vec<_> = status.unregistered_at.iter().map(u64::to_string).collect();
    write!(out, "raft_unregistered_at:{}\r\n", missing.join(","))
}

/// The reply to ROLE.
pub(super) fn role(context: &mut Context<'_>, replication: &Replication) {
    let status = replication.node.status();
    let replies = &mut *context.replies;
    if status.role == Role::Leader {
        replies.array(3);
        replies.bulk(b"master");
        replies.int(status.commit as i64);
        let others = status.peers.iter();
        let others: Vec<_> = others
            .filter_map(|peer| Some((replication.member(peer.node)?.client, peer.matched)))
            .collect();
        replies.array(others.len());
        for (client, matched) in others {
            replies.array(3);
            replies.bulk(client.ip().to_string().as_bytes());
            replies.bulk(client.port().to_string().as_bytes());
            replies.bulk(matched.to_string().as_bytes());
        }
        return;
    }
    let leader = leader(replication, &status);
    replies.array(5);
    replies.bulk(b"slave");
    replies.bulk(leader.map_or(String::new(), |l| l.client.ip().to_string()).as_bytes());
    replies.int(leader.map_or(0, |leader| leader.client.port().into()));
    replies.bulk(if leader.is_some() { b"connected" } else { b"connect" });
    replies.int(status.applied as i64);
}

const HELP: [&str; 34] = [
    "ADD-NODE <directory> <ip:port@port>",
    "    Add a new node; `siltstone serve --join` sends it.",
    "CHECK START [<group>] | CHECK RESULT <id> [<group>]",
    "    Begin to compute checksums at all nodes as of one entry of the log; return those of this node.",
    "COUNTKEYSINSLOT <slot>",
    "    Return the number of keys in <slot>.",
    "FAILOVER [FORCE]",
    "    Let this node take over from the leader; FORCE: hold an election.",
    "GETKEYSINSLOT <slot> <count>",
    "    Return at most <count> keys in <slot>.",
    "INFO",
    "    Return information about the cluster.",
    "KEYSLOT <key>",
    "    Return the hash slot for <key>.",
    "LINKS",
    "    Return the connections to and from other nodes.",
    "MOVE-LEADER <node> [<group>]",
    "    Hand the leadership of a group over to a node.",
    "MYID",
    "    Return the node id.",
    "MYSHARDID",
    "    Return the id of the node's shard.",
    "NODES",
    "    Return the nodes, a line each, as Redis Cluster does.",
    "REMOVE-NODE <node> [FORCE]",
    "    Remove a node from the group for all time; its directory stays as it is.",
    "REPLICAS <node>",
    "    Return the replicas of a node, a line each.",
    "SHARDS",
    "    Return information about slot range mappings and the nodes associated with them.",
    "SLOTS",
    "    Return information about slots range mappings.",
    "STATUS [<group>]",
    "    Return what this node knows of a group, by default the first, and of itself.",
];
