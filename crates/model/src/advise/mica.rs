//! The advisor's model of `mica`: its settings for a workload, and what they cost.
//!
//! MICA in store mode, with all data in memory and nothing on the device.
//!
//! Source: Lim, thesis, section 5.3; overheads per item from the engine's `item` and `index`.

use super::costs::Costs;
use super::design::{Design, Settings, size};
use super::requirements::Requirements;
use crate::Breakdown;
use crate::error::InvalidParameter;

pub(super) const DESIGN: Design = Design {
    engine: "mica",
    is_ordered: false,
    is_durable: false,
    has_versions: false,
    has_history: false,
    fit,
};

/// Overhead in bytes per item: header, tags of its block, and rounding.
const ITEM_BYTES: f64 = 32.0;
/// Index bytes per item: a bucket of 64 bytes per 4.55 items, and a tenth as many overflow buckets.
const INDEX_BYTES: f64 = 64.0 / 4.55 * 1.1;
/// Factor for fragmentation by items of different sizes.
const HEADROOM: f64 = 1.15;

#[derive(Debug, Clone)]
struct Store {
    memory: f64,
    item: f64,
}

fn fit(wanted: &Requirements) -> Result<Box<dyn Settings>, String> {
    let needed = wanted.keys() * (wanted.item_bytes() + ITEM_BYTES + INDEX_BYTES) * HEADROOM;
    Ok(Box::new(Store { memory: needed.max(1048576.0), item: wanted.item_bytes() }))
}

impl Settings for Store {
    fn costs(&self, _wanted: &Requirements) -> Result<Costs, InvalidParameter> {
        Ok(Costs {
            writes: Breakdown { by_stage: Vec::new() },
            write_amplification: 0.0,
            reads_per_lookup: 0.0,
            index_bytes: self.memory,
            buffer_bytes: 0.0,
            space_bytes: 0.0,
        })
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        let item = self.item.round().max(1.0);
        vec![
            ("mode", "store".to_owned()),
            ("memory", size(self.memory)),
            ("expected_item_bytes", item.to_string()),
        ]
    }

    fn scaled(&self, share: f64) -> Box<dyn Settings> {
        Box::new(Store { memory: (self.memory * share).max(4.0 * 1048576.0), item: self.item })
    }
}
