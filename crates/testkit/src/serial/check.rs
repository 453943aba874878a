//! From a history to an anomaly, or none.
//!
//! First what needs no graph: reads of what was never written, of what an aborted transaction wrote, of
//! what its writer overwrote itself, and transactions that contradict themselves. Then the graph, from
//! the strictest kind of cycle to the loosest:
//!
//! ```text
//!   G0        ww alone                   dirty write
//!   G1c       ww and wr                  circular information flow
//!   G-single  exactly one rw             lost update, read skew
//!   G2        more                       write skew, long fork, the read-only anomaly, phantoms
//!   …, with rt                           the order is there, but against the clock
//! ```
//!
//! A version that was written and never read comes after those that were.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::graph::{Edge, Graph};
use super::{Event, History, Key, Outcome, Transaction, Version};

/// What kind of anomaly it is, in Adya's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A read of what nobody wrote, or of two orders that contradict one another.
    Impossible,
    /// A transaction that does not see its own writes as it should.
    Internal,
    /// A read of what an aborted transaction wrote.
    G1a,
    /// A read of what its writer overwrote in the same transaction.
    G1b,
    /// A cycle of writes.
    G0,
    /// A cycle of writes and reads of them.
    G1c,
    /// A cycle with one anti-dependency.
    GSingle,
    /// A cycle with several.
    G2,
    /// A cycle that is none without the order of time.
    RealTime,
}

/// Why a history is not serializable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// What kind it is.
    pub kind: Kind,
    /// The transactions that have a part in it, by their place in the history.
    pub transactions: Vec<usize>,
    /// In words.
    pub story: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.story)
    }
}

/// Whether there is an order of the committed transactions that explains every answer; `strict`: and
/// that puts what had returned before what began later.
///
/// # Errors
/// An anomaly.
pub fn check(history: &History, strict: bool) -> Result<(), Anomaly> {
    let seen = Seen::of(history)?;
    let graph = seen.graph(history, strict);
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
    // Almost always there is none, and one look is enough.
    if graph.cycle(&all, any).is_none() {
        return Ok(());
    }
    for (kind, allowed, most_rw) in tiers {
        if let Some(cycle) = graph.cycle(allowed, most_rw) {
            return Err(tell(kind, &cycle, history));
        }
    }
    Ok(())
}

fn tell(kind: Kind, cycle: &[(usize, Edge)], history: &History) -> Anomaly {
    let count = history.transactions.len();
    let mut story = String::new();
    for (node, edge) in cycle {
        if *node < count {
            story += &format!("T{node} -{}-> ", edge.name());
        }
    }
    // Nodes behind the transactions are moments.
    let transactions: Vec<_> = cycle.iter().map(|(node, _)| *node).filter(|n| *n < count).collect();
    story += &format!("T{}", transactions[0]);
    for &node in &transactions {
        story += &format!("\n  T{node}: {:?}", history.transactions[node]);
    }
    Anomaly { kind, transactions, story }
}

/// A version's place: what the graph is made from.
struct Seen {
    /// Who wrote each version; two keys never share one.
    writers: HashMap<(Key, Version), usize>,
    /// The versions of each key that count, in order: the last of each transaction.
    orders: BTreeMap<Key, Vec<Version>>,
    /// Transaction, key, and the version it was shown.
    reads: Vec<(usize, Key, Option<Version>)>,
}

impl Seen {
    fn of(history: &History) -> Result<Self, Anomaly> {
        let mut seen = Seen { writers: HashMap::new(), orders: BTreeMap::new(), reads: Vec::new() };
        let mut last_of: HashMap<(usize, Key), Version> = HashMap::new();
        for (id, transaction) in history.transactions.iter().enumerate() {
            for event in &transaction.events {
                if let Event::Append(key, version) | Event::Write(key, version) = event {
                    seen.writers.insert((*key, *version), id);
                    last_of.insert((id, *key), *version);
                }
            }
        }
        let mut longest: BTreeMap<Key, Vec<Version>> = BTreeMap::new();
        for (id, transaction) in history.transactions.iter().enumerate() {
            // What an aborted transaction was shown counts as well: it acted on it.
            seen.read(id, transaction, &mut longest)?;
        }
        let has_ended_well = |version: &(Key, Version)| {
            seen.writers
                .get(version)
                .is_some_and(|id| history.transactions[*id].outcome == Outcome::Committed)
        };
        for &(id, key, version) in &seen.reads {
            let Some(version) = version else { continue };
            let shown = |kind, what: &str| {
                let story = format!(
                    "T{id} was shown version {version} of key {key}, which {what}: {:?}",
                    history.transactions[id]
                );
                Err(Anomaly { kind, transactions: vec![id], story })
            };
            let Some(&writer) = seen.writers.get(&(key, version)) else {
                return shown(Kind::Impossible, "nobody wrote");
            };
            if history.transactions[writer].outcome == Outcome::Aborted {
                return shown(Kind::G1a, "an aborted transaction wrote");
            }
            if writer != id && last_of[&(writer, key)] != version {
                return shown(Kind::G1b, "its writer replaced itself");
            }
        }
        for (key, list) in &history.orders {
            longest.entry(*key).or_insert_with(|| list.clone());
        }
        // What was never read is at the end, in the order of its transactions' ends: any will do.
        let mut unread: Vec<(u64, Key, Version)> = Vec::new();
        for (&(id, key), &version) in &last_of {
            let is_known = longest.get(&key).is_some_and(|list| list.contains(&version));
            if !is_known && has_ended_well(&(key, version)) {
                unread.push((history.transactions[id].ended, key, version));
            }
        }
        unread.sort_unstable();
        for (_, key, version) in unread {
            longest.entry(key).or_default().push(version);
        }
        for (key, list) in longest {
            let writers = list.iter().filter_map(|version| seen.writers.get(&(key, *version)));
            let aborted = |id: &&usize| history.transactions[**id].outcome == Outcome::Aborted;
            if let Some(&id) = writers.clone().find(aborted) {
                let story = format!("T{id} was aborted, and what it wrote to key {key} is there");
                return Err(Anomaly { kind: Kind::G1a, transactions: vec![id], story });
            }
            let is_last = |version: &Version| {
                seen.writers
                    .get(&(key, *version))
                    .is_some_and(|id| last_of[&(*id, key)] == *version)
            };
            seen.orders.insert(key, list.into_iter().filter(is_last).collect());
        }
        Ok(seen)
    }

    /// What one transaction was shown, less what it wrote itself.
    fn read(
        &mut self,
        id: usize,
        transaction: &Transaction,
        longest: &mut BTreeMap<Key, Vec<Version>>,
    ) -> Result<(), Anomaly> {
        let wrong = |kind, what: &str, event: &Event| Anomaly {
            kind,
            transactions: vec![id],
            story: format!("T{id} {what} in {event:?}: {transaction:?}"),
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
                    // Of its own list only what others wrote has a place in the order for sure.
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
                        let what = "was shown a list that contradicts another one";
                        return Err(wrong(Kind::Impossible, what, event));
                    }
                    if counted.len() > longest.len() {
                        *longest = counted.to_vec();
                    }
                    for version in others {
                        if !self.writers.contains_key(&(*key, *version)) {
                            return Err(wrong(
                                Kind::Impossible,
                                "was shown what nobody wrote",
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

    /// Whether a transaction is committed for sure: it was told so, or something of it was seen.
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
            // Who was not applied has no place in the order.
            if !self.was_applied(&history.transactions[id]) {
                continue;
            }
            if let Some(version) = version {
                graph.add(self.writers[&(key, version)], id, Edge::WriteRead);
            }
            let mut after = next.get(&(key, version)).copied();
            // Its own version does not count: it comes after the one that it read, and before the next.
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

/// A node for each moment at which a transaction begins or ends, in a line; a transaction leads to the
/// moment of its end, and the moment of its beginning to it. So there is a way from each to all that
/// began after its end, by a number of edges in proportion to that of the transactions.
fn add_real_time(graph: &mut Graph, transactions: &[Transaction]) {
    let committed = |(_, t): &(usize, &Transaction)| t.outcome == Outcome::Committed;
    let mut moments: Vec<(u64, bool, usize)> = Vec::new();
    for (id, transaction) in transactions.iter().enumerate().filter(committed) {
        // At the same moment who begins did not begin after who ends.
        moments.push((transaction.began, false, id));
        moments.push((transaction.ended, true, id));
    }
    moments.sort_unstable();
    let first = transactions.len();
    for (place, (_, is_end, id)) in moments.into_iter().enumerate() {
        let node = first + place;
        match is_end {
            true => graph.add(id, node, Edge::RealTime),
            false => graph.add(node, id, Edge::RealTime),
        }
        if place > 0 {
            graph.add(node - 1, node, Edge::RealTime);
        }
    }
}

#[cfg(test)]
mod tests;
