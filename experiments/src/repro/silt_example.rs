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

use super::bars::bar;
use super::{Experiment, Measurement, model_error};

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
        let costs = Example::default().costs().map_err(model_error)?;
        let zipf = Popularity::zipf(INSTANCE_KEYS, SKEW).map_err(model_error)?;
        let uniform = Popularity::uniform(INSTANCE_KEYS).map_err(model_error)?;
        let wa = |stores, popularity| -> Result<f64> {
            let wa = Silt::example(stores).write_amplification(popularity).map_err(model_error)?;
            Ok(wa.total())
        };
        let checks = vec![
            bar("silt-example", "write-amplification")
                .check("write amplification (2.4)", costs.write_amplification),
            bar("silt-example", "hash-stores")
                .check("HashStores on average (2.5)", costs.hash_stores),
            bar("silt-example", "flash-reads")
                .check("flash reads per lookup (2.6)", costs.read_amplification),
            bar("silt-example", "memory")
                .check("bytes of memory an item (2.7)", costs.memory_overhead),
            bar("silt-example", "years").check("years of flash life (2.8)", costs.lifetime_years),
            bar("silt-example", "uniform-62")
                .check("WA, uniform, 62 HashStores", wa(62.0, &uniform)?),
            bar("silt-example", "zipf-62").check("WA, Zipf 0.99, 62 HashStores", wa(62.0, &zipf)?),
            bar("silt-example", "zipf-25").check("WA, Zipf 0.99, 25 HashStores", wa(25.0, &zipf)?),
        ];
        Ok(Measurement { scale: "computed; the same at any scale".to_owned(), checks, plot: None })
    }
}
