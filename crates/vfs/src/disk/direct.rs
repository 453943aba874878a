//! Reads that bypass the page cache.
//!
//! A direct read needs its offset, length and memory aligned to the device's blocks. The range is
//! widened to 4 KiB boundaries, read into an aligned thread-local buffer in pieces of up to
//! [`WINDOW_BYTES`], and copied out.
//!
//! Invariant: `Ok` means that all of `buf` came from the file; an earlier end of the file is
//! `UnexpectedEof`.
//!
//! Source: open(2), "O_DIRECT".

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind};

use crate::system;

/// An alignment that suffices for all common devices.
const BLOCK_BYTES: u64 = 4096;

/// The maximum size of one read and of a thread's buffer. A device serves requests in order, so a
/// point read waits for one such piece of a concurrent scan.
const WINDOW_BYTES: usize = 64 * 1024;

thread_local! {
    // One block more than the window, so that it can be aligned for any address of the allocation.
    static SPACE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Fills `buf` from `offset` of a file opened with `O_DIRECT`.
pub(super) fn read_exact_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    SPACE.with_borrow_mut(|space| {
        space.resize(WINDOW_BYTES + BLOCK_BYTES as usize, 0);
        let start = space.as_ptr().align_offset(BLOCK_BYTES as usize);
        let window = &mut space[start..start + WINDOW_BYTES];
        let mut filled = 0;
        while filled < buf.len() {
            filled += read_some(file, offset + filled as u64, &mut buf[filled..], window)?;
        }
        Ok(())
    })
}

/// Reads at least one byte through the window.
fn read_some(file: &File, offset: u64, buf: &mut [u8], window: &mut [u8]) -> io::Result<usize> {
    let base = offset - offset % BLOCK_BYTES;
    let skip = (offset - base) as usize;
    let span = (skip + buf.len()).next_multiple_of(BLOCK_BYTES as usize).min(window.len());
    let got = loop {
        match system::read_at(file, &mut window[..span], base) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => break done?,
        }
    };
    // A short read ends at the end of the file, or earlier; then the next call continues from the
    // block it ended in.
    if got <= skip {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let taken = (got - skip).min(buf.len());
    buf[..taken].copy_from_slice(&window[skip..skip + taken]);
    Ok(taken)
}
