//! BloomClusters: the filters of a container's tables, gathered so that one read answers for all.
//!
//! ```text
// ANCHOR: layout
//!            table 31  table 27  table 22                 file   := page{pages}  directory  footer
//!   column 0 [ 70 B ]  [ 66 B ]  [ 74 B ]  ┐ page 0       page   := crc32c:u32  entry*  zeros
//!   column 1 [ 72 B ]  [ 58 B ]  [ 70 B ]  ┘              entry  := bytes:u16  filter       column by
//!   column 2 [ …                           ┐ page 1                 column, of each table by table
//!
//!   directory := frame of { table:u64  probes:u8 }*
//!   footer    := columns:u32  columns a page:u32  page_bytes:u32  directory bytes:u32
//!                file_number:u64  file_bytes:u64  version:u32  crc32c:u32  magic:"SILTBLMC"  48 bytes
// ANCHOR_END: layout
//! ```
//!
//! Checksums start from the file's number and the place, as everywhere. A page is as large as a
//! bucket unless one column needs more, and takes as many columns as fit in every page alike, so a
//! column's page follows from its number. Magic, checksum and version keep their place; a newer
//! version is refused by name.
//!
//! Columns are fixed when a cluster is begun; a table that is added later brings a filter of that
//! many columns, and those of the other tables are copied as they are.
//!
//! Invariant: a table in the directory has its filter in every page.
//!
//! Source: LSM-trie paper, section 2.4.3 and figure 9. Packing several columns into a page is ours:
//! it keeps a young cluster, with few sub-levels, as small as its filters.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_runtime::RateLimiter;
use siltstone_vfs::Vfs;

use crate::files::{FRAME_TRAILER, FileSum, FileWriter, Homes, Kind, NamedFile};
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
    columns_a_page: u32,
    page_bytes: u32,
    /// Number and probes of each table.
    tables: Vec<(u64, u8)>,
}

/// The filters of one column, as they were read.
pub(crate) struct Column<'a> {
    cluster: &'a Cluster,
    page: Vec<u8>,
    /// Where each table's filter lies in the page.
    filters: Vec<(usize, usize)>,
}

impl Cluster {
    /// Writes the cluster of these tables to a new file, durable when this returns but for its name;
    /// answers its bytes. All filters have the same number of columns.
    ///
    /// # Errors
    /// The medium's; the file may then be there in part.
    pub(crate) fn write(
        vfs: &dyn Vfs,
        number: u64,
        tables: &[(u64, Arc<Filter>)],
        least_page_bytes: u32,
        rate: &RateLimiter,
        purpose: Purpose,
    ) -> Result<u64> {
        let columns = tables.first().map_or(1, |(_, filter)| filter.columns());
        let entry = |column: u32, filter: &Filter| ENTRY_HEADER + filter.column(column).len();
        let sizes: Vec<usize> = (0..columns)
            .map(|column| tables.iter().map(|(_, filter)| entry(column, filter)).sum())
            .collect();
        let largest = PAGE_HEADER + sizes.iter().max().copied().unwrap_or(0);
        let page_bytes = largest.next_multiple_of(least_page_bytes as usize);
        let room = page_bytes - PAGE_HEADER;
        let mean = (sizes.iter().sum::<usize>() / sizes.len().max(1)).max(1);
        let fits =
            |count: &usize| sizes.chunks(*count).all(|page| page.iter().sum::<usize>() <= room);
        let columns_a_page =
            (1..=(room / mean).clamp(1, sizes.len())).rev().find(fits).unwrap_or(1);

        let sum = FileSum::new(number);
        let mut file = FileWriter::create(vfs, &Kind::Cluster.name(number), rate, purpose)?;
        for first in (0..columns).step_by(columns_a_page) {
            let (offset, head) = (file.offset(), file.buffer.len());
            file.buffer.resize(head + PAGE_HEADER, 0);
            for column in first..columns.min(first + columns_a_page as u32) {
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
        sum.frame(&mut file.buffer, offset, &directory);
        let footer_at = file.offset();
        let numbers = [columns, columns_a_page as u32, page_bytes as u32];
        file.buffer.extend(footer(number, numbers, directory.len() + FRAME_TRAILER, footer_at));
        file.finish()
    }

    /// Opens the cluster `number` of `bytes` bytes.
    ///
    /// # Errors
    /// `Corruption`, `Refused` for a newer version; the medium's.
    pub(crate) fn open(homes: &Homes, number: u64, bytes: u64) -> Result<Self> {
        let file = NamedFile::open(homes, Kind::Cluster, number)?;
        let len = file.len()?;
        if len != bytes || len < FOOTER_BYTES as u64 {
            let reason = format!("the manifest says {bytes} bytes, and the file has {len}");
            return Err(file.damaged(0, reason));
        }
        let at = len - FOOTER_BYTES as u64;
        let mut footer = [0; FOOTER_BYTES];
        file.read(at, &mut footer, Purpose::Recovery)?;
        let word = |at: usize| le32(&footer[at..]);
        let long = |at: usize| le64(&footer[at..]);
        if footer[40..] != MAGIC || word(36) != file.sum.of(at, &footer[..36]) {
            return Err(file.damaged(at, "the footer of the cluster does not match its checksum"));
        }
        if word(32) > VERSION {
            let reason = format!(
                "BloomCluster format {} is newer than {VERSION}, the newest that this program \
                 knows; use a newer one",
                word(32)
            );
            return Err(Error::Refused { path: file.place(), reason });
        }
        let [columns, columns_a_page, page_bytes, directory_bytes] = [0, 4, 8, 12].map(word);
        let pages = u64::from(columns.div_ceil(columns_a_page.max(1))) * u64::from(page_bytes);
        let is_ours = (long(16), long(24)) == (number, len) && columns_a_page > 0;
        // A column takes a byte at least, so a page has room for its header and its columns.
        let has_room = page_bytes as usize >= PAGE_HEADER && columns_a_page <= page_bytes;
        if !is_ours
            || !has_room
            || columns == 0
            || pages.checked_add(directory_bytes.into()) != Some(at)
        {
            return Err(file.damaged(at, "the footer of the cluster is not that of this file"));
        }
        let directory = file.read_frame(pages, directory_bytes.into(), Purpose::Recovery)?;
        let (entries, rest) = directory.as_chunks::<DIRECTORY_ENTRY>();
        if !rest.is_empty() {
            return Err(file.damaged(pages, "the directory of the cluster is malformed"));
        }
        let entry = |entry: &[u8; DIRECTORY_ENTRY]| {
            let (number, probes) = entry.split_at(8);
            (le64(number), probes[0])
        };
        let tables = entries.iter().map(entry).collect();
        Ok(Cluster { file, bytes, columns, columns_a_page, page_bytes, tables })
    }

    pub(crate) fn number(&self) -> u64 {
        self.file.number
    }

    pub(crate) fn name(&self) -> &str {
        &self.file.name
    }

    /// The medium on which it lies.
    pub(crate) fn vfs(&self) -> &Arc<dyn Vfs> {
        self.file.vfs()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn columns(&self) -> u32 {
        self.columns
    }

    /// Whether the filter of this table is here.
    pub(crate) fn has(&self, table: u64) -> bool {
        self.tables.iter().any(|&(number, _)| number == table)
    }

    pub(crate) fn retire(&self) {
        self.file.retire();
    }

    /// The filters of the column of `hash`, of all tables. Costs one read of a page.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub(crate) fn column(&self, hash: Hash, purpose: Purpose) -> Result<Column<'_>> {
        let column = hash.bucket(self.columns);
        let page_number = column / self.columns_a_page;
        let page = self.read_page(page_number, purpose)?;
        let mut at = PAGE_HEADER;
        for _ in page_number * self.columns_a_page..column {
            for _ in &self.tables {
                at = self.entry(&page, page_number, at)?.1;
            }
        }
        let mut filters = Vec::with_capacity(self.tables.len());
        for _ in &self.tables {
            let place = self.entry(&page, page_number, at)?;
            at = place.1;
            filters.push(place);
        }
        Ok(Column { cluster: self, page, filters })
    }

    /// The filters of all tables.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub(crate) fn load(&self, purpose: Purpose) -> Result<Vec<(u64, Arc<Filter>)>> {
        // In the stored form of filters: probes, columns, lengths, bytes.
        let mut parts = vec![(Vec::new(), Vec::new()); self.tables.len()];
        for first in (0..self.columns).step_by(self.columns_a_page as usize) {
            let page_number = first / self.columns_a_page;
            let page = self.read_page(page_number, purpose)?;
            let mut at = PAGE_HEADER;
            for _ in first..self.columns.min(first + self.columns_a_page) {
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
                .ok_or_else(|| self.file.damaged(0, "a filter of the cluster is malformed"))?;
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
            false => Err(self.file.damaged(offset, "a page does not match its checksum")),
        }
    }

    /// The filter whose entry begins at `at`: from where to where.
    fn entry(&self, page: &[u8], number: u32, at: usize) -> Result<(usize, usize)> {
        let start = at + ENTRY_HEADER;
        let len = page.get(at..start).map(|len| usize::from(u16::from_le_bytes([len[0], len[1]])));
        match len.map(|len| start + len).filter(|&end| end <= page.len()) {
            Some(end) => Ok((start, end)),
            None => {
                let offset = u64::from(number) * u64::from(self.page_bytes);
                Err(self.file.damaged(offset, "a page of the cluster is malformed"))
            }
        }
    }
}

/// The footer, which stands at `at`: columns, columns a page and bytes of a page are `numbers`.
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

/// For [`crate::hostile`]: a file of arbitrary pages, directory and numbers, sealed.
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
    sum.frame(&mut bytes, at, directory);
    let at = bytes.len() as u64;
    bytes.extend(footer(number, numbers, directory.len() + FRAME_TRAILER, at));
    bytes
}

impl Column<'_> {
    /// Whether `table` may hold the hash whose column this is; `true` if its filter is not here.
    pub(crate) fn may_hold(&self, table: u64, hash: Hash) -> bool {
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
    fn is_every_table_answered_for_by_one_read() {
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
        // A page of one column each, and of several.
        for (page_bytes, at_least) in [(1024, 1), (4096, 5)] {
            let bytes =
                Cluster::write(vfs.as_ref(), 3, &filters, page_bytes, &rate, Purpose::Flush)
                    .unwrap();
            let homes = Homes { main: vfs.clone(), upper: None };
            let cluster = Cluster::open(&homes, 3, bytes).unwrap();
            assert!(cluster.columns_a_page >= at_least);
            assert_eq!(cluster.load(Purpose::Get).unwrap(), filters);
            assert!(cluster.has(10) && !cluster.has(15));
            for (number, set) in (10..).zip(&sets) {
                for &hash in set.iter().step_by(37) {
                    let column = cluster.column(hash, Purpose::Get).unwrap();
                    assert!(column.may_hold(number, hash));
                    let may_hold = |n: &u64| *n != number && column.may_hold(*n, hash);
                    assert!((10..15).filter(may_hold).count() <= 1);
                }
            }
            drop(cluster);
            vfs.remove(&Kind::Cluster.name(3)).unwrap();
        }
    }
}
