//! A flash device that enforces its rules, takes its time, wears, and loses power on command.
//!
//! ```text
//!   read, program, erase ─▶ rules, wear ─▶ cells: memory | one file | a file a zone
//!                              │
//!                           schedule: when it is done     power: what is in flight
//! ```
//!
//! Bytes move at submission, time passes in the schedule: a caller that doesn't wait sees the new
//! page at once, and a power cut may yet undo it.
//!
//! Invariant: a block's state is what its cells hold; it changes under the block's lock alone, which
//! reads share. Locks are taken in the order block, power, schedule.
//!
//! Source: ours, for section 4 of the SkimpyFTL paper, whose emulator has latencies and a queue
//! depth; channels are section 2.2's.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use siltstone_engine::{Error, IoCounters, Purpose, Result};
use siltstone_vfs::backend::join;
use siltstone_vfs::{Mode, Vfs};

use super::cells::{Cells, Place, State};
use super::file::FileCells;
use super::memory::{BlockImage, MemoryCells};
use super::power::{Change, InFlight, Power};
use super::schedule::Schedule;
use super::zones::ZoneCells;
use super::{Completion, DeviceClock, Flash, FlashError, FlashResult, Geometry, Timing, survivor};

/// What a device is like.
#[derive(Clone)]
pub struct FlashOptions {
    /// Pages and blocks.
    pub geometry: Geometry,
    /// Latencies, channels and queue depth.
    pub timing: Timing,
    /// Where time comes from.
    pub clock: Arc<dyn DeviceClock>,
    /// How many erases a block bears.
    pub endurance: u64,
}

/// A flash device in memory or in files. See the module.
pub struct Emulator {
    options: FlashOptions,
    cells: Box<dyn Cells>,
    blocks: Vec<RwLock<Block>>,
    power: Mutex<Power>,
    schedule: Mutex<Schedule>,
    counters: Arc<IoCounters>,
    /// A flush that failed: none succeeds after it.
    failed_flush: OnceLock<Error>,
}

#[derive(Default)]
struct Block {
    /// Asked of the cells when it is first needed.
    state: Option<State>,
    /// When the last program or erase was submitted, and when it is done.
    changed: (Duration, Duration),
}

impl Emulator {
    /// A device in memory, erased.
    pub fn in_memory(options: FlashOptions) -> Self {
        let blocks = (0..options.geometry.blocks()).map(|_| BlockImage::default());
        let cells = MemoryCells::new("flash:".into(), blocks);
        Self::over(Box::new(cells), options)
    }

    /// A device in the file `name`, made erased if it is not there.
    ///
    /// # Errors
    /// `Refused`, with the file's name: not a device, of another version, geometry or form.
    /// `Corruption`: its label doesn't hold, or it was cut short. `Io`: the medium's.
    pub fn in_file(vfs: &dyn Vfs, name: &str, options: FlashOptions) -> Result<Self> {
        let cells = FileCells::open(vfs, name, options.geometry)?;
        Ok(Self::over(Box::new(cells), options))
    }

    /// Makes a damaged device in the file `name` open again: writes its label, its length and headers of blocks anew
    /// where they don't hold, and leaves the pages as they are. The answer tells what was done.
    ///
    /// # Errors
    /// `Refused`: not a device of this geometry. `Io`: the medium's.
    pub fn mend(vfs: &dyn Vfs, name: &str, geometry: Geometry) -> Result<Vec<String>> {
        FileCells::mend(vfs, name, geometry)
    }

    /// The bytes that a page takes in the file of a device.
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
    /// As [`in_file`](Self::in_file), but for another geometry.
    pub fn geometry_of(vfs: &dyn Vfs, name: &str) -> Result<Geometry> {
        let file = vfs.open(name, Mode::Read)?;
        super::label::geometry(&*file, &join(&vfs.name(), name))
    }

    /// A device in zones, a file each, in a directory that holds nothing else; made erased if it is
    /// not there.
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

    /// Programs and erases so far. A run without cuts tells by this how many places there are to
    /// cut power.
    pub fn operations(&self) -> u64 {
        self.power.lock().operations
    }

    /// Cuts power in the middle of the program or erase with this number; the first is 0. What is
    /// in flight is noted from now on.
    pub fn cut_power_at(&self, operation: u64) {
        self.power.lock().cut_at(operation);
    }

    /// Notes from now on what is in flight, for a cut at any time. An erase is noted with what it
    /// erased: in memory that costs little, in files it reads the block.
    pub fn watch_power(&self) {
        self.power.lock().watch();
    }

    /// Cuts power now.
    pub fn cut_power(&self) {
        self.power.lock().is_off = true;
    }

    /// Whether power was cut.
    pub fn power_is_off(&self) -> bool {
        self.power.lock().is_off
    }

    /// A device in memory as a power cut would leave this one now (or left it, if power is off), with
    /// power on, and with the same clock. Completed requests have happened; the seed decides on those
    /// in flight.
    ///
    /// # Errors
    /// The medium's. There is none in memory.
    pub fn survivor(&self, seed: u64) -> FlashResult<Emulator> {
        let geometry = self.options.geometry;
        // No change is let through meanwhile, so that the blocks are of one moment.
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
        let image = |index| self.cells.image(self.place(block, index, state.erases), page_bytes);
        let pages = (0..state.next).map(image).collect::<Result<_>>()?;
        Ok(BlockImage { erases: state.erases, pages })
    }

    fn device(&self) -> String {
        self.cells.name().to_owned()
    }

    fn place(&self, block: u32, index: u32, erases: u64) -> Place {
        Place { page: self.options.geometry.page(block, index), block, index, erases }
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

    /// The block, for reading.
    fn shared(&self, block: u32) -> Result<RwLockReadGuard<'_, Block>> {
        let guard = self.blocks[block as usize].read();
        if guard.state.is_some() {
            return Ok(guard);
        }
        drop(guard);
        self.exclusive(block).map(RwLockWriteGuard::downgrade)
    }

    /// The block, to change it. Its state is known.
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

    /// Finds the time of a request on a block; when it is done.
    fn schedule(&self, number: u32, block: &Block, now: Duration, cost: Duration) -> Duration {
        let (submitted, done) = block.changed;
        // A client at an earlier time is not held up by what comes later.
        let ready = if now >= submitted { done } else { Duration::ZERO };
        let channel = self.options.timing.channel_of(number);
        self.schedule.lock().place(now, ready, channel, cost)
    }

    /// Schedules a change that was made, and notes that it is in flight.
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
        // Another's operation may have cut power since this one began.
        let cut = cut || power.is_off;
        // Changes of a block happen one after the other, whoever's time is earlier.
        let channel = self.options.timing.channel_of(number);
        let done = self.schedule.lock().place(now, block.changed.1, channel, cost);
        block.changed = (now, done);
        if let Some(change) = change {
            power.note(InFlight { done, block: number, change }, cut);
        }
        match cut {
            true => Err(FlashError::PowerOff { device: self.device() }),
            false => Ok(Completion { done }),
        }
    }

    /// Counts a change; whether power goes off in it, and whether it must be noted.
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
        if !self.cells.read(self.place(block, index, state.erases), buf, purpose)? {
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
        let place = self.place(block, index, state.erases);
        // Failed or not, the page is used up.
        guard.state = Some(State { next: state.next + 1, ..state });
        self.cells.program(place, bytes, purpose)?;
        self.counters.write(purpose, bytes.len() as u64);
        let change = Some(Change::Program(place));
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
            // It may have been erased or not: a page programmed now might be of the wrong life.
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
            self.cells.renew(self.place(block, index, state.erases), purpose)?;
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
