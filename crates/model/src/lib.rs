//! The analytic model of multi-stage log-structured stores. Pure functions, no I/O.
//!
//! A workload is a *popularity*: how likely each of N keys is to be written next. Three primitives
//! follow from it — how many distinct keys p requests touch ([`Popularity::unique`]), how many
//! requests it takes to touch u of them ([`Popularity::unique_inverse`]), and how large two tables
//! are when merged ([`Popularity::merge`]) — and every design's write amplification is arithmetic on
//! them, stage by stage.
//!
//! ```
//! use siltstone_model::{LevelDb, Popularity};
//!
//! // Table 4.1 of the thesis: 10^8 keys, 1,000-byte items, levels of 10^l MiB.
//! let keys = Popularity::uniform(1e8)?;
//! let wa = LevelDb::standard(1e8, 1000.0, 5)?.write_amplification(&keys)?;
//! assert!((wa.total() - 25.82).abs() < 0.02);
//! # Ok::<(), siltstone_model::BadParameter>(())
//! ```
//!
//! | module | one idea |
//! | --- | --- |
//! | [`popularity`] | how likely each key is, compressed into groups |
//! | [`primitives`] | Unique, its inverse, Merge, DInterval |
//! | [`workload`] | what a model asks of either of the next two |
//! | [`tabulated`] | the same primitives by table, for optimisers |
//! | [`root`] | solving f(x) = y for a rising f |
//! | [`leveldb`] | LevelDB's write amplification (Algorithm 3) |
//! | [`cola`] | COLA and SAMT (Algorithm 4) |
//! | [`silt`] | SILT (Algorithm 5, equations 2.4 to 2.8) |
//! | [`lsm`] | our ordered engine: TRIAD's techniques and the triangle, on or off |
//! | [`trie`] | our trie of containers |
//! | [`skimpy`] | our log of versions over flash |
//! | [`optimize`] | level sizes of least write amplification |
//! | [`advise`] | which engine a workload wants, and with which settings |
//! | [`simulate`] | an event simulator of LevelDB, the models' judge |
//!
//! Quantities are counts of items; all items are taken to be of one size. Source: Lim's thesis,
//! chapter 4 and section 2.4.

pub mod advise;
pub mod cola;
pub mod error;
pub mod leveldb;
pub mod lsm;
pub mod optimize;
pub mod popularity;
pub mod primitives;
pub mod root;
pub mod silt;
pub mod simulate;
pub mod skimpy;
pub mod tabulated;
pub mod trie;
pub mod workload;

pub use cola::{Cola, Samt};
pub use error::BadParameter;
pub use leveldb::LevelDb;
pub use lsm::{Lsm, Wait};
pub use popularity::Popularity;
pub use silt::{Silt, SiltExample};
pub use skimpy::Skimpy;
pub use tabulated::Tabulated;
pub use trie::Trie;
pub use workload::Workload;

use serde::Serialize;

/// Write amplification, stage by stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Breakdown {
    /// Each stage's name and the items it writes for each item that the user writes.
    pub by_stage: Vec<(String, f64)>,
}

impl Breakdown {
    /// The sum over all stages.
    pub fn total(&self) -> f64 {
        self.by_stage.iter().map(|(_, wa)| wa).sum()
    }
}
