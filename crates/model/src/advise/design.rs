//! The interface between an engine's model and the advisor: capabilities, settings, costs.

use super::costs::Costs;
use super::requirements::{Needs, Requirements};
use crate::error::InvalidParameter;

/// Settings of an engine.
pub trait Settings: std::fmt::Debug {
    /// Costs under a workload.
    ///
    /// # Errors
    /// [`InvalidParameter`] for a workload too small for them.
    fn costs(&self, wanted: &Requirements) -> Result<Costs, InvalidParameter>;

    /// The settings as options of the engine.
    fn options(&self) -> Vec<(&'static str, String)>;

    /// The settings for a share of the workload: sizes that depend on the number of items shrink by
    /// it.
    fn scaled(&self, share: f64) -> Box<dyn Settings>;
}

/// An engine's capabilities and its derivation of settings.
pub(super) struct Design {
    pub(super) engine: &'static str,
    pub(super) is_ordered: bool,
    pub(super) is_durable: bool,
    pub(super) has_versions: bool,
    pub(super) has_history: bool,
    /// Derives settings that fit the workload and its memory.
    pub(super) fit: fn(&Requirements) -> Result<Box<dyn Settings>, String>,
}

impl Design {
    /// Capabilities that the workload needs and this engine lacks, as clauses.
    pub(super) fn missing(&self, needs: &Needs) -> Vec<String> {
        let lacks = [
            (
                needs.order && !self.is_ordered,
                "it keeps no order of keys, so it cannot scan ranges",
            ),
            (needs.durability && !self.is_durable, "it keeps nothing over a restart"),
            (needs.versions && !self.has_versions, "it keeps no versions to read at a snapshot"),
            (
                needs.history.is_some() && !self.has_history,
                "it keeps no history to read as of a time",
            ),
        ];
        lacks.iter().filter(|(lacks, _)| *lacks).map(|(_, reason)| (*reason).to_owned()).collect()
    }
}

/// A size in the syntax of options, e.g. `32MiB`.
pub(super) fn size(bytes: f64) -> String {
    let bytes = bytes.round() as u64;
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")];
    let (unit, name) =
        units.into_iter().find(|(unit, _)| bytes.is_multiple_of(*unit)).unwrap_or((1, "B"));
    format!("{}{name}", bytes / unit)
}
