//! The analytic model of multi-stage log-structured stores. Pure functions, no I/O.
//!
//! A workload is a *popularity*: the probability of each of N keys to be written next. Three
//! primitives follow from it: the number of distinct keys among p requests
//! ([`Popularity::unique`]), its inverse ([`Popularity::unique_inverse`]), and the size of two
//! merged tables ([`Popularity::merge`]). The write amplification of every design is arithmetic on
//! them, stage by stage. Quantities are counts of items of one size; for several sizes, in items of
//! the mean size of a written one ([`Popularity::with_item_sizes`]).
//!
//! ```
//! use siltstone_model::{LevelDb, Popularity};
//!
//! // Table 4.1 of the thesis: 10^8 keys, 1,000-byte items, levels of 10^l MiB.
//! let keys = Popularity::uniform(1e8)?;
//! let wa = LevelDb::standard(1e8, 1000.0, 5)?.write_amplification(&keys)?;
//! assert!((wa.total() - 25.82).abs() < 0.02);
//! # Ok::<(), siltstone_model::InvalidParameter>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`popularity`] | the probability of each key, compressed into groups |
//! | [`primitives`] | Unique, its inverse, Merge, DInterval |
//! | [`workload`] | the primitives as a trait, exact or interpolated |
//! | [`deletions`] | requests of which some delete their key |
//! | [`drift`] | a load whose popular keys change |
//! | [`interpolation`] | the primitives from interpolation tables, for optimisers |
//! | [`root_finding`] | solves f(x) = y for an increasing f |
//! | [`leveldb`] | LevelDB's write amplification (Algorithm 3) |
//! | [`cola`] | COLA and SAMT (Algorithm 4) |
//! | [`silt`] | SILT (Algorithm 5, equations 2.4 to 2.8) |
//! | [`lsm`] | the `lsm` engine: LevelDB's model plus TRIAD's techniques and the sliced level 0 |
//! | [`trie`] | the `trie` engine |
//! | [`skimpy`] | the `skimpy` engine |
//! | [`optimize`] | level sizes of minimal write amplification |
//! | [`advise`] | recommends an engine and its settings for a workload |
//! | [`simulate`] | an event simulator of LevelDB, to validate the models |
//!
//! Source: Lim's thesis, chapter 4 and section 2.4.

pub mod advise;
pub mod cola;
pub mod deletions;
pub mod drift;
pub mod error;
pub mod interpolation;
pub mod leveldb;
pub mod lsm;
pub mod optimize;
pub mod popularity;
pub mod primitives;
pub mod root_finding;
pub mod silt;
pub mod simulate;
pub mod skimpy;
pub mod trie;
pub mod workload;

pub use cola::{Cola, Samt};
pub use deletions::Deletions;
pub use drift::Drift;
pub use error::InvalidParameter;
pub use interpolation::InterpolatedPopularity;
pub use leveldb::LevelDb;
pub use lsm::{Lsm, Wait};
pub use popularity::Popularity;
pub use silt::{Silt, SiltExample};
pub use skimpy::Skimpy;
pub use trie::Trie;
pub use workload::Workload;

use serde::Serialize;

/// Write amplification, stage by stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Breakdown {
    /// Name of each stage, and the items it writes per item that the user writes.
    pub by_stage: Vec<(String, f64)>,
}

impl Breakdown {
    /// Sum over all stages.
    pub fn total(&self) -> f64 {
        self.by_stage.iter().map(|(_, wa)| wa).sum()
    }
}
