//! The amount of testing, from environment variables, so that one test is a quick check on every
//! change and a long run at night.
//!
//! | variable | what it sets | default |
//! | --- | --- | --- |
//! | `SILTSTONE_SEED` | runs only this case | all cases |
//! | `SILTSTONE_VARIANT` | runs only this option set | all in turn |
//! | `SILTSTONE_HISTORIES` | random histories | 60 |
//! | `SILTSTONE_POWER_CUTS` | power cuts | 400 |
//! | `SILTSTONE_REFUSED_HISTORIES` | histories in which writes are refused | 100 |
//! | `SILTSTONE_FLIPS` | flipped bytes and other damage, per store | 1500 |
//! | `SILTSTONE_DAMAGED_STORES` | damaged stores that are repaired, with every row accounted for | 400 |
//! | `SILTSTONE_FAULTS` | requests failed in turn, per option set | 24 |
//! | `SILTSTONE_ROUNDS` | concurrent runs | 30 |
//! | `SILTSTONE_KILLS` | kills of a writing process | 12 |
//!
//! Invariant: a case is a function of its seed and its option set.

/// The amount of testing.
#[derive(Debug, Clone)]
pub struct Scale {
    /// The only case to run.
    pub seed: Option<u64>,
    /// The only option set to run with.
    pub option_set: Option<u32>,
    /// Random histories.
    pub histories: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Histories in which writes are refused.
    pub refused_histories: u64,
    /// Damages per store.
    pub flips: u64,
    /// Damaged stores to repair.
    pub damaged_stores: u64,
    /// Requests to fail per option set: of the creation of its table, and as many later ones.
    pub faults: u64,
    /// Concurrent runs.
    pub rounds: u64,
    /// Kills of a writing process.
    pub kills: u64,
}

impl Default for Scale {
    fn default() -> Self {
        Scale {
            seed: None,
            option_set: None,
            histories: 60,
            power_cuts: 400,
            refused_histories: 100,
            flips: 1500,
            damaged_stores: 400,
            faults: 24,
            rounds: 30,
            kills: 12,
        }
    }
}

/// One run: the seed of its random numbers, and the option set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The seed.
    pub seed: u64,
    /// The option set.
    pub option_set: u32,
}

impl Scale {
    /// The defaults, changed by the environment.
    ///
    /// # Panics
    /// If a variable is not a number: a long run with a typo would test nothing.
    pub fn from_env() -> Self {
        Self::from_env_or(Scale::default())
    }

    /// As [`from_env`](Self::from_env), with other defaults.
    ///
    /// # Panics
    /// As [`from_env`](Self::from_env).
    pub fn from_env_or(default: Scale) -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
        };
        Scale {
            seed: number("SILTSTONE_SEED"),
            option_set: number("SILTSTONE_VARIANT").map(|option_set| option_set as u32),
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

    /// `count` cases over all option sets in turn, or only the requested ones.
    pub fn cases(&self, count: u64, option_sets: u32) -> impl Iterator<Item = Case> + use<> {
        let only = self.option_set;
        let option_set = move |seed: u64| only.unwrap_or((seed % u64::from(option_sets)) as u32);
        let seeds = self.seed.map_or(0..count, |seed| seed..seed.saturating_add(1));
        seeds.map(move |seed| Case { seed, option_set: option_set(seed) })
    }

    /// The option sets to run with.
    pub fn option_sets(&self, count: u32) -> std::ops::Range<u32> {
        self.option_set.map_or(0..count, |option_set| option_set..option_set + 1)
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Cargo names the crate under test.
        let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "…".to_owned());
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        write!(
            f,
            "repeat: SILTSTONE_SEED={} SILTSTONE_VARIANT={} cargo test -p {package} {test}",
            self.seed, self.option_set
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_sets_take_turns_unless_one_is_requested() {
        let scale = Scale::default();
        let option_sets: Vec<_> = scale.cases(5, 3).map(|case| case.option_set).collect();
        assert_eq!(option_sets, [0, 1, 2, 0, 1]);
        let one = Scale { seed: Some(7), option_set: Some(2), ..scale };
        assert_eq!(one.cases(5, 3).collect::<Vec<_>>(), [Case { seed: 7, option_set: 2 }]);
    }
}
