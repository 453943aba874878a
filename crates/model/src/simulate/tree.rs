//! The simulated tree: sorted tables of keys in levels, and their compaction.
//!
//! Invariants: the tables of a level are sorted and disjoint; keys in a table are distinct.

use super::{Selection, Simulation};
use crate::Breakdown;

/// Sorted distinct keys.
type Table = Vec<u32>;

/// The simulated tree.
pub(super) struct Tree<'a> {
    simulation: &'a Simulation,
    log_items: usize,
    requests_in_log: usize,
    memtable: Vec<u32>,
    level0: Vec<Table>,
    levels: Vec<Level>,
    /// Items written by stage: level 0, then each level.
    pub(super) written: Vec<u64>,
    /// Reusable buffer of a merge.
    merged: Vec<u32>,
}

/// Disjoint tables in key order.
#[derive(Default)]
struct Level {
    tables: Vec<Table>,
    items: usize,
    /// Largest key of the table that was compacted last.
    last_key: Option<u32>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(simulation: &'a Simulation) -> Self {
        let levels = simulation.design.level_items.len() + 1;
        let log_items = (simulation.design.log_items as usize).max(1);
        Tree {
            simulation,
            log_items,
            requests_in_log: 0,
            memtable: Vec::new(),
            level0: Vec::new(),
            levels: (0..levels).map(|_| Level::default()).collect(),
            written: vec![0; levels + 1],
            merged: Vec::new(),
        }
    }

    /// Processes a request for `key`.
    pub(super) fn insert(&mut self, key: u32) {
        self.memtable.push(key);
        self.requests_in_log += 1;
        if self.requests_in_log < self.log_items {
            return;
        }
        self.requests_in_log = 0;
        let empty = Vec::with_capacity(self.memtable.len());
        let mut table = std::mem::replace(&mut self.memtable, empty);
        table.sort_unstable();
        table.dedup();
        self.written[0] += table.len() as u64;
        self.level0.push(table);
        if self.level0.len() as f64 >= self.simulation.design.level0_tables {
            self.compact_level0();
        }
        for level in 1..self.levels.len() {
            let size = self.simulation.design.level_items[level - 1];
            while self.levels[level - 1].items as f64 > size {
                self.compact(level);
            }
        }
    }

    fn compact_level0(&mut self) {
        let runs = std::mem::take(&mut self.level0);
        let merged = runs.into_iter().reduce(|a, b| {
            let mut both = Vec::new();
            union(&a, &b, &mut both);
            both
        });
        self.merge_into(1, merged.unwrap_or_default());
    }

    /// Compacts one table of `level` into the next level.
    fn compact(&mut self, level: usize) {
        let least_overlap = match self.simulation.selection {
            Selection::LeastOverlap => self.least_overlap(level),
            _ => 0,
        };
        let from = &mut self.levels[level - 1];
        let at = match self.simulation.selection {
            Selection::LeastOverlap => least_overlap,
            Selection::RoundRobin => {
                let at = from.last_key.map_or(0, |last| {
                    from.tables.partition_point(|table| table.first().is_some_and(|&k| k <= last))
                });
                if at < from.tables.len() { at } else { 0 }
            }
            Selection::Largest => {
                let largest = from.tables.iter().map(Vec::len).max();
                from.tables.iter().position(|table| Some(table.len()) == largest).unwrap_or(0)
            }
        };
        let table = from.tables.remove(at);
        from.items -= table.len();
        from.last_key = table.last().copied();
        self.merge_into(level + 1, table);
    }

    /// Position of the table of `level` with the least overlap per item.
    fn least_overlap(&self, level: usize) -> usize {
        let below = &self.levels[level].tables;
        let overlap = |table: &Table| {
            let items: usize = overlapping(below, table).iter().map(Vec::len).sum();
            items as f64 / table.len().max(1) as f64
        };
        let costs = self.levels[level - 1].tables.iter().map(overlap).enumerate();
        costs.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(at, _)| at)
    }

    /// Merges `table` with the tables of `level` that it overlaps.
    fn merge_into(&mut self, level: usize, table: Table) {
        let (Some(&smallest), Some(&largest)) = (table.first(), table.last()) else { return };
        let into = &mut self.levels[level - 1];
        let last = |table: &Table| table.last().copied().unwrap_or(0);
        let first = |table: &Table| table.first().copied().unwrap_or(0);
        let from = into.tables.partition_point(|below| last(below) < smallest);
        let to = into.tables.partition_point(|below| first(below) <= largest).max(from);
        let mut merged = std::mem::take(&mut self.merged);
        merged.clear();
        let mut above = &table[..];
        let mut below_items = 0;
        for below in &into.tables[from..to] {
            let (before, after) = above.split_at(above.partition_point(|&key| key <= last(below)));
            union(before, below, &mut merged);
            below_items += below.len();
            above = after;
        }
        merged.extend_from_slice(above);
        into.items = into.items - below_items + merged.len();
        self.written[level] += merged.len() as u64;
        let tables = self.cut(level, &merged);
        self.levels[level - 1].tables.splice(from..to, tables);
        self.merged = merged;
    }

    /// Cuts merged keys into tables of `level`.
    fn cut(&self, level: usize, mut merged: &[u32]) -> Vec<Table> {
        let most = self.simulation.table_items;
        let mut tables = Vec::with_capacity(merged.len() / most + 1);
        while let Some(&first) = merged.first() {
            let mut len = most.min(merged.len());
            if let (Some(overlap), Some(below)) =
                (self.simulation.overlap_tables, self.levels.get(level))
            {
                let from = below.tables.partition_point(|t| t.last().is_some_and(|&k| k < first));
                let beyond = below.tables.get(from + overlap).and_then(|table| table.first());
                if let Some(beyond) = beyond {
                    len = merged[..len].partition_point(|key| key < beyond).max(1);
                }
            }
            let (table, rest) = merged.split_at(len);
            tables.push(table.to_vec());
            merged = rest;
        }
        tables
    }

    /// Write amplification by stage, of `requests` requests.
    pub(super) fn breakdown(&self, requests: u64) -> Breakdown {
        let wa = |written: u64| written as f64 / requests as f64;
        let mut by_stage = vec![("mem→log".to_owned(), 1.0)];
        for (level, &written) in self.written.iter().enumerate() {
            let name = match level {
                0 => "mem→level-0".to_owned(),
                _ => format!("level-{}→{level}", level - 1),
            };
            by_stage.push((name, wa(written)));
        }
        Breakdown { by_stage }
    }
}

/// The tables among `below` that `table` overlaps.
fn overlapping<'t>(below: &'t [Table], table: &Table) -> &'t [Table] {
    let (Some(&smallest), Some(&largest)) = (table.first(), table.last()) else { return &[] };
    let from = below.partition_point(|below| below.last().is_some_and(|&key| key < smallest));
    let to = below.partition_point(|below| below.first().is_some_and(|&key| key <= largest));
    &below[from..to.max(from)]
}

/// Appends the distinct keys of two sorted tables to `merged`.
fn union(a: &[u32], b: &[u32], merged: &mut Vec<u32>) {
    merged.reserve(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while let (Some(&x), Some(&y)) = (a.get(i), b.get(j)) {
        merged.push(x.min(y));
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    merged.extend_from_slice(&a[i..]);
    merged.extend_from_slice(&b[j..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LevelDb;
    use crate::simulate::Load;
    use crate::simulate::requests::Requests;

    #[test]
    fn table_with_the_least_overlap_is_found() {
        let design = LevelDb { log_items: 10.0, level0_tables: 1.0, level_items: vec![5.0] };
        let simulation = Simulation::standard(design, 100, 0.0, 1000.0);
        let mut tree = Tree::new(&simulation);
        tree.levels[0].tables = vec![vec![1, 9], vec![20, 21, 29], vec![40, 41, 42]];
        tree.levels[1].tables = vec![vec![0, 5], vec![8, 22], vec![25, 27], vec![39, 43]];
        // 4, 4 and 2 items below, per 2, 3 and 3 of their own.
        assert_eq!(tree.least_overlap(1), 2);
        assert_eq!(overlapping(&tree.levels[1].tables, &vec![9, 26]).len(), 2);
        assert!(overlapping(&tree.levels[1].tables, &vec![30, 38]).is_empty());
    }

    #[test]
    fn tables_respect_the_overlap_limit() {
        let design = LevelDb {
            log_items: 100.0,
            level0_tables: 4.0,
            level_items: vec![500.0, 5_000.0, 20_000.0],
        };
        for (load, overlap) in [(Load::Shuffled, 3), (Load::KeyOrder, 3), (Load::Shuffled, 1)] {
            let simulation = Simulation {
                load,
                overlap_tables: Some(overlap),
                table_items: 50,
                ..Simulation::standard(design.clone(), 50_000, 0.0, 1000.0)
            };
            let mut tree = Tree::new(&simulation);
            let mut requests = Requests::new(simulation.keys, simulation.skew, simulation.seed);
            for _ in 0..100_000 {
                tree.insert(requests.next());
            }
            for level in &tree.levels {
                let keys: Vec<u32> = level.tables.concat();
                assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
                assert_eq!(keys.len(), level.items);
                assert!(level.tables.iter().all(|table| (1..=50).contains(&table.len())));
            }
            // Only new tables respect the limit: tables of the next level may be split later.
            let merged: Vec<u32> = (0..50_000).collect();
            for table in tree.cut(2, &merged) {
                let (first, last) = (table[0], table[table.len() - 1]);
                let overlaps = |below: &&Table| below[0] <= last && *below.last().unwrap() >= first;
                let below = tree.levels[2].tables.iter().filter(overlaps).count();
                assert!(below <= overlap, "{below} of {overlap}");
            }
        }
    }
}
