//! A file that grows by many small appends, stored to where the kernel would be asked to write.
//!
//! ```text
//!   0                        window, mapped: its pages are there       the next ones, being made ready
//!   ├── written ──────┼──────────────────────────────────────────┼─ ─ ─ ─ ─ ─ ─ ─┼─ ─ ─ ─ ─ ─ ─ ─┤
//!                     │            ▲ end                         │                │
//!                     └ stores, no call of the system            └ wanted soon    └ there is time
//! ```
//!
//! An append of a hundred bytes costs a tenth of a microsecond instead of half of one, and, what
//! matters more, never waits for the kernel to find and clear a page. Windows are made ready (see
//! [`ahead`](super::ahead)) on another thread, each twice as large as the one before up to a limit. Whatever
//! does not fit into the window that is there is claimed, and written as to any file: the two see the same
//! pages, so a window is never needed, and nobody waits for one. The first bytes of a file are written so,
//! too: most files stay small. Of a file that is *expected* to grow to some size the first window is made
//! before the first append, and none reaches far beyond that size. If there is time its space is reserved, too:
//! else the system looks for it when it writes the file back, and whoever extends the file then, writer or
//! thread, waits until the disk has answered.
//!
//! What is stored is in the page cache at once, as if written: it outlives the process, other
//! handles read it, and a sync of the file makes it durable. Until the file is finished it has space
//! and zeros behind its end; if the process dies it keeps them.
//!
//! The kernel is asked to write back what lies behind, four MiB at a time, so that it is not all left to the
//! sync that ends a log.
//!
//! A store to a mapped page dirties its whole folio, and a sync writes every dirty folio to the device. Windows
//! are therefore made of large folios (64 KiB, cheap to make) only while syncs are rare. Once a sync covers
//! less than one large folio, the space behind the end is given back and made again of single pages, here and
//! in the directory's later files, until 1 MiB is appended without a sync. A synced append of 100 bytes then
//! writes 4 KiB instead of 64.
//!
//! Invariant: no window reaches beyond the file's length, which is cut only when there is none.
//!
//! Source: ours.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use siltstone_engine::{Error, Purpose, Result};

use super::TMPFS;
use super::ahead::{FolioSize, LARGE_FOLIO_BYTES, Ready, Window, write_back};
use super::file::DiskFile;
use crate::File;
use crate::pmem::MAP_BYTES;

/// So much of a file is written before the first window.
const SMALL: u64 = 16 << 10;

/// Bytes of the first window of a file, which is wanted soon.
const FIRST: u64 = 256 << 10;
/// Bytes of a window at most. The larger, the more space a log has that it does not use; the smaller, the
/// more often one is made, and the less time there is for it.
const MOST: u64 = 1 << 20;
/// The same of a file whose size is expected: little of it will be left.
const MOST_EXPECTED: u64 = 2 << 20;
/// So many windows of such a file are made ready before the end comes to them, one of any other.
const AHEAD_EXPECTED: usize = 2;

/// A file may grow so far beyond what was expected of it before it gets windows as any other does.
const BEYOND: u64 = 64 << 10;

/// Space is reserved for a file of which there is room for so many on the file system.
const ROOM_FOR: u64 = 16;

/// Appends larger than this on average are written: the kernel takes them in large folios as they are.
const LARGE: u64 = 8 << 10;

/// What is behind the end is written back in pieces of this size.
const PIECE: u64 = 4 << 20;

pub(super) struct AppendFile {
    inner: DiskFile,
    windows: Mutex<Windows>,
    /// Where what was written ends.
    len: AtomicU64,
    /// The directory's growing files are synced after every few appends: the state that a new file begins with.
    has_frequent_syncs: Arc<AtomicBool>,
}

struct Windows {
    appends: u64,
    /// The folios that windows are made of.
    folios: FolioSize,
    /// The last sync covered the bytes before this offset.
    synced_to: u64,
    present: Option<Window>,
    /// One behind the other.
    next: VecDeque<Arc<Ready>>,
    /// Bytes of the one after.
    next_bytes: u64,
    /// The file is expected to grow to so many bytes.
    expected: u64,
    /// Up to here the kernel has been asked to write back.
    written_back: u64,
    /// There is space behind the end.
    has_more: bool,
    /// There will be no more: the file is finished, or the file system can't do it.
    is_over: bool,
}

impl Windows {
    fn new(folios: FolioSize) -> Self {
        Windows {
            appends: 0,
            folios,
            synced_to: 0,
            present: None,
            next: VecDeque::new(),
            next_bytes: FIRST,
            expected: 0,
            written_back: 0,
            has_more: false,
            is_over: false,
        }
    }

    /// Bytes that are expected from `start` on, and some more.
    fn still_expected(&self, start: u64) -> u64 {
        if self.expected == 0 { 0 } else { (self.expected + BEYOND).saturating_sub(start) }
    }

    /// Where the next window to be asked for begins if the file ends at `end`: a multiple of a page.
    fn asked_to(&self, end: u64) -> u64 {
        let last = self.next.back().map(|next| next.end());
        let asked_to = last.or(self.present.as_ref().map(Window::end));
        asked_to.unwrap_or(0).max(end).next_multiple_of(MAP_BYTES as u64)
    }
}

impl AppendFile {
    /// A file without a byte, of a directory whose growing files share `has_frequent_syncs`.
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

    /// Goes over to single pages if the sync of the bytes before `end` covered less than a large folio.
    fn record_sync(&self, end: u64) {
        let mut windows = self.windows.lock();
        let covered = end.saturating_sub(windows.synced_to);
        windows.synced_to = windows.synced_to.max(end);
        if covered == 0 || covered >= LARGE_FOLIO_BYTES || windows.folios == FolioSize::Page {
            return;
        }
        self.set_folios(&mut windows, FolioSize::Page);
        // If the large folios cannot be given back, stores into them only cost more.
        let _ = self.give_back_space(&mut windows);
    }

    /// Gives back the space behind the end, with the windows over it.
    fn give_back_space(&self, windows: &mut Windows) -> Result<()> {
        self.close_windows(windows);
        if windows.has_more {
            self.inner.set_len(self.len.load(Ordering::Acquire))?;
            windows.has_more = false;
        }
        Ok(())
    }

    /// Takes the window that is ready once the end is in it.
    fn take_ready(&self, windows: &mut Windows, end: u64) {
        while windows.present.as_ref().is_none_or(|present| end >= present.end())
            && let Some(made) = windows.next.front().and_then(|next| next.take())
        {
            windows.next.pop_front();
            match made {
                // It came too late.
                Ok(Some(window)) if end >= window.end() => window.discard(),
                Ok(None) => {}
                Ok(Some(window)) => {
                    if let Some(old) = windows.present.replace(window) {
                        old.discard();
                    }
                    windows.next.front().iter().for_each(|next| next.hurry());
                }
                // A full disk, or a limit of mappings: writing will tell, or go on.
                Err(_) => windows.is_over = true,
            }
        }
    }

    /// Asks for the next windows in time.
    fn keep_ahead(&self, windows: &mut Windows, end: u64) {
        let is_expected = windows.still_expected(windows.asked_to(end)) > 0;
        let most = if is_expected { AHEAD_EXPECTED } else { 1 };
        if windows.next.len() >= most || windows.is_over || end / windows.appends > LARGE {
            return;
        }
        // What is expected is there.
        if end >= windows.expected || is_expected {
            self.ask_for(windows, windows.asked_to(end));
        }
    }

    /// Has the system find the space of a file without a byte that is expected to become so long, unless
    /// space is short: others may need it first. Nothing depends on it, so errors tell nothing.
    fn reserve_expected(&self, len: u64) {
        let has_room = space_to_reserve(&self.inner.file) / ROOM_FOR >= len;
        if has_room && self.inner.reserve(len).is_err() {
            // It may have reserved a part.
            let _ = self.inner.set_len(0);
        }
    }

    fn ask_for(&self, windows: &mut Windows, start: u64) {
        let bytes = match windows.still_expected(start) {
            0 => {
                let bytes = windows.next_bytes;
                windows.next_bytes = (2 * bytes).min(MOST);
                bytes
            }
            expected => expected.next_multiple_of(MAP_BYTES as u64).min(MOST_EXPECTED),
        };
        windows.has_more = true;
        if self.len.load(Ordering::Acquire).saturating_sub(windows.synced_to) > MOST {
            self.set_folios(windows, FolioSize::Large);
        }
        let next = Window::ask_for(&self.inner.file, start, bytes, windows.folios);
        if windows.next.is_empty() && windows.present.is_some() {
            next.hurry();
        }
        windows.next.push_back(next);
    }

    /// Has what lies before the window written back, a piece at a time: a page that is being written would
    /// make a store into it wait.
    fn keep_writing_back(&self, windows: &mut Windows, end: u64) {
        let end = windows.present.as_ref().map_or(end, |present| present.start().min(end));
        if end >= windows.written_back + PIECE {
            let end = end - end % MAP_BYTES as u64;
            write_back(&self.inner.file, windows.written_back, end - windows.written_back);
            windows.written_back = end;
        }
    }

    /// Without a window and none under way, so that the file can be cut.
    fn close_windows(&self, windows: &mut Windows) {
        windows.present = None;
        windows.next.drain(..).for_each(|next| next.cancel());
    }

    fn ends_early(&self, offset: u64) -> Error {
        let reason = format!("the file ends at {} bytes", self.len.load(Ordering::Acquire));
        let source = io::Error::new(io::ErrorKind::UnexpectedEof, reason);
        Error::io("read", format!("{} at {offset}", self.inner.name), &source)
    }
}

/// Bytes that are free where the file lies; none in memory, which is taken as soon as it is reserved.
fn space_to_reserve(file: &std::fs::File) -> u64 {
    rustix::fs::fstatfs(file).map_or(0, |system| match system.f_type as u64 {
        TMPFS => 0,
        _ => system.f_bavail.saturating_mul(system.f_bsize as u64),
    })
}

impl File for AppendFile {
    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        // What is ready behind the end is not there.
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.len.load(Ordering::Acquire)) {
            return Err(self.ends_early(offset));
        }
        self.inner.read_at(offset, buf, purpose)
    }

    fn write_at(&self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        let mut windows = self.windows.lock();
        if windows.present.is_none() {
            self.take_ready(&mut windows, offset);
        }
        let is_stored = windows.present.as_ref().is_some_and(|window| window.store(offset, bytes));
        let end = offset + bytes.len() as u64;
        if !is_stored {
            windows.next.iter().for_each(|next| next.claim(end));
            self.inner.write_at(offset, bytes, purpose)?;
        }
        let before = self.len.fetch_max(end, Ordering::AcqRel);
        if end > before {
            windows.appends += 1;
            if end > SMALL {
                self.take_ready(&mut windows, end);
                self.keep_ahead(&mut windows, end);
                self.keep_writing_back(&mut windows, end);
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
        windows.has_more = false;
        windows.written_back = windows.written_back.min(len - len % MAP_BYTES as u64);
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn preallocate(&self, bytes: u64, now: u64) {
        let mut windows = self.windows.lock();
        let is_new = self.len.load(Ordering::Acquire) == 0 && windows.next.is_empty();
        if !is_new || bytes <= SMALL || windows.is_over {
            return;
        }
        windows.expected = bytes;
        if now == 0 {
            self.reserve_expected(bytes + BEYOND);
            self.ask_for(&mut windows, 0);
            return;
        }
        windows.has_more = true;
        let now = now.min(bytes).min(MOST_EXPECTED).next_multiple_of(MAP_BYTES as u64);
        match Window::make(&self.inner.file, now, windows.folios) {
            Ok(window) => windows.present = window,
            // As where one comes too late: writing will tell.
            Err(_) => windows.is_over = true,
        }
    }

    fn trim_preallocation(&self) -> Result<()> {
        let mut windows = self.windows.lock();
        windows.is_over = true;
        self.give_back_space(&mut windows)
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
        // Zeros behind the end do no harm; they only take space.
        let _ = self.trim_preallocation();
    }
}

#[cfg(test)]
mod tests;
