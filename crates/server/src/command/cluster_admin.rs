//! The subcommands of CLUSTER for operators and for nodes that join.
//!
//! ADD-NODE, REMOVE-NODE, MOVE-LEADER and CHECK START run at the leader; other nodes answer with
//! `MOVED`. Nodes are added to the first group and removed from it; the others follow. All may be
//! repeated. They start a change and reply at once, and the client polls until it is done: no
//! command waits for a commit here.

use std::fmt::Write;

use siltstone_cluster::node::{Role, Status};
use siltstone_cluster::{Change, POINT_KEY};
use siltstone_engine::{Clock, WriteBatch};

use super::context::Context;
use super::failure::{Failure, NOT_AN_INTEGER, Outcome, SYNTAX, reply_error};
use super::redirection::redirect;
use crate::process;
use crate::replication::digest::{self, Digest};
use crate::replication::groups::Groups;
use crate::replication::join::GROUPS_PREFIX;
use crate::replication::membership::Addition;
use crate::replication::options::Member;
use crate::replication::{Replication, State, placement};
use crate::resp::Args;
use crate::resp::number::parse_u64;

/// The status of the leader, this node.
fn leading(replication: &Replication) -> Result<std::sync::Arc<Status>, Failure> {
    let status = replication.node.status();
    match status.role == Role::Leader && matches!(replication.state(), State::Leading { .. }) {
        true => Ok(status),
        false => Err(redirect(replication, &status, 0)),
    }
}

/// The group that an optional argument names, and its number; by default the first.
fn group<'a>(
    groups: &'a Groups,
    args: Args<'_>,
    at: usize,
) -> Result<(u64, &'a Replication), Failure> {
    let number = args.get(at).map_or(Some(0), parse_u64).ok_or(NOT_AN_INTEGER)?;
    match groups.find(number) {
        Some(group) => Ok((number, group)),
        None => Err(refusal(format!("there is no group {number}; there are {}", groups.len()))),
    }
}

fn node(args: Args<'_>) -> Result<u64, Failure> {
    parse_u64(&args[2]).ok_or(NOT_AN_INTEGER)
}

fn refusal(text: String) -> Failure {
    format!("ERR {text}").into()
}

/// ADD-NODE directory address
pub(super) fn add_node(context: &mut Context<'_>, groups: &Groups, args: Args<'_>) -> Outcome {
    let replication = groups.first();
    let status = leading(replication)?;
    let text = |at: usize| std::str::from_utf8(&args[at]).map_err(|_| SYNTAX);
    let directory = u64::from_str_radix(text(2)?, 16).map_err(|_| SYNTAX)?;
    // The group gives it its number.
    let member = Member::at(0, text(3)?).map_err(refusal)?;
    match replication.membership.add(directory, member).map_err(refusal)? {
        Addition::Waiting => context.replies.simple("WAIT"),
        Addition::Added(node) => {
            let members = replication.membership.members(&status);
            context.replies.array(2 + usize::from(groups.are_several()) + members.len());
            context.replies.int(status.group as i64);
            context.replies.int(node as i64);
            if groups.are_several() {
                context.replies.bulk(format!("{GROUPS_PREFIX}{}", groups.len()).as_bytes());
            }
            members.iter().for_each(|member| context.replies.bulk(member.to_string().as_bytes()));
        }
    }
    Ok(())
}

/// REMOVE-NODE node [FORCE]
pub(super) fn remove_node(
    context: &mut Context<'_>,
    replication: &Replication,
    args: Args<'_>,
) -> Outcome {
    let (status, node) = (leading(replication)?, node(args)?);
    let is_forced = match args.get(3) {
        None => false,
        Some(word) if word.eq_ignore_ascii_case(b"force") => true,
        Some(_) => return Err(SYNTAX),
    };
    if !status.voters.contains(&node) && !status.learners.contains(&node) {
        context.replies.int(0);
        return Ok(());
    }
    let checked = replication.membership.check_removal(&status, node);
    if node == replication.id() || !is_forced {
        checked.map_err(refusal)?;
    }
    replication.node.change_membership(vec![Change::Remove(node)], move |outcome| {
        process::log(&match outcome {
            Ok(_) => format!("node {node} is removed from the group"),
            Err(error) => format!("removing node {node}: {error}"),
        });
    });
    context.replies.int(1);
    Ok(())
}

/// MOVE-LEADER node [group]. With several groups the node is the preferred leader from then on.
pub(super) fn move_leader(context: &mut Context<'_>, groups: &Groups, args: Args<'_>) -> Outcome {
    let (_, replication) = group(groups, args, 3)?;
    let (status, node) = (leading(replication)?, node(args)?);
    if !status.voters.contains(&node) {
        return Err(refusal(format!("node {node} is no voter of the group")));
    }
    if !replication.membership.is_alive(node) {
        return Err(refusal(format!("node {node} cannot be reached")));
    }
    let hand_over = {
        let (own, handle) = (replication.id(), replication.node.clone());
        move || {
            if node != own {
                handle.transfer_leader(node, |outcome| {
                    if let Err(refusal) = outcome {
                        process::log(&format!("moving the leadership: {refusal}"));
                    }
                });
            }
        }
    };
    if groups.are_several() {
        let mut batch = WriteBatch::new();
        placement::prefer(&mut batch, node);
        replication.node.propose(None, batch, move |outcome| match outcome {
            Ok(_) => hand_over(),
            Err(error) => process::log(&format!("moving the leadership: {error}")),
        });
    } else {
        hand_over();
    }
    context.replies.ok();
    Ok(())
}

/// FAILOVER [FORCE | TAKEOVER], at a follower. With several groups a node is a follower in some,
/// and each of them has a preferred leader: MOVE-LEADER names it.
pub(super) fn failover(context: &mut Context<'_>, groups: &Groups, args: Args<'_>) -> Outcome {
    let is_forced = match args.get(2).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None => false,
        Some(b"force") => true,
        Some(b"takeover") => {
            return Err(reply_error(
                "ERR TAKEOVER is refused: a leader needs a majority of its group; use FORCE, or \
                 start the missing nodes",
            ));
        }
        Some(_) => return Err(SYNTAX),
    };
    if groups.are_several() {
        return Err(reply_error(
            "ERR with several groups use CLUSTER MOVE-LEADER <node> <group> at the leader",
        ));
    }
    let replication = groups.first();
    let status = replication.node.status();
    match status.role {
        Role::Leader => {
            return Err(reply_error("ERR You should send CLUSTER FAILOVER to a replica"));
        }
        Role::Follower | Role::Candidate => {}
        Role::Learner | Role::Outsider => {
            return Err(reply_error("ERR this node does not vote yet; try again later"));
        }
    }
    if status.leader.is_none() && !is_forced {
        return Err(reply_error("ERR Master is down or failed, please use CLUSTER FAILOVER FORCE"));
    }
    replication.node.take_over(is_forced, |outcome| {
        if let Err(refusal) = outcome {
            process::log(&format!("taking over: {refusal}"));
        }
    });
    context.replies.ok();
    Ok(())
}

/// CHECK START [group], CHECK RESULT id [group]
pub(super) fn check(context: &mut Context<'_>, groups: &Groups, args: Args<'_>) -> Outcome {
    match (args[2].to_ascii_lowercase().as_slice(), args.len()) {
        (b"start", 3 | 4) => {
            let (_, replication) = group(groups, args, 3)?;
            leading(replication)?;
            // Unique as long as the group's time goes on.
            let time = replication.clock.now();
            let id = (time << 8) | u64::from(replication.id() as u8);
            let mut batch = WriteBatch::new();
            batch.put(POINT_KEY, &digest::encode(id, time));
            replication.node.propose(None, batch, |outcome| {
                if let Err(error) = outcome {
                    process::log(&format!("a comparison of the nodes: {error}"));
                }
            });
            context.replies.bulk(id.to_string().as_bytes());
        }
        (b"result", 4 | 5) => {
            let (_, replication) = group(groups, args, 4)?;
            let id = parse_u64(&args[3]).ok_or(NOT_AN_INTEGER)?;
            match replication.digests.get(id) {
                None => context.replies.null(),
                Some(Digest::Running) => context.replies.simple("RUNNING"),
                Some(Digest::Failed(reason)) => {
                    return Err(refusal(format!("this node has no checksums: {reason}")));
                }
                Some(Digest::Done(text)) => context.replies.bulk(text.as_bytes()),
            }
        }
        _ => return Err(reply_error("ERR CHECK is followed by START, or by RESULT and an id")),
    }
    Ok(())
}

/// STATUS [group]
pub(super) fn status(context: &mut Context<'_>, groups: &Groups, args: Args<'_>) -> Outcome {
    let (number, replication) = group(groups, args, 2)?;
    let mut text = String::new();
    if groups.are_several() {
        // Writing to a string does not fail.
        let _ = write!(text, "groups:{}\r\nindex:{number}\r\n", groups.len());
    }
    text.push_str(&of_group(replication, &replication.node.status()));
    context.replies.verbatim(&text);
    Ok(())
}

/// The state of a group as this node knows it, a field per line.
fn of_group(replication: &Replication, status: &Status) -> String {
    let mut out = String::new();
    let list = |nodes: &[u64]| nodes.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let table_bytes = replication.node.table().stats().space_bytes;
    for (field, value) in [
        ("group", status.group.to_string()),
        ("node", status.node.to_string()),
        ("role", role(status).to_owned()),
        ("term", status.term.to_string()),
        ("leader", status.leader.as_ref().map_or(String::new(), |leader| leader.node.to_string())),
        ("commit", status.commit.to_string()),
        ("applied", status.applied.to_string()),
        ("log_first", status.log.0.to_string()),
        ("log_last", status.log.1.to_string()),
        ("log_bytes", status.log_bytes.to_string()),
        ("table_bytes", table_bytes.to_string()),
        ("snapshots", status.snapshots.to_string()),
        ("given_up_followers", status.given_up_followers.to_string()),
        ("voters", list(&status.voters)),
        ("learners", list(&status.learners)),
        ("refused_nodes", list(&status.refused_nodes)),
        ("refused_by", list(&status.refused_by)),
        ("unregistered_at", list(&status.unregistered_at)),
        ("node_tls", if replication.tls.is_some() { "yes" } else { "no" }.to_owned()),
        ("failure", status.failure.clone().unwrap_or_default().replace('\n', " ")),
    ] {
        // Writing to a string does not fail.
        let _ = write!(out, "{field}:{value}\r\n");
    }
    for member in replication.membership.members(status) {
        let _ = write!(out, "member:{member}\r\n");
    }
    for peer in &status.peers {
        let is_alive = replication.membership.is_alive(peer.node);
        let _ = write!(
            out,
            "peer:node={},matched={},lag={},alive={},snapshot={}\r\n",
            peer.node,
            peer.matched,
            peer.lag,
            u8::from(is_alive),
            u8::from(peer.is_receiving_snapshot),
        );
    }
    out
}

fn role(status: &Status) -> &'static str {
    match status.role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Learner => "learner",
        Role::Outsider => "outsider",
    }
}
