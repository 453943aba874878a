//! Describes the content of one of the tree's files as text.
//!
//! Reads single files: nothing is opened for writing, and damage is part of the description.

use std::sync::Arc;

use siltstone_durable::offline::{inspect_by, inspect_manifest};
use siltstone_durable::replay_edits;
use siltstone_engine::inspection::shown;
use siltstone_engine::{BatchOp, Error, Inspection, Op, Result};
use siltstone_table::log::inspect_log;
use siltstone_table::{
    EXTERNAL_SEQUENCE, FileKind, FileNumber, Ingestion, Kind, Manifest, Table, parse_file_name,
    salvage_table,
};
use siltstone_vfs::{Mode, Vfs};

use crate::blob_ref::BlobRef;
use crate::pool::{PAGE_BYTES, POOL_FILE};
use crate::record::Record;
use crate::version::{ENGINE, Edit, Version};

/// Describes the file `name`; `None` if it is not a file of the tree. Shows up to `limit` items.
///
/// # Errors
/// I/O errors; damage is part of the result.
pub fn inspect(vfs: &Arc<dyn Vfs>, name: &str, limit: usize) -> Result<Option<Inspection>> {
    inspect_by(|inspection| {
        match parse_file_name(name) {
            Some((kind @ (FileKind::Table | FileKind::Ingested(_)), number)) => {
                table(vfs, name, (kind, number), limit, inspection)?;
            }
            Some((kind @ (FileKind::Log | FileKind::Blob), number)) => {
                log(vfs, (kind, number), limit, inspection)?;
            }
            Some((FileKind::Staged, number)) => {
                let kind = external_kind(vfs, name)?;
                table(vfs, name, (kind, number), limit, inspection)?;
            }
            None if Manifest::owns(name) => inspect_manifest::<Version>(vfs, limit, inspection)?,
            None if name == POOL_FILE => pool(vfs, limit, inspection)?,
            None => return Ok(false),
        }
        Ok(true)
    })
}

fn table(
    vfs: &Arc<dyn Vfs>,
    name: &str,
    (kind, number): (FileKind, FileNumber),
    limit: usize,
    inspection: &mut Inspection,
) -> Result<()> {
    inspection.kind = "sorted table";
    let table = Table::open_kind(vfs.open(name, Mode::Read)?, name, kind, number, None)?;
    let meta = table.meta();
    if let FileKind::Ingested(ingested) = kind {
        inspection.property("written outside as", ingested.identity);
    }
    inspection.property("bytes", meta.bytes);
    inspection.property("entries", meta.entries);
    inspection.property("deletes", meta.deletes);
    inspection.property("expiring", meta.expiring);
    inspection.property("data blocks", meta.blocks);
    inspection.property("user bytes", meta.user_bytes);
    inspection.property("smallest key", shown(&meta.smallest));
    inspection.property("largest key", shown(&meta.largest));
    inspection.property("sequences", format!("{} to {}", meta.min_sequence, meta.max_sequence));
    inspection.property("filter bytes", table.filter_bytes());
    inspection.property("index bytes", table.index_bytes());
    inspection.property("dictionary bytes", table.dictionary_bytes());
    let file = vfs.open(name, Mode::Read)?;
    let losses = salvage_table(file.as_ref(), name, (kind, number), Some(meta.bytes), |entry| {
        inspection.item(limit, || {
            let (key, mut value) = (shown(entry.key), shown(entry.value));
            if entry.kind == Kind::Reference
                && let Ok(of) = BlobRef::decode(entry.value, name)
            {
                let file = FileNumber(of.file);
                value =
                    format!("to {} bytes in {file} at {}", of.value_bytes, of.position.offset());
            }
            format!("{key} @{} {:?} {value}", entry.sequence, entry.kind)
        });
        Ok(())
    })?;
    if let Some(first) = losses.first() {
        let bytes: u64 = losses.iter().map(|loss| loss.bytes.end - loss.bytes.start).sum();
        let reason = format!("data blocks of {bytes} bytes are damaged");
        return Err(Error::corruption(name, first.bytes.start, reason));
    }
    Ok(())
}

/// The kind of a table that was written outside and is not ingested yet.
fn external_kind(vfs: &Arc<dyn Vfs>, name: &str) -> Result<FileKind> {
    let identity = Table::external_identity(vfs.open(name, Mode::Read)?.as_ref())?;
    let identity = identity.ok_or_else(|| Error::corruption(name, 0, "a table without its end"))?;
    Ok(FileKind::Ingested(Ingestion { sequence: EXTERNAL_SEQUENCE, identity }))
}

fn log(
    vfs: &Arc<dyn Vfs>,
    (kind, number): (FileKind, FileNumber),
    limit: usize,
    inspection: &mut Inspection,
) -> Result<()> {
    inspect_log(vfs.as_ref(), (kind, number.0), limit, inspection, |record| {
        Ok(match Record::decode(record)? {
            Record::Link(link) => (link.to_string(), 0),
            Record::Ingested(sequence) => (format!("@{sequence} files were ingested"), 0),
            Record::Cleared(sequence) => (format!("@{sequence} every key was removed"), 0),
            Record::Retained { sequences, batch } => {
                let (from, count) = (sequences.first().copied().unwrap_or_default(), batch.len());
                (format!("{count} operations carried over, @{from} …"), count as u64)
            }
            Record::Batch { first_sequence, batch, .. } => {
                let first = batch.iter_all().next().map(|op| match op {
                    BatchOp::Point(Op::Put { key, .. }) => format!("put {}", shown(key)),
                    BatchOp::Point(Op::Delete { key }) => format!("delete {}", shown(key)),
                    BatchOp::Merge { key, .. } => format!("merge {}", shown(key)),
                    BatchOp::DeleteRange { start, end } => {
                        format!("delete {}..{}", shown(start), end.map(shown).unwrap_or_default())
                    }
                });
                let (first, count) = (first.unwrap_or_default(), batch.len());
                (format!("@{first_sequence} {count} operations: {first} …"), count as u64)
            }
        })
    })
}

/// Describes the pool by the manifest: the pool itself does not say which run is where.
fn pool(vfs: &Arc<dyn Vfs>, limit: usize, inspection: &mut Inspection) -> Result<()> {
    inspection.kind = "pool of runs in persistent memory";
    let bytes = vfs.open(POOL_FILE, Mode::Read)?.len()?;
    inspection.property("bytes", bytes);
    inspection.property("pages", bytes / PAGE_BYTES as u64);
    let (_, edits) = Manifest::open(vfs.clone(), ENGINE)?;
    let state = replay_edits::<Edit>(&edits)?;
    let cursor = state.cursor.unwrap_or_default();
    inspection.property("cursor over level 0", shown(&cursor));
    for entry in &state.added {
        let Some(run) = &entry.run else { continue };
        let Some(handle) = run.pmem else { continue };
        inspection.item(limit, || {
            let is_whole = run.inserted_at == cursor;
            let live = if is_whole {
                "where the cursor is, so whole".to_owned()
            } else {
                shown(&run.inserted_at)
            };
            format!(
                "run {} at page {}: {} bytes of keys and values, {} to {}, inserted at: {live}",
                entry.number,
                handle.page,
                run.data_bytes,
                shown(&entry.smallest),
                shown(&entry.largest)
            )
        });
    }
    Ok(())
}
