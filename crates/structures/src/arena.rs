//! Concurrent chunked bump arena, freed as a whole when dropped.
//!
//! ```text
//!  current ──▶ chunk 3 (2 MiB)              chunk 2 (512 KiB)   chunk 1 (64 KiB)   large ones
//!              [header|aaaa|bb|cccccc|....]  [full]              [full]             [one value]
//!                                    ▲ offset
//! ```
//!
//! An allocation is one `fetch_add` on the offset of the current chunk. A thread that exceeds the
//! chunk takes the lock and installs the next one, eight times as large up to 2 MiB. An allocation
//! of more than a quarter of the current chunk gets its own chunk, so that the unused tail of a
//! chunk is less than a quarter of it.
//!
//! New memory costs a page fault at the first touch of each page. Arenas that follow one another
//! (memtables) therefore recycle chunks in a [`ChunkPool`]; without it, one insert in twenty would
//! fault. Chunks of the maximum size are requested as huge pages, with one fault instead of five
//! hundred, which dominated p99.9 of inserts. To get there quickly, chunks grow fast, and once an
//! arena of a pool has reached the maximum size, later ones start with it.
//!
//! Invariant: a byte range is handed out at most once, and stays valid until the arena is dropped.
//!
//! Source: the arenas of LevelDB and RocksDB memtables, in outline.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use crate::sync::{AtomicPtr, AtomicUsize, Mutex, Ordering, PublishedCell};
use crate::system::advise_huge_pages;

/// The alignment in bytes of every allocation.
pub const ALIGN: usize = 8;

/// Size of the first chunk.
const MIN_CHUNK_BYTES: usize = 64 << 10;
/// Maximum size of a chunk.
const MAX_CHUNK_BYTES: usize = 2 << 20;
/// Ratio of the sizes of consecutive chunks.
const CHUNK_GROWTH_FACTOR: usize = 8;
/// Cache line: chunks are aligned to it, and the header shares none with data.
const LINE_BYTES: usize = 64;
/// Offset of the first allocation in a chunk.
const HEADER_BYTES: usize = size_of::<Header>().next_multiple_of(LINE_BYTES);

/// The header of a chunk.
struct Header {
    /// Bytes allocated after the header; exceeds `capacity` when the chunk is full.
    offset: AtomicUsize,
    /// Bytes after the header.
    capacity: PublishedCell<usize>,
    /// The total capacity of all earlier shared chunks.
    before: PublishedCell<usize>,
}

/// State of the thread that adds a chunk.
struct Growth {
    /// All memory taken from the system, freed on drop.
    chunks: Vec<(NonNull<u8>, Layout)>,
    /// The size of the next shared chunk.
    next: usize,
    pool: Option<Arc<ChunkPool>>,
}

/// A chunk of the maximum size, aligned to its size so that it can be one huge page.
#[repr(align(0x20_0000))]
struct Chunk {
    _bytes: [u8; MAX_CHUNK_BYTES],
}

const _: () =
    assert!(align_of::<Chunk>() == MAX_CHUNK_BYTES && size_of::<Chunk>() == MAX_CHUNK_BYTES);

/// Recycles chunks of dropped arenas.
pub struct ChunkPool {
    chunks: std::sync::Mutex<Vec<Box<MaybeUninit<Chunk>>>>,
    max_bytes: std::sync::atomic::AtomicUsize,
    /// An arena has taken a chunk, so the next one is expected to as well.
    is_used: AtomicBool,
}

impl ChunkPool {
    /// Keeps up to `max_bytes`; frees the rest.
    pub fn new(max_bytes: usize) -> Self {
        ChunkPool {
            chunks: std::sync::Mutex::default(),
            max_bytes: std::sync::atomic::AtomicUsize::new(max_bytes),
            is_used: AtomicBool::new(false),
        }
    }

    /// Keeps up to `max_bytes` from now on; frees the rest.
    pub fn set_max_bytes(&self, max_bytes: usize) {
        self.max_bytes.store(max_bytes, Relaxed);
        self.lock().truncate(max_bytes / MAX_CHUNK_BYTES);
    }

    /// Up to how many bytes it keeps.
    pub fn max_bytes(&self) -> usize {
        self.max_bytes.load(Relaxed)
    }

    /// Bytes in unused chunks.
    pub fn bytes(&self) -> usize {
        self.lock().len() * MAX_CHUNK_BYTES
    }

    fn take(&self) -> Option<Box<MaybeUninit<Chunk>>> {
        self.is_used.store(true, Relaxed);
        self.lock().pop()
    }

    fn recycle(&self, chunk: Box<MaybeUninit<Chunk>>) {
        let mut chunks = self.lock();
        if chunks.len() < self.max_bytes() / MAX_CHUNK_BYTES {
            chunks.push(chunk);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Box<MaybeUninit<Chunk>>>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A bump arena for concurrent use.
///
/// An allocation costs one atomic addition; a chunk costs one call of the system allocator.
pub struct Arena {
    /// The shared chunk; null before the first.
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
            growth: Mutex::new(Growth { chunks: Vec::new(), next: MIN_CHUNK_BYTES, pool: None }),
        }
    }

    /// An arena that takes chunks from `pool` while there are any, and returns its own on drop.
    pub fn with_chunk_pool(pool: Arc<ChunkPool>) -> Self {
        let arena = Self::new();
        arena.growth.lock().unwrap_or_else(PoisonError::into_inner).pool = Some(pool);
        arena
    }

    /// Allocates `bytes` uninitialised bytes, aligned to [`ALIGN`], valid until the arena drops.
    ///
    /// The bytes are exclusively the caller's. Nothing stored in them is ever dropped.
    ///
    /// # Panics
    ///
    /// If `bytes` is about `isize::MAX` or more. Aborts if the system has no more memory.
    pub fn allocate(&self, bytes: usize) -> NonNull<u8> {
        // Checked here so that the additions below cannot overflow.
        assert!(bytes <= isize::MAX as usize - 2 * HEADER_BYTES, "allocation of {bytes} bytes");
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

    /// Bytes allocated so far, with rounding and the unused tails of full chunks.
    ///
    /// Costs three loads. Concurrent allocations may be missing from the sum.
    pub fn allocated_bytes(&self) -> usize {
        let large = self.large.load(Ordering::Relaxed);
        let chunk = self.current.load(Ordering::Acquire);
        if chunk.is_null() {
            return large;
        }
        // SAFETY: chunks live as long as the arena, and their header was written before
        // publication.
        let header = unsafe { &*chunk };
        let used = header.offset.load(Ordering::Relaxed).min(header.capacity.get());
        large + header.before.get() + used
    }

    /// Allocates from a chunk, unless it is full or too small for this size.
    fn bump(chunk: *mut Header, bytes: usize) -> Option<NonNull<u8>> {
        if chunk.is_null() {
            return None;
        }
        // SAFETY: chunks live as long as the arena, and their header was written before
        // publication.
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
        let place = unsafe { chunk.cast::<u8>().add(HEADER_BYTES + offset) };
        NonNull::new(place)
    }

    /// Installs the chunk after `seen`, or serves a large allocation; `None`: retry.
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
            return Some(growth.allocate_system(bytes));
        }
        let size = if growth.starts_with_full_chunks() { MAX_CHUNK_BYTES } else { growth.next };
        growth.next = (size * CHUNK_GROWTH_FACTOR).min(MAX_CHUNK_BYTES);
        let capacity = size - HEADER_BYTES;
        let chunk = growth.allocate_system(size).cast::<Header>();
        let header = Header {
            offset: AtomicUsize::new(0),
            capacity: PublishedCell::new(capacity),
            before: PublishedCell::new(before),
        };
        // SAFETY: the chunk is fresh, larger than a header, and aligned to a cache line.
        unsafe { chunk.write(header) };
        // Release: a reader of the chunk's address sees its header.
        self.current.store(chunk.as_ptr(), Ordering::Release);
        None
    }
}

impl Growth {
    fn starts_with_full_chunks(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.is_used.load(Relaxed))
    }

    /// Takes memory from the pool or the system, to be freed on drop.
    fn allocate_system(&mut self, bytes: usize) -> NonNull<u8> {
        let align = if bytes == MAX_CHUNK_BYTES { MAX_CHUNK_BYTES } else { LINE_BYTES };
        let layout = Layout::from_size_align(bytes, align).expect("checked by `allocate`");
        let recycled = || self.pool.as_ref().filter(|_| layout == Layout::new::<Chunk>())?.take();
        if let Some(chunk) = recycled() {
            let place = NonNull::from(Box::leak(chunk)).cast();
            self.chunks.push((place, layout));
            return place;
        }
        // SAFETY: callers ask for a positive number of bytes: a chunk, or more than a quarter of
        // one.
        let Some(place) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        if layout == Layout::new::<Chunk>() {
            // SAFETY: the allocation just made, of this size.
            unsafe { advise_huge_pages(place, bytes) };
        }
        self.chunks.push((place, layout));
        place
    }
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
            if let Some(pool) = growth.pool.as_ref().filter(|_| layout == Layout::new::<Chunk>()) {
                // SAFETY: `place` came from the global allocator with the layout of a `Chunk`, or
                // is such a box leaked; any bytes are a `MaybeUninit`, and no one borrows the arena
                // now.
                pool.recycle(unsafe { Box::from_raw(place.cast().as_ptr()) });
                continue;
            }
            // SAFETY: `place` came from `alloc` with this layout, and no one borrows the arena now.
            unsafe { dealloc(place.as_ptr(), layout) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Asserts that the ranges, each with start and length, are disjoint.
    fn assert_disjoint(ranges: &[(usize, usize)]) {
        let mut sorted: Vec<_> = ranges.iter().filter(|(_, bytes)| *bytes > 0).collect();
        sorted.sort_unstable();
        for pair in sorted.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{:?} overlaps {:?}", pair[0], pair[1]);
        }
    }

    fn cases() -> ProptestConfig {
        let cases = if cfg!(miri) { 3 } else { ProptestConfig::default().cases };
        ProptestConfig { cases, ..ProptestConfig::default() }
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn ranges_are_aligned_writable_and_disjoint(
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
    fn concurrent_allocations_are_disjoint() {
        const ALLOCATIONS: usize = if cfg!(miri) { 150 } else { 20_000 };
        let arena = Arena::new();
        let ranges: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4usize)
                .map(|worker| {
                    let arena = &arena;
                    scope.spawn(move || {
                        let sizes = (0..ALLOCATIONS).map(move |i| (i * 7 + worker * 13) % 200 + 1);
                        sizes.map(|b| (arena.allocate(b).as_ptr() as usize, b)).collect::<Vec<_>>()
                    })
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(ranges.len(), 4 * ALLOCATIONS);
        assert_disjoint(&ranges);
    }

    #[test]
    fn large_allocation_does_not_use_shared_chunk() {
        let arena = Arena::new();
        let first = arena.allocate(8).as_ptr() as usize;
        arena.allocate(3 << 20);
        let second = arena.allocate(8).as_ptr() as usize;
        assert_eq!(second, first + 8);
        assert_eq!(arena.allocated_bytes(), 16 + (3 << 20));
    }

    #[test]
    fn arena_recycles_chunks_and_pool_stays_within_limit() {
        let pool = Arc::new(ChunkPool::new(3 * MAX_CHUNK_BYTES));
        const LEN: usize = if cfg!(miri) { 10_000 } else { 1000 };
        let fill = |bytes: usize| {
            let arena = Arena::with_chunk_pool(pool.clone());
            let places: Vec<_> = (0..bytes / LEN).map(|_| arena.allocate(LEN)).collect();
            // SAFETY: the arena has just handed out these bytes.
            places.iter().for_each(|place| unsafe { place.write_bytes(0xcd, LEN) });
            let ranges: Vec<_> =
                places.iter().map(|place| (place.as_ptr() as usize, LEN)).collect();
            assert_disjoint(&ranges);
            (arena, places)
        };
        let (first, places) = fill(16 << 20);
        assert_eq!(pool.bytes(), 0);
        drop(first);
        assert_eq!(pool.bytes(), 3 * MAX_CHUNK_BYTES);
        let (second, again) = fill(6 << 20);
        assert!(pool.bytes() < 3 * MAX_CHUNK_BYTES);
        let before: std::collections::HashSet<_> = places.iter().collect();
        assert!(again.iter().filter(|place| before.contains(place)).count() > again.len() / 6);
        drop(second);
        // A value of the size of a chunk is a chunk like any other.
        let arena = Arena::with_chunk_pool(pool.clone());
        arena.allocate(MAX_CHUNK_BYTES);
        drop(arena);
        assert_eq!(pool.bytes(), 3 * MAX_CHUNK_BYTES);
        // Even a small arena takes a recycled chunk.
        let arena = Arena::with_chunk_pool(pool.clone());
        arena.allocate(8);
        assert_eq!(pool.bytes(), 2 * MAX_CHUNK_BYTES);
    }

    #[test]
    fn arena_starts_with_full_chunks_after_large_predecessor() {
        let pool = Arc::new(ChunkPool::new(0));
        let chunks = |bytes: usize| {
            let arena = Arena::with_chunk_pool(pool.clone());
            (0..bytes / 1000).for_each(|_| _ = arena.allocate(1000));
            let growth = arena.growth.lock().unwrap();
            growth.chunks.iter().map(|(_, layout)| layout.size()).collect::<Vec<_>>()
        };
        assert_eq!(chunks(1000), [MIN_CHUNK_BYTES], "small arenas stay small");
        assert_eq!(
            chunks(100 << 10),
            [MIN_CHUNK_BYTES, MIN_CHUNK_BYTES * CHUNK_GROWTH_FACTOR],
            "also after a small one"
        );
        let large = chunks(1 << 20);
        assert_eq!(
            large,
            [MIN_CHUNK_BYTES, MIN_CHUNK_BYTES * CHUNK_GROWTH_FACTOR, MAX_CHUNK_BYTES],
            "chunks grow fast"
        );
        assert_eq!(chunks(1000), [MAX_CHUNK_BYTES], "later arenas start with full chunks");
    }

    #[test]
    fn allocated_bytes_include_bounded_waste() {
        let arena = Arena::new();
        let asked = 40_000 * 104;
        (0..40_000).for_each(|_| _ = arena.allocate(100));
        let counted = arena.allocated_bytes();
        assert!(counted >= asked && counted < asked + asked / 100, "{counted} for {asked}");
    }
}
