//! A page-mapped flash translation layer: a logical device whose pages are mapped one by one.
//!
//! ```text
//!   logical page ─▶ physical page      4 bytes of memory each
//!   a write is appended to the log; the previous copy of the page becomes invalid
//!   collection: copies the valid pages of the block with the fewest, and erases it
//! ```
//!
//! VFTL is SEMEL's mapping over this layer: two logs, one on top of the other. A block that the
//! upper log frees stays valid here until its pages are written again, and is copied until then.
//! This overhead is what the comparison measures.
//!
//! Pages are assigned to channels round robin, as in the upper log. So a block of the upper log
//! lies in few blocks of this one, and little is left to copy. With the least loaded channel
//! instead (`Options::ftl_placement`) the two logs are independent.
//!
//! The logical device has nine tenths of the blocks, less a few. The header of each page (`page`)
//! states its logical page and its age, where a drive would use the out-of-band area.
//!
//! Invariant: a physical page is the newest copy of at most one logical page. A block is erased
//! only when the copies of its valid pages are durable.
//!
//! Source: SkimpyFTL, section 4 (VFTL); Yang et al., "Don't Stack Your Log on My Log", INFLOW 2014.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::flash::{Completion, Flash, FlashError, FlashResult, Geometry};
use parking_lot::{Mutex, MutexGuard};
use siltstone_engine::{IoCounters, Purpose, Result};

use crate::channels::Channels;
use crate::device::Device;
use crate::options::FtlPlacement;

const NONE: u32 = u32::MAX;

/// The translation layer.
pub(crate) struct PageMapped {
    physical_flash: Arc<dyn Flash>,
    /// The same device, with the load of its channels.
    device: Device,
    geometry: Geometry,
    ftl_placement: FtlPlacement,
    state: Mutex<State>,
}

struct State {
    /// The physical page by logical page.
    places: Vec<u32>,
    /// By physical page: the logical page whose newest copy it is.
    owners: Vec<u32>,
    /// Valid pages, by physical block.
    valid: Vec<u32>,
    /// By logical block: the pages programmed since its last erase, and the number of erases.
    programmed: Vec<u32>,
    erases: Vec<u64>,
    free: BTreeSet<(u64, u32)>,
    open: Vec<Option<u32>>,
    channels: Channels,
    /// Full blocks, ordered by their number of valid pages.
    full: BTreeSet<(u32, u32)>,
    /// Pages copied by collection, and blocks erased.
    copied: u64,
    erased: u64,
}

impl PageMapped {
    /// Opens the layer over a device; the map is rebuilt from the headers of the pages.
    pub(crate) fn open(
        physical_flash: Arc<dyn Flash>,
        channels: u32,
        ftl_placement: FtlPlacement,
    ) -> Result<Self> {
        let physical = physical_flash.geometry();
        let (reserved, ppb) = (Self::reserved(&physical, channels), physical.pages_per_block());
        let blocks = physical.blocks().saturating_sub(reserved).max(1);
        let geometry = Geometry::new(physical.page_bytes() as u32, ppb, blocks)?;
        let mut state = State {
            places: vec![NONE; geometry.pages() as usize],
            owners: vec![NONE; physical.pages() as usize],
            valid: vec![0; physical.blocks() as usize],
            programmed: vec![0; blocks as usize],
            erases: vec![0; blocks as usize],
            free: BTreeSet::new(),
            open: vec![None; channels as usize],
            channels: Channels::new(channels),
            full: BTreeSet::new(),
            copied: 0,
            erased: 0,
        };
        let device = Device::new(physical_flash.clone(), channels);
        let mut newest = vec![(0, 0); geometry.pages() as usize];
        for block in 0..physical.blocks() {
            let programmed = physical_flash.programmed(block)?;
            for index in 0..programmed {
                let place = physical.page(block, index);
                let Some(page) = device.try_read_any(place, Purpose::Recovery)? else { continue };
                let (logical, age) = (page.page, (page.header.epoch, page.header.sequence));
                let Some(known) = newest.get_mut(logical as usize) else { continue };
                if age > *known {
                    *known = age;
                    state.map(logical, place, ppb);
                }
            }
            if programmed == 0 {
                state.free.insert((physical_flash.erases(block)?, block));
            }
        }
        for (page, place) in state.places.iter().enumerate() {
            if *place != NONE {
                let (block, index) = (page / ppb as usize, page as u32 % ppb);
                state.programmed[block] = state.programmed[block].max(index + 1);
            }
        }
        for block in 0..physical.blocks() {
            let programmed = physical_flash.programmed(block)?;
            let channel = state.open.iter().position(Option::is_none);
            match channel.filter(|_| (1..ppb).contains(&programmed)) {
                // Resume the open block.
                Some(channel) => state.open[channel] = Some(block),
                None if programmed > 0 => {
                    state.full.insert((state.valid[block as usize], block));
                }
                None => {}
            }
        }
        Ok(PageMapped { physical_flash, device, geometry, ftl_placement, state: Mutex::new(state) })
    }

    /// Physical blocks that are not part of the logical device.
    fn reserved(physical: &Geometry, channels: u32) -> u32 {
        physical.reserved_blocks().max(2 * channels + 4)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The next physical page.
    fn next_page(&self, state: &mut State) -> FlashResult<u32> {
        let physical = self.physical_flash.geometry();
        let channel = match self.ftl_placement {
            FtlPlacement::RoundRobin => state.channels.round_robin(),
            FtlPlacement::LeastLoaded => {
                // The open block of a channel may be a block of any channel.
                let done = |channel: usize| {
                    state.open[channel]
                        .map_or(Duration::ZERO, |block| self.device.busy_until(block as usize))
                };
                state.channels.least_loaded(physical.pages_per_block(), done)
            }
        };
        state.channels.assign(channel);
        loop {
            if let Some(block) = state.open[channel] {
                let index = self.physical_flash.programmed(block)?;
                if index < physical.pages_per_block() {
                    return Ok(physical.page(block, index));
                }
                state.open[channel] = None;
                state.full.insert((state.valid[block as usize], block));
            }
            let Some((erases, block)) = state.free.pop_first() else {
                let reason = "the translation layer has no free block";
                let reason = std::io::Error::new(std::io::ErrorKind::StorageFull, reason);
                let full =
                    siltstone_engine::Error::io("write", self.physical_flash.name(), &reason);
                return Err(FlashError::Medium(full));
            };
            if self.physical_flash.programmed(block)? > 0 {
                match self.erase(state, block) {
                    Err(FlashError::WornOut { .. }) => continue,
                    Err(other) => {
                        state.free.insert((erases, block));
                        return Err(other);
                    }
                    Ok(()) => {}
                }
            }
            state.open[channel] = Some(block);
        }
    }

    /// Copies the blocks with the fewest valid pages until enough blocks are free.
    fn collect(&self, state: &mut State) -> FlashResult<()> {
        let physical = self.physical_flash.geometry();
        let ppb = physical.pages_per_block();
        let wanted = state.open.len() + 2;
        while state.free.len() < wanted {
            let Some((valid, victim)) = state.full.pop_first() else { return Ok(()) };
            if valid >= ppb {
                state.full.insert((valid, victim));
                return Ok(());
            }
            // Erased at once: with copies in two blocks an opening could not know which one is
            // valid.
            let moved = self.copy_block(state, victim).and_then(|()| self.erase(state, victim));
            if let Err(FlashError::WornOut { .. }) = moved {
                continue;
            }
            if let Err(error) = moved {
                state.full.insert((state.valid[victim as usize], victim));
                return Err(error);
            }
            state.free.insert((self.physical_flash.erases(victim)?, victim));
        }
        Ok(())
    }

    /// Copies the valid pages of a block; all reads are submitted at once.
    fn copy_block(&self, state: &mut State, victim: u32) -> FlashResult<()> {
        let physical = self.physical_flash.geometry();
        let ppb = physical.pages_per_block();
        let mut read = Vec::new();
        for index in 0..ppb {
            let from = physical.page(victim, index);
            let logical = state.owners[from as usize];
            if logical != NONE {
                let mut bytes = vec![0; physical.page_bytes()];
                let reading =
                    self.physical_flash.submit_read(from, &mut bytes, Purpose::Compaction)?;
                read.push((logical, bytes, reading));
            }
        }
        let mut done = Vec::with_capacity(read.len());
        for (logical, bytes, reading) in read {
            self.physical_flash.wait(reading)?;
            let to = self.next_page(state)?;
            done.push(self.device.submit_program(to, &bytes, Purpose::Compaction)?);
            state.map(logical, to, ppb);
            state.copied += 1;
        }
        for completion in done {
            self.physical_flash.wait(completion)?;
        }
        self.physical_flash.flush(Purpose::Compaction)
    }

    fn erase(&self, state: &mut State, block: u32) -> FlashResult<()> {
        self.physical_flash.erase(block, Purpose::Compaction)?;
        state.erased += 1;
        Ok(())
    }

    /// Bytes of the map: four per logical page.
    pub(crate) fn memory_bytes(&self) -> u64 {
        4 * self.geometry.pages()
    }

    /// Pages copied by collection, and blocks erased.
    pub(crate) fn work(&self) -> (u64, u64) {
        let state = self.state();
        (state.copied, state.erased)
    }

    fn check(&self, page: u32) -> FlashResult<(u32, u32)> {
        match u64::from(page) < self.geometry.pages() {
            true => Ok((self.geometry.block_of(page), self.geometry.index_of(page))),
            false => {
                let last = (self.geometry.pages() - 1) as u32;
                Err(FlashError::NoSuchPage { device: self.name(), page, last })
            }
        }
    }
}

impl State {
    /// Maps a logical page to `place`, and invalidates its previous copy.
    fn map(&mut self, logical: u32, place: u32, pages_per_block: u32) {
        let before = std::mem::replace(&mut self.places[logical as usize], place);
        if before != NONE {
            self.owners[before as usize] = NONE;
            let block = before / pages_per_block;
            let valid = &mut self.valid[block as usize];
            *valid -= 1;
            if self.full.remove(&(*valid + 1, block)) {
                self.full.insert((*valid, block));
            }
        }
        self.owners[place as usize] = logical;
        self.valid[(place / pages_per_block) as usize] += 1;
    }
}

impl Flash for PageMapped {
    fn name(&self) -> String {
        self.physical_flash.name()
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit_read(&self, page: u32, buf: &mut [u8], purpose: Purpose) -> FlashResult<Completion> {
        let (block, index) = self.check(page)?;
        loop {
            let place = {
                let state = self.state();
                match state.places[page as usize] {
                    NONE => NONE,
                    place if index < state.programmed[block as usize] => place,
                    _ => NONE,
                }
            };
            if place == NONE {
                return Err(FlashError::Erased { device: self.name(), page });
            }
            let read = self.physical_flash.submit_read(place, buf, purpose);
            // Collection may have moved the page and reused its place.
            if self.state().places[page as usize] == place {
                let block = self.physical_flash.geometry().block_of(place);
                return read.map(|completion| self.device.record_submission(block, completion));
            }
        }
    }

    fn submit_program(&self, page: u32, bytes: &[u8], purpose: Purpose) -> FlashResult<Completion> {
        let (block, index) = self.check(page)?;
        let mut state = self.state();
        let next = state.programmed[block as usize];
        if index < next {
            return Err(FlashError::AlreadyProgrammed { device: self.name(), page, block });
        }
        if index > next {
            let next = self.geometry.page(block, next);
            return Err(FlashError::OutOfOrder { device: self.name(), page, next });
        }
        self.collect(&mut state)?;
        let place = self.next_page(&mut state)?;
        let completion = self.device.submit_program(place, bytes, purpose)?;
        state.map(page, place, self.geometry.pages_per_block());
        state.programmed[block as usize] = index + 1;
        Ok(completion)
    }

    fn submit_erase(&self, block: u32, _purpose: Purpose) -> FlashResult<Completion> {
        if block >= self.geometry.blocks() {
            let last = self.geometry.blocks() - 1;
            return Err(FlashError::NoSuchBlock { device: self.name(), block, last });
        }
        let mut state = self.state();
        state.programmed[block as usize] = 0;
        state.erases[block as usize] += 1;
        Ok(Completion::new(self.physical_flash.now()))
    }

    fn wait(&self, completion: Completion) -> FlashResult<()> {
        self.physical_flash.wait(completion)
    }

    fn now(&self) -> Duration {
        self.physical_flash.now()
    }

    fn flush(&self, purpose: Purpose) -> FlashResult<()> {
        self.physical_flash.flush(purpose)
    }

    fn renew(&self, page: u32, purpose: Purpose) -> FlashResult<()> {
        self.check(page)?;
        match self.state().places[page as usize] {
            NONE => Ok(()),
            place => self.physical_flash.renew(place, purpose),
        }
    }

    fn check_end(&self) -> FlashResult<()> {
        self.physical_flash.check_end()
    }

    fn programmed(&self, block: u32) -> FlashResult<u32> {
        Ok(self.state().programmed[block as usize])
    }

    fn erases(&self, block: u32) -> FlashResult<u64> {
        Ok(self.state().erases[block as usize])
    }

    fn endurance(&self) -> u64 {
        u64::MAX
    }

    fn counters(&self) -> Arc<IoCounters> {
        self.physical_flash.counters()
    }
}
