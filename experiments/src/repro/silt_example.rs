//! `silt-example`: costs of SILT by its design equations and by the model.
//!
//! Equations 2.4 to 2.8 for the example of Table 2.4, and Algorithm 5 for the same instance under a
//! uniform and a skewed popularity.
//!
//! Invariant: every number is computed from the paper's parameters; the tolerances are those of the
//! printed digits.
//!
//! Source: Lim, thesis (2015), sections 2.4 and 4.5.

use siltstone_engine::Result;
use siltstone_model::{Popularity, Silt, SiltExample as Example};

use super::{Check, Experiment, Kind, Measurement, Side, refused};

/// One of four instances that share 10^8 keys.
const INSTANCE_KEYS: f64 = 25e6;
const SKEW: f64 = 0.99;

pub(super) struct SiltExample;

impl Experiment for SiltExample {
    fn id(&self) -> &'static str {
        "silt-example"
    }

    fn paper(&self) -> &'static str {
        "Lim, Resource-Efficient Data-Intensive System Designs, 2015"
    }

    fn figure(&self) -> &'static str {
        "section 2.4 (equations 2.4 to 2.8) and section 4.5 (Algorithm 5)"
    }

    fn claim(&self) -> &'static str {
        "WA 5.4, RA 1.008, 0.73 B per item, 3 years; at Zipf 0.99 WA 3.0 with 62 HashStores and 5.4 with 25"
    }

    fn run(&self, _scale: f64, _progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let costs = Example::default().costs().map_err(refused)?;
        let zipf = Popularity::zipf(INSTANCE_KEYS, SKEW).map_err(refused)?;
        let uniform = Popularity::uniform(INSTANCE_KEYS).map_err(refused)?;
        let wa = |stores, popularity| -> Result<f64> {
            let wa = Silt::example(stores).write_amplification(popularity).map_err(refused)?;
            Ok(wa.total())
        };
        let check = |what: &str, claimed: f64, ours: f64, tolerance: f64| Check {
            what: what.to_owned(),
            claimed,
            ours,
            kind: Kind::Equal { tolerance, side: Side::None },
        };
        let checks = vec![
            check("write amplification (2.4)", 5.4, costs.write_amplification, 0.01),
            check("HashStores on average (2.5)", 31.0, costs.hash_stores, 0.01),
            check("flash reads per lookup (2.6)", 1.008, costs.read_amplification, 0.001),
            check("bytes of memory an item (2.7)", 0.73, costs.memory_overhead, 0.01),
            // "3 years" has one digit.
            check("years of flash life (2.8)", 3.0, costs.lifetime_years, 0.5 / 3.0),
            check("WA, uniform, 62 HashStores", 5.4, wa(62.0, &uniform)?, 0.01),
            check("WA, Zipf 0.99, 62 HashStores", 3.0, wa(62.0, &zipf)?, 0.02),
            check("WA, Zipf 0.99, 25 HashStores", 5.4, wa(25.0, &zipf)?, 0.02),
        ];
        Ok(Measurement { scale: "computed; the same at any scale".to_owned(), checks, plot: None })
    }
}
