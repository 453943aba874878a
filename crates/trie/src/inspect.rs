//! Describes the content of one of the trie's files as text.
//!
//! Reads single files: nothing is opened for writing, and damage is part of the description.

use std::sync::Arc;

use siltstone_durable::offline::{inspect_by, inspect_manifest};
use siltstone_engine::inspection::shown;
use siltstone_engine::{Inspection, Purpose, Result};
use siltstone_table::log::inspect_log;
use siltstone_table::{FileKind, Manifest};
use siltstone_vfs::{Mode, Vfs};

use crate::cluster::Cluster;
use crate::files::{Kind, StorageTiers};
use crate::htable::{HTable, Stream};
use crate::record::Record;
use crate::version::{ENGINE, Version};

/// Describes the file `name`; `None` if it is not a file of the trie, as far as its name and the
/// manifest beside it show. Shows up to `limit` items.
///
/// # Errors
/// I/O errors; damage is part of the result.
pub fn inspect(vfs: &Arc<dyn Vfs>, name: &str, limit: usize) -> Result<Option<Inspection>> {
    let is_ours = || Manifest::open(vfs.clone(), ENGINE).is_ok();
    inspect_by(|inspection| {
        match Kind::parse(name) {
            Some((Kind::HTable, number)) => table(vfs, number, limit, inspection)?,
            Some((Kind::Cluster, number)) => cluster(vfs, number, limit, inspection)?,
            Some((Kind::Log, number)) if is_ours() => log(vfs, number, limit, inspection)?,
            None if Manifest::owns(name) && is_ours() => {
                inspect_manifest::<Version>(vfs, limit, inspection)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    })
}

fn table(vfs: &Arc<dyn Vfs>, number: u64, limit: usize, inspection: &mut Inspection) -> Result<()> {
    inspection.kind = "HTable";
    let bytes = vfs.open(&Kind::HTable.name(number), Mode::Read)?.len()?;
    let tiers = StorageTiers { main: vfs.clone(), fast: None };
    let table = Arc::new(HTable::open(&tiers, number, bytes, true)?);
    let origin = table.origin();
    inspection.property("bytes", bytes);
    inspection.property("layout", format!("{:?}", table.layout()).to_lowercase());
    inspection.property("level", origin.container_id.level);
    inspection.property("container", origin.container_id.id);
    inspection.property("writes up to sequence", origin.last_sequence);
    inspection.property("items", table.entries());
    inspection.property("deletes", table.deletes());
    inspection.property("buckets", table.buckets());
    inspection.property("bytes of a bucket", table.bucket_bytes());
    inspection.property("segments", table.directory().segments().len());
    inspection.property("items of the special bucket", table.specials().len());
    let [filter, pages, rest] = table.memory();
    inspection.property("filter bytes", filter);
    inspection.property("page index bytes", pages);
    inspection.property("migration and directory bytes", rest);
    let mut stream = Stream::new(table.clone(), origin.config.hash, Purpose::Maintenance);
    let mut shown_items = 0;
    while shown_items < limit && stream.load_next()? {
        for at in 0..stream.slots().len() {
            stream.with_item(at, |item| {
                let value = item.value.map_or("deleted".to_owned(), shown);
                inspection.item(limit, || format!("{} {value}", shown(item.key)));
                Ok(())
            })?;
        }
        shown_items = inspection.items.len();
    }
    inspection.more = table.entries().saturating_sub(inspection.items.len() as u64);
    table.verify(origin.config.hash)
}

fn cluster(
    vfs: &Arc<dyn Vfs>,
    number: u64,
    limit: usize,
    inspection: &mut Inspection,
) -> Result<()> {
    inspection.kind = "BloomCluster";
    let bytes = vfs.open(&Kind::Cluster.name(number), Mode::Read)?.len()?;
    let tiers = StorageTiers { main: vfs.clone(), fast: None };
    let cluster = Cluster::open(&tiers, number, bytes)?;
    inspection.property("bytes", bytes);
    inspection.property("columns", cluster.columns());
    for (table, filter) in cluster.load(Purpose::Maintenance)? {
        let name = Kind::HTable.name(table);
        inspection.item(limit, || format!("{name}: {} bytes of filter", filter.memory_bytes()));
    }
    Ok(())
}

fn log(vfs: &Arc<dyn Vfs>, number: u64, limit: usize, inspection: &mut Inspection) -> Result<()> {
    inspect_log(vfs.as_ref(), (FileKind::Log, number), limit, inspection, |record| {
        Ok(match Record::decode(record)? {
            Record::Link(link) => (link.to_string(), 0),
            Record::Batch { first_sequence, batch } => {
                let first = batch.iter().next().map(|op| shown(op.key()));
                let (first, count) = (first.unwrap_or_default(), batch.len());
                (format!("@{first_sequence} {count} operations: {first} …"), count as u64)
            }
        })
    })
}
