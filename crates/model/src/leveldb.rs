//! LevelDB's write amplification (Algorithm 3), and the worst case that it replaces.
//!
//! ```text
//! mem → log        1                                       every write, as it is
//! mem → level 0    Unique(log) / log
//! level 0 → 1      Merge(Unique(I₀), S₁) / I₀              I₀ = log · level-0 tables
//! level l → l+1    (Merge(Unique(Iₗ), Sₗ₊₁) + Unique(Iₗ)) / Iₗ     Iₗ = Iₗ₋₁ + DInterval(Sₗ)
//! ```
//!
//! The second Unique(Iₗ) is for false overlaps: tables below that reach beyond the compacted one.
//! The last level holds every key.
//!
//! Source: thesis, section 4.3.

use crate::error::{BadParameter, within};
use crate::{Breakdown, Popularity};

/// The parameters of the design, in items.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelDb {
    /// Items in a full log, i.e. in a memtable.
    pub log_items: f64,
    /// Level-0 tables at which they are compacted.
    pub level0_tables: f64,
    /// Items in levels 1 to L − 1, ascending; level L holds every key.
    pub level_items: Vec<f64>,
}

/// What the algorithm asks of a workload: a popularity, or the worst case.
trait Workload {
    fn keys(&self) -> f64;
    fn unique(&self, requests: f64) -> f64;
    fn merge(&self, u: f64, v: f64) -> f64;
    fn compaction_interval(&self, size: f64) -> f64;
}

impl Workload for Popularity {
    fn keys(&self) -> f64 {
        self.keys()
    }
    fn unique(&self, requests: f64) -> f64 {
        self.unique(requests)
    }
    fn merge(&self, u: f64, v: f64) -> f64 {
        self.merge(u, v)
    }
    fn compaction_interval(&self, size: f64) -> f64 {
        self.compaction_interval(size)
    }
}

/// No key is ever written twice: tables of u and v items merge into u + v.
struct WorstCase {
    keys: f64,
}

impl Workload for WorstCase {
    fn keys(&self) -> f64 {
        self.keys
    }
    fn unique(&self, requests: f64) -> f64 {
        requests
    }
    fn merge(&self, u: f64, v: f64) -> f64 {
        u + v
    }
    /// The asymptotic analysis knows nothing of density: a level turns over once its size.
    fn compaction_interval(&self, size: f64) -> f64 {
        size
    }
}

impl LevelDb {
    /// LevelDB's own parameters: a log of 4 MiB, 4 level-0 tables, level l of 10^l MiB, for items of
    /// `item_bytes` and `levels` levels.
    ///
    /// # Errors
    /// [`BadParameter`].
    pub fn standard(keys: f64, item_bytes: f64, levels: usize) -> Result<Self, BadParameter> {
        let item_bytes = within("item_bytes", item_bytes, 1.0, 1e12, "give 1 byte or more")?;
        within("levels", levels as f64, 1.0, 20.0, "give 1 to 20 levels")?;
        let mib = f64::from(1 << 20);
        let sizes = (1..levels).map(|l| 10f64.powi(l as i32) * mib / item_bytes);
        Ok(LevelDb {
            log_items: 4.0 * mib / item_bytes,
            level0_tables: 4.0,
            // A small workload ends in an early level: what would lie above holds all of it.
            level_items: sizes.filter(|&size| size < keys).collect(),
        })
    }

    /// Items written for each item that the user writes, stage by stage.
    ///
    /// # Errors
    /// [`BadParameter`] for a log or level that is not positive, levels out of order, or a level
    /// that is not smaller than the number of keys.
    pub fn write_amplification(&self, popularity: &Popularity) -> Result<Breakdown, BadParameter> {
        self.check(popularity.keys())?;
        Ok(self.estimate(popularity))
    }

    /// The asymptotic analysis: as if no key were ever written twice.
    ///
    /// # Errors
    /// As [`write_amplification`](Self::write_amplification).
    pub fn worst_case(&self, keys: f64) -> Result<Breakdown, BadParameter> {
        self.check(keys)?;
        Ok(self.estimate(&WorstCase { keys }))
    }

    fn estimate(&self, workload: &impl Workload) -> Breakdown {
        let log = self.log_items;
        let size = |level: usize| {
            self.level_items.get(level - 1).copied().unwrap_or_else(|| workload.keys())
        };
        let mut by_stage = vec![
            ("mem→log".to_owned(), 1.0),
            ("mem→level-0".to_owned(), workload.unique(log) / log),
        ];
        let mut interval = log * self.level0_tables;
        let write = workload.merge(workload.unique(interval), size(1));
        by_stage.push(("level-0→1".to_owned(), write / interval));
        for level in 1..=self.level_items.len() {
            interval += workload.compaction_interval(size(level));
            let moved = workload.unique(interval);
            let write = workload.merge(moved, size(level + 1)) + moved;
            by_stage.push((format!("level-{level}→{}", level + 1), write / interval));
        }
        Breakdown { by_stage }
    }

    fn check(&self, keys: f64) -> Result<(), BadParameter> {
        let most = f64::MAX;
        within("log_items", self.log_items, f64::MIN_POSITIVE, most, "give a size above zero")?;
        within("level0_tables", self.level0_tables, 1.0, 1e6, "give 1 table or more")?;
        let mut below = 0.0;
        for &items in &self.level_items {
            let reason = "give levels in ascending order, each above zero";
            within("level_items", items, below, most, reason)?;
            let reason = "give levels smaller than the number of keys; the last level holds all";
            within("level_items", items, f64::MIN_POSITIVE, keys, reason)?;
            below = items;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_4_1_without_optimisation() {
        let uniform = Popularity::uniform(1e8).unwrap();
        let wa = LevelDb::standard(1e8, 1000.0, 5).unwrap().write_amplification(&uniform).unwrap();
        let thesis = [1.00, 1.00, 1.62, 4.77, 6.22, 6.32, 4.89];
        assert_eq!(wa.by_stage.len(), thesis.len());
        for ((stage, ours), paper) in wa.by_stage.iter().zip(thesis) {
            assert!((ours - paper).abs() <= 0.02, "{stage}: {ours} against {paper}");
        }
        assert!((wa.total() - 25.82).abs() <= 0.02, "{}", wa.total());
    }

    #[test]
    fn skew_writes_less() {
        let design = LevelDb::standard(1e8, 1000.0, 5).unwrap();
        let wa = |s: f64| {
            design.write_amplification(&Popularity::zipf(1e8, s).unwrap()).unwrap().total()
        };
        let falling: Vec<f64> = [0.0, 0.5, 0.8, 0.99, 1.2].map(wa).to_vec();
        assert!(falling.windows(2).all(|w| w[1] < w[0]), "{falling:?}");
    }

    #[test]
    fn bad_parameters_are_named() {
        let uniform = Popularity::uniform(1e6).unwrap();
        let named = |change: fn(&mut LevelDb)| {
            let mut design = LevelDb::standard(1e6, 1000.0, 3).unwrap();
            change(&mut design);
            design.write_amplification(&uniform).unwrap_err().parameter
        };
        assert_eq!(named(|d| d.log_items = 0.0), "log_items");
        assert_eq!(named(|d| d.log_items = f64::NAN), "log_items");
        assert_eq!(named(|d| d.level0_tables = -4.0), "level0_tables");
        assert_eq!(named(|d| d.level_items.reverse()), "level_items");
        assert_eq!(named(|d| d.level_items[0] = f64::NAN), "level_items");
        assert_eq!(named(|d| d.level_items[0] = -1.0), "level_items");
        assert_eq!(named(|d| d.level_items.push(1e7)), "level_items");
        assert_eq!(LevelDb::standard(1e6, 0.0, 3).unwrap_err().parameter, "item_bytes");
        assert_eq!(LevelDb::standard(1e6, 1.0, 0).unwrap_err().parameter, "levels");
    }
}
