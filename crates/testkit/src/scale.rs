//! How much to test, from environment variables, so that one test is a quick check on every change
//! and a long run at night.
//!
//! | variable | what it sets | default |
//! | --- | --- | --- |
//! | `SILTSTONE_SEED` | runs this case alone | all cases |
//! | `SILTSTONE_VARIANT` | runs this option set alone | all in turn |
//! | `SILTSTONE_HISTORIES` | random histories | 60 |
//! | `SILTSTONE_POWER_CUTS` | power cuts | 400 |
//! | `SILTSTONE_REFUSED_HISTORIES` | histories in which writes are refused | 100 |
//! | `SILTSTONE_FLIPS` | bytes flipped and other damage, by store | 1500 |
//! | `SILTSTONE_DAMAGED_STORES` | damaged stores that are repaired, every row accounted for | 400 |
//! | `SILTSTONE_FAULTS` | requests failed in turn, by option set | 60 |
//! | `SILTSTONE_ROUNDS` | concurrent runs | 6 |
//! | `SILTSTONE_KILLS` | deaths of a writing process | 12 |
//!
//! Invariant: a case is a function of its seed and its variant.
//!
//! Source: ours.

/// How much to test.
#[derive(Debug, Clone)]
pub struct Scale {
    /// The one case to run.
    pub seed: Option<u64>,
    /// The one option set to run with.
    pub variant: Option<u32>,
    /// Random histories.
    pub histories: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Histories in which writes are refused.
    pub refused_histories: u64,
    /// Places to damage, by store.
    pub flips: u64,
    /// Damaged stores to repair.
    pub damaged_stores: u64,
    /// Requests to fail, by option set.
    pub faults: u64,
    /// Concurrent runs.
    pub rounds: u64,
    /// Deaths of a writing process.
    pub kills: u64,
}

impl Default for Scale {
    fn default() -> Self {
        Scale {
            seed: None,
            variant: None,
            histories: 60,
            power_cuts: 400,
            refused_histories: 100,
            flips: 1500,
            damaged_stores: 400,
            faults: 60,
            rounds: 30,
            kills: 12,
        }
    }
}

/// One run: what it draws its chances from, and the option set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The seed.
    pub seed: u64,
    /// The option set.
    pub variant: u32,
}

impl Scale {
    /// The defaults, changed by the environment.
    ///
    /// # Panics
    /// If a variable is not a number: a long run with a typing error would test nothing.
    pub fn from_env() -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
        };
        let default = Scale::default();
        Scale {
            seed: number("SILTSTONE_SEED"),
            variant: number("SILTSTONE_VARIANT").map(|variant| variant as u32),
            histories: number("SILTSTONE_HISTORIES").unwrap_or(default.histories),
            power_cuts: number("SILTSTONE_POWER_CUTS").unwrap_or(default.power_cuts),
            refused_histories: number("SILTSTONE_REFUSED_HISTORIES")
                .unwrap_or(default.refused_histories),
            flips: number("SILTSTONE_FLIPS").unwrap_or(default.flips),
            damaged_stores: number("SILTSTONE_DAMAGED_STORES").unwrap_or(default.damaged_stores),
            faults: number("SILTSTONE_FAULTS").unwrap_or(default.faults),
            rounds: number("SILTSTONE_ROUNDS").unwrap_or(default.rounds),
            kills: number("SILTSTONE_KILLS").unwrap_or(default.kills),
        }
    }

    /// `count` cases that take the variants in turn, or the one that was asked for.
    pub fn cases(&self, count: u64, variants: u32) -> impl Iterator<Item = Case> + use<> {
        let only = self.variant;
        let variant = move |seed: u64| only.unwrap_or((seed % u64::from(variants)) as u32);
        let seeds = self.seed.map_or(0..count, |seed| seed..seed.saturating_add(1));
        seeds.map(move |seed| Case { seed, variant: variant(seed) })
    }

    /// The variants to run with.
    pub fn variants(&self, variants: u32) -> std::ops::Range<u32> {
        self.variant.map_or(0..variants, |variant| variant..variant + 1)
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Cargo says which crate is being tested.
        let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "…".to_owned());
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        write!(
            f,
            "repeat: SILTSTONE_SEED={} SILTSTONE_VARIANT={} cargo test -p {package} {test}",
            self.seed, self.variant
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_come_in_turn_unless_one_is_asked_for() {
        let scale = Scale::default();
        let variants: Vec<_> = scale.cases(5, 3).map(|case| case.variant).collect();
        assert_eq!(variants, [0, 1, 2, 0, 1]);
        let one = Scale { seed: Some(7), variant: Some(2), ..scale };
        assert_eq!(one.cases(5, 3).collect::<Vec<_>>(), [Case { seed: 7, variant: 2 }]);
    }
}
