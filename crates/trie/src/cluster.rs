//! BloomCluster: the filters of a container's tables, arranged so that one read covers all tables.
//!
//! ```text
// ANCHOR: layout
//!            table 31  table 27  table 22                 file   := page{pages}  directory  footer
//!   column 0 [ 70 B ]  [ 66 B ]  [ 74 B ]  ┐ page 0       page   := crc32c:u32  entry*  zeros
//!   column 1 [ 72 B ]  [ 58 B ]  [ 70 B ]  ┘              entry  := bytes:u16  filter
//!   column 2 [ …                           ┐ page 1                 by column, then by table
//!
//!   directory := frame of { table:u64  probes:u8 }*
//!   footer    := columns:u32  columns per page:u32  page_bytes:u32  directory bytes:u32
//!                file_number:u64  file_bytes:u64  version:u32  crc32c:u32  magic:"SILTBLMC"
//!                                                                             48 bytes
// ANCHOR_END: layout
//! ```
//!
//! Checksums are seeded with the file's number and the offset. A page is as large as a bucket
//! unless a column needs more, and all pages have the same number of columns, so the page of a
//! column follows from its number. Magic, checksum and version keep their offset; a reader rejects
//! a newer version.
//!
//! The number of columns is fixed when a cluster is created. A table that is added later has a
//! filter of as many columns, and the filters of the other tables are copied.
//!
//! Invariant: a table in the directory has its filter in every page.
//!
//! Source: LSM-trie paper, section 2.4.3 and figure 9. Here a page has several columns, so that a
//! young cluster, with few tables, is as small as its filters.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_runtime::RateLimiter;
use siltstone_table::{FileSum, SUM_BYTES};
use siltstone_vfs::Vfs;

use crate::files::{FileWriter, Kind, NamedFile, StorageTiers};
use crate::hash::Hash;
use crate::htable::filter::contains;
use crate::htable::{Filter, le32, le64};

const MAGIC: [u8; 8] = *b"SILTBLMC";
const VERSION: u32 = 1;
const FOOTER_BYTES: usize = 48;
const PAGE_HEADER: usize = 4;
const ENTRY_HEADER: usize = 2;
const DIRECTORY_ENTRY: usize = 9;

/// The BloomCluster of a container.
pub(crate) struct Cluster {
    file: NamedFile,
    bytes: u64,
    columns: u32,
    columns_per_page: u32,
    page_bytes: u32,
    /// Number and probes of each table.
    tables: Vec<(u64, u8)>,
}

/// The filters of one column.
pub(crate) struct Column<'a> {
    cluster: &'a Cluster,
    page: Vec<u8>,
    /// The range of each table's filter in the page.
    filters: Vec<(usize, usize)>,
}

impl Cluster {
    /// Writes the cluster of these tables to a new file, durable except for its name; returns its
    /// length. All filters have the same number of columns.
    ///
    /// # Errors
    /// Those of the file system; the file may then be incomplete.
    pub(crate) fn write(
        vfs: &dyn Vfs,
        number: u64,
        tables: &[(u64, Arc<Filter>)],
        min_page_bytes: u32,
        rate: &RateLimiter,
        purpose: Purpose,
    ) -> Result<u64> {
        let columns = tables.first().map_or(1, |(_, filter)| filter.columns());
        let entry = |column: u32, filter: &Filter| ENTRY_HEADER + filter.column(column).len();
        let sizes: Vec<usize> = (0..columns)
            .map(|column| tables.iter().map(|(_, filter)| entry(column, filter)).sum())
            .collect();
        let largest = PAGE_HEADER + sizes.iter().max().copied().unwrap_or(0);
        let page_bytes = largest.next_multiple_of(min_page_bytes as usize);
        let capacity = page_bytes - PAGE_HEADER;
        let mean = (sizes.iter().sum::<usize>() / sizes.len().max(1)).max(1);
        let fits =
            |count: &usize| sizes.chunks(*count).all(|page| page.iter().sum::<usize>() <= capacity);
        let columns_per_page =
            (1..=(capacity / mean).clamp(1, sizes.len())).rev().find(fits).unwrap_or(1);

        let sum = FileSum::new(number);
        let mut file = FileWriter::create(vfs, &Kind::Cluster.name(number), rate, purpose)?;
        for first in (0..columns).step_by(columns_per_page) {
            let (offset, head) = (file.offset(), file.buffer.len());
            file.buffer.resize(head + PAGE_HEADER, 0);
            for column in first..columns.min(first + columns_per_page as u32) {
                for (_, filter) in tables {
                    let bytes = filter.column(column);
                    file.buffer.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
                    file.buffer.extend_from_slice(bytes);
                }
            }
            file.buffer.resize(head + page_bytes, 0);
            let crc = sum.of(offset, &file.buffer[head + PAGE_HEADER..]);
            file.buffer[head..head + PAGE_HEADER].copy_from_slice(&crc.to_le_bytes());
            file.flush_if_full()?;
        }
        let mut directory = Vec::new();
        for (table, filter) in tables {
            directory.extend_from_slice(&table.to_le_bytes());
            directory.push(filter.probes());
        }
        let offset = file.offset();
        sum.seal(&mut file.buffer, offset, &directory);
        let footer_at = file.offset();
        let numbers = [columns, columns_per_page as u32, page_bytes as u32];
        file.buffer.extend(footer(number, numbers, directory.len() + SUM_BYTES, footer_at));
        file.finish()
    }

    /// Opens the cluster `number` with a length of `bytes`.
    ///
    /// # Errors
    /// `Corruption`, `Refused` for a newer version; errors of the file system.
    pub(crate) fn open(tiers: &StorageTiers, number: u64, bytes: u64) -> Result<Self> {
        let file = NamedFile::open(tiers, Kind::Cluster, number)?;
        let len = file.len()?;
        if len != bytes || len < FOOTER_BYTES as u64 {
            let reason = format!("the manifest says {bytes} bytes, and the file has {len}");
            return Err(file.corruption(0, reason));
        }
        let at = len - FOOTER_BYTES as u64;
        let mut footer = [0; FOOTER_BYTES];
        file.read(at, &mut footer, Purpose::Recovery)?;
        let word = |at: usize| le32(&footer[at..]);
        let long = |at: usize| le64(&footer[at..]);
        if footer[40..] != MAGIC || word(36) != file.sum.of(at, &footer[..36]) {
            return Err(
                file.corruption(at, "the footer of the cluster does not match its checksum")
            );
        }
        if word(32) > VERSION {
            let reason = format!(
                "BloomCluster format {} is newer than {VERSION}, the newest that this program \
                 knows; use a newer one",
                word(32)
            );
            return Err(Error::Refused { path: file.display_path(), reason });
        }
        let [columns, columns_per_page, page_bytes, directory_bytes] = [0, 4, 8, 12].map(word);
        let pages = u64::from(columns.div_ceil(columns_per_page.max(1))) * u64::from(page_bytes);
        let is_this_file = (long(16), long(24)) == (number, len) && columns_per_page > 0;
        // A column takes a byte at least, so a page has space for its header and its columns.
        let has_capacity = page_bytes as usize >= PAGE_HEADER && columns_per_page <= page_bytes;
        if !is_this_file
            || !has_capacity
            || columns == 0
            || pages.checked_add(directory_bytes.into()) != Some(at)
        {
            return Err(file.corruption(at, "the footer of the cluster is not that of this file"));
        }
        let directory = file.read_frame(pages, directory_bytes.into(), Purpose::Recovery)?;
        let (entries, rest) = directory.as_chunks::<DIRECTORY_ENTRY>();
        if !rest.is_empty() {
            return Err(file.corruption(pages, "the directory of the cluster is malformed"));
        }
        let entry = |entry: &[u8; DIRECTORY_ENTRY]| {
            let (number, probes) = entry.split_at(8);
            (le64(number), probes[0])
        };
        let tables = entries.iter().map(entry).collect();
        Ok(Cluster { file, bytes, columns, columns_per_page, page_bytes, tables })
    }

    pub(crate) fn number(&self) -> u64 {
        self.file.number
    }

    pub(crate) fn name(&self) -> &str {
        &self.file.name
    }

    /// The file system of its tier.
    pub(crate) fn vfs(&self) -> &Arc<dyn Vfs> {
        self.file.vfs()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn columns(&self) -> u32 {
        self.columns
    }

    /// Whether it contains the filter of this table.
    pub(crate) fn contains(&self, table: u64) -> bool {
        self.tables.iter().any(|&(number, _)| number == table)
    }

    pub(crate) fn retire(&self) {
        self.file.retire();
    }

    /// The filters of all tables for the column of `hash`. Cost: one read of a page.
    ///
    /// # Errors
    /// `Corruption`; errors of the file system.
    pub(crate) fn column(&self, hash: Hash, purpose: Purpose) -> Result<Column<'_>> {
        let column = hash.bucket(self.columns);
        let page_number = column / self.columns_per_page;
        let page = self.read_page(page_number, purpose)?;
        let mut at = PAGE_HEADER;
        for _ in page_number * self.columns_per_page..column {
            for _ in &self.tables {
                at = self.entry(&page, page_number, at)?.1;
            }
        }
        let mut filters = Vec::with_capacity(self.tables.len());
        for _ in &self.tables {
            let range = self.entry(&page, page_number, at)?;
            at = range.1;
            filters.push(range);
        }
        Ok(Column { cluster: self, page, filters })
    }

    /// Starts the read of [`column`](Self::column).
    pub(crate) fn begin_read(&self, hash: Hash) {
        let page = hash.bucket(self.columns) / self.columns_per_page;
        self.file.begin_read(u64::from(page) * u64::from(self.page_bytes), self.page_bytes.into());
    }

    /// The filters of all tables.
    ///
    /// # Errors
    /// `Corruption`; errors of the file system.
    pub(crate) fn load(&self, purpose: Purpose) -> Result<Vec<(u64, Arc<Filter>)>> {
        // In the encoding of filters: probes, columns, lengths, bytes.
        let mut parts = vec![(Vec::new(), Vec::new()); self.tables.len()];
        for first in (0..self.columns).step_by(self.columns_per_page as usize) {
            let page_number = first / self.columns_per_page;
            let page = self.read_page(page_number, purpose)?;
            let mut at = PAGE_HEADER;
            for _ in first..self.columns.min(first + self.columns_per_page) {
                for (lens, bytes) in &mut parts {
                    let (start, end) = self.entry(&page, page_number, at)?;
                    lens.extend_from_slice(&((end - start) as u16).to_le_bytes());
                    bytes.extend_from_slice(&page[start..end]);
                    at = end;
                }
            }
        }
        let mut filters = Vec::with_capacity(parts.len());
        for (&(number, probes), (lens, bytes)) in self.tables.iter().zip(parts) {
            let stored = [&[probes][..], &self.columns.to_le_bytes(), &lens, &bytes].concat();
            let filter = Filter::from_bytes(&stored)
                .ok_or_else(|| self.file.corruption(0, "a filter of the cluster is malformed"))?;
            filters.push((number, Arc::new(filter)));
        }
        Ok(filters)
    }

    fn read_page(&self, page: u32, purpose: Purpose) -> Result<Vec<u8>> {
        let offset = u64::from(page) * u64::from(self.page_bytes);
        let mut bytes = vec![0; self.page_bytes as usize];
        self.file.read(offset, &mut bytes, purpose)?;
        let crc = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        match crc == self.file.sum.of(offset, &bytes[PAGE_HEADER..]) {
            true => Ok(bytes),
            false => Err(self.file.corruption(offset, "a page does not match its checksum")),
        }
    }

    /// The range of the filter whose entry begins at `at`.
    fn entry(&self, page: &[u8], number: u32, at: usize) -> Result<(usize, usize)> {
        let start = at + ENTRY_HEADER;
        let len = page.get(at..start).map(|len| usize::from(u16::from_le_bytes([len[0], len[1]])));
        match len.map(|len| start + len).filter(|&end| end <= page.len()) {
            Some(end) => Ok((start, end)),
            None => {
                let offset = u64::from(number) * u64::from(self.page_bytes);
                Err(self.file.corruption(offset, "a page of the cluster is malformed"))
            }
        }
    }
}

/// The footer at offset `at`; `numbers` are columns, columns per page, and page size.
fn footer(number: u64, numbers: [u32; 3], directory_bytes: usize, at: u64) -> Vec<u8> {
    let mut footer = Vec::with_capacity(FOOTER_BYTES);
    for value in numbers.into_iter().chain([directory_bytes as u32]) {
        footer.extend_from_slice(&value.to_le_bytes());
    }
    for value in [number, at + FOOTER_BYTES as u64] {
        footer.extend_from_slice(&value.to_le_bytes());
    }
    footer.extend_from_slice(&VERSION.to_le_bytes());
    let crc = FileSum::new(number).of(at, &footer);
    footer.extend_from_slice(&crc.to_le_bytes());
    footer.extend_from_slice(&MAGIC);
    footer
}

/// For [`crate::fuzzing`]: a sealed file of arbitrary pages, directory and numbers.
pub(crate) fn seal(number: u64, numbers: [u32; 3], pages: &[u8], directory: &[u8]) -> Vec<u8> {
    let (sum, page_bytes) = (FileSum::new(number), (numbers[2] as usize).max(PAGE_HEADER));
    let mut bytes = Vec::new();
    for page in pages.chunks(page_bytes) {
        let mut page = page.to_vec();
        page.resize(page_bytes, 0);
        let crc = sum.of(bytes.len() as u64, &page[PAGE_HEADER..]);
        page[..PAGE_HEADER].copy_from_slice(&crc.to_le_bytes());
        bytes.extend(page);
    }
    let at = bytes.len() as u64;
    sum.seal(&mut bytes, at, directory);
    let at = bytes.len() as u64;
    bytes.extend(footer(number, numbers, directory.len() + SUM_BYTES, at));
    bytes
}

impl Column<'_> {
    /// Whether `table` may contain the hash of this column; `true` if its filter is not here.
    pub(crate) fn may_contain(&self, table: u64, hash: Hash) -> bool {
        let tables = self.cluster.tables.iter().zip(&self.filters);
        let mut found = tables.filter(|((number, _), _)| *number == table);
        found.next().is_none_or(|((_, probes), &(start, end))| {
            contains(&self.page[start..end], *probes, hash)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashKind;
    use siltstone_vfs::Ram;

    #[test]
    fn one_read_covers_every_table() {
        let kind = HashKind { seed: 5, weak_bits: 0 };
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let mut sets: Vec<Vec<Hash>> = (0..5u32)
            .map(|t| {
                (0..2000 * t).map(move |n| kind.hash(&[n.to_le_bytes(), t.to_le_bytes()].concat()))
            })
            .map(Iterator::collect)
            .collect();
        sets.iter_mut().for_each(|set| set.sort_unstable());
        let filters: Vec<(u64, Arc<Filter>)> = (10..)
            .zip(&sets)
            .map(|(number, set)| (number, Arc::new(Filter::build(set.iter().copied(), 60, 16.0))))
            .collect();
        let rate = RateLimiter::unlimited();
        // Pages of one column each, and of several.
        for (page_bytes, at_least) in [(1024, 1), (4096, 5)] {
            let bytes =
                Cluster::write(vfs.as_ref(), 3, &filters, page_bytes, &rate, Purpose::Flush)
                    .unwrap();
            let tiers = StorageTiers { main: vfs.clone(), fast: None };
            let cluster = Cluster::open(&tiers, 3, bytes).unwrap();
            assert!(cluster.columns_per_page >= at_least);
            assert_eq!(cluster.load(Purpose::Get).unwrap(), filters);
            assert!(cluster.contains(10) && !cluster.contains(15));
            for (number, set) in (10..).zip(&sets) {
                for &hash in set.iter().step_by(37) {
                    let column = cluster.column(hash, Purpose::Get).unwrap();
                    assert!(column.may_contain(number, hash));
                    let may_contain = |n: &u64| *n != number && column.may_contain(*n, hash);
                    assert!((10..15).filter(may_contain).count() <= 1);
                }
            }
            drop(cluster);
            vfs.remove(&Kind::Cluster.name(3)).unwrap();
        }
    }
}
