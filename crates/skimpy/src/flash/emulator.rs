//! A flash device that enforces the rules, takes time, wears out, and loses power on request.
//!
//! ```text
//!   read, program, erase ─▶ rules, wear ─▶ cells: memory | one file | one file per zone
//!                              │
//!                           schedule: completion times     power: requests in flight
//! ```
//!
//! Bytes move at submission; the schedule only computes times. A caller that does not wait sees the
//! new page at once, but a power cut may undo it.
//!
//! Invariant: the state of a block is that of its cells; it changes only under the block's lock,
//! which reads share. Locks are taken in the order block, power, schedule.
//!
//! Source: SkimpyFTL paper, section 4 (latencies and queue depth) and section 2.2 (channels).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use siltstone_engine::{Error, IoCounters, Purpose, Result};
use siltstone_vfs::backend::join;
use siltstone_vfs::{Mode, Vfs};

use super::cells::{Cells, PageAddress, State};
use super::file::FileCells;
use super::memory::{BlockImage, MemoryCells};
use super::power::{Change, InFlight, Power};
use super::schedule::Schedule;
use super::zones::ZoneCells;
use super::{Completion, DeviceClock, Flash, FlashError, FlashResult, Geometry, Timing, survivor};

/// The parameters of a device.
#[derive(Clone)]
pub struct FlashOptions {
    /// Pages and blocks.
    pub geometry: Geometry,
    /// Latencies, channels and queue depth.
    pub timing: Timing,
    /// The clock.
    pub clock: Arc<dyn DeviceClock>,
    /// The number of erases that a block endures.
    pub endurance: u64,
}

/// A flash device in memory or in files.
pub struct Emulator {
    options: FlashOptions,
    cells: Box<dyn Cells>,
    blocks: Vec<RwLock<Block>>,
    power: Mutex<Power>,
    schedule: Mutex<Schedule>,
    counters: Arc<IoCounters>,
    /// A flush has failed: none succeeds after it.
    failed_flush: OnceLock<Error>,
}

#[derive(Default)]
struct Block {
    /// Loaded from the cells on first use.
    state: Option<State>,
    /// The submission and completion of the last program or erase.
    changed: (Duration, Duration),
}

impl Emulator {
    /// A device in memory, erased.
    pub fn in_memory(options: FlashOptions) -> Self {
        let blocks = (0..options.geometry.blocks()).map(|_| BlockImage::default());
        let cells = MemoryCells::new("flash:".into(), blocks);
        Self::over(Box::new(cells), options)
    }

    /// A device in the file `name`, created erased if it does not exist.
    ///
    /// # Errors
    /// `Refused`, with the file's name: not a device, or of another version, geometry or form.
    /// `Corruption`: its label is damaged, or it was truncated. `Io`: a request to the file failed.
    pub fn in_file(vfs: &dyn Vfs, name: &str, options: FlashOptions) -> Result<Self> {
        let cells = FileCells::open(vfs, name, options.geometry)?;
        Ok(Self::over(Box::new(cells), options))
    }

    /// Repairs a damaged device in the file `name` so that it opens: rewrites damaged labels,
    /// lengths and block headers, and leaves pages unchanged. Returns a description of each change.
    ///
    /// # Errors
    /// `Refused`: not a device of this geometry. `Io`: a request to the file failed.
    pub fn repair(vfs: &dyn Vfs, name: &str, geometry: Geometry) -> Result<Vec<String>> {
        FileCells::repair(vfs, name, geometry)
    }

    /// The range of a page in the file of a device.
    pub fn page_in_file(geometry: &Geometry, page: u32) -> std::ops::Range<u64> {
        super::file::page_bytes(geometry, page)
    }

    /// The length of the file of a device.
    pub fn file_bytes(geometry: &Geometry) -> u64 {
        super::file::file_bytes(geometry)
    }

    /// The geometry of the device in the file `name`.
    ///
    /// # Errors
    /// As [`in_file`](Self::in_file), except for another geometry.
    pub fn geometry_of(vfs: &dyn Vfs, name: &str) -> Result<Geometry> {
        let file = vfs.open(name, Mode::Read)?;
        super::label::geometry(&*file, &join(&vfs.name(), name))
    }

    /// A device in zones, one file each, in a directory without other files; created erased if it
    /// does not exist.
    ///
    /// # Errors
    /// As [`in_file`](Self::in_file).
    pub fn in_zones(vfs: Arc<dyn Vfs>, options: FlashOptions) -> Result<Self> {
        let cells = ZoneCells::open(vfs, options.geometry)?;
        Ok(Self::over(Box::new(cells), options))
    }

    fn over(cells: Box<dyn Cells>, options: FlashOptions) -> Self {
        Emulator {
            blocks: (0..options.geometry.blocks()).map(|_| RwLock::default()).collect(),
            schedule: Mutex::new(Schedule::new(&options.timing)),
            options,
            cells,
            power: Mutex::default(),
            counters: Arc::default(),
            failed_flush: OnceLock::new(),
        }
    }

    /// Programs and erases so far. A run without cuts shows how many places there are to cut power.
    pub fn operations(&self) -> u64 {
        self.power.lock().operations
    }

    /// Cuts power during the program or erase with this number; the first is 0. Requests in flight
    /// are recorded from now on.
    pub fn cut_power_at(&self, operation: u64) {
        self.power.lock().cut_at(operation);
    }

    /// Records requests in flight from now on, for a cut at any time. An erase is recorded with the
    /// block's content: cheap in memory, but in files it reads the block.
    pub fn watch_power(&self) {
        self.power.lock().watch();
    }

    /// Cuts power now.
    pub fn cut_power(&self) {
        self.power.lock().is_off = true;
    }

    /// Whether power is off.
    pub fn power_is_off(&self) -> bool {
        self.power.lock().is_off
    }

    /// A device in memory as a power cut would leave this one now (or when power was cut), with
    /// power on and the same clock. Completed requests have happened; the seed decides on those in
    /// flight.
    ///
    /// # Errors
    /// A failed read of the cells. None in memory.
    pub fn survivor(&self, seed: u64) -> FlashResult<Emulator> {
        let geometry = self.options.geometry;
        // No change is admitted meanwhile, so the blocks are consistent.
        let locked: Vec<_> =
            (0..geometry.blocks()).map(|block| self.exclusive(block)).collect::<Result<_, _>>()?;
        let mut blocks = Vec::with_capacity(locked.len());
        for (number, block) in locked.iter().enumerate() {
            blocks.push(self.block_image(number as u32, block.state.unwrap_or_default())?);
        }
        let in_flight = self.power.lock().in_flight();
        survivor::cut(&mut blocks, in_flight, &geometry, &self.options.timing, seed);
        let cells = MemoryCells::new(self.cells.name().into(), blocks.into_iter());
        Ok(Self::over(Box::new(cells), self.options.clone()))
    }

    fn block_image(&self, block: u32, state: State) -> Result<BlockImage> {
        let page_bytes = self.options.geometry.page_bytes();
        let image = |index| self.cells.image(self.address(block, index, state.erases), page_bytes);
        let pages = (0..state.next).map(image).collect::<Result<_>>()?;
        Ok(BlockImage { erases: state.erases, pages })
    }

    fn device(&self) -> String {
        self.cells.name().to_owned()
    }

    fn address(&self, block: u32, index: u32, erases: u64) -> PageAddress {
        PageAddress { page: self.options.geometry.page(block, index), block, index, erases }
    }

    fn check_page(&self, page: u32, bytes: usize) -> FlashResult<(u32, u32)> {
        let geometry = &self.options.geometry;
        if u64::from(page) >= geometry.pages() {
            let last = (geometry.pages() - 1) as u32;
            return Err(FlashError::NoSuchPage { device: self.device(), page, last });
        }
        if bytes != geometry.page_bytes() {
            let (device, page_bytes) = (self.device(), geometry.page_bytes());
            return Err(FlashError::NotAPage { device, bytes, page_bytes });
        }
        Ok((geometry.block_of(page), geometry.index_of(page)))
    }

    fn check_block(&self, block: u32) -> FlashResult<()> {
        let blocks = self.options.geometry.blocks();
        match block < blocks {
            true => Ok(()),
            false => {
                let (device, last) = (self.device(), blocks - 1);
                Err(FlashError::NoSuchBlock { device, block, last })
            }
        }
    }

    fn check_power(&self, power: &Power) -> FlashResult<()> {
        match power.is_off {
            true => Err(FlashError::PowerOff { device: self.device() }),
            false => Ok(()),
        }
    }

    /// The block, locked for reading.
    fn shared(&self, block: u32) -> Result<RwLockReadGuard<'_, Block>> {
        let guard = self.blocks[block as usize].read();
        if guard.state.is_some() {
            return Ok(guard);
        }
        drop(guard);
        self.exclusive(block).map(RwLockWriteGuard::downgrade)
    }

    /// The block, locked for a change. Its state is loaded.
    fn exclusive(&self, block: u32) -> Result<RwLockWriteGuard<'_, Block>> {
        let mut guard = self.blocks[block as usize].write();
        if guard.state.is_none() {
            guard.state = Some(self.cells.load(block)?);
        }
        Ok(guard)
    }

    fn state(&self, block: u32) -> FlashResult<State> {
        self.check_block(block)?;
        Ok(self.shared(block)?.state.unwrap_or_default())
    }

    /// Schedules a request on a block and returns its completion.
    fn schedule(&self, number: u32, block: &Block, now: Duration, cost: Duration) -> Duration {
        let (submitted, done) = block.changed;
        // A client at an earlier time does not wait for later requests.
        let ready = if now >= submitted { done } else { Duration::ZERO };
        let channel = self.options.timing.channel_of(number);
        self.schedule.lock().schedule(now, ready, channel, cost)
    }

    /// Schedules a change that was made, and records it as in flight.
    fn commit(
        &self,
        number: u32,
        block: &mut Block,
        cost: Duration,
        change: Option<Change>,
        cut: bool,
    ) -> FlashResult<Completion> {
        let now = self.options.clock.now();
        let mut power = self.power.lock();
        // A concurrent operation may have cut power since this one started.
        let cut = cut || power.is_off;
        // Changes of a block are serial, even if their clients are at different times.
        let channel = self.options.timing.channel_of(number);
        let done = self.schedule.lock().schedule(now, block.changed.1, channel, cost);
        block.changed = (now, done);
        if let Some(change) = change {
            power.note(InFlight { done, block: number, change }, cut);
        }
        match cut {
            true => Err(FlashError::PowerOff { device: self.device() }),
            false => Ok(Completion { done }),
        }
    }

    /// Counts a change. Returns whether power is cut during it, and whether it must be recorded.
    fn begin_change(&self) -> FlashResult<(bool, bool)> {
        let mut power = self.power.lock();
        self.check_power(&power)?;
        power.saw(self.options.clock.now());
        Ok((power.count(), power.is_watched()))
    }
}

impl Flash for Emulator {
    fn name(&self) -> String {
        self.device()
    }

    fn geometry(&self) -> Geometry {
        self.options.geometry
    }

    fn submit_read(&self, page: u32, buf: &mut [u8], purpose: Purpose) -> FlashResult<Completion> {
        let (block, index) = self.check_page(page, buf.len())?;
        let guard = self.shared(block)?;
        let state = guard.state.unwrap_or_default();
        self.check_power(&self.power.lock())?;
        if index >= state.next {
            return Err(FlashError::Erased { device: self.device(), page });
        }
        if !self.cells.read(self.address(block, index, state.erases), buf, purpose)? {
            let (device, page_bytes) = (self.device(), buf.len());
            return Err(FlashError::Unreadable { device, page, block, page_bytes });
        }
        self.counters.read(purpose, buf.len() as u64);
        let now = self.options.clock.now();
        let done = self.schedule(block, &guard, now, self.options.timing.read);
        Ok(Completion { done })
    }

    fn submit_program(&self, page: u32, bytes: &[u8], purpose: Purpose) -> FlashResult<Completion> {
        let (block, index) = self.check_page(page, bytes.len())?;
        let mut guard = self.exclusive(block)?;
        let state = guard.state.unwrap_or_default();
        if index < state.next {
            return Err(FlashError::AlreadyProgrammed { device: self.device(), page, block });
        }
        if index > state.next {
            let next = page - (index - state.next);
            return Err(FlashError::OutOfOrder { device: self.device(), page, next });
        }
        let (cut, _) = self.begin_change()?;
        let address = self.address(block, index, state.erases);
        // The page counts as programmed even if this failed.
        guard.state = Some(State { next: state.next + 1, ..state });
        self.cells.program(address, bytes, purpose)?;
        self.counters.write(purpose, bytes.len() as u64);
        let change = Some(Change::Program(address));
        self.commit(block, &mut guard, self.options.timing.program, change, cut)
    }

    fn submit_erase(&self, block: u32, purpose: Purpose) -> FlashResult<Completion> {
        self.check_block(block)?;
        let mut guard = self.exclusive(block)?;
        let state = guard.state.unwrap_or_default();
        if state.erases >= self.options.endurance {
            let (device, erases) = (self.device(), state.erases);
            return Err(FlashError::WornOut { device, block, erases });
        }
        let (cut, watched) = self.begin_change()?;
        let before = match watched {
            true => Some(Change::Erase(self.block_image(block, state)?)),
            false => None,
        };
        let erases = state.erases + 1;
        if let Err(error) = self.cells.erase(block, erases, purpose) {
            // The erase may have happened or not, so a page programmed now could be of the wrong
            // life.
            let next = self.options.geometry.pages_per_block();
            guard.state = Some(State { next, ..state });
            return Err(error.into());
        }
        guard.state = Some(State { erases, next: 0 });
        self.commit(block, &mut guard, self.options.timing.erase, before, cut)
    }

    fn wait(&self, completion: Completion) -> FlashResult<()> {
        self.options.clock.wait_until(completion.done);
        match self.power.lock().saw(completion.done) {
            true => Ok(()),
            false => Err(FlashError::PowerOff { device: self.device() }),
        }
    }

    fn now(&self) -> Duration {
        self.options.clock.now()
    }

    fn flush(&self, purpose: Purpose) -> FlashResult<()> {
        self.check_power(&self.power.lock())?;
        if let Some(error) = self.failed_flush.get() {
            return Err(error.clone().into());
        }
        if let Err(error) = self.cells.sync(purpose) {
            return Err(self.failed_flush.get_or_init(|| error).clone().into());
        }
        self.counters.sync(purpose);
        Ok(())
    }

    fn renew(&self, page: u32, purpose: Purpose) -> FlashResult<()> {
        let (block, index) = self.check_page(page, self.options.geometry.page_bytes())?;
        let guard = self.exclusive(block)?;
        let state = guard.state.unwrap_or_default();
        self.check_power(&self.power.lock())?;
        if index < state.next {
            self.cells.renew(self.address(block, index, state.erases), purpose)?;
        }
        Ok(())
    }

    fn check_end(&self) -> FlashResult<()> {
        Ok(self.cells.check_end()?)
    }

    fn programmed(&self, block: u32) -> FlashResult<u32> {
        Ok(self.state(block)?.next)
    }

    fn erases(&self, block: u32) -> FlashResult<u64> {
        Ok(self.state(block)?.erases)
    }

    fn endurance(&self) -> u64 {
        self.options.endurance
    }

    fn counters(&self) -> Arc<IoCounters> {
        self.counters.clone()
    }
}
