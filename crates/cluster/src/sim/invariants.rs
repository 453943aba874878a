//! The invariants that the simulator checks in every step.
//!
//! | invariant | how it is checked |
//! | --- | --- |
//! | election safety | one leader per term |
//! | log matching | an entry's index and term determine its content and its predecessor's term |
//! | state machine safety | an applied index determines its entry's term and the whole table |
//! | leader completeness | a new leader has every entry that was applied in earlier terms |
//! | monotony | a node's applied index, term and vote do not go back |

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::Group;

#[derive(Default)]
pub(super) struct Invariants {
    leaders: BTreeMap<u64, u64>,
    /// By index and term: the content's digest and the predecessor's term, if that is known.
    entries: BTreeMap<(u64, u64), (u64, Option<u64>)>,
    /// By index: the term of the applied entry, and the term in which a node first applied it.
    applied: BTreeMap<u64, (u64, u64)>,
    tables: BTreeMap<u64, u64>,
    nodes: BTreeMap<u64, Observation>,
}

/// The state of a node in the last step.
#[derive(Clone, Copy, Default)]
struct Observation {
    applied: u64,
    /// How often the node had been started.
    starts: u64,
    term: u64,
    /// The vote that may have been sent, and its term.
    vote: (u64, u64),
    log: (u64, u64, u64),
}

impl Invariants {
    /// The last index that any node has applied.
    pub(super) fn last_applied(&self) -> u64 {
        self.applied.last_key_value().map_or(0, |(index, _)| *index)
    }

    /// Forgets what a node was, which begins again.
    pub(super) fn forget(&mut self, node: u64) {
        self.nodes.remove(&node);
    }

    /// Checks a node after each of its rounds.
    pub(super) fn check(&mut self, node: u64, starts: u64, group: &Group) -> Result<(), String> {
        let before = self.nodes.get(&node).copied().unwrap_or_default();
        let log = group.log();
        let (term, applied) = (group.term(), group.applied());
        if term < before.term {
            return Err(format!("node {node}: term {term} after {}", before.term));
        }
        let state = log.hard_state();
        if state.term == before.vote.0 && before.vote.1 != 0 && state.vote != before.vote.1 {
            return Err(format!("node {node}: two votes in term {}", state.term));
        }
        if starts == before.starts && applied.index < before.applied {
            return Err(format!("node {node}: applied {} after {}", applied.index, before.applied));
        }
        if group.leads() {
            let leader = *self.leaders.entry(term).or_insert(node);
            if leader != node {
                return Err(format!("nodes {leader} and {node} both lead term {term}"));
            }
            self.check_complete(node, group)?;
        }
        let last = log.last_index();
        let seen_log = (log.first_index(), last, log.term(last).unwrap_or(0));
        if seen_log != before.log {
            self.check_log(node, group)?;
        }
        if applied.index != before.applied || starts != before.starts {
            self.check_applied(node, group, before.applied)?;
        }
        let seen = Observation {
            applied: applied.index,
            starts,
            term,
            vote: (state.term, state.vote),
            log: seen_log,
        };
        self.nodes.insert(node, seen);
        Ok(())
    }

    fn check_complete(&self, node: u64, group: &Group) -> Result<(), String> {
        let earlier = self.applied.iter().rev().find(|(_, (_, seen))| *seen < group.term());
        let Some((&index, &(term, _))) = earlier else { return Ok(()) };
        let log = group.log();
        match index < log.first_index() || log.term(index) == Some(term) {
            true => Ok(()),
            false => Err(format!(
                "node {node} leads term {} without entry {index} of term {term}, which is applied",
                group.term()
            )),
        }
    }

    fn check_log(&mut self, node: u64, group: &Group) -> Result<(), String> {
        let log = group.log();
        for index in log.first_index()..=log.last_index() {
            let Some(entry) = log.entry(index) else {
                return Err(format!("node {node}: entry {index} is missing"));
            };
            let digest = digest(&(&entry.data[..], &entry.context[..]));
            let found = (digest, log.term(index - 1));
            let known = self.entries.entry((index, entry.term)).or_insert(found);
            if *known != found {
                return Err(format!(
                    "node {node}: entry {index} of term {} differs from another node's",
                    entry.term
                ));
            }
        }
        Ok(())
    }

    fn check_applied(&mut self, node: u64, group: &Group, before: u64) -> Result<(), String> {
        let (log, applied) = (group.log(), group.applied());
        for index in before + 1..=applied.index {
            let Some(term) = log.term(index) else { continue };
            let known = *self.applied.entry(index).or_insert((term, group.term()));
            if known.0 != term {
                return Err(format!(
                    "node {node} has applied entry {index} of term {term}, another one of term {}",
                    known.0
                ));
            }
        }
        let table = table_digest(group)?;
        match *self.tables.entry(applied.index).or_insert(table) == table {
            true => Ok(()),
            false => Err(format!("node {node}: the table at entry {} differs", applied.index)),
        }
    }
}

/// A digest of every row.
pub(super) fn table_digest(group: &Group) -> Result<u64, String> {
    let mut rows = Vec::new();
    let mut cursor = group.table().iter().map_err(|error| error.to_string())?;
    let mut is_there = cursor.first().map_err(|error| error.to_string())?;
    while is_there {
        rows.push((cursor.key().to_vec(), cursor.value().to_vec()));
        is_there = cursor.next().map_err(|error| error.to_string())?;
    }
    Ok(digest(&rows))
}

fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
