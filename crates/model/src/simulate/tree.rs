//! The simulated tree: sorted tables of keys in levels, and their compaction.
//!
//! Invariants: the tables of a level are sorted and disjoint; keys in a table are distinct.

use super::entry::Entry;
use super::weights::Weights;
use super::{Selection, Simulation};
use crate::Breakdown;

/// Entries of distinct keys, in the order of keys.
type Table = Vec<Entry>;

/// The simulated tree.
pub(super) struct Tree<'a> {
    simulation: &'a Simulation,
    log_items: usize,
    requests_in_log: usize,
    memtable: Vec<Entry>,
    level0: Vec<Table>,
    levels: Vec<Level>,
    /// `None`: every item weighs 1, and none is a tombstone.
    weights: Option<Weights>,
    /// Weight of the items written by stage: level 0, then each level.
    pub(super) written: Vec<f64>,
    /// Reusable buffer of a merge.
    merged: Table,
}

/// Disjoint tables in key order.
#[derive(Default)]
struct Level {
    tables: Vec<Table>,
    /// Weight of all items.
    items: f64,
    /// Largest key of the table that was compacted last.
    last_key: Option<u32>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(simulation: &'a Simulation, weights: Option<Weights>) -> Self {
        let levels = simulation.design.level_items.len() + 1;
        let log_items = (simulation.design.log_items as usize).max(1);
        Tree {
            simulation,
            log_items,
            requests_in_log: 0,
            memtable: Vec::new(),
            level0: Vec::new(),
            levels: (0..levels).map(|_| Level::default()).collect(),
            weights,
            written: vec![0.0; levels + 1],
            merged: Vec::new(),
        }
    }

    /// Processes a request.
    pub(super) fn insert(&mut self, request: Entry) {
        self.memtable.push(request);
        self.requests_in_log += 1;
        if self.requests_in_log < self.log_items {
            return;
        }
        self.requests_in_log = 0;
        let empty = Vec::with_capacity(self.memtable.len());
        let mut table = std::mem::replace(&mut self.memtable, empty);
        if self.weights.is_none() {
            table.sort_unstable();
            table.dedup();
        } else {
            // The newest of each key: the first one of those in reverse order.
            table.reverse();
            table.sort_by_key(|entry| entry.key());
            table.dedup_by_key(|entry| entry.key());
        }
        self.written[0] += self.weigh(&table);
        self.level0.push(table);
        if self.level0.len() as f64 >= self.simulation.design.level0_tables {
            self.compact_level0();
        }
        for level in 1..self.levels.len() {
            let size = self.simulation.design.level_items[level - 1];
            while self.levels[level - 1].items > size {
                self.compact(level);
            }
        }
    }

    fn compact_level0(&mut self) {
        let runs = std::mem::take(&mut self.level0);
        let merged = runs.into_iter().reduce(|older, newer| {
            let mut both = Vec::new();
            union(&newer, &older, &mut both);
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
                    from.tables
                        .partition_point(|table| table.first().is_some_and(|it| it.key() <= last))
                });
                if at < from.tables.len() { at } else { 0 }
            }
            Selection::Largest => {
                let largest = from.tables.iter().map(Vec::len).max();
                from.tables.iter().position(|table| Some(table.len()) == largest).unwrap_or(0)
            }
        };
        let table = from.tables.remove(at);
        from.last_key = table.last().map(|entry| entry.key());
        let weight = self.weigh(&table);
        self.levels[level - 1].items -= weight;
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
        let (Some(smallest), Some(largest)) = (table.first(), table.last()) else { return };
        let last = |table: &Table| table.last().map_or(0, |entry| entry.key());
        let first = |table: &Table| table.first().map_or(0, |entry| entry.key());
        let mut merged = std::mem::take(&mut self.merged);
        merged.clear();
        let into = &self.levels[level - 1].tables;
        let from = into.partition_point(|below| last(below) < smallest.key());
        let to = into.partition_point(|below| first(below) <= largest.key()).max(from);
        let mut above = &table[..];
        let mut replaced = 0.0;
        for below in &into[from..to] {
            let end = above.partition_point(|entry| entry.key() <= last(below));
            let (before, after) = above.split_at(end);
            union(before, below, &mut merged);
            replaced += self.weigh(below);
            above = after;
        }
        merged.extend_from_slice(above);
        if self.weights.is_some() && level == self.levels.len() {
            merged.retain(|entry| !entry.is_tombstone());
        }
        let weight = self.weigh(&merged);
        self.written[level] += weight;
        let tables = self.cut(level, &merged);
        let into = &mut self.levels[level - 1];
        into.items += weight - replaced;
        into.tables.splice(from..to, tables);
        self.merged = merged;
    }

    /// Cuts merged entries into tables of `level`.
    fn cut(&self, level: usize, mut merged: &[Entry]) -> Vec<Table> {
        let most = self.simulation.table_items;
        let mut tables = Vec::with_capacity(merged.len() / most + 1);
        while let Some(first) = merged.first() {
            let mut len = self.items_of_weight(merged, most);
            if let (Some(overlap), Some(below)) =
                (self.simulation.overlap_tables, self.levels.get(level))
            {
                let is_before = |t: &Table| t.last().is_some_and(|it| it.key() < first.key());
                let from = below.tables.partition_point(is_before);
                let beyond = below.tables.get(from + overlap).and_then(|table| table.first());
                if let Some(beyond) = beyond {
                    len = merged[..len].partition_point(|it| it.key() < beyond.key()).max(1);
                }
            }
            let (table, rest) = merged.split_at(len);
            tables.push(table.to_vec());
            merged = rest;
        }
        tables
    }

    /// What entries weigh together.
    fn weigh(&self, entries: &[Entry]) -> f64 {
        match &self.weights {
            None => entries.len() as f64,
            Some(weights) => entries.iter().map(|&entry| weights.of(entry)).sum(),
        }
    }

    /// The number of entries at the beginning that weigh at most `most`, but at least one.
    fn items_of_weight(&self, entries: &[Entry], most: usize) -> usize {
        let Some(weights) = &self.weights else { return most.min(entries.len()) };
        let mut weight = 0.0;
        let is_within = |entry: &&Entry| {
            weight += weights.of(**entry);
            weight <= most as f64
        };
        entries.iter().take_while(is_within).count().max(1)
    }

    /// Write amplification by stage, of `requests` requests.
    pub(super) fn breakdown(&self, requests: u64) -> Breakdown {
        let wa = |written: f64| written / requests as f64;
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
    let (Some(smallest), Some(largest)) = (table.first(), table.last()) else { return &[] };
    let ends_before = |t: &Table| t.last().is_some_and(|it| it.key() < smallest.key());
    let begins_within = |t: &Table| t.first().is_some_and(|it| it.key() <= largest.key());
    let from = below.partition_point(ends_before);
    let to = below.partition_point(begins_within);
    &below[from..to.max(from)]
}

/// Appends the entries of two sorted tables to `merged`; of one key, that of `newer`.
fn union(newer: &[Entry], older: &[Entry], merged: &mut Table) {
    merged.reserve(newer.len() + older.len());
    let (mut i, mut j) = (0, 0);
    while let (Some(&x), Some(&y)) = (newer.get(i), older.get(j)) {
        let (is_newer, is_older) = (x.key() <= y.key(), y.key() <= x.key());
        merged.push(if is_newer { x } else { y });
        i += usize::from(is_newer);
        j += usize::from(is_older);
    }
    merged.extend_from_slice(&newer[i..]);
    merged.extend_from_slice(&older[j..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LevelDb;
    use crate::simulate::Load;
    use crate::simulate::Variation;
    use crate::simulate::requests::Requests;

    fn puts(keys: &[u32]) -> Table {
        keys.iter().map(|&key| Entry::new(key, false)).collect()
    }

    #[test]
    fn newest_entry_of_a_key_is_kept_and_tombstones_end_in_the_last_level() {
        let design = LevelDb { log_items: 4.0, level0_tables: 1.0, level_items: Vec::new() };
        let variation = Variation { deletes: 0.5, ..Variation::default() };
        let simulation = Simulation { variation, ..Simulation::standard(design, 10, 0.0, 1000.0) };
        let requests = Requests::new(10, 0.0, 1, &simulation.variation);
        let weights = Weights::new(&simulation.variation, 10, 0.0, &requests).unwrap();
        let mut tree = Tree::new(&simulation, weights);
        let entry = |&(key, is_tombstone): &(u32, bool)| Entry::new(key, is_tombstone);
        [(1, false), (1, true), (2, true), (2, false)]
            .iter()
            .map(entry)
            .for_each(|it| tree.insert(it));
        assert_eq!(tree.levels[0].tables, [puts(&[2])]);
        // A put weighs 2 written items of the mean size, and a tombstone nothing.
        assert_eq!((tree.written[0], tree.written[1], tree.levels[0].items), (2.0, 2.0, 2.0));
        [(2, true), (3, false), (1, false), (3, true)]
            .iter()
            .map(entry)
            .for_each(|it| tree.insert(it));
        assert_eq!(tree.levels[0].tables, [puts(&[1])]);
    }

    #[test]
    fn table_with_the_least_overlap_is_found() {
        let design = LevelDb { log_items: 10.0, level0_tables: 1.0, level_items: vec![5.0] };
        let simulation = Simulation::standard(design, 100, 0.0, 1000.0);
        let mut tree = Tree::new(&simulation, None);
        tree.levels[0].tables = [&[1, 9][..], &[20, 21, 29], &[40, 41, 42]].map(puts).into();
        tree.levels[1].tables = [&[0, 5][..], &[8, 22], &[25, 27], &[39, 43]].map(puts).into();
        // 4, 4 and 2 items below, per 2, 3 and 3 of their own.
        assert_eq!(tree.least_overlap(1), 2);
        assert_eq!(overlapping(&tree.levels[1].tables, &puts(&[9, 26])).len(), 2);
        assert!(overlapping(&tree.levels[1].tables, &puts(&[30, 38])).is_empty());
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
            let mut tree = Tree::new(&simulation, None);
            let Simulation { keys, skew, seed, .. } = simulation;
            let mut requests = Requests::new(keys, skew, seed, &simulation.variation);
            for _ in 0..100_000 {
                tree.insert(requests.next());
            }
            for level in &tree.levels {
                let keys = level.tables.concat();
                assert!(keys.windows(2).all(|pair| pair[0].key() < pair[1].key()));
                assert_eq!(keys.len() as f64, level.items);
                assert!(level.tables.iter().all(|table| (1..=50).contains(&table.len())));
            }
            // Only new tables respect the limit: tables of the next level may be split later.
            let merged = puts(&(0..50_000).collect::<Vec<_>>());
            for table in tree.cut(2, &merged) {
                let (first, last) = (table[0], table[table.len() - 1]);
                let overlaps = |below: &&Table| below[0] <= last && *below.last().unwrap() >= first;
                let below = tree.levels[2].tables.iter().filter(overlaps).count();
                assert!(below <= overlap, "{below} of {overlap}");
            }
        }
    }
}
