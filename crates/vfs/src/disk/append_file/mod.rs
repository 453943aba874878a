//! An append-only file that copies small appends into a memory mapping instead of calling `write`.
//!
//! ```text
//!   0                      current window, mapped and populated    pending windows, being prepared
//!   ├── written ─────┼────────────────────────────────────────┼─ ─ ─ ─ ─ ─ ─ ─┼─ ─ ─ ─ ─ ─ ─ ─┤
//!                    │            ▲ end
//!                    └ appends are copied, no system call
//! ```
//!
//! An append of 100 bytes takes 0.1 µs instead of 0.5 µs and never waits for the kernel to allocate
//! and clear a page. Windows are prepared by the [`preallocator`](super::preallocator) thread, each
//! twice as large as the one before up to a limit. An append that does not fit the current window
//! is written with `pwrite` after its range has been reserved; both paths share the page cache, so
//! a window is never required and no append waits for one. The first bytes of a file are written,
//! too, because most files stay small. If the expected size of a file is announced, its first
//! window is prepared before the first append, no window ends far past that size, and the space is
//! reserved if there is time. Otherwise the file system allocates it during writeback, and a writer
//! that extends the file at that time waits for the disk.
//!
//! Appended bytes are in the page cache at once, as if written: they survive a process crash, other
//! handles read them, and a sync makes them durable. Until the preallocation is trimmed, the file
//! has zeros past its end, also after a crash.
//!
//! Writeback of the bytes before the window starts every 4 MiB, so that the sync that ends a log
//! has less to do.
//!
//! A store to a mapped page dirties its whole folio, and a sync writes every dirty folio to the
//! device. Windows therefore have large folios (64 KiB, cheap to create) only while syncs are rare.
//! Once a sync covers less than one large folio, the preallocated space is released and created
//! again with single-page folios, in this file and in later files of the directory, until 1 MiB is
//! appended without a sync. A synced append of 100 bytes then writes 4 KiB instead of 64 KiB. A
//! sync writes the zeros of a new window, too, so windows of single-page folios are small.
//!
//! Invariant: no window extends past the end of the file, which is truncated only without windows.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use siltstone_engine::{Error, Purpose, Result};

use super::descriptor::OpenFile;
use super::file::DiskFile;
use super::preallocator::{FolioSize, LARGE_FOLIO_BYTES, PendingWindow, Window, write_back};
use crate::File;
use crate::system::{MAP_BYTES, free_space, reserve};

/// This much of a file is written with `pwrite` before the first window.
const UNMAPPED_BYTES: u64 = 16 << 10;

/// The size of the first window, which is needed soon.
const FIRST_WINDOW_BYTES: u64 = 256 << 10;
/// The maximum size of a window. Larger windows waste more space at the end of a log; smaller ones
/// are needed more often, with less time to prepare them.
const MAX_WINDOW_BYTES: u64 = 1 << 20;
/// The maximum size of a window of a file with an announced size, which will leave little unused.
const MAX_EXPECTED_WINDOW_BYTES: u64 = 2 << 20;
/// The number of pending windows of such a file. Other files have one.
const EXPECTED_PENDING_WINDOWS: usize = 2;

/// The maximum size of a window while syncs are frequent: the next sync writes all of its zeros,
/// and one append waits for that.
const MAX_SYNCED_WINDOW_BYTES: u64 = LARGE_FOLIO_BYTES;

/// How far a file may exceed its announced size before it gets windows like any other.
const EXCESS_BYTES: u64 = 64 << 10;

/// The announced size is reserved if the file system has free space for this many such files.
const MIN_FREE_FILES: u64 = 16;

/// If the average append is larger than this, appends are written with `pwrite`: the kernel stores
/// them in large folios itself.
const MAX_AVERAGE_APPEND_BYTES: u64 = 8 << 10;

/// Writeback is started in pieces of this size.
const WRITE_BACK_BYTES: u64 = 4 << 20;

pub(super) struct AppendFile {
    inner: DiskFile,
    windows: Mutex<Windows>,
    /// The end of the appended bytes.
    len: AtomicU64,
    /// Whether append files of the directory are synced every few appends: the initial state of a
    /// new file.
    has_frequent_syncs: Arc<AtomicBool>,
}

struct Windows {
    appends: u64,
    /// The folio size of new windows.
    folios: FolioSize,
    /// The end of the bytes covered by the last sync.
    synced_to: u64,
    current: Option<Window>,
    /// Adjacent windows in order.
    pending: VecDeque<Arc<PendingWindow>>,
    /// The size of the next window.
    next_bytes: u64,
    /// The announced size of the file; 0 if there is none.
    expected: u64,
    /// The end of the bytes whose writeback has been started.
    written_back: u64,
    /// There is preallocated space past the end.
    has_preallocation: bool,
    /// No more windows: the preallocation was trimmed, or the file system does not support it.
    is_finished: bool,
}

impl Windows {
    fn new(folios: FolioSize) -> Self {
        Windows {
            appends: 0,
            folios,
            synced_to: 0,
            current: None,
            pending: VecDeque::new(),
            next_bytes: FIRST_WINDOW_BYTES,
            expected: 0,
            written_back: 0,
            has_preallocation: false,
            is_finished: false,
        }
    }

    /// The announced bytes from `start` on, plus the allowed excess.
    fn remaining_expected(&self, start: u64) -> u64 {
        if self.expected == 0 { 0 } else { (self.expected + EXCESS_BYTES).saturating_sub(start) }
    }

    /// The maximum size of a window, of a file with an announced size or of another.
    fn max_window_bytes(&self, is_expected: bool) -> u64 {
        match (self.folios, is_expected) {
            (FolioSize::Page, _) => MAX_SYNCED_WINDOW_BYTES,
            (FolioSize::Large, true) => MAX_EXPECTED_WINDOW_BYTES,
            (FolioSize::Large, false) => MAX_WINDOW_BYTES,
        }
    }

    /// The start of the next window to request if the file ends at `end`; page-aligned.
    fn requested_to(&self, end: u64) -> u64 {
        let last = self.pending.back().map(|next| next.end());
        let requested_to = last.or(self.current.as_ref().map(Window::end));
        requested_to.unwrap_or(0).max(end).next_multiple_of(MAP_BYTES as u64)
    }
}

impl AppendFile {
    /// An empty file of a directory whose append files share `has_frequent_syncs`.
    pub(super) fn new(inner: DiskFile, has_frequent_syncs: Arc<AtomicBool>) -> Self {
        let folios = match has_frequent_syncs.load(Ordering::Relaxed) {
            true => FolioSize::Page,
            false => FolioSize::Large,
        };
        let windows = Mutex::new(Windows::new(folios));
        AppendFile { inner, windows, len: AtomicU64::new(0), has_frequent_syncs }
    }

    fn set_folios(&self, windows: &mut Windows, folios: FolioSize) {
        windows.folios = folios;
        self.has_frequent_syncs.store(folios == FolioSize::Page, Ordering::Relaxed);
    }

    /// Records a sync of the bytes before `end`. Switches to single-page folios if it covered less
    /// than a large folio.
    fn record_sync(&self, end: u64) {
        let mut windows = self.windows.lock();
        let covered = end.saturating_sub(windows.synced_to);
        windows.synced_to = windows.synced_to.max(end);
        if covered == 0 || covered >= LARGE_FOLIO_BYTES || windows.folios == FolioSize::Page {
            return;
        }
        self.set_folios(&mut windows, FolioSize::Page);
        // If the large folios cannot be released, stores to them are only slower.
        let _ = self.release_preallocation(&mut windows);
    }

    /// Releases the space past the end and the windows over it.
    fn release_preallocation(&self, windows: &mut Windows) -> Result<()> {
        self.close_windows(windows);
        if windows.has_preallocation {
            self.inner.set_len(self.len.load(Ordering::Acquire))?;
            windows.has_preallocation = false;
        }
        Ok(())
    }

    /// Replaces the current window by a prepared one once the end has reached it.
    fn take_prepared(&self, windows: &mut Windows, end: u64) {
        while windows.current.as_ref().is_none_or(|current| end >= current.end())
            && let Some(made) = windows.pending.front().and_then(|next| next.take())
        {
            windows.pending.pop_front();
            match made {
                // Prepared too late.
                Ok(Some(window)) if end >= window.end() => window.discard(),
                Ok(None) => {}
                Ok(Some(window)) => {
                    if let Some(old) = windows.current.replace(window) {
                        old.discard();
                    }
                }
                // A full disk or a limit of mappings: a write reports it, or succeeds.
                Err(_) => windows.is_finished = true,
            }
        }
    }

    /// Requests the next window in time.
    fn request_next(&self, open: &OpenFile, windows: &mut Windows, end: u64) {
        let is_expected = windows.remaining_expected(windows.requested_to(end)) > 0;
        let max_pending = match windows.folios {
            FolioSize::Large if is_expected => EXPECTED_PENDING_WINDOWS,
            _ => 1,
        };
        if windows.pending.len() >= max_pending
            || windows.is_finished
            || end / windows.appends > MAX_AVERAGE_APPEND_BYTES
        {
            return;
        }
        // Do not request more between the last expected window and the announced size.
        if end >= windows.expected || is_expected {
            self.request(open, windows, windows.requested_to(end));
        }
    }

    /// Reserves the announced size of an empty file, unless free space is short. Errors are
    /// ignored: nothing depends on the reservation.
    fn reserve_expected(&self, open: &OpenFile, len: u64) {
        let is_plentiful = free_space(&open.file) / MIN_FREE_FILES >= len;
        if is_plentiful && reserve(&open.file, len).is_err() {
            // A part may have been reserved.
            let _ = open.file.set_len(0);
        }
    }

    fn request(&self, open: &OpenFile, windows: &mut Windows, start: u64) {
        windows.has_preallocation = true;
        if self.len.load(Ordering::Acquire).saturating_sub(windows.synced_to) > MAX_WINDOW_BYTES {
            self.set_folios(windows, FolioSize::Large);
        }
        let bytes = match windows.remaining_expected(start) {
            0 => {
                let bytes = windows.next_bytes;
                windows.next_bytes = (2 * bytes).min(MAX_WINDOW_BYTES);
                bytes.min(windows.max_window_bytes(false))
            }
            expected => {
                let expected = expected.next_multiple_of(MAP_BYTES as u64);
                expected.min(windows.max_window_bytes(true))
            }
        };
        let next = Window::request(&open.file, start, bytes, windows.folios);
        windows.pending.push_back(next);
    }

    /// Starts writeback of the bytes before the current window, in pieces. Pages of the window are
    /// excluded, because a store to a page under writeback waits.
    fn advance_write_back(&self, open: &OpenFile, windows: &mut Windows, end: u64) {
        let end = windows.current.as_ref().map_or(end, |current| current.start().min(end));
        if end >= windows.written_back + WRITE_BACK_BYTES {
            let end = end - end % MAP_BYTES as u64;
            write_back(&open.file, windows.written_back, end - windows.written_back);
            windows.written_back = end;
        }
    }

    /// Drops the current window and cancels pending ones, so that the file can be truncated.
    fn close_windows(&self, windows: &mut Windows) {
        windows.current = None;
        windows.pending.drain(..).for_each(|next| next.cancel());
    }

    fn ends_early(&self, offset: u64) -> Error {
        let reason = format!("the file ends at {} bytes", self.len.load(Ordering::Acquire));
        let source = io::Error::new(io::ErrorKind::UnexpectedEof, reason);
        Error::io("read", format!("{} at {offset}", self.inner.name()), &source)
    }
}

impl File for AppendFile {
    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        // The preallocated space is not part of the file.
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.len.load(Ordering::Acquire)) {
            return Err(self.ends_early(offset));
        }
        self.inner.read_at(offset, buf, purpose)
    }

    fn begin_read(&self, offset: u64, bytes: u64) {
        self.inner.begin_read(offset, bytes);
    }

    fn write_at(&self, offset: u64, bytes: &[u8], _purpose: Purpose) -> Result<()> {
        let mut windows = self.windows.lock();
        // Held until the bytes are marked as unsynced: the file may be closed while it has none.
        let open = self.inner.open()?;
        if windows.current.is_none() {
            self.take_prepared(&mut windows, offset);
        }
        let is_stored = windows.current.as_ref().is_some_and(|window| window.store(offset, bytes));
        let end = offset + bytes.len() as u64;
        if !is_stored {
            windows.pending.iter().for_each(|next| next.reserve_prefix(end));
            self.inner.write(&open, offset, bytes)?;
        }
        self.inner.mark_unsynced();
        let before = self.len.fetch_max(end, Ordering::AcqRel);
        if end > before {
            windows.appends += 1;
            if end > UNMAPPED_BYTES {
                self.take_prepared(&mut windows, end);
                self.request_next(&open, &mut windows, end);
                self.advance_write_back(&open, &mut windows, end);
            }
        }
        Ok(())
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        let end = self.len.load(Ordering::Acquire);
        self.inner.sync(purpose)?;
        self.record_sync(end);
        Ok(())
    }

    fn is_removed(&self) -> Result<bool> {
        self.inner.is_removed()
    }

    fn allow_close(&self) {
        self.inner.allow_close();
    }

    fn begin_sync(&self) {
        self.inner.begin_sync();
    }

    fn seek_cost_bytes(&self) -> u64 {
        self.inner.seek_cost_bytes()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.len.load(Ordering::Acquire))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut windows = self.windows.lock();
        self.close_windows(&mut windows);
        self.inner.set_len(len)?;
        windows.has_preallocation = false;
        windows.written_back = windows.written_back.min(len - len % MAP_BYTES as u64);
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn preallocate(&self, bytes: u64, now: u64) {
        let mut windows = self.windows.lock();
        let is_new = self.len.load(Ordering::Acquire) == 0 && windows.pending.is_empty();
        if !is_new || bytes <= UNMAPPED_BYTES || windows.is_finished {
            return;
        }
        // If it cannot be opened again, a write reports the error.
        let Ok(open) = self.inner.open() else { return };
        windows.expected = bytes;
        if now == 0 {
            self.reserve_expected(&open, bytes + EXCESS_BYTES);
            self.request(&open, &mut windows, 0);
            return;
        }
        windows.has_preallocation = true;
        let now = now.min(bytes).min(windows.max_window_bytes(true));
        let now = now.next_multiple_of(MAP_BYTES as u64);
        match Window::make(&open.file, now, windows.folios) {
            Ok(window) => windows.current = window,
            // As if prepared too late: a write will report the error.
            Err(_) => windows.is_finished = true,
        }
    }

    fn trim_preallocation(&self) -> Result<()> {
        let mut windows = self.windows.lock();
        windows.is_finished = true;
        self.release_preallocation(&mut windows)
    }

    fn reserve(&self, len: u64) -> Result<()> {
        self.inner.reserve(len)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.punch_hole(offset, len)
    }
}

impl Drop for AppendFile {
    fn drop(&mut self) {
        // Zeros past the end are harmless; they only use space.
        let _ = self.trim_preallocation();
    }
}

#[cfg(test)]
mod tests;
