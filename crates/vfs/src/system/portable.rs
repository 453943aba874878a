//! The portable form: what the standard library has on every system.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
#[cfg(all(feature = "encryption", not(unix)))]
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;

use super::shared::has_no_holes;

/// The alignment of [`Pages`]: that of words. For a larger one, allocators write the zeros
/// themselves, and touch all pages.
const ALIGN: usize = align_of::<u64>();

#[cfg(all(feature = "encryption", unix))]
pub(crate) use super::unix::foreign_access;
#[cfg(unix)]
pub(crate) use super::unix::{FileId, file_id, read_at, read_exact_at, sync_data, write_all_at};
#[cfg(unix)]
pub(crate) use unix::{Directory, IO_ERROR_CODE, links};
#[cfg(windows)]
pub(crate) use windows::{
    Directory, FileId, IO_ERROR_CODE, file_id, links, read_at, read_exact_at, sync_data,
    write_all_at,
};

#[cfg(unix)]
mod unix {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    /// The error code of a failing device: EIO.
    pub(crate) const IO_ERROR_CODE: i32 = 5;

    /// The number of names of a file.
    pub(crate) fn links(file: &File) -> io::Result<Option<u64>> {
        Ok(Some(file.metadata()?.nlink()))
    }

    /// An open directory.
    pub(crate) struct Directory(File);

    impl Directory {
        /// Opens an existing directory.
        pub(crate) fn open(path: &Path) -> io::Result<Self> {
            let file = File::open(path)?;
            match file.metadata()?.is_dir() {
                true => Ok(Directory(file)),
                false => Err(io::ErrorKind::NotADirectory.into()),
            }
        }

        /// Makes the names in it durable.
        pub(crate) fn sync(&self) -> io::Result<()> {
            self.0.sync_all()
        }
    }
}

#[cfg(windows)]
mod windows {
    use std::fs::{File, Metadata, OpenOptions};
    use std::io::{self, ErrorKind};
    use std::os::windows::fs::{FileExt, OpenOptionsExt};
    use std::path::Path;

    /// The error code of a failing device: ERROR_IO_DEVICE.
    pub(crate) const IO_ERROR_CODE: i32 = 1117;

    /// Without it a directory cannot be opened.
    const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;

    /// Reads some bytes at an offset. Moves the file's own position, which nobody uses.
    pub(crate) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        file.seek_read(buf, offset)
    }

    /// Fills `buf` from an offset.
    pub(crate) fn read_exact_at(file: &File, mut buf: &mut [u8], mut at: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match file.seek_read(buf, at) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    buf = &mut buf[read..];
                    at += read as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all bytes at an offset.
    pub(crate) fn write_all_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match file.seek_write(bytes, at) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    at += written as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes the bytes and the length durable. A handle that cannot write cannot sync, so the file
    /// is opened for that.
    pub(crate) fn sync_data(file: &File, path: &Path, is_writable: bool) -> io::Result<()> {
        match is_writable {
            true => file.sync_data(),
            false => OpenOptions::new().write(true).open(path)?.sync_data(),
        }
    }

    /// Identifies a file. There is none in the standard library.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum FileId {}

    /// Unknown.
    pub(crate) fn file_id(_metadata: &Metadata) -> Option<FileId> {
        None
    }

    /// Unknown.
    pub(crate) fn links(_file: &File) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// An open directory.
    pub(crate) struct Directory(File);

    impl Directory {
        /// Opens an existing directory.
        pub(crate) fn open(path: &Path) -> io::Result<Self> {
            let mut options = OpenOptions::new();
            options.custom_flags(FILE_FLAG_BACKUP_SEMANTICS);
            // Syncing needs the right to write.
            let file = options.read(true).write(true).open(path);
            let file = file.or_else(|_| options.read(true).write(false).open(path))?;
            match file.metadata()?.is_dir() {
                true => Ok(Directory(file)),
                false => Err(ErrorKind::NotADirectory.into()),
            }
        }

        /// Makes the names in it durable, where the file system does that for a directory. NTFS
        /// writes its journal with it; other file systems refuse, and have no other way.
        pub(crate) fn sync(&self) -> io::Result<()> {
            match self.0.sync_all() {
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::PermissionDenied
                            | ErrorKind::Unsupported
                            | ErrorKind::InvalidInput
                    ) =>
                {
                    Ok(())
                }
                synced => synced,
            }
        }
    }
}

/// Unsupported.
pub(crate) fn open_direct(_path: &Path) -> io::Result<File> {
    let reason = "reads that bypass the page cache are for Linux only";
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}

/// Does nothing.
pub(crate) fn reserve(_file: &File, _len: u64) -> io::Result<()> {
    Ok(())
}

/// Unsupported: a write past the end extends the file.
pub(crate) fn allocate(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Unsupported, without effect.
pub(crate) fn punch_hole(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(has_no_holes())
}

/// Holes are unknown: any byte may be data.
pub(crate) fn next_data(_file: &File, offset: u64) -> Option<u64> {
    Some(offset)
}

/// Does nothing.
pub(crate) fn start_write_back(_file: &File, _start: u64, _bytes: u64) {}

/// Does nothing.
pub(crate) fn start_read(_file: &File, _start: u64, _bytes: u64) {}

/// Unknown.
pub(crate) fn open_file_limit() -> Option<u64> {
    None
}

/// Whether a file can only be copied: another device, no support for links, or too many links.
pub(crate) fn cannot_link(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(error.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported)
}

/// Whether [`lock_holder`] may know the holder.
#[cfg(test)]
pub(crate) const HAS_LOCK_HOLDERS: bool = false;

/// Unknown.
pub(crate) fn lock_holder(_file: &File) -> Option<u32> {
    None
}

/// Unknown.
#[cfg(all(feature = "encryption", not(unix)))]
pub(crate) fn foreign_access(_metadata: &Metadata) -> Option<u32> {
    None
}

/// Pages of memory from the allocator, freed on drop.
///
/// Invariant: `base` was allocated with `layout`, whose size is not 0.
pub(crate) struct Pages {
    base: NonNull<u8>,
    layout: Layout,
}

impl Pages {
    /// Whether pages of a file are the file's, and not a copy.
    pub(crate) const ARE_OF_FILE: bool = false;

    /// Zeros. `bytes` is a multiple of a page, and not 0.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(bytes, ALIGN);
        let layout = layout.map_err(|_| io::ErrorKind::InvalidInput)?;
        if layout.size() == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the size is not 0.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) });
        Ok(Pages { base: base.ok_or(io::ErrorKind::OutOfMemory)?, layout })
    }

    /// Unsupported.
    pub(crate) fn persistent(_file: &File, _len: usize, _bytes: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A copy of the first `len` bytes of a file that is not shorter. `bytes` is `len` rounded up
    /// to a page.
    pub(crate) fn of_file(file: &File, len: usize, bytes: usize) -> io::Result<Self> {
        let pages = Self::anonymous(bytes)?;
        // SAFETY: the allocation has `bytes` bytes, which is not less than `len`, and nobody else
        // has it yet.
        let copy = unsafe { std::slice::from_raw_parts_mut(pages.base.as_ptr(), len) };
        read_exact_at(file, copy, 0)?;
        Ok(pages)
    }

    /// None.
    pub(crate) fn private(_file: &File, _bytes: usize) -> io::Result<Option<Self>> {
        Ok(None)
    }

    /// The first byte, aligned to words. It and the others live as long as the pages.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Does nothing: the file is written and synced by the user of the copy.
    pub(crate) fn sync(&self, _range: Range<usize>) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated in `anonymous` with this layout, and nobody uses it any more.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}
