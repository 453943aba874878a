//! SILT: write amplification under any popularity (Algorithm 5), and the design equations for
//! updates of distinct keys (2.4 to 2.8).
//!
//! ```text
//! log                      1
//! LogStore → HashStore     hs / I          I = Unique⁻¹(hs · occ): requests that fill a LogStore
//! HashStores → SortedStore N / (I · hc)
//! ```
//!
//! Source: Lim, thesis, sections 2.4 and 4.5.

use serde::Serialize;

use crate::error::{InvalidParameter, within};
use crate::{Breakdown, Popularity};

/// One SILT instance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Silt {
    /// Slots in the hash table of a LogStore and of a HashStore.
    pub table_slots: f64,
    /// Share of the slots that are in use when the table is full.
    pub occupancy: f64,
    /// HashStores per merge into the SortedStore.
    pub hash_stores: f64,
}

impl Silt {
    /// The thesis's example: `hash_stores` tables of 2¹⁷ slots, 93 % full.
    pub fn example(hash_stores: f64) -> Self {
        Silt { table_slots: f64::from(1 << 17), occupancy: 0.93, hash_stores }
    }

    /// Items written per item that the user writes, stage by stage; `popularity` is that of one
    /// instance's keys.
    ///
    /// # Errors
    /// [`InvalidParameter`].
    pub fn write_amplification(
        &self,
        popularity: &Popularity,
    ) -> Result<Breakdown, InvalidParameter> {
        let slots = within("table_slots", self.table_slots, 1.0, 1e15, "give 1 slot or more")?;
        let occupancy =
            within("occupancy", self.occupancy, f64::MIN_POSITIVE, 1.0, "give a part from 0 to 1")?;
        let stores = within("hash_stores", self.hash_stores, 1.0, 1e9, "give 1 store or more")?;
        let full = slots * occupancy;
        if full < 1.0 {
            let reason = "give tables that hold 1 item or more when full";
            return Err(InvalidParameter { parameter: "occupancy", value: occupancy, reason });
        }
        let reason = "give tables that hold fewer items than there are keys";
        within("table_slots", full, 0.0, popularity.keys() * (1.0 - f64::EPSILON), reason)?;
        let interval = popularity.unique_inverse(full);
        Ok(Breakdown {
            by_stage: vec![
                ("log".to_owned(), 1.0),
                ("LogStore→HashStore".to_owned(), slots / interval),
                ("HashStore→SortedStore".to_owned(), popularity.keys() / (interval * stores)),
            ],
        })
    }
}

/// Parameters of Table 2.4.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SiltExample {
    /// Entries in the HashStores of an instance when they are merged (d).
    pub merge_entries: f64,
    /// Bits per tag (k).
    pub tag_bits: f64,
    /// Instances (P).
    pub instances: f64,
    /// Bytes per entry (c).
    pub entry_bytes: f64,
    /// Distinct keys (N).
    pub keys: f64,
    /// Updates per second (U).
    pub updates_per_second: f64,
    /// Bytes of the flash drive (F).
    pub flash_bytes: f64,
    /// Erase cycles until the drive is worn out (E).
    pub erase_cycles: f64,
}

/// Costs that follow from a [`SiltExample`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SiltCosts {
    /// Equation 2.4.
    pub write_amplification: f64,
    /// HashStores per instance on average (equation 2.5).
    pub hash_stores: f64,
    /// Flash reads per lookup, in the worst case (equation 2.6).
    pub read_amplification: f64,
    /// Bytes of memory per item (equation 2.7).
    pub memory_overhead: f64,
    /// Lifetime of the drive, in years of 365.25 days (equation 2.8).
    pub lifetime_years: f64,
}

impl Default for SiltExample {
    /// The example column of Table 2.4.
    fn default() -> Self {
        SiltExample {
            merge_entries: 7.5e6,
            tag_bits: 15.0,
            instances: 4.0,
            entry_bytes: 1024.0,
            keys: 1e8,
            updates_per_second: 5000.0,
            flash_bytes: 256.0 * f64::from(1 << 30),
            erase_cycles: 10_000.0,
        }
    }
}

impl SiltExample {
    /// Equations 2.4 to 2.8, with their constants: an occupancy of 0.93 and 0.4 bytes per entry for
    /// the SortedStore's index.
    ///
    /// # Errors
    /// [`InvalidParameter`] for a value that is not above zero.
    pub fn costs(&self) -> Result<SiltCosts, InvalidParameter> {
        let positive = |parameter, value| {
            within(parameter, value, 1e-9, 1e30, "give a number from 10^-9 to 10^30")
        };
        let d = positive("merge_entries", self.merge_entries)?;
        let k = within("tag_bits", self.tag_bits, 1.0, 64.0, "give 1 to 64 bits")?;
        let p = positive("instances", self.instances)?;
        let c = positive("entry_bytes", self.entry_bytes)?;
        let n = positive("keys", self.keys)?;
        let u = positive("updates_per_second", self.updates_per_second)?;
        let f = positive("flash_bytes", self.flash_bytes)?;
        let e = positive("erase_cycles", self.erase_cycles)?;
        let tags = k.exp2();
        let table = 4.0 * tags;
        let write_amplification = 1.0 + 1.0 / 0.93 + n / (d * p);
        let hash_stores = d / 2.0 / (0.93 * table);
        let per_instance = ((k + 1.0) / 8.0 + 4.0) * table + k / 8.0 * table * hash_stores;
        const YEAR_SECONDS: f64 = 365.25 * 86_400.0;
        Ok(SiltCosts {
            write_amplification,
            hash_stores,
            read_amplification: (1.0 + hash_stores) * 8.0 / tags + 1.0,
            memory_overhead: (per_instance + 0.4 * n / p) * p / n,
            lifetime_years: f * e / (u * c * write_amplification) / YEAR_SECONDS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(ours: f64, paper: f64, tolerance: f64) {
        assert!((ours / paper - 1.0).abs() <= tolerance, "{ours} against {paper}");
    }

    #[test]
    fn example_of_section_2_4_is_reproduced() {
        let costs = SiltExample::default().costs().unwrap();
        assert_close(costs.write_amplification, 5.4, 0.01);
        assert_close(costs.hash_stores, 31.0, 0.01);
        assert_close(costs.read_amplification, 1.008, 0.001);
        assert_close(costs.memory_overhead, 0.73, 0.01);
        assert!((2.8..3.2).contains(&costs.lifetime_years), "{costs:?}");
    }

    #[test]
    fn skewed_example_of_section_4_5_is_reproduced() {
        // One of four instances: a quarter of 10^8 keys.
        let zipf = Popularity::zipf(25e6, 0.99).unwrap();
        let wa = |stores| Silt::example(stores).write_amplification(&zipf).unwrap().total();
        assert_close(wa(62.0), 3.0, 0.02);
        assert_close(wa(25.0), 5.4, 0.02);
        let uniform = Popularity::uniform(25e6).unwrap();
        assert_close(Silt::example(62.0).write_amplification(&uniform).unwrap().total(), 5.4, 0.01);
    }

    #[test]
    fn invalid_parameter_is_named() {
        let keys = Popularity::uniform(1e6).unwrap();
        let named = |silt: Silt| silt.write_amplification(&keys).unwrap_err().parameter;
        let good = Silt { table_slots: 1e4, occupancy: 0.9, hash_stores: 8.0 };
        assert_eq!(named(Silt { table_slots: 0.0, ..good }), "table_slots");
        assert_eq!(named(Silt { table_slots: 1e9, ..good }), "table_slots");
        assert_eq!(named(Silt { occupancy: 1.1, ..good }), "occupancy");
        // A table with less than one item.
        assert_eq!(named(Silt { occupancy: 1e-300, ..good }), "occupancy");
        assert_eq!(named(Silt { hash_stores: f64::NAN, ..good }), "hash_stores");
        let bad = SiltExample { keys: 0.0, ..SiltExample::default() };
        assert_eq!(bad.costs().unwrap_err().parameter, "keys");
        let bad = SiltExample { merge_entries: 1e-300, ..SiltExample::default() };
        assert_eq!(bad.costs().unwrap_err().parameter, "merge_entries");
    }
}
