//! The dependency graph of transactions, and a search for short cycles in it: a cycle is an anomaly.

use std::collections::{HashSet, VecDeque};

/// The reason why one transaction comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Edge {
    /// Its version was overwritten.
    WriteWrite,
    /// Its version was read.
    WriteRead,
    /// What it read was overwritten.
    ReadWrite,
    /// It had returned when the other began.
    RealTime,
}

impl Edge {
    /// The two-letter name.
    pub fn name(self) -> &'static str {
        match self {
            Edge::WriteWrite => "ww",
            Edge::WriteRead => "wr",
            Edge::ReadWrite => "rw",
            Edge::RealTime => "rt",
        }
    }
}

/// A cycle: each node with the edge that leaves it.
pub type Cycle = Vec<(usize, Edge)>;

/// A directed graph; nodes are numbers.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    out: Vec<Vec<(usize, Edge)>>,
    known: HashSet<(usize, usize, Edge)>,
}

impl Graph {
    /// Adds an edge; an edge from a node to itself is ignored.
    pub fn add(&mut self, from: usize, to: usize, edge: Edge) {
        if from != to && self.known.insert((from, to, edge)) {
            let nodes = self.out.len().max(from + 1).max(to + 1);
            self.out.resize_with(nodes, Vec::new);
            self.out[from].push((to, edge));
        }
    }

    /// A short cycle of the `allowed` edges with at most `max_rw` edges from readers to
    /// overwriters, or `None` if there is none. Cost: the number of edges if there is no cycle at
    /// all; else that times the nodes on cycles.
    pub fn cycle(&self, allowed: &[Edge], max_rw: usize) -> Option<Cycle> {
        let left = self.on_cycles(allowed);
        let mut found: Option<Cycle> = None;
        for start in (0..self.out.len()).filter(|node| left[*node]) {
            let cycle = self.around(start, allowed, max_rw, &left);
            if let Some(cycle) = cycle
                && found.as_ref().is_none_or(|found| cycle.len() < found.len())
            {
                found = Some(cycle);
            }
        }
        found
    }

    /// The nodes that remain when nodes without predecessors or successors are removed, repeatedly.
    /// There is a cycle if any remains.
    fn on_cycles(&self, allowed: &[Edge]) -> Vec<bool> {
        let nodes = self.out.len();
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); nodes];
        let mut previous = next.clone();
        for (from, edges) in self.out.iter().enumerate() {
            for (to, _) in edges.iter().filter(|(_, edge)| allowed.contains(edge)) {
                next[from].push(*to);
                previous[*to].push(from);
            }
        }
        let mut left = vec![true; nodes];
        for (ahead, behind) in [(&next, &previous), (&previous, &next)] {
            let is_left = |node: &&usize| left[**node];
            let mut degree: Vec<usize> =
                behind.iter().map(|nodes| nodes.iter().filter(is_left).count()).collect();
            let mut removable: Vec<usize> =
                (0..nodes).filter(|node| left[*node] && degree[*node] == 0).collect();
            while let Some(node) = removable.pop() {
                left[node] = false;
                for &after in ahead[node].iter().filter(|after| left[**after]) {
                    degree[after] -= 1;
                    if degree[after] == 0 {
                        removable.push(after);
                    }
                }
            }
        }
        left
    }

    /// The shortest path from `start` back to it. A state is a node and the number of `rw` edges
    /// to it.
    fn around(
        &self,
        start: usize,
        allowed: &[Edge],
        max_rw: usize,
        left: &[bool],
    ) -> Option<Cycle> {
        let max_rw = max_rw.min(self.out.len());
        let mut from: std::collections::HashMap<(usize, usize), ((usize, usize), Edge)> =
            std::collections::HashMap::new();
        let mut queue = VecDeque::from([(start, 0)]);
        // Without a bound, states need not be distinguished by their number of `rw` edges.
        let is_bounded = max_rw < self.out.len();
        while let Some(state) = queue.pop_front() {
            for &(to, edge) in &self.out[state.0] {
                if !allowed.contains(&edge) || !left[to] {
                    continue;
                }
                let rw =
                    if is_bounded { state.1 + usize::from(edge == Edge::ReadWrite) } else { 0 };
                if rw > max_rw {
                    continue;
                }
                if to == start {
                    let mut cycle = vec![(state.0, edge)];
                    let mut at = state;
                    while let Some(&(before, edge)) = from.get(&at) {
                        cycle.push((before.0, edge));
                        at = before;
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if let std::collections::hash_map::Entry::Vacant(entry) = from.entry((to, rw)) {
                    entry.insert((state, edge));
                    queue.push_back((to, rw));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Edge::{ReadWrite, WriteRead, WriteWrite};

    #[test]
    fn shortest_cycle_of_allowed_edges_is_found() {
        let mut graph = Graph::default();
        for (from, to) in [(0, 1), (1, 2), (2, 3), (3, 0), (4, 0), (3, 5)] {
            graph.add(from, to, WriteRead);
        }
        graph.add(2, 1, ReadWrite);
        assert_eq!(graph.cycle(&[WriteWrite], 9), None);
        assert_eq!(graph.cycle(&[WriteRead], 9).unwrap().len(), 4);
        let short = graph.cycle(&[WriteRead, ReadWrite], 9).unwrap();
        assert_eq!(short, [(1, WriteRead), (2, ReadWrite)]);
        assert_eq!(graph.cycle(&[WriteRead, ReadWrite], 0).unwrap().len(), 4);
    }

    #[test]
    fn long_path_has_no_cycle() {
        let mut graph = Graph::default();
        (0..100_000).for_each(|node| graph.add(node, node + 1, WriteWrite));
        assert_eq!(graph.cycle(&[WriteWrite], 9), None);
        graph.add(7, 7, WriteWrite);
        assert_eq!(graph.cycle(&[WriteWrite], 9), None);
    }
}
