//! A chunked bump arena that several threads allocate from at once, freed as a whole when dropped.
//!
//! ```text
//!  current ──▶ chunk 3 (2 MiB)              chunk 2 (512 KiB)   chunk 1 (64 KiB)   large ones
//!              [header|aaaa|bb|cccccc|....]  [full]              [full]             [one value]
//!                                    ▲ offset
//! ```
//!
//! An allocation is one `fetch_add` on the offset of the current chunk. Whoever overshoots the
//! chunk takes the lock and installs the next one, eight times as large up to 2 MiB. An allocation of
//! more than a quarter of the current chunk gets a chunk to itself, so that the tail abandoned at
//! the end of a chunk stays under a quarter of it.
//!
//! Memory that is new from the system is given out by it page by page, at the first touch of each. An
//! arena that is one of many in turn takes chunks from those that others have left behind, its [`ChunkPool`], and spares
//! its writers that: of a memtable's insertions one in twenty touches a new page. And chunks of the full size
//! are asked to be one huge page each, so that those which are new cost their writers one wait for the system,
//! not five hundred: the latter are what made the slowest thousandth of insertions slow. So arenas come to
//! the full size soon, and once one of many has, all after it begin there.
//!
//! Invariant: a byte range is handed out at most once, and stays valid until the arena is dropped.
//!
//! Source: the arena of LevelDB and RocksDB memtables in outline; the lock-free bump is ours.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use crate::sync::{AtomicPtr, AtomicUsize, Mutex, Ordering, Published};

/// The alignment in bytes of every allocation.
pub const ALIGN: usize = 8;

/// The size of the first chunk, in bytes.
const FIRST_CHUNK: usize = 64 << 10;
/// The size from which chunks no longer grow, in bytes.
const LAST_CHUNK: usize = 2 << 20;
/// How much larger each chunk is than the one before.
const GROWTH: usize = 8;
/// A cache line: chunks start on one, and the header does not share one with data.
const LINE: usize = 64;
/// The bytes before the first allocation of a chunk.
const HEADER: usize = size_of::<Header>().next_multiple_of(LINE);

/// What a chunk knows about itself, at its start.
struct Header {
    /// Bytes handed out after the header; above `capacity` once somebody has overshot.
    offset: AtomicUsize,
    /// Bytes after the header.
    capacity: Published<usize>,
    /// The capacities of all earlier chunks that allocations shared.
    before: Published<usize>,
}

/// What only the thread that adds a chunk touches.
struct Growth {
    /// All memory taken from the system, to give back on drop.
    chunks: Vec<(NonNull<u8>, Layout)>,
    /// The size of the next shared chunk.
    next: usize,
    spares: Option<Arc<ChunkPool>>,
}

/// A chunk of the full size that no arena uses; aligned to its size, so that one huge page can be it.
#[repr(align(0x20_0000))]
struct Spare {
    _bytes: [u8; LAST_CHUNK],
}

const _: () = assert!(align_of::<Spare>() == LAST_CHUNK && size_of::<Spare>() == LAST_CHUNK);

/// Chunks that arenas have left behind, for the next.
pub struct ChunkPool {
    chunks: std::sync::Mutex<Vec<Box<MaybeUninit<Spare>>>>,
    most: usize,
    /// An arena has taken a chunk: the next is expected to as well.
    are_in_use: AtomicBool,
}

impl ChunkPool {
    /// Keeps at most so many bytes; what is beyond goes back to the system.
    pub fn new(most_bytes: usize) -> Self {
        ChunkPool {
            chunks: std::sync::Mutex::default(),
            most: most_bytes / LAST_CHUNK,
            are_in_use: AtomicBool::new(false),
        }
    }

    /// Bytes that lie idle.
    pub fn bytes(&self) -> usize {
        self.lock().len() * LAST_CHUNK
    }

    fn take(&self) -> Option<Box<MaybeUninit<Spare>>> {
        self.are_in_use.store(true, Relaxed);
        self.lock().pop()
    }

    fn keep(&self, chunk: Box<MaybeUninit<Spare>>) {
        let mut chunks = self.lock();
        if chunks.len() < self.most {
            chunks.push(chunk);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Box<MaybeUninit<Spare>>>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A bump arena for concurrent use.
///
/// Allocating costs one atomic addition, and every chunk one call of the system allocator.
pub struct Arena {
    /// The chunk that allocations share; null before the first.
    current: AtomicPtr<Header>,
    /// Bytes in chunks of their own.
    large: AtomicUsize,
    growth: Mutex<Growth>,
}

// SAFETY: the raw pointers in `growth` own their chunks, which are plain bytes tied to no thread.
unsafe impl Send for Arena {}
// SAFETY: the offset is atomic, the header is otherwise read-only, and chunks are added under the
// lock; ranges handed out are disjoint, so what callers do with them is between them.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena without chunks; it takes no memory before the first allocation.
    pub fn new() -> Self {
        Self {
            current: AtomicPtr::new(ptr::null_mut()),
            large: AtomicUsize::new(0),
            growth: Mutex::new(Growth { chunks: Vec::new(), next: FIRST_CHUNK, spares: None }),
        }
    }

    /// An arena that takes chunks from `spares` while there are any, and leaves its own there.
    pub fn with_spares(spares: Arc<ChunkPool>) -> Self {
        let arena = Self::new();
        arena.growth.lock().unwrap_or_else(PoisonError::into_inner).spares = Some(spares);
        arena
    }

    /// Hands out `bytes` uninitialised bytes, aligned to [`ALIGN`], valid until the arena drops.
    ///
    /// The bytes are the caller's alone. Nothing placed in them is ever dropped.
    ///
    /// # Panics
    ///
    /// If `bytes` is about `isize::MAX` or more. Aborts if the system has no more memory.
    pub fn allocate(&self, bytes: usize) -> NonNull<u8> {
        // Checked here so that the additions below cannot overflow.
        assert!(bytes <= isize::MAX as usize - 2 * HEADER, "allocation of {bytes} bytes");
        let bytes = bytes.next_multiple_of(ALIGN);
        loop {
            let chunk = self.current.load(Ordering::Acquire);
            if let Some(place) = Self::bump(chunk, bytes) {
                return place;
            }
            if let Some(place) = self.grow(chunk, bytes) {
                return place;
            }
        }
    }

    /// Bytes handed out so far, rounding and the abandoned tails of full chunks included.
    ///
    /// Costs three loads. While others allocate, the sum may miss allocations in flight.
    pub fn allocated_bytes(&self) -> usize {
        let large = self.large.load(Ordering::Relaxed);
        let chunk = self.current.load(Ordering::Acquire);
        if chunk.is_null() {
            return large;
        }
        // SAFETY: chunks live as long as the arena, and their header was written before publication.
        let header = unsafe { &*chunk };
        let used = header.offset.load(Ordering::Relaxed).min(header.capacity.get());
        large + header.before.get() + used
    }

    /// Takes `bytes` from a chunk, unless it has no room, or suits no allocation of this size.
    fn bump(chunk: *mut Header, bytes: usize) -> Option<NonNull<u8>> {
        if chunk.is_null() {
            return None;
        }
        // SAFETY: chunks live as long as the arena, and their header was written before publication.
        let header = unsafe { &*chunk };
        let capacity = header.capacity.get();
        if bytes > capacity / 4 {
            return None;
        }
        // Relaxed: the ranges are disjoint by the arithmetic alone, and carry no data yet.
        let offset = header.offset.fetch_add(bytes, Ordering::Relaxed);
        if offset > capacity - bytes {
            return None;
        }
        // SAFETY: `offset + bytes` is at most the capacity, which follows the header in the chunk.
        let place = unsafe { chunk.cast::<u8>().add(HEADER + offset) };
        NonNull::new(place)
    }

    /// Installs the chunk after `seen`, or serves a large allocation; `None` says: try again.
    #[cold]
    fn grow(&self, seen: *mut Header, bytes: usize) -> Option<NonNull<u8>> {
        let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.current.load(Ordering::Relaxed);
        if current != seen {
            return None;
        }
        let (before, shared) = if current.is_null() {
            (0, growth.next / 4)
        } else {
            // SAFETY: as in `bump`.
            let header = unsafe { &*current };
            (header.before.get() + header.capacity.get(), header.capacity.get() / 4)
        };
        if bytes > shared {
            self.large.fetch_add(bytes, Ordering::Relaxed);
            return Some(growth.take(bytes));
        }
        let size = if growth.begins_large() { LAST_CHUNK } else { growth.next };
        growth.next = (size * GROWTH).min(LAST_CHUNK);
        let capacity = size - HEADER;
        let chunk = growth.take(size).cast::<Header>();
        let header = Header {
            offset: AtomicUsize::new(0),
            capacity: Published::new(capacity),
            before: Published::new(before),
        };
        // SAFETY: the chunk is fresh, larger than a header, and aligned to a cache line.
        unsafe { chunk.write(header) };
        // Release: whoever sees the chunk sees its header.
        self.current.store(chunk.as_ptr(), Ordering::Release);
        None
    }
}

impl Growth {
    fn begins_large(&self) -> bool {
        self.spares.as_ref().is_some_and(|spares| spares.are_in_use.load(Relaxed))
    }

    /// Takes memory from the system and remembers to give it back.
    fn take(&mut self, bytes: usize) -> NonNull<u8> {
        let align = if bytes == LAST_CHUNK { LAST_CHUNK } else { LINE };
        let layout = Layout::from_size_align(bytes, align).expect("checked by `allocate`");
        let spare = || self.spares.as_ref().filter(|_| layout == Layout::new::<Spare>())?.take();
        if let Some(spare) = spare() {
            let place = NonNull::from(Box::leak(spare)).cast();
            self.chunks.push((place, layout));
            return place;
        }
        // SAFETY: callers ask for a positive number of bytes: a chunk, or more than a quarter of one.
        let Some(place) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        if layout == Layout::new::<Spare>() {
            ask_for_a_huge_page(place);
        }
        self.chunks.push((place, layout));
        place
    }
}

/// Has the system back a chunk of the full size with one page, where it can.
fn ask_for_a_huge_page(chunk: NonNull<u8>) {
    #[cfg(all(target_os = "linux", not(any(loom, miri))))]
    {
        use rustix::mm::{Advice, madvise};
        // SAFETY: the chunk is a whole allocation of this size, and the advice leaves its bytes alone.
        // Where it is refused, small pages do.
        let _ = unsafe { madvise(chunk.as_ptr().cast(), LAST_CHUNK, Advice::LinuxHugepage) };
    }
    #[cfg(not(all(target_os = "linux", not(any(loom, miri)))))]
    let _ = chunk;
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        for &(place, layout) in &growth.chunks {
            if let Some(spares) =
                growth.spares.as_ref().filter(|_| layout == Layout::new::<Spare>())
            {
                // SAFETY: `place` came from the global allocator with the layout of a `Spare`, or is such
                // a box leaked; any bytes are a `MaybeUninit`, and nobody borrows the arena now.
                spares.keep(unsafe { Box::from_raw(place.cast().as_ptr()) });
                continue;
            }
            // SAFETY: `place` came from `alloc` with this layout, and nobody borrows the arena now.
            unsafe { dealloc(place.as_ptr(), layout) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Checks that no address is in two ranges, each given by its start and its bytes.
    fn assert_disjoint(ranges: &[(usize, usize)]) {
        let mut sorted: Vec<_> = ranges.iter().filter(|(_, bytes)| *bytes > 0).collect();
        sorted.sort_unstable();
        for pair in sorted.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{:?} overlaps {:?}", pair[0], pair[1]);
        }
    }

    proptest! {
        #[test]
        fn are_ranges_aligned_writable_and_disjoint(
            sizes in prop::collection::vec(prop_oneof![8 => 0usize..300, 1 => 0usize..100_000], 1..400),
        ) {
            let arena = Arena::new();
            let mut ranges = Vec::new();
            for &bytes in &sizes {
                let place = arena.allocate(bytes);
                prop_assert_eq!(place.as_ptr() as usize % ALIGN, 0);
                // SAFETY: the arena has just handed out these bytes.
                unsafe { place.write_bytes(0xab, bytes) };
                ranges.push((place.as_ptr() as usize, bytes));
            }
            assert_disjoint(&ranges);
            prop_assert!(arena.allocated_bytes() >= sizes.iter().sum());
        }
    }

    #[test]
    fn do_threads_that_exhaust_chunks_together_get_disjoint_ranges() {
        let arena = Arena::new();
        let ranges: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4usize)
                .map(|worker| {
                    let arena = &arena;
                    scope.spawn(move || {
                        let sizes = (0..20_000).map(move |i| (i * 7 + worker * 13) % 200 + 1);
                        sizes.map(|b| (arena.allocate(b).as_ptr() as usize, b)).collect::<Vec<_>>()
                    })
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(ranges.len(), 80_000);
        assert_disjoint(&ranges);
    }

    #[test]
    fn does_a_large_allocation_leave_the_shared_chunk_alone() {
        let arena = Arena::new();
        let first = arena.allocate(8).as_ptr() as usize;
        arena.allocate(3 << 20);
        let second = arena.allocate(8).as_ptr() as usize;
        assert_eq!(second, first + 8);
        assert_eq!(arena.allocated_bytes(), 16 + (3 << 20));
    }

    #[test]
    fn does_an_arena_take_what_another_left_behind_and_no_more_is_kept_than_said() {
        let spares = Arc::new(ChunkPool::new(3 * LAST_CHUNK));
        let fill = |bytes: usize| {
            let arena = Arena::with_spares(spares.clone());
            let places: Vec<_> = (0..bytes / 1000).map(|_| arena.allocate(1000)).collect();
            // SAFETY: the arena has just handed out these bytes.
            places.iter().for_each(|place| unsafe { place.write_bytes(0xcd, 1000) });
            let ranges: Vec<_> =
                places.iter().map(|place| (place.as_ptr() as usize, 1000)).collect();
            assert_disjoint(&ranges);
            (arena, places)
        };
        let (first, places) = fill(16 << 20);
        assert_eq!(spares.bytes(), 0);
        drop(first);
        assert_eq!(spares.bytes(), 3 * LAST_CHUNK);
        let (second, again) = fill(6 << 20);
        assert!(spares.bytes() < 3 * LAST_CHUNK);
        let before: std::collections::HashSet<_> = places.iter().collect();
        assert!(again.iter().filter(|place| before.contains(place)).count() > 1000);
        drop(second);
        // A value of just the size of a chunk's bytes is a chunk like any other.
        let arena = Arena::with_spares(spares.clone());
        arena.allocate(LAST_CHUNK);
        drop(arena);
        assert_eq!(spares.bytes(), 3 * LAST_CHUNK);
        // Even a small arena touches nothing new.
        let arena = Arena::with_spares(spares.clone());
        arena.allocate(8);
        assert_eq!(spares.bytes(), 2 * LAST_CHUNK);
    }

    #[test]
    fn does_an_arena_begin_with_full_chunks_once_one_before_it_had_come_to_them() {
        let spares = Arc::new(ChunkPool::new(0));
        let chunks = |bytes: usize| {
            let arena = Arena::with_spares(spares.clone());
            (0..bytes / 1000).for_each(|_| _ = arena.allocate(1000));
            let growth = arena.growth.lock().unwrap();
            growth.chunks.iter().map(|(_, layout)| layout.size()).collect::<Vec<_>>()
        };
        assert_eq!(chunks(1000), [FIRST_CHUNK], "a small one takes little");
        assert_eq!(chunks(100 << 10), [FIRST_CHUNK, FIRST_CHUNK * GROWTH], "and after it, too");
        let large = chunks(1 << 20);
        assert_eq!(large, [FIRST_CHUNK, FIRST_CHUNK * GROWTH, LAST_CHUNK], "one grows soon");
        assert_eq!(chunks(1000), [LAST_CHUNK], "and who comes after it begins there");
    }

    #[test]
    fn is_memory_counted_across_chunks_within_the_promised_waste() {
        let arena = Arena::new();
        let asked = 40_000 * 104;
        (0..40_000).for_each(|_| _ = arena.allocate(100));
        let counted = arena.allocated_bytes();
        assert!(counted >= asked && counted < asked + asked / 100, "{counted} for {asked}");
    }
}
