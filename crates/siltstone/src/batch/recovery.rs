//! Removes incomplete batches over several tables when a store is opened after a crash.
//!
//! ```text
//!   table 3   … [17: {3, 5}] [19: {3, 8}]
//!   table 5   …                              17 is missing: 3 is cut before 17
//!   table 8   … [19: {3, 8}] …               now 19 is missing in 3: 8 is cut before 19
//! ```
//!
//! A batch is complete if every table of it that still exists has its part. A log is cut before the
//! first part of a batch that is not complete; this may make other batches incomplete, and is
//! repeated until nothing changes. The result is the largest state in which every batch is whole
//! and every table has a prefix of its writes. Nothing that was reported as durable is cut, since
//! the parts that it depends on were durable before (see `open`).
//!
//! The logs that stay are copied and synced, because their bytes may be readable without being
//! durable. Otherwise one table could flush its part, and a later power cut could remove another
//! table's part.
//!
//! A table that is damaged counts as having all of its parts: damage to one table must not remove
//! writes of others. A repaired table loses its identity, so the same holds for it.
//!
//! Cost: the manifests of the tables that ever took part; after a crash also their logs.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_durable::PartSurvey;
use siltstone_engine::{Error, Result};
use siltstone_vfs::Vfs;

use crate::catalogue::Catalogue;
use crate::engines;
use crate::names::directory;

struct Survivor {
    vfs: Arc<dyn Vfs>,
    survey: PartSurvey,
    /// The number of parts that stay, from the first on.
    kept: usize,
}

impl Survivor {
    fn has(&self, batch: u64) -> bool {
        let cut = self.survey.parts.get(self.kept);
        self.survey.has(batch) && cut.is_none_or(|cut| batch < cut.batch)
    }
}

/// Removes incomplete batches from the logs of the tables, durably; returns the number of the last
/// batch of which there was a trace.
///
/// # Errors
/// I/O errors. The next open of the store continues.
pub(crate) fn remove_incomplete(vfs: &Arc<dyn Vfs>, catalogue: &Catalogue) -> Result<u64> {
    let mut tables: BTreeMap<u64, Survivor> = BTreeMap::new();
    for (name, &id) in &catalogue.ids {
        let directory = directory(catalogue.directory_of(name));
        let Some(spec) = catalogue.tables.get(name) else { continue };
        if !vfs.has_subdirectory(&directory)? {
            continue;
        }
        let vfs = vfs.subdirectory(&directory)?;
        match engines::survey_parts(&spec.engine, &vfs) {
            Ok(survey) => {
                let kept = survey.parts.len();
                tables.insert(id, Survivor { vfs, survey, kept });
            }
            // Opening the table reports it.
            Err(Error::Corruption { .. } | Error::Refused { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    while cut_incomplete(&mut tables) {}
    for table in tables.values().filter(|table| !table.survey.parts.is_empty()) {
        table.survey.keep(table.vfs.as_ref(), table.kept)?;
    }
    Ok(tables.values().map(|table| table.survey.last_batch).max().unwrap_or(0))
}

/// Cuts each table before its first part of an incomplete batch; returns whether there was one.
fn cut_incomplete(tables: &mut BTreeMap<u64, Survivor>) -> bool {
    let mut has_cut = false;
    for id in tables.keys().copied().collect::<Vec<_>>() {
        let kept = &tables[&id].survey.parts[..tables[&id].kept];
        let is_incomplete = |tables_of: &[u64], batch: u64| {
            let others = tables_of.iter().filter(|other| **other != id);
            others.filter_map(|other| tables.get(other)).any(|other| !other.has(batch))
        };
        let first = kept.iter().position(|part| is_incomplete(&part.tables, part.batch));
        if let (Some(first), Some(table)) = (first, tables.get_mut(&id)) {
            table.kept = first;
            has_cut = true;
        }
    }
    has_cut
}
