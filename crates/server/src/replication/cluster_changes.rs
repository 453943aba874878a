//! Changes of users and of libraries of functions, as a node asks the leader of the first group for
//! them.
//!
//! ```text
//!   ACL SETUSER, FUNCTION LOAD at any node ─▶ Request ══▶ leader: reads, proposes the changed rows
//!                                  reply  ◀── Answer ◀══          once they are committed
//! ```
//!
//! Both are messages between nodes ([`siltstone_cluster::NodeMessage`]), over the connections that
//! also carry the log, so no user takes part. Passwords in them are hashed already. All integers
//! are little endian.
//!
//! ```text
// ANCHOR: layout
//! message := version:u8  1:u8 request  number:u64  change
//!          | version:u8  2:u8 answer   number:u64  outcome
//! change  := 1:u8 set  allows_channels:u8  text name  list rules
//!          | 2:u8 remove  list names
//!          | 3:u8 replace  list lines                of the file of users
//!          | 4:u8 libraries  list words              of FUNCTION, from LOAD, DELETE … on
//! outcome := 1:u8 done  index:u64  count:u64 | 2:u8 refused  text reason
//!          | 3:u8 not now | 4:u8 unknown
//! text    := len:u32  bytes[len]
//! list    := count:u32  text[count]
// ANCHOR_END: layout
//! ```
//!
//! The version is 1. A message of another version, or with another change, is ignored: the asking
//! node then does not know the outcome.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;

const VERSION: u8 = 1;

/// A change of what all nodes have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClusterChange {
    /// Creates or changes a user by rules. `allows_channels`: a new user may use all channels.
    Set { name: Vec<u8>, rules: Vec<Vec<u8>>, allows_channels: bool },
    /// Removes users.
    Remove(Vec<Vec<u8>>),
    /// Replaces all users by those of these lines of the file of users.
    Replace(Vec<Vec<u8>>),
    /// Changes libraries of functions by a command FUNCTION, whose words these are from the second
    /// on.
    Libraries(Vec<Vec<u8>>),
}

/// What has become of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangeOutcome {
    /// It is committed at this index of the log, or before it; `count` users or libraries are
    /// affected.
    Done { index: u64, count: u64 },
    /// It is wrong, and has changed nothing.
    Refused(String),
    /// It has changed nothing: that node does not lead, or there are no users yet.
    NotNow,
    /// It is committed now, later or never.
    Unknown,
}

/// A message between nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    Request(u64, ClusterChange),
    Answer(u64, ChangeOutcome),
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Message::Request(number, change) => {
                out.push(1);
                out.extend_from_slice(&number.to_le_bytes());
                match change {
                    ClusterChange::Set { name, rules, allows_channels } => {
                        out.extend_from_slice(&[1, u8::from(*allows_channels)]);
                        push_text(&mut out, name);
                        push_list(&mut out, rules);
                    }
                    ClusterChange::Remove(names) => {
                        out.push(2);
                        push_list(&mut out, names);
                    }
                    ClusterChange::Replace(lines) => {
                        out.push(3);
                        push_list(&mut out, lines);
                    }
                    ClusterChange::Libraries(words) => {
                        out.push(4);
                        push_list(&mut out, words);
                    }
                }
            }
            Message::Answer(number, outcome) => {
                out.push(2);
                out.extend_from_slice(&number.to_le_bytes());
                match outcome {
                    ChangeOutcome::Done { index, count } => {
                        out.push(1);
                        out.extend_from_slice(&index.to_le_bytes());
                        out.extend_from_slice(&count.to_le_bytes());
                    }
                    ChangeOutcome::Refused(reason) => {
                        out.push(2);
                        push_text(&mut out, reason.as_bytes());
                    }
                    ChangeOutcome::NotNow => out.push(3),
                    ChangeOutcome::Unknown => out.push(4),
                }
            }
        }
        out
    }

    /// `None` for malformed bytes and other versions.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let at = &mut bytes.strip_prefix(&[VERSION])?;
        let (kind, number) = (take::<1>(at)?[0], u64::from_le_bytes(take(at)?));
        let message = match (kind, take::<1>(at)?[0]) {
            (1, 1) => {
                let allows_channels = take::<1>(at)?[0] != 0;
                let (name, rules) = (take_text(at)?, take_list(at)?);
                Message::Request(number, ClusterChange::Set { name, rules, allows_channels })
            }
            (1, 2) => Message::Request(number, ClusterChange::Remove(take_list(at)?)),
            (1, 3) => Message::Request(number, ClusterChange::Replace(take_list(at)?)),
            (1, 4) => Message::Request(number, ClusterChange::Libraries(take_list(at)?)),
            (2, outcome) => Message::Answer(
                number,
                match outcome {
                    1 => {
                        let index = u64::from_le_bytes(take(at)?);
                        ChangeOutcome::Done { index, count: u64::from_le_bytes(take(at)?) }
                    }
                    2 => ChangeOutcome::Refused(String::from_utf8(take_text(at)?).ok()?),
                    3 => ChangeOutcome::NotNow,
                    4 => ChangeOutcome::Unknown,
                    _ => return None,
                },
            ),
            _ => return None,
        };
        at.is_empty().then_some(message)
    }
}

fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

fn push_list(out: &mut Vec<u8>, texts: &[Vec<u8>]) {
    out.extend_from_slice(&(texts.len() as u32).to_le_bytes());
    texts.iter().for_each(|text| push_text(out, text));
}

fn take<const N: usize>(at: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = at.split_first_chunk()?;
    *at = rest;
    Some(*taken)
}

fn take_text(at: &mut &[u8]) -> Option<Vec<u8>> {
    let len = u32::from_le_bytes(take(at)?) as usize;
    let (text, rest) = at.split_at_checked(len)?;
    *at = rest;
    Some(text.to_vec())
}

fn take_list(at: &mut &[u8]) -> Option<Vec<Vec<u8>>> {
    let count = u32::from_le_bytes(take(at)?);
    (0..count).map(|_| take_text(at)).collect()
}

/// The changes that are under way at a node.
pub(crate) struct ClusterChanges {
    /// Held while a change is read, proposed and committed, so that changes do not undo each other.
    pub(crate) committing: Mutex<()>,
    /// The client whose change is under way here; 0: none.
    pub(crate) asking: AtomicU64,
    /// The number of the last request. The first one is random, so that no answer to an earlier
    /// process fits.
    last: AtomicU64,
    waiting: Mutex<HashMap<u64, Sender<ChangeOutcome>>>,
}

impl Default for ClusterChanges {
    fn default() -> Self {
        ClusterChanges {
            committing: Mutex::default(),
            asking: AtomicU64::new(0),
            last: AtomicU64::new(RandomState::new().hash_one("requests")),
            waiting: Mutex::default(),
        }
    }
}

impl ClusterChanges {
    /// A number for a request, and what receives its answer.
    pub(crate) fn begin(&self) -> (u64, Receiver<ChangeOutcome>) {
        let (number, (sender, receiver)) = (self.last.fetch_add(1, Relaxed), channel());
        self.waiting.lock().insert(number, sender);
        (number, receiver)
    }

    /// Passes an answer on, if somebody waits for it.
    pub(crate) fn answer(&self, number: u64, outcome: ChangeOutcome) {
        if let Some(sender) = self.waiting.lock().remove(&number) {
            // Who has waited may have given up.
            let _ = sender.send(outcome);
        }
    }

    /// Ends the wait for an answer.
    pub(crate) fn give_up(&self, number: u64) {
        self.waiting.lock().remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_truncated_and_changed_ones_are_no_others() {
        let texts = || vec![b"on".to_vec(), Vec::new(), b"\xff ~*".to_vec()];
        let (name, rules) = (b"alice".to_vec(), texts());
        for message in [
            Message::Request(7, ClusterChange::Set { name, rules, allows_channels: true }),
            Message::Request(u64::MAX, ClusterChange::Remove(texts())),
            Message::Request(0, ClusterChange::Replace(texts())),
            Message::Request(1, ClusterChange::Libraries(texts())),
            Message::Answer(7, ChangeOutcome::Done { index: 1 << 40, count: 3 }),
            Message::Answer(7, ChangeOutcome::Refused("ä".to_owned())),
            Message::Answer(7, ChangeOutcome::NotNow),
            Message::Answer(7, ChangeOutcome::Unknown),
        ] {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Some(message));
            assert!((0..bytes.len()).all(|len| Message::decode(&bytes[..len]).is_none()));
            assert_eq!(Message::decode(&[&bytes[..], &[0]].concat()), None);
            for (at, wrong) in [(0, 2), (1, 3), (10, 9)] {
                let mut other = bytes.clone();
                other[at] = wrong;
                assert_eq!(Message::decode(&other), None);
            }
        }
    }

    #[test]
    fn answer_reaches_its_request_once() {
        let changes = ClusterChanges::default();
        let ((one, of_one), (two, of_two)) = (changes.begin(), changes.begin());
        changes.answer(two, ChangeOutcome::NotNow);
        changes.answer(two, ChangeOutcome::Unknown);
        changes.give_up(one);
        changes.answer(one, ChangeOutcome::Unknown);
        assert_eq!(of_two.iter().collect::<Vec<_>>(), [ChangeOutcome::NotNow]);
        assert_eq!(of_one.iter().count(), 0);
    }
}
