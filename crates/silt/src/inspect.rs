//! Describes the content of one of the engine's files as text.
//!
//! Nothing is changed. Damage is part of the description, even of filters and indexes, which
//! opening would rebuild.

use std::sync::Arc;

use siltstone_durable::offline::{inspect_by, inspect_manifest};
use siltstone_durable::replay_edits;
use siltstone_engine::inspection::shown;
use siltstone_engine::{Error, Inspection, Op, Purpose, Result};
use siltstone_table::log::inspect_log;
use siltstone_table::{FileKind, Manifest};
use siltstone_vfs::Vfs;

use crate::hash_store::HashStore;
use crate::item;
use crate::names::{self, Kind};
use crate::record::Record;
use crate::sorted_store::SortedStore;
use crate::store_entry::StoreEntry;
use crate::version::{ENGINE, Edit, Version};

/// Describes the file `name`; `None` if it is not a file of this engine, as far as its name and the
/// manifest beside it show. Shows up to `limit` items.
///
/// # Errors
/// I/O errors; damage is part of the result.
pub fn inspect(vfs: &Arc<dyn Vfs>, name: &str, limit: usize) -> Result<Option<Inspection>> {
    let is_ours = || Manifest::open(vfs.clone(), ENGINE).is_ok();
    inspect_by(|inspection| {
        match names::parse(name) {
            Some((Kind::Log, number)) if is_ours() || reads_as_ours(vfs, number) => {
                log(vfs, number, limit, inspection)?;
            }
            Some((Kind::HashStore | Kind::Filter, number)) => {
                hash_store(vfs, number, limit, inspection)?;
            }
            Some((Kind::SortedStore | Kind::Index, number)) => {
                sorted_store(vfs, number, limit, inspection)?;
            }
            Some((Kind::Tails, _)) => inspection.kind = "tails of an unfinished HashStore",
            Some((Kind::Run, _)) => inspection.kind = "sorted run of a merge",
            None if Manifest::owns(name) && is_ours() => {
                inspect_manifest::<Version>(vfs, limit, inspection)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    })
}

/// Whether a log without a manifest beside it is one of this engine.
fn reads_as_ours(vfs: &Arc<dyn Vfs>, number: u64) -> bool {
    Manifest::exists(vfs.as_ref()).is_ok_and(|is_there| !is_there)
        && log(vfs, number, 0, &mut Inspection::default()).is_ok()
}

/// The entry of the manifest for the store `number`.
fn entry_of(vfs: &Arc<dyn Vfs>, number: u64) -> Result<StoreEntry> {
    let (_, edits) = Manifest::open(vfs.clone(), ENGINE)?;
    let state = replay_edits::<Edit>(&edits)?;
    let stores = state.hash_stores.iter().chain(&state.sorted_stores);
    let found = stores.copied().find(|store| store.number == number);
    found.ok_or_else(|| Error::Refused {
        path: format!("{number:06}"),
        reason: "the manifest does not name this store: it is left from a crash".to_owned(),
    })
}

fn hash_store(
    vfs: &Arc<dyn Vfs>,
    number: u64,
    limit: usize,
    inspection: &mut Inspection,
) -> Result<()> {
    inspection.kind = "HashStore";
    let entry = entry_of(vfs, number)?;
    let store = HashStore::open(vfs, entry, Purpose::Maintenance)?;
    let meta = store.meta();
    describe(inspection, &entry);
    inspection.property("slots", meta.slots);
    inspection.property("bytes a slot", meta.slot_bytes);
    let mut scan = store.scan(Purpose::Maintenance);
    while let Some((slot, entry)) = scan.next()? {
        inspection.item(limit, || format!("slot {slot}: {}", entry_shown(entry)));
    }
    store.verify()
}

fn sorted_store(
    vfs: &Arc<dyn Vfs>,
    number: u64,
    limit: usize,
    inspection: &mut Inspection,
) -> Result<()> {
    inspection.kind = "SortedStore";
    let entry = entry_of(vfs, number)?;
    let store = SortedStore::open_read_only(vfs, entry)?;
    store.load(Purpose::Maintenance)?;
    let meta = store.meta();
    describe(inspection, &entry);
    inspection.property("hashes a block", meta.hashes_per_block);
    inspection.property("blocks of one length", meta.is_even);
    let bits = store.memory() as f64 * 8.0 / entry.entries.max(1) as f64;
    inspection.property("index bits per entry", format!("{bits:.2}"));
    let mut scan = store.scan(Purpose::Maintenance);
    while let Some(entry) = scan.next()? {
        inspection.item(limit, || entry_shown(entry));
    }
    store.verify()
}

fn describe(inspection: &mut Inspection, entry: &StoreEntry) {
    inspection.property("partition", entry.partition);
    inspection.property("bytes", entry.bytes);
    inspection.property("entries", entry.entries);
}

fn log(vfs: &Arc<dyn Vfs>, number: u64, limit: usize, inspection: &mut Inspection) -> Result<()> {
    inspect_log(vfs.as_ref(), (FileKind::Log, number), limit, inspection, |record| {
        Ok(match Record::decode(record)? {
            Record::Link(link) => (link.to_string(), 0),
            Record::Operation { is_last, .. } => {
                let end = if is_last { "" } else { " …" };
                (format!("{}{end}", entry_shown(&record[crate::record::HEAD..])), 1)
            }
        })
    })
}

/// An entry as text for a terminal.
fn entry_shown(entry: &[u8]) -> String {
    match item::first(entry) {
        Some((Op::Put { key, value, .. }, _)) => format!("{} = {}", shown(key), shown(value)),
        Some((Op::Delete { key }, _)) => format!("{} deleted", shown(key)),
        None => "no entry".to_owned(),
    }
}
