//! The `trie` engine: containers of sub-levels, compacted whole into their children.
//!
//! A container with a full stack of sub-levels is merged and split over its children. Existing data
//! of the children is not rewritten, so an item is written once per level. Only the last level,
//! which has no children, collects garbage.
//!
//! ```text
//! mem → log          1
//! mem → level 0      Unique(log) / log
//! level l → l+1      Unique(Iₗ) / Iₗ              Iₗ = log · growthˡ⁺¹: requests that fill level l
//! last level         (1 − g)/g · Unique(I) / I    I of the level above it (log, if none)
//! ```
//!
//! The last term: a container that was just collected contains n live items. Each arrival adds one
//! item and turns one into garbage, so the garbage reaches the share g after n·g/(1 − g) arrivals,
//! and then n items are written. Without repeated keys all other terms are 1 per level, where a
//! leveled tree costs 4 to 6 per level (thesis). The LSM-trie paper's five levels, without log and
//! collection, give its write amplification of 5.
//!
//! Source: LSM-trie paper, sections 2.2 and 2.3; the method is that of the thesis, chapter 4.

use crate::error::{InvalidParameter, MAX_ITEMS, within};
use crate::{Breakdown, Workload};

/// A trie of containers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trie {
    /// Items in a full log, that is, in a memtable.
    pub log_items: f64,
    /// Sub-levels of a full container, and children per container.
    pub growth: u32,
    /// Number of levels, including the last.
    pub levels: u32,
    /// Share of garbage that triggers the collection of a container in the last level.
    pub garbage_share: f64,
}

impl Trie {
    /// Items written per item that the user writes, stage by stage.
    ///
    /// # Errors
    /// [`InvalidParameter`].
    pub fn write_amplification(
        &self,
        workload: &impl Workload,
    ) -> Result<Breakdown, InvalidParameter> {
        let log = self.log_items;
        within("log_items", log, 1.0, MAX_ITEMS, "give a log of 1 item to 10^15")?;
        within(
            "growth",
            f64::from(self.growth),
            2.0,
            1e4,
            "give a growth factor from 2 to 10,000",
        )?;
        within("levels", f64::from(self.levels), 1.0, 64.0, "give 1 to 64 levels")?;
        let reason = "give a share above zero and below one";
        let garbage = within("garbage_share", self.garbage_share, 1e-6, 1.0 - 1e-6, reason)?;
        let distinct = |requests: f64| workload.unique(requests) / requests;
        let mut by_stage =
            vec![("mem→log".to_owned(), 1.0), ("mem→level-0".to_owned(), distinct(log))];
        let mut interval = log;
        for level in 1..self.levels {
            interval *= f64::from(self.growth);
            by_stage.push((format!("level-{}→{level}", level - 1), distinct(interval)));
        }
        let collected = (1.0 - garbage) / garbage * distinct(interval);
        by_stage.push((format!("level-{} collected", self.levels - 1), collected));
        Ok(Breakdown { by_stage })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Popularity;

    const GOOD: Trie = Trie { log_items: 1e4, growth: 8, levels: 5, garbage_share: 0.5 };

    #[test]
    fn item_is_written_once_per_level_without_repeated_keys() {
        // 10^14 keys: hardly any request repeats one.
        let keys = Popularity::uniform(1e14).unwrap();
        let wa = GOOD.write_amplification(&keys).unwrap();
        assert_eq!(wa.by_stage.len(), 7);
        // The log, five levels (the paper's 5), and 1 for collecting at half garbage.
        assert!((wa.total() - 7.0).abs() < 1e-5, "{wa:?}");
        let rarely = Trie { garbage_share: 0.8, ..GOOD }.write_amplification(&keys).unwrap();
        assert!((rarely.by_stage[6].1 - 0.25).abs() < 1e-6);
    }

    #[test]
    fn repeated_keys_reduce_the_cost_of_lower_levels() {
        // Level 0 takes 2·ln 2·N requests: three in four keys are among them.
        let keys = Popularity::uniform(1e6).unwrap();
        let filled = 1e6 * 2.0 * 2f64.ln();
        let trie = Trie { log_items: filled / 2.0, growth: 2, levels: 2, garbage_share: 0.5 };
        let wa = trie.write_amplification(&keys).unwrap();
        let by_hand = [1.0, 0.5e6 / (filled / 2.0), 0.75e6 / filled, 0.75e6 / filled];
        for ((stage, ours), by_hand) in wa.by_stage.iter().zip(by_hand) {
            assert!((ours / by_hand - 1.0).abs() < 1e-6, "{stage}: {ours} against {by_hand}");
        }
    }

    #[test]
    fn invalid_parameter_is_named() {
        let keys = Popularity::uniform(1e6).unwrap();
        let named = |trie: Trie| trie.write_amplification(&keys).unwrap_err().parameter;
        for log_items in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(named(Trie { log_items, ..GOOD }), "log_items");
        }
        assert_eq!(named(Trie { growth: 1, ..GOOD }), "growth");
        assert_eq!(named(Trie { levels: 0, ..GOOD }), "levels");
        for garbage_share in [0.0, 1.0, -0.5, f64::NAN] {
            assert_eq!(named(Trie { garbage_share, ..GOOD }), "garbage_share");
        }
    }
}
