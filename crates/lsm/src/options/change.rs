//! Which options change while the table is open, and the check of a change.
//!
//! Invariant: the options in force have passed the same checks as those of an open.

use std::collections::BTreeMap;

use arc_swap::ArcSwap;
use siltstone_engine::{Error, InvalidOption, Result};

use super::{Options, RENAMED_OPTIONS};

/// The options in force.
pub(crate) type LiveOptions = ArcSwap<Options>;

/// The options that [`set_options`](siltstone_engine::Engine::set_options) changes. The others
/// change at the next open.
pub const LIVE_OPTIONS: &[&str] = &[
    "memtable",
    "memtables",
    "target_file_size",
    "cache",
    "log_retention",
    "log_retention_time",
    "block_size",
    "filter_bits_per_key",
    "compression",
    "bottommost_compression",
    "compression_dict_size",
    "blob_threshold",
    "blob_gc_ratio",
    "max_compactions",
    "max_subcompactions",
    "l0_capacity",
    "triad.prefetch",
    "experimental.l0_compaction_trigger",
    "experimental.l0_slowdown_trigger",
    "experimental.l0_stop_trigger",
    "experimental.block_restart_interval",
    "experimental.range_filter",
    "experimental.compaction_pri",
];

impl Options {
    /// These options with `changes` to those that change while the table is open.
    pub(crate) fn changed(&self, changes: &BTreeMap<String, String>) -> Result<Self> {
        let mut mistakes = Vec::new();
        let mut refuse = |option: &str, reason: &str| {
            let (option, reason) = (option.to_owned(), reason.to_owned());
            mistakes.push(InvalidOption { option, reason });
        };
        let changed = match self.with(changes) {
            Ok(changed) => Some(changed),
            Err(Error::InvalidOptions(invalid)) => {
                invalid.into_iter().for_each(|mistake| refuse(&mistake.option, &mistake.reason));
                None
            }
            Err(error) => return Err(error),
        };
        for given in changes.keys() {
            let renamed = RENAMED_OPTIONS.iter().find(|(old, _)| old == given);
            let name = renamed.map_or(given.as_str(), |(_, new)| new);
            if changed.is_some() && !LIVE_OPTIONS.contains(&name) {
                refuse(given, "changes only when the table is opened: close it first");
            }
        }
        if changed.as_ref().is_some_and(|new| new.l0_policy() != self.l0_policy()) {
            let reason = "this would change l0_policy, which changes only when the table is opened";
            refuse("l0_capacity", reason);
        }
        match changed.filter(|_| mistakes.is_empty()) {
            Some(changed) => Ok(changed),
            None => Err(Error::InvalidOptions(mistakes)),
        }
    }
}
