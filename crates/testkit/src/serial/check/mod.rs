//! From a history to an anomaly, or none.
//!
//! First what needs no graph: reads of versions that were never written, that an aborted
//! transaction wrote, or that their writer overwrote, and transactions that contradict themselves.
//! Then cycles of the graph, from the strictest kind to the loosest:
//!
//! ```text
//!   G0        ww alone                   dirty write
//!   G1c       ww and wr                  circular information flow
//!   G-single  exactly one rw             lost update, read skew
//!   G2        more                       write skew, long fork, the read-only anomaly, phantoms
//!   …, with rt                           an order exists, but not in real time
//! ```
//!
//! Versions that were never read come after those that were.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::graph::{Edge, Graph};
use super::{Event, History, Key, Outcome, Transaction, Version};

/// The kind of an anomaly, in Adya's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A read of a version that nobody wrote, or of two contradictory orders.
    Impossible,
    /// A transaction that does not see its own writes.
    Internal,
    /// A read of a version that an aborted transaction wrote.
    G1a,
    /// A read of a version that its writer overwrote in the same transaction.
    G1b,
    /// A cycle of writes.
    G0,
    /// A cycle of writes and reads of them.
    G1c,
    /// A cycle with one anti-dependency.
    GSingle,
    /// A cycle with several.
    G2,
    /// A cycle only with the real-time order.
    RealTime,
}

/// The reason why a history is not serializable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// The kind.
    pub kind: Kind,
    /// Its transactions, as indexes into the history.
    pub transactions: Vec<usize>,
    /// A description.
    pub description: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.description)
    }
}

/// Checks that an order of the committed transactions explains every result; if `strict`, an order
/// that agrees with real time.
///
/// # Errors
/// An anomaly.
pub fn check(history: &History, strict: bool) -> Result<(), Anomaly> {
    let dependencies = Dependencies::of(history)?;
    let graph = dependencies.graph(history, strict);
    let plain = [Edge::WriteWrite, Edge::WriteRead, Edge::ReadWrite];
    let all = [Edge::WriteWrite, Edge::WriteRead, Edge::ReadWrite, Edge::RealTime];
    let any = usize::MAX;
    let tiers: [(Kind, &[Edge], usize); 5] = [
        (Kind::G0, &plain[..1], any),
        (Kind::G1c, &plain[..2], any),
        (Kind::GSingle, &plain, 1),
        (Kind::G2, &plain, any),
        (Kind::RealTime, &all, any),
    ];
    // Most histories have no cycle, and one search is enough.
    if graph.cycle(&all, any).is_none() {
        return Ok(());
    }
    for (kind, allowed, most_rw) in tiers {
        if let Some(cycle) = graph.cycle(allowed, most_rw) {
            return Err(describe(kind, &cycle, history));
        }
    }
    Ok(())
}

fn describe(kind: Kind, cycle: &[(usize, Edge)], history: &History) -> Anomaly {
    let count = history.transactions.len();
    let mut description = String::new();
    for (node, edge) in cycle {
        if *node < count {
            description += &format!("T{node} -{}-> ", edge.name());
        }
    }
    // Nodes after the transactions are points in time.
    let transactions: Vec<_> = cycle.iter().map(|(node, _)| *node).filter(|n| *n < count).collect();
    description += &format!("T{}", transactions[0]);
    for &node in &transactions {
        description += &format!("\n  T{node}: {:?}", history.transactions[node]);
    }
    Anomaly { kind, transactions, description }
}

/// The data for the graph.
struct Dependencies {
    /// The writer of each version; two keys never share a version.
    writers: HashMap<(Key, Version), usize>,
    /// The visible versions of each key in order: the last of each transaction.
    orders: BTreeMap<Key, Vec<Version>>,
    /// Transaction, key, and the version read.
    reads: Vec<(usize, Key, Option<Version>)>,
}

impl Dependencies {
    fn of(history: &History) -> Result<Self, Anomaly> {
        let mut dependencies =
            Dependencies { writers: HashMap::new(), orders: BTreeMap::new(), reads: Vec::new() };
        let mut last_of: HashMap<(usize, Key), Version> = HashMap::new();
        for (id, transaction) in history.transactions.iter().enumerate() {
            for event in &transaction.events {
                if let Event::Append(key, version) | Event::Write(key, version) = event {
                    dependencies.writers.insert((*key, *version), id);
                    last_of.insert((id, *key), *version);
                }
            }
        }
        let mut longest: BTreeMap<Key, Vec<Version>> = BTreeMap::new();
        for (id, transaction) in history.transactions.iter().enumerate() {
            // Reads of aborted transactions count as well.
            dependencies.read(id, transaction, &mut longest)?;
        }
        let is_committed = |version: &(Key, Version)| {
            dependencies
                .writers
                .get(version)
                .is_some_and(|id| history.transactions[*id].outcome == Outcome::Committed)
        };
        for &(id, key, version) in &dependencies.reads {
            let Some(version) = version else { continue };
            let wrong_read = |kind, what: &str| {
                let description = format!(
                    "T{id} read version {version} of key {key}, which {what}: {:?}",
                    history.transactions[id]
                );
                Err(Anomaly { kind, transactions: vec![id], description })
            };
            let Some(&writer) = dependencies.writers.get(&(key, version)) else {
                return wrong_read(Kind::Impossible, "nobody wrote");
            };
            if history.transactions[writer].outcome == Outcome::Aborted {
                return wrong_read(Kind::G1a, "an aborted transaction wrote");
            }
            if writer != id && last_of[&(writer, key)] != version {
                return wrong_read(Kind::G1b, "its writer overwrote");
            }
        }
        for (key, list) in &history.orders {
            longest.entry(*key).or_insert_with(|| list.clone());
        }
        // Unread versions come last, in the order of their transactions' ends: any order will do.
        let mut unread: Vec<(u64, Key, Version)> = Vec::new();
        for (&(id, key), &version) in &last_of {
            let is_known = longest.get(&key).is_some_and(|list| list.contains(&version));
            if !is_known && is_committed(&(key, version)) {
                unread.push((history.transactions[id].ended, key, version));
            }
        }
        unread.sort_unstable();
        for (_, key, version) in unread {
            longest.entry(key).or_default().push(version);
        }
        for (key, list) in longest {
            let writers =
                list.iter().filter_map(|version| dependencies.writers.get(&(key, *version)));
            let aborted = |id: &&usize| history.transactions[**id].outcome == Outcome::Aborted;
            if let Some(&id) = writers.clone().find(aborted) {
                let description =
                    format!("T{id} was aborted, but its write to key {key} is visible");
                return Err(Anomaly { kind: Kind::G1a, transactions: vec![id], description });
            }
            let is_last = |version: &Version| {
                dependencies
                    .writers
                    .get(&(key, *version))
                    .is_some_and(|id| last_of[&(*id, key)] == *version)
            };
            dependencies.orders.insert(key, list.into_iter().filter(is_last).collect());
        }
        Ok(dependencies)
    }

    /// Records the reads of one transaction, without its own writes.
    fn read(
        &mut self,
        id: usize,
        transaction: &Transaction,
        longest: &mut BTreeMap<Key, Vec<Version>>,
    ) -> Result<(), Anomaly> {
        let wrong = |kind, what: &str, event: &Event| Anomaly {
            kind,
            transactions: vec![id],
            description: format!("T{id} {what} in {event:?}: {transaction:?}"),
        };
        let mut own: HashMap<Key, Vec<Version>> = HashMap::new();
        for event in &transaction.events {
            match event {
                Event::Append(key, version) => own.entry(*key).or_default().push(*version),
                Event::Write(key, version) => _ = own.insert(*key, vec![*version]),
                Event::List(key, list) => {
                    let own = own.get(key).map_or(&[][..], Vec::as_slice);
                    let Some(others) = list.strip_suffix(own) else {
                        return Err(wrong(Kind::Internal, "misses its own writes", event));
                    };
                    // Until the commit only the versions of others have a fixed order.
                    let counted = match transaction.outcome {
                        Outcome::Committed => list.as_slice(),
                        _ => others,
                    };
                    let longest = longest.entry(*key).or_default();
                    let (short, long) = match counted.len() <= longest.len() {
                        true => (counted, longest.as_slice()),
                        false => (longest.as_slice(), counted),
                    };
                    if !long.starts_with(short) {
                        let what = "read a list that contradicts another one";
                        return Err(wrong(Kind::Impossible, what, event));
                    }
                    if counted.len() > longest.len() {
                        *longest = counted.to_vec();
                    }
                    for version in others {
                        if !self.writers.contains_key(&(*key, *version)) {
                            return Err(wrong(
                                Kind::Impossible,
                                "read a version that nobody wrote",
                                event,
                            ));
                        }
                    }
                    self.reads.push((id, *key, others.last().copied()));
                }
                Event::Read(key, version) => match own.get(key).and_then(|own| own.last()) {
                    Some(own) if Some(*own) != *version => {
                        return Err(wrong(Kind::Internal, "misses its own write", event));
                    }
                    Some(_) => {}
                    None => self.reads.push((id, *key, *version)),
                },
            }
        }
        Ok(())
    }

    /// Whether a transaction is surely committed: it was acknowledged, or a write of it was read.
    fn was_applied(&self, transaction: &Transaction) -> bool {
        let was_seen = |event: &Event| match event {
            Event::Append(key, version) | Event::Write(key, version) => {
                self.orders.get(key).is_some_and(|order| order.contains(version))
            }
            Event::List(..) | Event::Read(..) => false,
        };
        match transaction.outcome {
            Outcome::Committed => true,
            Outcome::Aborted => false,
            Outcome::Unknown => transaction.events.iter().any(was_seen),
        }
    }

    fn graph(&self, history: &History, strict: bool) -> Graph {
        let mut graph = Graph::default();
        let mut next: HashMap<(Key, Option<Version>), Version> = HashMap::new();
        for (key, order) in &self.orders {
            let mut before = None;
            for version in order {
                next.insert((*key, before), *version);
                if let Some(before) = before {
                    let (from, to) =
                        (self.writers[&(*key, before)], self.writers[&(*key, *version)]);
                    graph.add(from, to, Edge::WriteWrite);
                }
                before = Some(*version);
            }
        }
        for &(id, key, version) in &self.reads {
            // A transaction that was not applied has no position in the order.
            if !self.was_applied(&history.transactions[id]) {
                continue;
            }
            if let Some(version) = version {
                graph.add(self.writers[&(key, version)], id, Edge::WriteRead);
            }
            let mut after = next.get(&(key, version)).copied();
            // Its own version is skipped: it comes after the one it read, and before the next.
            if after.is_some_and(|after| self.writers[&(key, after)] == id) {
                after = next.get(&(key, after)).copied();
            }
            if let Some(after) = after {
                graph.add(id, self.writers[&(key, after)], Edge::ReadWrite);
            }
        }
        if strict {
            add_real_time(&mut graph, &history.transactions);
        }
        graph
    }
}

/// Adds a chain of nodes, one for each begin and end of a transaction. Each transaction has an
/// edge to the node of its end and one from the node of its begin. So there is a path from each
/// transaction to all that began after its end, with a number of edges linear in the transactions.
fn add_real_time(graph: &mut Graph, transactions: &[Transaction]) {
    let committed = |(_, t): &(usize, &Transaction)| t.outcome == Outcome::Committed;
    let mut times: Vec<(u64, bool, usize)> = Vec::new();
    for (id, transaction) in transactions.iter().enumerate().filter(committed) {
        // Begins sort before ends at the same time: those transactions overlap.
        times.push((transaction.began, false, id));
        times.push((transaction.ended, true, id));
    }
    times.sort_unstable();
    let first = transactions.len();
    for (at, (_, is_end, id)) in times.into_iter().enumerate() {
        let node = first + at;
        match is_end {
            true => graph.add(id, node, Edge::RealTime),
            false => graph.add(node, id, Edge::RealTime),
        }
        if at > 0 {
            graph.add(node - 1, node, Edge::RealTime);
        }
    }
}

#[cfg(test)]
mod tests;
