//! A device in one file.
//!
//! ```text
//!   0                  label, a sector
//!   512                block 0:  life      u64, 1 + number of erases; 0 means 1
//!                                block     u32
//!                                sum       u32, CRC-32C of the 12 bytes before
//!                                zeros up to 512
//!                                a slot per page, see `slot`
//!                                zeros up to a multiple of 512
//!   512 + block bytes  block 1: …
//! ```
//!
//! All numbers are little-endian; a header of zeros was never written. An erase writes the header
//! of the block, one sector, which invalidates slots of earlier lives. Between syncs a power cut
//! may keep any subset of the sectors. So a block's life is the latest one in its header or slots,
//! and it is programmed up to its last slot of that life; a missing slot before it is an unreadable
//! page.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::backend::join;
use siltstone_vfs::{File, Mode, Vfs, removed_error};

use super::Geometry;
use super::cells::{Cells, PageAddress, State};
use super::label::{self, Form, LABEL_BYTES};
use super::slot::{self, HEAD_BYTES, Head};

const BLOCK_HEADER_BYTES: u64 = 512;

pub(super) struct FileCells {
    name: String,
    file: Arc<dyn File>,
    geometry: Geometry,
}

impl FileCells {
    /// Opens the file; creates it if it does not exist. It gets its name after its label is
    /// written.
    pub(super) fn open(vfs: &dyn Vfs, file_name: &str, geometry: Geometry) -> Result<Self> {
        let name = join(&vfs.name(), file_name);
        if !vfs.exists(file_name)? {
            let draft = format!("{file_name}.new");
            if vfs.exists(&draft)? {
                vfs.remove(&draft)?;
            }
            let file = vfs.create(&draft)?;
            label::write(&*file, &geometry, Form::OneFile)?;
            file.set_len(LABEL_BYTES + u64::from(geometry.blocks()) * block_bytes(&geometry))?;
            file.sync(Purpose::Manifest)?;
            vfs.rename(&draft, file_name)?;
            vfs.sync_dir(Purpose::Manifest)?;
        }
        let file = vfs.open(file_name, Mode::ReadWrite)?;
        label::check(&*file, &name, &geometry, Form::OneFile)?;
        let cells = FileCells { name, file, geometry };
        let (bytes, len) = (cells.end(), cells.file.len()?);
        // A longer file has bytes past the end of the device; see `check_end`.
        if len < bytes {
            let reason = format!("the device is truncated: its label says {bytes} bytes");
            return Err(Error::corruption(cells.name, len, reason));
        }
        Ok(cells)
    }

    /// The end of the device in its file.
    fn end(&self) -> u64 {
        LABEL_BYTES + u64::from(self.geometry.blocks()) * block_bytes(&self.geometry)
    }

    /// Rewrites everything damaged except pages: label, length, block headers. The life of a
    /// rewritten header is the latest one of the block's slots. Returns a description of each
    /// change.
    pub(super) fn repair(
        vfs: &dyn Vfs,
        file_name: &str,
        geometry: Geometry,
    ) -> Result<Vec<String>> {
        let name = join(&vfs.name(), file_name);
        let file = vfs.open(file_name, Mode::ReadWrite)?;
        let mut changes = Vec::new();
        match label::check(&*file, &name, &geometry, Form::OneFile) {
            Err(Error::Corruption { .. }) => {
                label::write(&*file, &geometry, Form::OneFile)?;
                changes.push(format!("{name}: the label was damaged, and was rewritten"));
            }
            checked => checked?,
        }
        let bytes = LABEL_BYTES + u64::from(geometry.blocks()) * block_bytes(&geometry);
        let len = file.len()?;
        if len < bytes {
            file.set_len(bytes)?;
            changes.push(format!(
                "{name}: {} bytes at its end were missing, and are lost",
                bytes - len
            ));
        }
        let cells = FileCells { name, file, geometry };
        for block in 0..geometry.blocks() {
            if let Err(damage @ Error::Corruption { .. }) = cells.header_life(block) {
                cells.file.write_at(cells.block_offset(block), &[0; 16], Purpose::Maintenance)?;
                changes.push(format!("{damage}: it was rewritten from the pages"));
            }
        }
        cells.file.sync(Purpose::Maintenance)?;
        Ok(changes)
    }

    fn block_offset(&self, block: u32) -> u64 {
        LABEL_BYTES + u64::from(block) * block_bytes(&self.geometry)
    }

    fn slot_offset(&self, address: PageAddress) -> u64 {
        slot_offset(&self.geometry, address.block, address.index)
    }

    /// The life in the block's header.
    fn header_life(&self, block: u32) -> Result<u64> {
        let mut header = [0; 16];
        let offset = self.block_offset(block);
        self.file.read_at(offset, &mut header, Purpose::Recovery)?;
        if header == [0; 16] {
            return Ok(1);
        }
        let mut life = [0; 8];
        life.copy_from_slice(&header[..8]);
        let life = u64::from_le_bytes(life);
        match header == block_header(block, life) && life > 0 {
            true => Ok(life),
            false => {
                let reason = format!("the header of block {block} has a wrong checksum");
                Err(Error::corruption(&self.name, offset, reason))
            }
        }
    }
}

fn slot_offset(geometry: &Geometry, block: u32, index: u32) -> u64 {
    let slots = LABEL_BYTES + u64::from(block) * block_bytes(geometry) + BLOCK_HEADER_BYTES;
    slots + u64::from(index) * slot_bytes(geometry)
}

/// The range of a page's slot.
pub(super) fn page_bytes(geometry: &Geometry, page: u32) -> std::ops::Range<u64> {
    let block = geometry.block_of(page);
    let offset = slot_offset(geometry, block, page - geometry.page(block, 0));
    offset..offset + slot_bytes(geometry)
}

/// The length of the file.
pub(super) fn file_bytes(geometry: &Geometry) -> u64 {
    LABEL_BYTES + u64::from(geometry.blocks()) * block_bytes(geometry)
}

fn slot_bytes(geometry: &Geometry) -> u64 {
    (HEAD_BYTES + geometry.page_bytes()) as u64
}

fn block_bytes(geometry: &Geometry) -> u64 {
    let slots = u64::from(geometry.pages_per_block()) * slot_bytes(geometry);
    BLOCK_HEADER_BYTES + slots.next_multiple_of(512)
}

fn block_header(block: u32, life: u64) -> [u8; 16] {
    let mut header = [0; 16];
    header[..8].copy_from_slice(&life.to_le_bytes());
    header[8..12].copy_from_slice(&block.to_le_bytes());
    let sum = crc32c::crc32c(&header[..12]);
    header[12..].copy_from_slice(&sum.to_le_bytes());
    header
}

impl Cells for FileCells {
    fn name(&self) -> &str {
        &self.name
    }

    fn load(&self, block: u32) -> Result<State> {
        let mut data = self.file.next_data(self.block_offset(block))?;
        let mut life = match data < self.block_offset(block) + BLOCK_HEADER_BYTES {
            true => self.header_life(block)?,
            false => 1,
        };
        let mut next = 0;
        let mut damaged = 0;
        for index in 0..self.geometry.pages_per_block() {
            let page = self.geometry.page(block, index);
            let mut head = [0; HEAD_BYTES];
            let offset = self.slot_offset(PageAddress { page, block, index, erases: 0 });
            // A hole of the file was never written.
            if data >= offset + HEAD_BYTES as u64 {
                continue;
            }
            self.file.read_at(offset, &mut head, Purpose::Recovery)?;
            match slot::head(page, &head) {
                Head::Life(slot_life) if slot_life > life => (life, next) = (slot_life, index + 1),
                Head::Life(slot_life) if slot_life == life => next = index + 1,
                Head::Damaged => damaged = index + 1,
                Head::NeverWritten => {
                    data = self.file.next_data(offset + slot_bytes(&self.geometry))?
                }
                Head::Life(_) => {}
            }
        }
        Ok(State { erases: life - 1, next: next.max(damaged) })
    }

    fn read(&self, address: PageAddress, buf: &mut [u8], purpose: Purpose) -> Result<bool> {
        read_slot(&*self.file, self.slot_offset(address), address, buf, purpose)
    }

    fn program(&self, address: PageAddress, bytes: &[u8], purpose: Purpose) -> Result<()> {
        write_slot(&*self.file, self.slot_offset(address), address, bytes, purpose)
    }

    fn renew(&self, address: PageAddress, purpose: Purpose) -> Result<()> {
        let mut slot = vec![0; slot_bytes(&self.geometry) as usize];
        let offset = self.slot_offset(address);
        self.file.read_at(offset, &mut slot, purpose)?;
        self.file.write_at(offset, &slot, purpose)
    }

    fn erase(&self, block: u32, erases: u64, purpose: Purpose) -> Result<()> {
        let mut sector = [0; BLOCK_HEADER_BYTES as usize];
        sector[..16].copy_from_slice(&block_header(block, erases + 1));
        self.file.write_at(self.block_offset(block), &sector, purpose)
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.file.sync(purpose)?;
        if self.file.is_removed()? { Err(removed_error(&self.name)) } else { Ok(()) }
    }

    fn check_end(&self) -> Result<()> {
        let (end, len) = (self.end(), self.file.len()?);
        if len <= end {
            return Ok(());
        }
        let reason = format!(
            "{} bytes are past the end of the device and not part of it; its pages are unaffected",
            len - end
        );
        Err(Error::corruption(&self.name, end, reason))
    }
}

/// Writes a page to its slot; if that fails, durably invalidates the slot. Otherwise a partial page
/// whose missing part reads as zeros could be valid if it ends in zeros, and exist beside the page
/// that is programmed instead.
///
/// # Errors
/// A failed write: the page is invalid. `ReadOnly` if it may be valid.
pub(super) fn write_slot(
    file: &dyn File,
    offset: u64,
    address: PageAddress,
    bytes: &[u8],
    purpose: Purpose,
) -> Result<()> {
    let life = address.erases + 1;
    let slot = slot::encode(address.page, life, bytes);
    let Err(error) = file.write_at(offset, &slot, purpose) else { return Ok(()) };
    match take_back(file, offset, address, purpose) {
        Ok(()) => Err(error),
        Err(again) => {
            let cause = format!("{error}, and that could not be undone: {again}");
            Err(Error::ReadOnly { cause })
        }
    }
}

/// Zeroes the header of a slot, unless it is invalid.
fn take_back(file: &dyn File, offset: u64, address: PageAddress, purpose: Purpose) -> Result<()> {
    let mut head = [0; HEAD_BYTES];
    // If the file is shorter, not even the header was written. Zeroing it might need space.
    if file.len()? < offset + HEAD_BYTES as u64 {
        return Ok(());
    }
    file.read_at(offset, &mut head, purpose)?;
    if slot::head(address.page, &head) != Head::Life(address.erases + 1) {
        return Ok(());
    }
    file.write_at(offset, &[0; HEAD_BYTES], purpose)?;
    file.sync(purpose)
}

/// Reads a page from its slot; `false` if it is damaged.
pub(super) fn read_slot(
    file: &dyn File,
    offset: u64,
    address: PageAddress,
    buf: &mut [u8],
    purpose: Purpose,
) -> Result<bool> {
    let mut slot = vec![0; HEAD_BYTES + buf.len()];
    file.read_at(offset, &mut slot, purpose)?;
    let mut head = [0; HEAD_BYTES];
    head.copy_from_slice(&slot[..HEAD_BYTES]);
    buf.copy_from_slice(&slot[HEAD_BYTES..]);
    Ok(slot::is_valid(address.page, address.erases + 1, &head, buf))
}
