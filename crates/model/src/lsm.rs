//! The `lsm` engine: LevelDB's model plus TRIAD's techniques and the sliced level 0 (the TriangleKV
//! paper's triangle container), each optional.
//!
//! ```text
//! TRIAD-MEM   h hot keys never leave the memtable, which is flushed only once it contains the
//!             share t of the B items of a log. A full log is replaced by a new one that starts
//!             with the memtable's d items, so each log takes B − d requests, and I in total
//!             before a flush, until d = h + Unique(c) ≥ t·B.
//!               mem → log       logs · B / I
//!             Everything else sees only the cold keys: c of I requests, a share s; costs are
//!             scaled by that share. The last level still contains h old values.
//! TRIAD-LOG   the log is the L0 run; a flush writes an index of it, with the share i of its bytes.
//!               mem → level 0   i · Unique(c) / I
//! TRIAD-DISK  L0 runs accumulate until 1 − Merge(runs, level 1) / (runs + level 1) reaches a
//!             ratio (0.4), or their number a limit (6): that many runs are level 0's interval.
//! sliced L0   a cursor moves round-robin through the key space of L0 runs with C distinct items.
//!             A key is compacted once per pass, T = DInterval(C) requests, but at most 6·C,
//!             because runs stay on disk that long. Each slice covers whole tables of level 1: no
//!             false overlaps.
//!               level 0 → 1     Merge(Unique(T), S₁) / T
//! ```
//!
//! With everything off this is [`LevelDb`]. The levels below are unchanged: Iₗ = Iₗ₋₁ +
//! DInterval(Sₗ), with I₀ the interval of level 0 as above.
//!
//! Retaining hot keys alone saves little in this model, and their copies in each log cost: a level
//! that keeps one version per key, as all levels here do, counts a hot key's thousand writes as
//! one. The saving comes from rarer flushes of a memtable of mostly hot keys, with more cold keys
//! at once.
//!
//! The h hot keys are the most popular ones. The engine finds them by counting, with some errors.
//!
//! Source: the TRIAD paper, section 4; the TriangleKV paper, right-angle side compaction; the
//! method is that of the thesis, chapter 4.

use crate::error::{InvalidParameter, within};
use crate::{Breakdown, LevelDb, Popularity};

/// Above 1 if a value is shorter than its position in the log: 10 for an item of one byte.
const MAX_INDEX_SHARE: f64 = 10.0;

/// A leveled tree with optional techniques.
#[derive(Debug, Clone, PartialEq)]
pub struct Lsm {
    /// The tree. TRIAD-DISK and the sliced level 0 replace its number of level-0 tables.
    pub tree: LevelDb,
    /// TRIAD-MEM: number of hot keys, which stay in the memtable; 0 disables it.
    pub hot_keys: f64,
    /// TRIAD-MEM: a memtable with less than this share of the log's items is not flushed; 0
    /// disables it.
    pub flush_share: f64,
    /// TRIAD-LOG: bytes of an L0 run's index per byte of its items, up to 10 (0 to neglect them);
    /// `None` disables it.
    pub index_share: Option<f64>,
    /// TRIAD-DISK; `None` disables it.
    pub wait: Option<Wait>,
    /// Sliced level 0: distinct items in its runs; `None` disables it.
    pub l0_items: Option<f64>,
}

/// When TRIAD-DISK compacts level 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wait {
    /// Overlap of L0 runs and level 1 that triggers a compaction (0.4).
    pub overlap: f64,
    /// Number of L0 runs that triggers a compaction regardless of their overlap (6).
    pub max_runs: u32,
}

/// Limit of the bytes of all L0 runs on disk, as a multiple of the capacity of level 0.
const MAX_L0_RATIO: f64 = 6.0;

impl Lsm {
    /// The tree without any technique.
    pub fn plain(tree: LevelDb) -> Self {
        Lsm { tree, hot_keys: 0.0, flush_share: 0.0, index_share: None, wait: None, l0_items: None }
    }

    /// Items written per item that the user writes, stage by stage.
    ///
    /// # Errors
    /// [`InvalidParameter`], also as [`LevelDb::write_amplification`] for the tree's parameters.
    pub fn write_amplification(
        &self,
        popularity: &Popularity,
    ) -> Result<Breakdown, InvalidParameter> {
        self.check(popularity.keys())?;
        let log = self.tree.log_items;
        let (share, cold) = popularity.without_most_popular(self.hot_keys);
        let Logs { count, requests } = self.logs(share, &cold);
        // From here on, only requests for cold keys are counted.
        let run_requests = share * requests;
        let run = cold.unique(run_requests);
        let level_1 = self.tree.level_items.first().copied().unwrap_or_else(|| cold.keys());
        let interval = match (self.l0_items, self.wait) {
            (Some(l0_items), _) => Self::pass_requests(&cold, l0_items),
            (None, Some(wait)) => wait.runs(&cold, run_requests, level_1) * run_requests,
            (None, None) => self.tree.level0_tables * run_requests,
        };
        let mut costs = vec![
            count * log / requests,
            self.index_share.unwrap_or(1.0) * share * run / run_requests,
        ];
        self.tree.levels_from(interval, &cold, |cost| costs.push(share * cost));
        if let Some(last) = costs.last_mut() {
            // The last merge also rewrites the old values of the hot keys.
            *last += share * self.hot_keys / self.tree.last_interval(interval, &cold);
        }
        Ok(self.tree.named(&costs))
    }

    /// Requests per pass of the compaction cursor over a level 0 of `l0_items` distinct keys.
    /// Level 0 contains each key written since the cursor passed it, counted once; so repeated
    /// writes lengthen the pass, up to the limit of the runs' bytes on disk.
    pub(crate) fn pass_requests(keys: &Popularity, l0_items: f64) -> f64 {
        keys.compaction_interval(l0_items).min(MAX_L0_RATIO * l0_items)
    }

    /// The logs between two flushes, if the share `share` of all requests is for cold keys.
    fn logs(&self, share: f64, cold: &Popularity) -> Logs {
        let log = self.tree.log_items;
        let mut logs = Logs { count: 0.0, requests: 0.0 };
        let mut retained = self.hot_keys;
        loop {
            logs.count += 1.0;
            logs.requests += log - retained;
            retained = self.hot_keys + cold.unique(share * logs.requests);
            if retained >= self.flush_share * log || logs.count >= MAX_LOGS {
                return logs;
            }
        }
    }

    fn check(&self, keys: f64) -> Result<(), InvalidParameter> {
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
        within("index_share", index, 0.0, MAX_INDEX_SHARE, "give a share from 0 to 10")?;
        if let Some(wait) = self.wait {
            within("overlap", wait.overlap, 0.0, 1.0, "give a ratio from 0 to 1")?;
            within("max_runs", f64::from(wait.max_runs), 1.0, 1e4, "give 1 to 10,000 runs")?;
        }
        if let Some(l0_items) = self.l0_items {
            let reason = "give room for two logs or more";
            within("l0_items", l0_items, 2.0 * log, 1e15, reason)?;
        }
        Ok(())
    }
}

/// Logs between two flushes.
struct Logs {
    count: f64,
    /// Number of the user's requests in them.
    requests: f64,
}

/// Number of logs after which a memtable is flushed in any case: by then a flush is a
/// ten-thousandth of the cost.
const MAX_LOGS: f64 = 1e4;

impl Wait {
    /// Number of L0 runs of `run_requests` requests that triggers a compaction of level 0.
    fn runs(&self, cold: &Popularity, run_requests: f64, level_1: f64) -> f64 {
        let run = cold.unique(run_requests);
        let below = cold.unique_inverse(level_1);
        let is_enough = |runs: f64| {
            let together = cold.unique(runs * run_requests + below);
            1.0 - together / (runs * run + level_1) >= self.overlap
        };
        let most = f64::from(self.max_runs);
        (1..self.max_runs).map(f64::from).find(|runs| is_enough(*runs)).unwrap_or(most)
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
    fn plain_tree_equals_leveldb() {
        for skew in [0.0, 0.99] {
            let keys = Popularity::zipf(1e7, skew).unwrap();
            let plain = Lsm::plain(tree()).write_amplification(&keys).unwrap();
            assert_eq!(plain, tree().write_amplification(&keys).unwrap());
        }
    }

    #[test]
    fn triad_log_flushes_only_an_index() {
        let keys = Popularity::uniform(1e9).unwrap();
        let off = costs(&Lsm::plain(tree()), &keys);
        let lsm = Lsm { index_share: Some(0.05), ..Lsm::plain(tree()) };
        let on = costs(&lsm, &keys);
        assert_close(on[1], 0.05);
        assert_eq!((&on[..1], &on[2..]), (&off[..1], &off[2..]));
    }

    #[test]
    fn triad_mem_keeps_hot_keys_in_memory() {
        // 1,000 keys of 9 in 10 requests, 10^6 of the rest: cold counts of 1, hot ones of 9,000.
        let mut counts = vec![1; 1_000_000];
        counts.extend([9000; 1000]);
        let keys = Popularity::empirical(&counts).unwrap();
        let tree = LevelDb { log_items: 1e4, level0_tables: 4.0, level_items: vec![1e5] };
        let on = costs(&Lsm { hot_keys: 1000.0, ..Lsm::plain(tree) }, &keys);
        // A log is full after 9,000 requests, 900 of them for cold keys, almost all distinct.
        assert_close(on[0], 10.0 / 9.0);
        assert_close(on[1], 0.1);
        // Four runs of 900 into 10^5, for 36,000 requests, less the overlap of 3,600 · 0.1.
        assert_close(on[2], (3600.0 + 1e5 - 360.0) / 36_000.0);
        // DInterval of 10^5 of the 10^6 cold keys is 214,600 of their requests; with the 3,600 of
        // level 0 they touch 10^6·(1 − e^(−0.2182)); the last level has all cold keys and 1,000 hot
        // ones.
        let interval: f64 = 218_200.0;
        let moved = -1e6 * (-interval / 1e6).exp_m1();
        assert_close(on[3], 0.1 * (1e6 + 1000.0 + moved) / interval);
    }

    #[test]
    fn flush_share_delays_flushes_of_hot_memtables() {
        // As above. Each log starts with the memtable's items: 1,000 hot keys and a tenth of all
        // requests so far: 10,000 − 1,000, − 1,900, − 2,710, − 3,439, − 4,095 and − 4,686 requests;
        // after these six, 42,170 in all, the memtable has 5,217.
        let mut counts = vec![1; 1_000_000];
        counts.extend([9000; 1000]);
        let keys = Popularity::empirical(&counts).unwrap();
        let lsm = Lsm { hot_keys: 1000.0, flush_share: 0.5, ..Lsm::plain(tree()) };
        let wa = costs(&Lsm { tree: LevelDb { level_items: vec![1e5], ..tree() }, ..lsm }, &keys);
        assert!((wa[0] / (6e4 / 42_170.0) - 1.0).abs() < 3e-3, "{wa:?}");
        assert!((wa[1] / 0.1 - 1.0).abs() < 3e-3, "{wa:?}");
    }

    #[test]
    fn triad_disk_delays_compaction_until_overlap() {
        // No overlap: the maximal number of runs.
        let wide = Popularity::uniform(1e12).unwrap();
        let wait = Some(Wait { overlap: 0.4, max_runs: 6 });
        let on = costs(&Lsm { wait, ..Lsm::plain(tree()) }, &wide);
        assert_close(on[2], (6e4 + 1e5) / 6e4);
        // Few keys: the second run repeats the first.
        let narrow = Popularity::uniform(2e5).unwrap();
        let tree = LevelDb { log_items: 1e6, level0_tables: 4.0, level_items: vec![1e5] };
        let lsm = Lsm { wait, ..Lsm::plain(tree.clone()) };
        let on = costs(&lsm, &narrow);
        let two = costs(&Lsm::plain(LevelDb { level0_tables: 2.0, ..tree }), &narrow);
        assert_eq!(on, two);
    }

    #[test]
    fn pass_of_sliced_level_0_is_twice_its_capacity() {
        // Runs of 4·10^4 items, no key twice: a pass is 8·10^4 requests.
        let wide = Popularity::uniform(1e12).unwrap();
        let on = costs(&Lsm { l0_items: Some(4e4), ..Lsm::plain(tree()) }, &wide);
        assert_close(on[2], (8e4 + 1e5) / 8e4);
        assert!(on[2] < costs(&Lsm::plain(tree()), &wide)[2]);
    }

    #[test]
    fn invalid_parameter_is_named() {
        let keys = Popularity::uniform(1e7).unwrap();
        let named = |lsm: Lsm| lsm.write_amplification(&keys).unwrap_err().parameter;
        let good = || Lsm::plain(tree());
        for hot_keys in [-1.0, 1e4, f64::NAN] {
            assert_eq!(named(Lsm { hot_keys, ..good() }), "hot_keys");
        }
        for flush_share in [-0.1, 1.0, f64::NAN] {
            assert_eq!(named(Lsm { flush_share, ..good() }), "flush_share");
        }
        for index_share in [-0.1, 10.1, f64::NAN].map(Some) {
            assert_eq!(named(Lsm { index_share, ..good() }), "index_share");
        }
        let wait = |overlap, max_runs| Some(Wait { overlap, max_runs });
        assert_eq!(named(Lsm { wait: wait(f64::NAN, 6), ..good() }), "overlap");
        assert_eq!(named(Lsm { wait: wait(0.4, 0), ..good() }), "max_runs");
        for l0_items in [0.0, -1.0, f64::NAN, f64::INFINITY].map(Some) {
            assert_eq!(named(Lsm { l0_items, ..good() }), "l0_items");
        }
        let tree = LevelDb { log_items: -1.0, ..tree() };
        assert_eq!(named(Lsm::plain(tree)), "log_items");
    }
}
