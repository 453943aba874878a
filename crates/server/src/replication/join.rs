//! A new node asks the group to be added.
//!
//! ```text
//!   new node                                          leader
//!   CLUSTER ADD-NODE directory address ──────────▶    row with the address, then a learner
//!                     ◀──────────────── WAIT          (asked again until it is one)
//!                     ◀──────── group, number, number of groups, members
//!   node without members, which receives snapshot and log
//! ```
//!
//! The directory's random id makes it one node however often it asks: a node that is interrupted
//! here asks again when it is started again, and gets the same number.

use std::time::{Duration, Instant};

use siltstone_engine::{Error, Result};

use super::options::{JoinOptions, Member};
use crate::node_client::Reply;

const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// How long a node tries to reach a group that does not answer.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Begins the part of the reply with the number of groups. It is left out for one group, so that
/// earlier programs can join.
pub(crate) const GROUPS_PREFIX: &str = "groups=";

/// The reply to a node that joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinReply {
    pub(crate) group: u64,
    pub(crate) node: u64,
    /// The number of groups.
    pub(crate) groups: u16,
    pub(crate) members: Vec<Member>,
}

/// Asks until the group has added the node of this directory.
///
/// # Errors
/// `Invalid` with the group's refusal, or if it cannot be reached.
pub(crate) fn join(options: &JoinOptions, directory: u64) -> Result<JoinReply> {
    let (directory, address) = (format!("{directory:016x}"), options.own.address());
    let command = ["CLUSTER", "ADD-NODE", &directory, &address];
    let JoinOptions { seed, access, .. } = options;
    let refused = |text: String| Error::Invalid(format!("joining through {seed}: {text}"));
    let deadline = Instant::now() + JOIN_TIMEOUT;
    while Instant::now() < deadline {
        let seeds = std::slice::from_ref(seed);
        match access.call_leader(seeds, &command, JOIN_TIMEOUT).map_err(refused)? {
            Reply::Array(parts) => {
                let decoded = decode(&parts);
                return decoded.ok_or_else(|| refused("the reply is malformed".into()));
            }
            Reply::Simple(_) => std::thread::sleep(RETRY_INTERVAL),
            other => return Err(refused(other.to_text())),
        }
    }
    let seconds = JOIN_TIMEOUT.as_secs();
    Err(refused(format!("the group has not added this node within {seconds} s; try again")))
}

fn decode(parts: &[Reply]) -> Option<JoinReply> {
    let [group, node, members @ ..] = parts else { return None };
    let (mut groups, mut members) = (1, members);
    if let Some((first, rest)) = members.split_first()
        && let Some(number) = first.to_text().strip_prefix(GROUPS_PREFIX)
    {
        (groups, members) = (number.parse().ok()?, rest);
    }
    let members = members.iter().map(|member| member.to_text().parse().ok());
    Some(JoinReply {
        group: group.to_text().parse().ok()?,
        node: node.to_text().parse().ok()?,
        groups,
        members: members.collect::<Option<_>>()?,
    })
}
