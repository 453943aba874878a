//! A device in zones: a directory with one file per block, which is appended to and reset.
//!
//! ```text
//!   device             the label, a sector: see `label`
//!   zone-00000         zone 0:   0  life   u64, 1 + number of resets
//!                                8  zone   u32
//!                               12  sum    u32, CRC-32C of the 12 bytes before
//!                               16  a slot per programmed page, see `slot`
//!   zone-00002         a zone that was never written has no file
//!   zone-00002.new     an interrupted reset: garbage
//! ```
//!
//! All numbers are little-endian. The end of a zone's file is its write pointer. A reset writes an
//! empty zone of the next life to a new file, syncs it and renames it over the old one, so a zone
//! is either complete or empty. The new name is durable after the next flush.
//!
//! Source: NVMe zoned namespaces (append at a write pointer, reset).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use parking_lot::{Mutex, RwLock};
use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::backend::join;
use siltstone_vfs::{File, Mode, Vfs};

use super::Geometry;
use super::cells::{Cells, PageAddress, State};
use super::file::{read_slot, write_slot};
use super::label::{self, Form};
use super::slot::HEAD_BYTES;

const DEVICE: &str = "device";
const ZONE_HEADER_BYTES: u64 = 16;

pub(super) struct ZoneCells {
    name: String,
    vfs: Arc<dyn Vfs>,
    geometry: Geometry,
    /// Open files by zone.
    zones: RwLock<BTreeMap<u32, Arc<dyn File>>>,
    /// Zones with unsynced bytes.
    unsynced: Mutex<BTreeMap<u32, Arc<dyn File>>>,
    /// Whether a zone was renamed since the last sync of the directory.
    renamed: AtomicBool,
}

impl ZoneCells {
    /// Opens the device in the directory, or creates one if there is none.
    pub(super) fn open(vfs: Arc<dyn Vfs>, geometry: Geometry) -> Result<Self> {
        if !vfs.exists(DEVICE)? {
            if let Some(zone) = vfs.list()?.into_iter().find(|name| name.starts_with("zone-")) {
                let reason = format!("the device's label is missing, and {zone} is there");
                return Err(Error::Refused { path: join(&vfs.name(), DEVICE), reason });
            }
            let file = create_replacement(&*vfs, "device.new")?;
            label::write(&*file, &geometry, Form::Zones)?;
            file.sync(Purpose::Manifest)?;
            vfs.rename("device.new", DEVICE)?;
            vfs.sync_dir(Purpose::Manifest)?;
        }
        let file = vfs.open(DEVICE, Mode::Read)?;
        label::check(&*file, &join(&vfs.name(), DEVICE), &geometry, Form::Zones)?;
        Ok(ZoneCells {
            name: vfs.name(),
            vfs,
            geometry,
            zones: RwLock::default(),
            unsynced: Mutex::default(),
            renamed: AtomicBool::new(false),
        })
    }

    fn slot_offset(&self, address: PageAddress) -> u64 {
        ZONE_HEADER_BYTES + u64::from(address.index) * self.slot_bytes()
    }

    fn slot_bytes(&self) -> u64 {
        (HEAD_BYTES + self.geometry.page_bytes()) as u64
    }

    fn zone(&self, zone: u32) -> Option<Arc<dyn File>> {
        self.zones.read().get(&zone).cloned()
    }

    /// Replaces the zone by an empty one of this life.
    fn reset(&self, zone: u32, life: u64, purpose: Purpose) -> Result<Arc<dyn File>> {
        let (name, draft) = (zone_name(zone), format!("{}.new", zone_name(zone)));
        let file = create_replacement(&*self.vfs, &draft)?;
        file.write_at(0, &zone_header(zone, life), purpose)?;
        file.sync(purpose)?;
        self.vfs.rename(&draft, &name)?;
        self.renamed.store(true, SeqCst);
        self.unsynced.lock().remove(&zone);
        self.zones.write().insert(zone, file.clone());
        Ok(file)
    }
}

fn create_replacement(vfs: &dyn Vfs, name: &str) -> Result<Arc<dyn File>> {
    if vfs.exists(name)? {
        vfs.remove(name)?;
    }
    vfs.create(name)
}

fn zone_name(zone: u32) -> String {
    format!("zone-{zone:05}")
}

fn zone_header(zone: u32, life: u64) -> [u8; ZONE_HEADER_BYTES as usize] {
    let mut header = [0; ZONE_HEADER_BYTES as usize];
    header[..8].copy_from_slice(&life.to_le_bytes());
    header[8..12].copy_from_slice(&zone.to_le_bytes());
    let sum = crc32c::crc32c(&header[..12]);
    header[12..].copy_from_slice(&sum.to_le_bytes());
    header
}

impl Cells for ZoneCells {
    fn name(&self) -> &str {
        &self.name
    }

    fn load(&self, block: u32) -> Result<State> {
        let name = zone_name(block);
        if !self.vfs.exists(&name)? {
            return Ok(State::default());
        }
        let file = self.vfs.open(&name, Mode::ReadWrite)?;
        let corrupt = |offset, reason: &str| {
            Err(Error::corruption(join(&self.vfs.name(), &name), offset, reason))
        };
        let len = file.len()?;
        if len < ZONE_HEADER_BYTES {
            return corrupt(len, "the zone is shorter than its header");
        }
        let mut header = [0; ZONE_HEADER_BYTES as usize];
        file.read_at(0, &mut header, Purpose::Recovery)?;
        let mut life = [0; 8];
        life.copy_from_slice(&header[..8]);
        let life = u64::from_le_bytes(life);
        if header != zone_header(block, life) || life == 0 {
            return corrupt(0, "the zone's header has a wrong checksum");
        }
        // A slot torn by a power cut is an unreadable page.
        let next = (len - ZONE_HEADER_BYTES).div_ceil(self.slot_bytes());
        if next > u64::from(self.geometry.pages_per_block()) {
            return corrupt(len, "the zone is longer than a block");
        }
        self.zones.write().insert(block, file);
        Ok(State { erases: life - 1, next: next as u32 })
    }

    fn read(&self, address: PageAddress, buf: &mut [u8], purpose: Purpose) -> Result<bool> {
        let Some(file) = self.zone(address.block) else { return Ok(false) };
        let offset = self.slot_offset(address);
        if file.len()? < offset + self.slot_bytes() {
            return Ok(false);
        }
        read_slot(&*file, offset, address, buf, purpose)
    }

    fn program(&self, address: PageAddress, bytes: &[u8], purpose: Purpose) -> Result<()> {
        let life = address.erases + 1;
        let file = match self.zone(address.block) {
            Some(file) => file,
            None => self.reset(address.block, life, purpose)?,
        };
        let written = write_slot(&*file, self.slot_offset(address), address, bytes, purpose);
        // After the write, so that a concurrent flush does not mark the zone as synced.
        self.unsynced.lock().insert(address.block, file);
        written
    }

    fn renew(&self, address: PageAddress, purpose: Purpose) -> Result<()> {
        let Some(file) = self.zone(address.block) else { return Ok(()) };
        let mut slot = vec![0; self.slot_bytes() as usize];
        let offset = self.slot_offset(address);
        file.read_at(offset, &mut slot, purpose)?;
        let written = file.write_at(offset, &slot, purpose);
        self.unsynced.lock().insert(address.block, file);
        written
    }

    fn erase(&self, block: u32, erases: u64, purpose: Purpose) -> Result<()> {
        self.reset(block, erases + 1, purpose).map(drop)
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        for file in std::mem::take(&mut *self.unsynced.lock()).into_values() {
            file.sync(purpose)?;
        }
        match self.renamed.swap(false, SeqCst) {
            true => self.vfs.sync_dir(purpose),
            false => Ok(()),
        }
    }
}
