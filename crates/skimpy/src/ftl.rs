//! A standard flash translation layer: pages of a logical device, mapped one by one.
//!
//! ```text
//!   logical page ─▶ physical page      4 bytes of memory each
//!   a write goes to the log's head, whatever page it is; the page that it replaces is garbage
//!   collection: the block of the fewest valid pages is copied and erased
//! ```
//!
//! VFTL is SEMEL's mapping over this: two logs, one on the other. The upper one gives blocks back; this
//! one hears nothing of it until their pages are written again, and copies them until then. That is
//! the point of the comparison.
//!
//! Its pages go round the lanes, as the upper one's do: so a block of the upper one lies in few of its blocks, and little
//! is left to copy. Where they go to the idlest lane (`Options::below`) the two logs know nothing of each other.
//!
//! It is a [`Flash`] of nine tenths of the blocks, less a few. Which logical page a physical one holds, and
//! which of two is newer, is told by the page's own header (`page`), where a drive has an out-of-band area.
//!
//! Invariant: a physical page is the newest of at most one logical page. A block is erased when the copies
//! of what was valid in it are durable.
//!
//! Source: SkimpyFTL, section 4 (VFTL); Yang et al., "Don't Stack Your Log on My Log", INFLOW 2014.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use siltstone_engine::{IoCounters, Purpose, Result};

use crate::device::Device;
use crate::flash::{Completion, Flash, FlashError, FlashResult, Geometry};
use crate::lanes::Lanes;
use crate::options::Below;

const NONE: u32 = u32::MAX;

/// The layer.
pub(crate) struct PageMapped {
    under: Arc<dyn Flash>,
    /// The same, which knows how much its lanes have to do.
    device: Device,
    geometry: Geometry,
    below: Below,
    state: Mutex<State>,
}

struct State {
    /// By logical page.
    places: Vec<u32>,
    /// By physical page: the logical one that it is the newest of.
    owners: Vec<u32>,
    /// Valid pages, by physical block.
    valid: Vec<u32>,
    /// By logical block: pages programmed since it was erased, and how often that was.
    programmed: Vec<u32>,
    erases: Vec<u64>,
    free: BTreeSet<(u64, u32)>,
    open: Vec<Option<u32>>,
    lanes: Lanes,
    /// Full blocks by how many of their pages are valid.
    full: BTreeSet<(u32, u32)>,
    /// Pages that collection has copied, and blocks that were erased.
    copied: u64,
    erased: u64,
}

impl PageMapped {
    /// The layer over a device, with what its pages say.
    pub(crate) fn open(under: Arc<dyn Flash>, lanes: u32, below: Below) -> Result<Self> {
        let physical = under.geometry();
        let (reserved, ppb) = (Self::reserved(&physical, lanes), physical.pages_per_block());
        let blocks = physical.blocks().saturating_sub(reserved).max(1);
        let geometry = Geometry::new(physical.page_bytes() as u32, ppb, blocks)?;
        let mut state = State {
            places: vec![NONE; geometry.pages() as usize],
            owners: vec![NONE; physical.pages() as usize],
            valid: vec![0; physical.blocks() as usize],
            programmed: vec![0; blocks as usize],
            erases: vec![0; blocks as usize],
            free: BTreeSet::new(),
            open: vec![None; lanes as usize],
            lanes: Lanes::new(lanes),
            full: BTreeSet::new(),
            copied: 0,
            erased: 0,
        };
        let device = Device::new(under.clone(), lanes);
        let mut newest = vec![(0, 0); geometry.pages() as usize];
        for block in 0..physical.blocks() {
            let programmed = under.programmed(block)?;
            for index in 0..programmed {
                let place = physical.page(block, index);
                let Some(page) = device.look_as_any(place, Purpose::Recovery)? else { continue };
                let (logical, age) = (page.page, (page.header.epoch, page.header.sequence));
                let Some(known) = newest.get_mut(logical as usize) else { continue };
                if age > *known {
                    *known = age;
                    state.map(logical, place, ppb);
                }
            }
            if programmed == 0 {
                state.free.insert((under.erases(block)?, block));
            }
        }
        for (page, place) in state.places.iter().enumerate() {
            if *place != NONE {
                let (block, index) = (page / ppb as usize, page as u32 % ppb);
                state.programmed[block] = state.programmed[block].max(index + 1);
            }
        }
        for block in 0..physical.blocks() {
            let programmed = under.programmed(block)?;
            let lane = state.open.iter().position(Option::is_none);
            match lane.filter(|_| (1..ppb).contains(&programmed)) {
                // It was open, and goes on being.
                Some(lane) => state.open[lane] = Some(block),
                None if programmed > 0 => {
                    state.full.insert((state.valid[block as usize], block));
                }
                None => {}
            }
        }
        Ok(PageMapped { under, device, geometry, below, state: Mutex::new(state) })
    }

    /// Blocks that the layer keeps for itself.
    fn reserved(physical: &Geometry, lanes: u32) -> u32 {
        physical.reserved_blocks().max(2 * lanes + 4)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The next physical page.
    fn next_page(&self, state: &mut State) -> FlashResult<u32> {
        let physical = self.under.geometry();
        let lane = match self.below {
            Below::InTurn => state.lanes.in_turn(),
            Below::Idlest => {
                // A block of any channel may be a lane's.
                let done = |lane: usize| {
                    state.open[lane]
                        .map_or(Duration::ZERO, |block| self.device.done(block as usize))
                };
                state.lanes.idlest(physical.pages_per_block(), done)
            }
        };
        state.lanes.took(lane);
        loop {
            if let Some(block) = state.open[lane] {
                let index = self.under.programmed(block)?;
                if index < physical.pages_per_block() {
                    return Ok(physical.page(block, index));
                }
                state.open[lane] = None;
                state.full.insert((state.valid[block as usize], block));
            }
            let Some((erases, block)) = state.free.pop_first() else {
                let reason = "the translation layer has no free block";
                let reason = std::io::Error::new(std::io::ErrorKind::StorageFull, reason);
                let full = siltstone_engine::Error::io("write", self.under.name(), &reason);
                return Err(FlashError::Medium(full));
            };
            if self.under.programmed(block)? > 0 {
                match self.erase(state, block) {
                    Err(FlashError::WornOut { .. }) => continue,
                    Err(other) => {
                        state.free.insert((erases, block));
                        return Err(other);
                    }
                    Ok(()) => {}
                }
            }
            state.open[lane] = Some(block);
        }
    }

    /// Copies the blocks of the fewest valid pages until enough are free.
    fn collect(&self, state: &mut State) -> FlashResult<()> {
        let physical = self.under.geometry();
        let ppb = physical.pages_per_block();
        let wanted = state.open.len() + 2;
        while state.free.len() < wanted {
            let Some((valid, victim)) = state.full.pop_first() else { return Ok(()) };
            if valid >= ppb {
                state.full.insert((valid, victim));
                return Ok(());
            }
            // Erased at once: of two copies in two blocks opening could not tell which is garbage.
            let moved = self.copy_block(state, victim).and_then(|()| self.erase(state, victim));
            if let Err(FlashError::WornOut { .. }) = moved {
                continue;
            }
            if let Err(error) = moved {
                state.full.insert((state.valid[victim as usize], victim));
                return Err(error);
            }
            state.free.insert((self.under.erases(victim)?, victim));
        }
        Ok(())
    }

    /// Copies what is valid in a block; its pages are asked for at once.
    fn copy_block(&self, state: &mut State, victim: u32) -> FlashResult<()> {
        let physical = self.under.geometry();
        let ppb = physical.pages_per_block();
        let mut read = Vec::new();
        for index in 0..ppb {
            let from = physical.page(victim, index);
            let logical = state.owners[from as usize];
            if logical != NONE {
                let mut bytes = vec![0; physical.page_bytes()];
                let reading = self.under.submit_read(from, &mut bytes, Purpose::Compaction)?;
                read.push((logical, bytes, reading));
            }
        }
        let mut done = Vec::with_capacity(read.len());
        for (logical, bytes, reading) in read {
            self.under.wait(reading)?;
            let to = self.next_page(state)?;
            done.push(self.device.submit_program(to, &bytes, Purpose::Compaction)?);
            state.map(logical, to, ppb);
            state.copied += 1;
        }
        for completion in done {
            self.under.wait(completion)?;
        }
        self.under.flush(Purpose::Compaction)
    }

    fn erase(&self, state: &mut State, block: u32) -> FlashResult<()> {
        self.under.erase(block, Purpose::Compaction)?;
        state.erased += 1;
        Ok(())
    }

    /// Bytes of the map: four for each logical page.
    pub(crate) fn memory_bytes(&self) -> u64 {
        4 * self.geometry.pages()
    }

    /// Pages that collection has copied, and blocks that were erased.
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
    /// A logical page is here now, and what it was before is garbage.
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
        self.under.name()
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
            let read = self.under.submit_read(place, buf, purpose);
            // Collection may have moved it, and the place may be another's by now.
            if self.state().places[page as usize] == place {
                let block = self.under.geometry().block_of(place);
                return read.map(|completion| self.device.submitted(block, completion));
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
        Ok(Completion::new(self.under.now()))
    }

    fn wait(&self, completion: Completion) -> FlashResult<()> {
        self.under.wait(completion)
    }

    fn now(&self) -> Duration {
        self.under.now()
    }

    fn flush(&self, purpose: Purpose) -> FlashResult<()> {
        self.under.flush(purpose)
    }

    fn renew(&self, page: u32, purpose: Purpose) -> FlashResult<()> {
        self.check(page)?;
        match self.state().places[page as usize] {
            NONE => Ok(()),
            place => self.under.renew(place, purpose),
        }
    }

    fn check_end(&self) -> FlashResult<()> {
        self.under.check_end()
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
        self.under.counters()
    }
}
