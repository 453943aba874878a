//! The `lsm` engine: LevelDB's model with each technique of TRIAD, and the triangle, on or off.
//!
//! ```text
//! TRIAD-MEM   h keys never leave the memtable, and it is flushed only once it holds the share t of
//!             what a log of B items could fill it with. A full log is begun anew with the memtable's
//!             d items, so log after log takes B − d requests, I in all before a flush, until
//!             d = h + Unique(c) ≥ t·B.
//!               mem → log       logs · B / I
//!             All else sees the cold keys alone: c of I requests, a share s; costs count for that
//!             share. The last level still holds h old values, merged like the rest.
//! TRIAD-LOG   the log is the row; what is flushed is an index of it, of the share i of its bytes.
//!               mem → level 0   i · Unique(c) / I
//! TRIAD-DISK  rows wait until 1 − Merge(rows, level 1) / (rows + level 1) reaches a ratio (0.4), or
//!             they are many (6): the interval of level 0 is the first such number of rows.
//! triangle    a cursor turns round the key space through rows of C distinct items. A key waits a turn,
//!             T = DInterval(C) requests, but at most 6·C, since rows stay on the medium for as long;
//!             each step covers whole tables of level 1: no false overlaps.
//!               level 0 → 1     Merge(Unique(T), S₁) / T
//! ```
//!
//! With everything off this is [`LevelDb`], whose levels below follow unchanged:
//! Iₗ = Iₗ₋₁ + DInterval(Sₗ), I₀ the interval of level 0 as above.
//!
//! Hot keys alone save little in this model, and their copies in each log cost: a level that keeps one
//! of each key, as all here do, takes a hot key's thousand writes for one. What saves is that a
//! memtable of mostly hot keys is flushed rarely, with more cold keys at once.
//!
//! Which keys are hot is taken to be known: the h most popular ones. The engine finds them by
//! counting, and is wrong about some.
//!
//! Source: ours, by the method of thesis chapter 4, of the TRIAD paper's section 4 and the
//! TriangleKV paper's right-angle side compaction.

use crate::error::{BadParameter, within};
use crate::{Breakdown, LevelDb, Popularity};

/// A leveled tree with techniques.
#[derive(Debug, Clone, PartialEq)]
pub struct Lsm {
    /// The tree itself. Its number of level-0 tables is what TRIAD-DISK and the triangle replace.
    pub tree: LevelDb,
    /// TRIAD-MEM: keys that stay in the memtable; 0 is off.
    pub hot_keys: f64,
    /// TRIAD-MEM: a memtable of fewer items than this share of the log's is not flushed; 0 is off.
    pub flush_share: f64,
    /// TRIAD-LOG: the bytes of a row's index as a share of its items' (0 to neglect them); `None` is
    /// off.
    pub index_share: Option<f64>,
    /// TRIAD-DISK; `None` is off.
    pub wait: Option<Wait>,
    /// The triangle: distinct items that its rows hold; `None` is off.
    pub container_items: Option<f64>,
}

/// When TRIAD-DISK compacts level 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wait {
    /// At this overlap of rows and level 1 (0.4).
    pub overlap: f64,
    /// At this many rows, whatever they overlap (6).
    pub most_rows: u32,
}

/// What rows of a container may take on the medium, as a multiple of its capacity.
const MEDIUM: f64 = 6.0;

impl Lsm {
    /// The tree without any technique.
    pub fn plain(tree: LevelDb) -> Self {
        Lsm {
            tree,
            hot_keys: 0.0,
            flush_share: 0.0,
            index_share: None,
            wait: None,
            container_items: None,
        }
    }

    /// Items written for each item that the user writes, stage by stage.
    ///
    /// # Errors
    /// [`BadParameter`]; as [`LevelDb::write_amplification`] for the tree's own.
    pub fn write_amplification(&self, popularity: &Popularity) -> Result<Breakdown, BadParameter> {
        self.check(popularity.keys())?;
        let log = self.tree.log_items;
        let (share, cold) = popularity.without_the_most_popular(self.hot_keys);
        let Logs { count, requests } = self.logs(share, &cold);
        // From here on requests are those for cold keys.
        let row_requests = share * requests;
        let row = cold.unique(row_requests);
        let level_1 = self.tree.level_items.first().copied().unwrap_or_else(|| cold.keys());
        let interval = match (self.container_items, self.wait) {
            (Some(container), _) => Self::turn(&cold, container),
            (None, Some(wait)) => wait.rows(&cold, row_requests, level_1) * row_requests,
            (None, None) => self.tree.level0_tables * row_requests,
        };
        let mut costs = vec![
            count * log / requests,
            self.index_share.unwrap_or(1.0) * share * row / row_requests,
        ];
        self.tree.levels_from(interval, &cold, |cost| costs.push(share * cost));
        if let Some(last) = costs.last_mut() {
            // The last interval's merge rewrites the hot keys' old values as well.
            *last += share * self.hot_keys / self.tree.last_interval(interval, &cold);
        }
        Ok(self.tree.named(&costs))
    }

    /// Requests in a turn of the cursor over a container of so many keys. It holds what was written since the
    /// cursor passed, each key once; so what is written again and again makes the turn longer, up to what
    /// rows may take on the medium.
    pub(crate) fn turn(keys: &Popularity, container: f64) -> f64 {
        keys.compaction_interval(container).min(MEDIUM * container)
    }

    /// The logs between two flushes, if `share` of all requests are for cold keys.
    fn logs(&self, share: f64, cold: &Popularity) -> Logs {
        let log = self.tree.log_items;
        let mut logs = Logs { count: 0.0, requests: 0.0 };
        let mut carried = self.hot_keys;
        loop {
            logs.count += 1.0;
            logs.requests += log - carried;
            carried = self.hot_keys + cold.unique(share * logs.requests);
            if carried >= self.flush_share * log || logs.count >= MOST_LOGS {
                return logs;
            }
        }
    }

    fn check(&self, keys: f64) -> Result<(), BadParameter> {
        self.tree.check(keys)?;
        let log = self.tree.log_items;
        let reason = "give hot keys for nine tenths of a log and half of all keys at most";
        within("hot_keys", self.hot_keys, 0.0, (0.9 * log).min(keys / 2.0), reason)?;
        let reason = "give a share from 0 to 0.9";
        within("flush_share", self.flush_share, 0.0, 0.9, reason)?;
        if let Some(&largest) = self.tree.level_items.last() {
            let reason = "give levels smaller than the number of cold keys";
            within(
                "level_items",
                largest,
                0.0,
                (keys - self.hot_keys) * (1.0 - f64::EPSILON),
                reason,
            )?;
        }
        let index = self.index_share.unwrap_or(0.0);
        within("index_share", index, 0.0, 1.0, "give a share from 0 to 1")?;
        if let Some(wait) = self.wait {
            within("overlap", wait.overlap, 0.0, 1.0, "give a ratio from 0 to 1")?;
            within("most_rows", f64::from(wait.most_rows), 1.0, 1e4, "give 1 to 10,000 rows")?;
        }
        if let Some(container) = self.container_items {
            let reason = "give room for two logs or more";
            within("container_items", container, 2.0 * log, 1e15, reason)?;
        }
        Ok(())
    }
}

/// What is written between two flushes.
struct Logs {
    count: f64,
    /// User's requests in them.
    requests: f64,
}

/// A memtable that hardly ever fills is flushed all the same after this many logs: by then a flush is
/// a ten-thousandth of the cost.
const MOST_LOGS: f64 = 1e4;

impl Wait {
    /// Rows of `row_requests` at which level 0 is compacted.
    fn rows(&self, cold: &Popularity, row_requests: f64, level_1: f64) -> f64 {
        let row = cold.unique(row_requests);
        let below = cold.unique_inverse(level_1);
        let is_enough = |rows: f64| {
            let together = cold.unique(rows * row_requests + below);
            1.0 - together / (rows * row + level_1) >= self.overlap
        };
        let most = f64::from(self.most_rows);
        (1..self.most_rows).map(f64::from).find(|rows| is_enough(*rows)).unwrap_or(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> LevelDb {
        LevelDb { log_items: 1e4, level0_tables: 4.0, level_items: vec![1e5, 1e6] }
    }

    fn costs(lsm: &Lsm, popularity: &Popularity) -> Vec<f64> {
        let wa = lsm.write_amplification(popularity).unwrap();
        wa.by_stage.iter().map(|(_, cost)| *cost).collect()
    }

    fn assert_close(ours: f64, by_hand: f64) {
        assert!((ours / by_hand - 1.0).abs() < 1e-3, "{ours} against {by_hand}");
    }

    #[test]
    fn with_everything_off_it_is_leveldb() {
        for skew in [0.0, 0.99] {
            let keys = Popularity::zipf(1e7, skew).unwrap();
            let plain = Lsm::plain(tree()).write_amplification(&keys).unwrap();
            assert_eq!(plain, tree().write_amplification(&keys).unwrap());
        }
    }

    #[test]
    fn a_log_that_is_the_row_flushes_its_index() {
        let keys = Popularity::uniform(1e9).unwrap();
        let off = costs(&Lsm::plain(tree()), &keys);
        let lsm = Lsm { index_share: Some(0.05), ..Lsm::plain(tree()) };
        let on = costs(&lsm, &keys);
        assert_close(on[1], 0.05);
        assert_eq!((&on[..1], &on[2..]), (&off[..1], &off[2..]));
    }

    #[test]
    fn hot_keys_stay_in_memory() {
        // 1,000 keys of 9 in 10 requests, 10^6 of the rest: cold counts of 1, hot ones of 9,000.
        let mut counts = vec![1; 1_000_000];
        counts.extend([9000; 1000]);
        let keys = Popularity::empirical(&counts).unwrap();
        let tree = LevelDb { log_items: 1e4, level0_tables: 4.0, level_items: vec![1e5] };
        let on = costs(&Lsm { hot_keys: 1000.0, ..Lsm::plain(tree) }, &keys);
        // A log is full after 9,000 requests, 900 of them for cold keys, hardly one of them twice.
        assert_close(on[0], 10.0 / 9.0);
        assert_close(on[1], 0.1);
        // Four rows of 900 into 10^5, for 36,000 requests, less the overlap of 3,600 · 0.1.
        assert_close(on[2], (3600.0 + 1e5 - 360.0) / 36_000.0);
        // 10^5 of 10^6 cold keys turn over in 214,600 of their requests; with the 3,600 of level 0
        // they touch 10^6·(1 − e^(−0.2182)); the last level has all cold keys and 1,000 hot ones.
        let interval: f64 = 218_200.0;
        let moved = -1e6 * (-interval / 1e6).exp_m1();
        assert_close(on[3], 0.1 * (1e6 + 1000.0 + moved) / interval);
    }

    #[test]
    fn a_memtable_of_hot_keys_is_flushed_rarely() {
        // As above. Each log begins with what the memtable holds, 1,000 hot keys and a tenth of all
        // requests so far: 10,000 − 1,000, − 1,900, − 2,710, − 3,439, − 4,095 and − 4,686 requests;
        // after these six, 42,170 in all, it holds 5,217.
        let mut counts = vec![1; 1_000_000];
        counts.extend([9000; 1000]);
        let keys = Popularity::empirical(&counts).unwrap();
        let lsm = Lsm { hot_keys: 1000.0, flush_share: 0.5, ..Lsm::plain(tree()) };
        let wa = costs(&Lsm { tree: LevelDb { level_items: vec![1e5], ..tree() }, ..lsm }, &keys);
        assert!((wa[0] / (6e4 / 42_170.0) - 1.0).abs() < 3e-3, "{wa:?}");
        assert!((wa[1] / 0.1 - 1.0).abs() < 3e-3, "{wa:?}");
    }

    #[test]
    fn level_0_waits_for_overlap() {
        // No overlap to be had: as many rows as may be.
        let wide = Popularity::uniform(1e12).unwrap();
        let wait = Some(Wait { overlap: 0.4, most_rows: 6 });
        let on = costs(&Lsm { wait, ..Lsm::plain(tree()) }, &wide);
        assert_close(on[2], (6e4 + 1e5) / 6e4);
        // Every request for one of few keys: the second row repeats the first.
        let narrow = Popularity::uniform(2e5).unwrap();
        let tree = LevelDb { log_items: 1e6, level0_tables: 4.0, level_items: vec![1e5] };
        let lsm = Lsm { wait, ..Lsm::plain(tree.clone()) };
        let on = costs(&lsm, &narrow);
        let two = costs(&Lsm::plain(LevelDb { level0_tables: 2.0, ..tree }), &narrow);
        assert_eq!(on, two);
    }

    #[test]
    fn the_triangle_takes_twice_what_it_holds() {
        // Rows of 4·10^4 items, no key twice: a turn is 8·10^4 requests.
        let wide = Popularity::uniform(1e12).unwrap();
        let on = costs(&Lsm { container_items: Some(4e4), ..Lsm::plain(tree()) }, &wide);
        assert_close(on[2], (8e4 + 1e5) / 8e4);
        assert!(on[2] < costs(&Lsm::plain(tree()), &wide)[2]);
    }

    #[test]
    fn bad_parameters_are_named() {
        let keys = Popularity::uniform(1e7).unwrap();
        let named = |lsm: Lsm| lsm.write_amplification(&keys).unwrap_err().parameter;
        let good = || Lsm::plain(tree());
        for hot_keys in [-1.0, 1e4, f64::NAN] {
            assert_eq!(named(Lsm { hot_keys, ..good() }), "hot_keys");
        }
        for flush_share in [-0.1, 1.0, f64::NAN] {
            assert_eq!(named(Lsm { flush_share, ..good() }), "flush_share");
        }
        for index_share in [-0.1, 1.1, f64::NAN].map(Some) {
            assert_eq!(named(Lsm { index_share, ..good() }), "index_share");
        }
        let wait = |overlap, most_rows| Some(Wait { overlap, most_rows });
        assert_eq!(named(Lsm { wait: wait(f64::NAN, 6), ..good() }), "overlap");
        assert_eq!(named(Lsm { wait: wait(0.4, 0), ..good() }), "most_rows");
        for container_items in [0.0, -1.0, f64::NAN, f64::INFINITY].map(Some) {
            assert_eq!(named(Lsm { container_items, ..good() }), "container_items");
        }
        let tree = LevelDb { log_items: -1.0, ..tree() };
        assert_eq!(named(Lsm::plain(tree)), "log_items");
    }
}
