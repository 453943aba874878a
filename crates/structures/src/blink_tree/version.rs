//! The versions of one key: a chain in the arena, newest first.
//!
//! ```text
//!  entry ─▶ [older│sequence 9│expires│position│len, kind│value…] ─▶ [sequence 7│…] ─▶ [3│…] ─▶ ∅
//! ```
//!
//! A record is written completely, then linked by one store: mostly at the head of the chain,
//! further down if its sequence number is lower. Records are never unlinked.
//!
//! Invariant: sequence numbers never increase along the chain; of equal ones the last inserted
//! comes first.
//!
//! Source: version chains as in multi-version concurrency control (Wu et al., "An Empirical
//! Evaluation of In-Memory MVCC", VLDB 2017, section 3, newest-to-oldest).

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

use crate::arena::{ALIGN, Arena};
use crate::sync::{AtomicPtr, Ordering, PublishedCell};

/// A version to insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewVersion<'a> {
    /// Sequence number: the position of the write in the order of all writes.
    pub sequence: u64,
    /// The kind of write (put, delete, …), in the caller's numbering.
    pub kind: u8,
    /// Expiry time, in milliseconds of the caller's clock; 0 for never.
    pub expires_at: u64,
    /// The position of the write in the log, in the caller's numbering.
    pub position: u64,
    /// The value, below 4 GiB.
    pub value: &'a [u8],
}

/// A version of a key. Its fields cost nothing more to read; [`Version::older`] costs a cache miss.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// Sequence number: the position of the write in the order of all writes.
    pub sequence: u64,
    /// The kind of write (put, delete, …), in the caller's numbering.
    pub kind: u8,
    /// Expiry time, in milliseconds of the caller's clock; 0 for never.
    pub expires_at: u64,
    /// The position of the write in the log, in the caller's numbering.
    pub position: u64,
    /// The value.
    pub value: &'a [u8],
    record: RecordRef<'a>,
}

impl<'a> Version<'a> {
    /// The next older version of the same key.
    pub fn older(&self) -> Option<Version<'a>> {
        RecordRef::follow(&self.record.fixed().older).map(RecordRef::version)
    }
}

/// The fixed part of a version, followed by `length` bytes of value.
struct Record {
    older: AtomicPtr<Record>,
    sequence: PublishedCell<u64>,
    expires_at: PublishedCell<u64>,
    position: PublishedCell<u64>,
    length: PublishedCell<u32>,
    kind: PublishedCell<u8>,
}

const _: () = assert!(align_of::<Record>() <= ALIGN && size_of::<Record>().is_multiple_of(ALIGN));

/// A published record, in an arena that lives for `'a`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordRef<'a> {
    record: NonNull<Record>,
    arena: PhantomData<&'a Arena>,
}

// SAFETY: a record is written before it is shared; afterwards only its atomic link changes.
unsafe impl Send for RecordRef<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for RecordRef<'_> {}

/// The head of a chain, in the entry of a key.
pub(super) struct Chain(AtomicPtr<Record>);

impl Chain {
    /// A chain of one record.
    pub(super) fn new(first: RecordRef<'_>) -> Self {
        Self(AtomicPtr::new(first.record.as_ptr()))
    }

    /// The version with the highest sequence number.
    #[inline]
    pub(super) fn newest(&self) -> Version<'_> {
        RecordRef::follow(&self.0).expect("a chain has at least one record").version()
    }

    /// The newest version with a sequence number of at most `at`; costs a cache miss per version
    /// skipped.
    #[inline]
    pub(super) fn at(&self, at: u64) -> Option<Version<'_>> {
        let mut record = RecordRef::follow(&self.0)?;
        while record.fixed().sequence.get() > at {
            record = RecordRef::follow(&record.fixed().older)?;
        }
        Some(record.version())
    }

    /// Links a record at its position by sequence number; one thread at a time.
    ///
    /// # Safety
    ///
    /// The record is in no chain yet, and its arena outlives this chain.
    pub(super) unsafe fn link(&self, new: RecordRef<'_>) {
        let sequence = new.fixed().sequence.get();
        let mut place = &self.0;
        let mut next = RecordRef::follow(place);
        while let Some(newer) = next.filter(|next| next.fixed().sequence.get() > sequence) {
            place = &newer.fixed().older;
            next = RecordRef::follow(place);
        }
        let older = next.map_or(ptr::null_mut(), |next| next.record.as_ptr());
        // Relaxed: the record is still private; the store below publishes it.
        new.fixed().older.store(older, Ordering::Relaxed);
        place.store(new.record.as_ptr(), Ordering::Release);
    }
}

impl<'a> RecordRef<'a> {
    /// Size of a version, with its value, in bytes.
    pub(super) fn bytes(version: &NewVersion<'_>) -> usize {
        size_of::<Record>() + version.value.len()
    }

    /// Allocates a version, not yet in a chain.
    ///
    /// # Panics
    ///
    /// If the value has 4 GiB or more.
    pub(super) fn write(arena: &'a Arena, version: &NewVersion<'_>) -> Self {
        let place = arena.allocate(Self::bytes(version));
        // SAFETY: the arena gave these bytes to us alone, aligned, and as many as are written.
        unsafe { Self::write_at(place, version) }
    }

    /// Writes a version at `place`, not yet in a chain.
    ///
    /// # Panics
    ///
    /// If the value has 4 GiB or more.
    ///
    /// # Safety
    ///
    /// The [`bytes`](Self::bytes) from `place` on are an arena's that lives for `'a`, aligned to
    /// [`ALIGN`], and the caller's alone.
    pub(super) unsafe fn write_at(place: NonNull<u8>, version: &NewVersion<'_>) -> Self {
        let length = u32::try_from(version.value.len()).expect("values are below 4 GiB");
        let record = place.cast::<Record>();
        let fixed = Record {
            older: AtomicPtr::new(ptr::null_mut()),
            sequence: PublishedCell::new(version.sequence),
            expires_at: PublishedCell::new(version.expires_at),
            position: PublishedCell::new(version.position),
            length: PublishedCell::new(length),
            kind: PublishedCell::new(version.kind),
        };
        // SAFETY: by the caller's guarantee these bytes are ours, aligned, and as many as written.
        unsafe {
            record.write(fixed);
            let value = record.add(1).cast::<u8>();
            value
                .copy_from_nonoverlapping(NonNull::from(version.value).cast(), version.value.len());
        }
        Self { record, arena: PhantomData }
    }

    /// Follows a link, acquiring what was written before the link was.
    #[inline]
    fn follow(link: &'a AtomicPtr<Record>) -> Option<RecordRef<'a>> {
        let record = NonNull::new(link.load(Ordering::Acquire))?;
        Some(RecordRef { record, arena: PhantomData })
    }

    /// The record without its value.
    #[inline]
    fn fixed(&self) -> &'a Record {
        // SAFETY: the record was written in full before this reference to it was made, and the
        // arena keeps it for `'a`.
        unsafe { self.record.as_ref() }
    }

    /// The record for readers.
    #[inline]
    fn version(self) -> Version<'a> {
        let fixed = self.fixed();
        // SAFETY: `write` put `length` bytes of value after the fixed part, in one allocation.
        let value = unsafe {
            slice::from_raw_parts(self.record.add(1).cast().as_ptr(), fixed.length.get() as usize)
        };
        Version {
            sequence: fixed.sequence.get(),
            kind: fixed.kind.get(),
            expires_at: fixed.expires_at.get(),
            position: fixed.position.get(),
            value,
            record: self,
        }
    }
}
