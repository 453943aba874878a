//! COLA and SAMT (Algorithm 4): levels that grow by a factor r, whose tables are merged immediately
//! (COLA), or only on their way to the next level (SAMT).
//!
//! ```text
//! COLA  level l takes r − 1 merges before it moves on:  Σⱼ Merge(Unique(Iₗ), Unique(Iₗ·j)) / Iₗ₊₁
//! SAMT  level l keeps r tables side by side:            r·Unique(Iₗ) / Iₗ₊₁
//! both  the last level contains every key:              N / I_(L−1)              Iₗ = log · rˡ
//! ```
//!
//! Source: Lim, thesis, section 4.4.

use crate::error::{InvalidParameter, MAX_ITEMS, within};
use crate::{Breakdown, Popularity};

/// Upper limit of the last interval: a larger product may be infinite.
const MAX_REQUESTS: f64 = 1e30;

/// A cache-oblivious lookahead array.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cola {
    /// Items in a full log.
    pub log_items: f64,
    /// Size ratio of a level to the level above.
    pub growth: u32,
    /// Number of levels, including the last.
    pub levels: u32,
}

/// A sorted array merge tree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Samt {
    /// Items in a full log.
    pub log_items: f64,
    /// Tables per level.
    pub growth: u32,
    /// Number of levels, including the last.
    pub levels: u32,
}

impl Cola {
    /// Items written per item that the user writes, stage by stage.
    ///
    /// # Errors
    /// [`InvalidParameter`].
    pub fn write_amplification(
        &self,
        popularity: &Popularity,
    ) -> Result<Breakdown, InvalidParameter> {
        let merges = |interval: f64| {
            // Merge(Unique(I), Unique(I·j)) is Unique(I·(j + 1)): no inverse is needed.
            let merged = |j: u32| popularity.unique(interval * f64::from(j));
            (1..self.growth).map(merged).sum::<f64>()
        };
        stages(self.log_items, self.growth, self.levels, popularity, merges)
    }
}

impl Samt {
    /// Items written per item that the user writes, stage by stage.
    ///
    /// # Errors
    /// [`InvalidParameter`].
    pub fn write_amplification(
        &self,
        popularity: &Popularity,
    ) -> Result<Breakdown, InvalidParameter> {
        let tables = |interval: f64| f64::from(self.growth) * popularity.unique(interval);
        stages(self.log_items, self.growth, self.levels, popularity, tables)
    }
}

/// `written(I)` is the number of items that a level writes while `growth` tables of I requests
/// arrive.
fn stages(
    log_items: f64,
    growth: u32,
    levels: u32,
    popularity: &Popularity,
    written: impl Fn(f64) -> f64,
) -> Result<Breakdown, InvalidParameter> {
    within("log_items", log_items, 1.0, MAX_ITEMS, "give a log of 1 item to 10^15")?;
    within("growth", f64::from(growth), 2.0, 1e4, "give a growth factor from 2 to 10,000")?;
    within("levels", f64::from(levels), 1.0, 64.0, "give 1 to 64 levels")?;
    let last = log_items * f64::from(growth).powf(f64::from(levels) - 1.0);
    if last > MAX_REQUESTS {
        let reason = "give levels of which the last fills in 10^30 requests or less";
        return Err(InvalidParameter { parameter: "levels", value: f64::from(levels), reason });
    }
    let mut by_stage = vec![("mem→log".to_owned(), 1.0)];
    let mut interval = log_items;
    for level in 0..levels - 1 {
        let next = interval * f64::from(growth);
        let from = if level == 0 { "mem".to_owned() } else { format!("level-{level}") };
        by_stage.push((format!("{from}→{}", level + 1), written(interval) / next));
        interval = next;
    }
    by_stage.push((format!("level-{}→{levels}", levels - 1), popularity.keys() / interval));
    Ok(Breakdown { by_stage })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_without_repeated_keys_match_the_designs() {
        // 10^12 keys: hardly any request repeats one.
        let keys = Popularity::uniform(1e12).unwrap();
        let (log_items, growth, levels) = (1e4, 4, 3);
        let samt = Samt { log_items, growth, levels }.write_amplification(&keys).unwrap();
        // Each of two levels writes each item once.
        assert!((samt.by_stage[1].1 - 1.0).abs() < 1e-6 && (samt.by_stage[2].1 - 1.0).abs() < 1e-4);
        let cola = Cola { log_items, growth, levels }.write_amplification(&keys).unwrap();
        // Merges of 1, 2 and 3 tables per 4 arriving tables.
        assert!((cola.by_stage[1].1 - 6.0 / 4.0).abs() < 1e-4, "{cola:?}");
        let last = 1e12 / (1e4 * 16.0);
        assert!((cola.by_stage[3].1 / last - 1.0).abs() < 1e-9);
    }

    #[test]
    fn invalid_parameter_is_named() {
        let keys = Popularity::uniform(1e6).unwrap();
        let cola = |log_items, growth, levels| {
            Cola { log_items, growth, levels }.write_amplification(&keys).unwrap_err().parameter
        };
        assert_eq!(cola(-1.0, 4, 3), "log_items");
        assert_eq!(cola(1.0, 1, 3), "growth");
        assert_eq!(cola(1.0, 4, 0), "levels");
        assert_eq!(cola(1e-300, 4, 3), "log_items");
        // The last level's interval would be infinite.
        assert_eq!(cola(1.0, 10_000, 64), "levels");
    }
}
