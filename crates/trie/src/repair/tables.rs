//! Saves the readable items of a damaged HTable.
//!
//! ```text
//!   footer and directory valid   each bucket and each large item
//!   otherwise                    the valid buckets and large items that `scan` finds
//! ```
//!
//! Invariant: every item is in a new table of the same container, or in a reported loss.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Error, Loss, Purpose, Result};
use siltstone_table::FileSum;
use siltstone_vfs::{File, Mode};

use super::scan::{TableFile, TableParts};
use super::{Repair, WINDOW_BYTES};
use crate::files::Kind;
use crate::hash::Hash;
use crate::htable::{BucketHeader, ExpectedSize, HTable, Layout, Origin, TableWriter};
use crate::item::Item;
use crate::options::Options;
use crate::version::{AddedTable, Edit};

/// Saved items, to be written to a new table.
#[derive(Default)]
pub(super) struct SavedItems {
    pub(super) bytes: Vec<u8>,
    /// By hash, with their offsets; of equal hashes the last one is the newest.
    items: Vec<(Hash, usize)>,
}

impl SavedItems {
    pub(super) fn push(&mut self, hash: Hash, item: &Item<'_>) {
        self.items.push((hash, self.bytes.len()));
        item.push(&mut self.bytes);
    }
}

impl Repair {
    /// Adds a table to `state`: unchanged if it is undamaged, else with its readable items.
    pub(super) fn check_table(&mut self, added: &AddedTable, state: &mut Edit) -> Result<()> {
        let &AddedTable { container_id, number, bytes, .. } = added;
        let name = Kind::HTable.name(number);
        let table = HTable::open(&self.tiers, number, bytes, true).map(Arc::new);
        let table_or_error = table.as_ref().map_err(Error::clone);
        let damage = match table_or_error.and_then(|table| table.verify(self.config.hash)) {
            Ok(()) => {
                state.added.push(*added);
                return Ok(());
            }
            Err(damage) if damage.is_corruption() || damage.is_not_found() => damage,
            Err(other) => return Err(other),
        };
        let Some(vfs) = self.tier_with(&name)? else {
            self.report.note(format!("{name} of {container_id} is missing"));
            self.report.record_loss(Loss::entries(name, 0..bytes));
            return Ok(());
        };
        // Bytes after the recorded end do not belong to the table.
        let tiers = self.tiers.without_changes();
        let vfs = tiers.all().find(|it| it.exists(&name).is_ok_and(|is| is)).unwrap_or(&vfs);
        let file = vfs.open(&name, Mode::ReadWrite)?;
        if file.len()? > bytes && bytes > 0 {
            file.set_len(bytes)?;
        }
        // Filters are rebuilt; the other frames are needed to use the directory.
        let table = match table {
            Ok(table) => Some(table),
            Err(_) => HTable::open(&tiers, number, bytes, false).map(Arc::new).ok(),
        };
        let saved = match &table {
            Some(table) => self.save_by_directory(table, state)?,
            None => self.save_by_scan(added, file.as_ref(), state)?,
        };
        self.report.note(format!("{damage}: {saved} items of {name} saved"));
        self.files.keep(name, &mut self.report);
        Ok(())
    }

    /// Saves the readable items of a table whose footer and directory are valid.
    fn save_by_directory(&mut self, table: &Arc<HTable>, state: &mut Edit) -> Result<u64> {
        let (mut saved, mut count) = (SavedItems::default(), 0);
        let mut buffer = vec![0; table.bucket_bytes() as usize];
        for bucket in 0..table.buckets() {
            let range = table.directory().bucket_range(bucket, table.bucket_bytes());
            let (offset, buffer) = (range.start, &mut buffer[..(range.end - range.start) as usize]);
            let read = table.read(offset, buffer, Purpose::Maintenance);
            let opened = read.and_then(|()| table.open_bucket(offset, buffer));
            match opened {
                Ok((header, items)) => {
                    for (_, _, item) in header.items(items).flatten() {
                        saved.push(self.config.hash.hash(item.key), &item);
                    }
                }
                Err(Error::Corruption { .. }) => self.record_loss(table.name(), range),
                Err(other) => return Err(other),
            }
            count += self.write_if_full(&mut saved, table.origin(), state)?;
        }
        for special in table.specials() {
            let read = table.read_special(special, Purpose::Maintenance);
            match read.and_then(|bytes| {
                let item = table.special_item(special, &bytes)?;
                saved.push(self.config.hash.hash(item.key), &item);
                Ok(())
            }) {
                Ok(()) => {}
                Err(Error::Corruption { .. }) => {
                    let end = special.offset + special.frame_bytes();
                    self.record_loss(table.name(), special.offset..end);
                }
                Err(other) => return Err(other),
            }
            count += self.write_if_full(&mut saved, table.origin(), state)?;
        }
        Ok(count + self.write(&mut saved, table.origin(), state)?)
    }

    /// Saves the items that are found without the footer and the directory.
    fn save_by_scan(
        &mut self,
        added: &AddedTable,
        file: &dyn File,
        state: &mut Edit,
    ) -> Result<u64> {
        let &AddedTable { container_id, number, bytes, .. } = added;
        let (name, sum) = (Kind::HTable.name(number), FileSum::new(number));
        let file = TableFile { file, sum, len: file.len()? };
        let origin = Origin { container_id, config: self.config, last_sequence: 0 };
        let (mut saved, mut count) = (SavedItems::default(), 0);
        let TableParts { buckets, specials, lost } = file.scan(bytes)?;
        for range in buckets {
            let bucket = file.read(&range)?.unwrap_or_default();
            match BucketHeader::open(sum, range.start, &bucket) {
                Some((header, items)) => {
                    for (_, _, item) in header.items(items).flatten() {
                        saved.push(self.config.hash.hash(item.key), &item);
                    }
                }
                None => self.record_loss(&name, range),
            }
            count += self.write_if_full(&mut saved, origin, state)?;
        }
        for range in specials {
            match Item::parse(&file.read(&range)?.unwrap_or_default()) {
                Some((item, _)) => saved.push(self.config.hash.hash(item.key), &item),
                None => self.record_loss(&name, range),
            }
            count += self.write_if_full(&mut saved, origin, state)?;
        }
        lost.into_iter().for_each(|range| self.record_loss(&name, range));
        Ok(count + self.write(&mut saved, origin, state)?)
    }

    /// Reports a range of a file as lost, unless it is empty.
    fn record_loss(&mut self, name: &str, bytes: Range<u64>) {
        if !bytes.is_empty() {
            self.report.record_loss(Loss::entries(name, bytes));
        }
    }

    /// Writes the saved items to a new table once they fill a window. Returns how many it wrote.
    pub(super) fn write_if_full(
        &mut self,
        saved: &mut SavedItems,
        origin: Origin,
        state: &mut Edit,
    ) -> Result<u64> {
        match saved.bytes.len() {
            0..WINDOW_BYTES => Ok(0),
            _ => self.write(saved, origin, state),
        }
    }

    /// Writes the saved items to a new table, the newest so far of its container.
    pub(super) fn write(
        &mut self,
        saved: &mut SavedItems,
        origin: Origin,
        state: &mut Edit,
    ) -> Result<u64> {
        let SavedItems { bytes, mut items } = std::mem::take(saved);
        if items.is_empty() {
            return Ok(0);
        }
        items.sort_unstable();
        let number = self.next_file;
        self.next_file += 1;
        let build = Options::default().build(Layout::Buckets);
        let expected = ExpectedSize { items: items.len() as u64, bytes: bytes.len() as u64 };
        let vfs = self.tiers.main.as_ref();
        let purpose = Purpose::Maintenance;
        let mut writer =
            TableWriter::create(vfs, number, build, origin, expected, &self.rate, purpose)?;
        let item_at = |at: usize| Item::parse(&bytes[at..]).map(|(item, _)| item);
        for (n, &(hash, at)) in items.iter().enumerate() {
            let Some(item) = item_at(at) else { continue };
            let mut newer = items[n + 1..].iter().take_while(|(other, _)| *other == hash);
            if !newer.any(|&(_, at)| item_at(at).is_some_and(|newer| newer.key == item.key)) {
                writer.push(hash, &item)?;
            }
        }
        let summary = writer.finish()?;
        let container_id = origin.container_id;
        state.added.push(AddedTable {
            container_id,
            number,
            bytes: summary.bytes,
            is_oldest: false,
        });
        Ok(summary.items)
    }
}
