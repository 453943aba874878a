//! Reads several keys, and lets reads from the device overlap.
//!
//! The keys are looked up one after the other ([`lookup_each`]). While all is in memory, that is
//! all. A lookup that takes as long as a read from a device shows that it is not; then the reads of
//! the next keys are started at once, and their lookups find the data in the page cache, or on the
//! way.
//!
//! ```text
//!   key        1      2            3    4    5    6   …
//!   lookup     fast   waits        ↓    ↓    ↓    ↓
//!   device            ████         ████ ████ ████ ████     blocks, all at once
//!                                       ████ ████          then values in logs
//! ```
//!
//! What is started is a guess: the block of the newest run or table whose filter has the key. It
//! affects only the time.

use std::sync::Arc;

use siltstone_engine::{ReadPoint, Result, Timestamp, VisitKeys, lookup_each};
use siltstone_structures::{BloomProbe, hash64};
use siltstone_table::Kind;

use super::Tree;
use crate::blob_ref::BlobRef;
use crate::version::{L0Run, LogFile, TableFile, Wanted};
use crate::view::View;

/// Where a key probably is.
struct Place<'v> {
    file: &'v TableFile,
    /// The log in which its value is, if the file has positions.
    log: Option<&'v Arc<LogFile>>,
}

impl Tree {
    /// Passes what is found for each of `keys` to `visit`, all from one view.
    pub(crate) fn multi_lookup(
        &self,
        keys: &[&[u8]],
        point: Option<&ReadPoint>,
        visit: &mut VisitKeys<'_>,
    ) -> Result<()> {
        keys.iter().try_for_each(|key| siltstone_engine::entry::check_key(key))?;
        let (view, at) = self.pin(point)?;
        let lookup = |key: &[u8], lend: &mut dyn FnMut(&[u8], Option<Timestamp>)| {
            let found = self.find_live(&view, key, at, Wanted::Value, || self.env.clock.now())?;
            if let Some((value, expires_at)) = &found {
                lend(value.bytes(), *expires_at);
            }
            Ok(found.is_some())
        };
        lookup_each(keys, visit, lookup, |keys| begin_reads(&view, keys, at))
    }

    /// See [`siltstone_engine::Engine::begin_reads`].
    pub(crate) fn begin_reads(&self, keys: &[&[u8]]) {
        // Their lookups report errors.
        if let Ok((view, at)) = self.pin(None) {
            begin_reads(&view, keys, at);
        }
    }
}

/// Starts the reads of some keys. Errors are left to their lookups.
fn begin_reads(view: &View, keys: &[&[u8]], at: u64) {
    let places: Vec<_> = keys.iter().map(|key| (*key, place_of(view, key, at))).collect();
    let places = || places.iter().filter_map(|(key, place)| Some((*key, place.as_ref()?)));
    for (key, place) in places() {
        place.file.table().begin_read(key, at);
    }
    for (key, Place { file, log }) in places().filter(|(_, place)| place.has_values_elsewhere()) {
        let Ok(Some(found)) = file.find(key, at) else { continue };
        match (found.kind, log) {
            (Kind::Position, Some(log)) => {
                if let Ok((position, _)) = log.position(found.value()) {
                    log.begin_read(position);
                }
            }
            (Kind::Reference, _) => {
                if let Ok(reference) = BlobRef::decode(found.value(), &file.name()) {
                    file.blobs().begin_read(&reference);
                }
            }
            _ => {}
        }
    }
}

/// The newest run or table whose filter has the key, unless a memtable has the key.
fn place_of<'v>(view: &'v View, key: &[u8], at: u64) -> Option<Place<'v>> {
    let hash = hash64(key);
    if view.memtables().any(|memtable| memtable.get(key, hash, at).is_some()) {
        return None;
    }
    let (version, probe) = (&view.version, &mut BloomProbe::new(hash));
    let live = &version.level0[..version.live_runs(key).0];
    for span in &version.filter_spans {
        let runs = live.get(span.runs.start..span.runs.end.min(live.len())).unwrap_or_default();
        let has_key = |run: &&L0Run| run.live().contains(key);
        let run = match &span.sliced {
            Some(sliced) => {
                sliced.candidates(probe).map_while(|offset| runs.get(offset)).find(has_key)
            }
            None => runs.iter().filter(|run| run.may_contain(probe)).find(has_key),
        };
        if let Some(run) = run {
            return run.file().map(|file| Place { file, log: run.log() });
        }
    }
    let mut tables = version.levels.iter().filter_map(|tables| tables.get(tables.find(key)));
    tables.find(|file| file.may_contain(probe)).map(|file| Place { file, log: None })
}

impl Place<'_> {
    fn has_values_elsewhere(&self) -> bool {
        self.log.is_some() || self.file.blobs().iter().next().is_some()
    }
}
