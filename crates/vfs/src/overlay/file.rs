//! A file of an overlay: a file of the lower (read-only) directory, with changed pages in memory.
//!
//! ```text
//!   0 ──────────────── visible ───────── len
//!   changed pages, over
//!   the lower file     │ zeros
//! ```
//!
//! Invariant: bytes at or past `visible` or `len` in the lower file were truncated or never
//! existed, and read as zeros when the file grows again.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use siltstone_engine::{Error, Purpose, Result};

use crate::bytes::end_of;
use crate::names::fault;
use crate::pmem::{Mapping, Memory, VolatileBacking, too_long};
use crate::system::MAP_BYTES;
use crate::zeros::is_zero;
use crate::{File, Mode, Vfs};

const PAGE_BYTES: u64 = 4096;

/// A request for bytes in memory costs about as much as copying this many bytes.
const SEEK_COST_BYTES: u64 = 512;

/// Files are copied to memory in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

type Page = Box<[u8; PAGE_BYTES as usize]>;

/// The content of a file, independent of its names.
pub(super) struct FileContent {
    /// The lower file, if there is one.
    origin: Option<(Arc<dyn Vfs>, String)>,
    content: RwLock<Option<Content>>,
    /// Set when it was mapped.
    flat: Mutex<Option<MappedContent>>,
}

/// The memory of a mapped file, which replaces the lower file from then on.
struct MappedContent {
    memory: Arc<Memory>,
    /// Upgradable while a mapping of the file exists.
    token: Arc<()>,
    /// The private mapping of the lower file that the memory belongs to.
    _private: Option<Mapping>,
}

/// The source of unchanged bytes.
enum Source {
    File(Arc<dyn File>),
    Memory(Arc<Memory>),
}

#[derive(Default)]
struct Content {
    lower: Option<Source>,
    /// The length of the prefix of the lower file that is visible.
    visible: u64,
    len: u64,
    pages: BTreeMap<u64, Page>,
    is_changed: bool,
}

impl FileContent {
    pub(super) fn empty() -> Self {
        FileContent {
            origin: None,
            content: RwLock::new(Some(Content::default())),
            flat: Mutex::default(),
        }
    }

    /// The file `name` of a lower directory, opened on first use.
    pub(super) fn of(vfs: Arc<dyn Vfs>, name: String) -> Self {
        FileContent {
            origin: Some((vfs, name)),
            content: RwLock::default(),
            flat: Mutex::default(),
        }
    }

    /// Opens the lower file on first use.
    pub(super) fn open(&self) -> Result<()> {
        let mut content = self.content.write();
        if content.is_none()
            && let Some((vfs, name)) = &self.origin
        {
            let lower = vfs.open(name, Mode::Read)?;
            let len = lower.len()?;
            *content = Some(Content {
                lower: Some(Source::File(lower)),
                visible: len,
                len,
                ..Content::default()
            });
        }
        Ok(())
    }

    /// The lower file, if nothing was changed.
    pub(super) fn unchanged(&self) -> Option<(&Arc<dyn Vfs>, &str)> {
        let (vfs, name) = self.origin.as_ref()?;
        let is_changed = self.content.read().as_ref().is_some_and(|content| content.is_changed);
        (!is_changed).then_some((vfs, name))
    }

    fn read<T>(&self, act: impl FnOnce(&Content) -> T) -> T {
        act(self.content.read().as_ref().unwrap_or(&Content::default()))
    }

    fn change<T>(&self, act: impl FnOnce(&mut Content) -> T) -> T {
        let mut content = self.content.write();
        let content = content.get_or_insert_default();
        content.is_changed = true;
        act(content)
    }

    /// Converts the file to memory and maps it.
    pub(super) fn map(&self, name: &str, bytes: u64) -> Result<Mapping> {
        self.open()?;
        let mut flat = self.flat.lock();
        if flat.as_ref().is_some_and(|flat| Arc::strong_count(&flat.token) > 1) {
            return Err(Error::Locked { path: name.to_owned(), holder: Some(std::process::id()) });
        }
        let (len, is_flat) = self.read(|content| (content.len, content.is_flat(bytes)));
        if len > bytes {
            return Err(too_long(name, len, bytes));
        }
        let mapped = match flat.take() {
            Some(mapped) if is_flat => mapped,
            _ => self.flatten(name, bytes)?,
        };
        self.change(|content| {
            let lower = Some(Source::Memory(mapped.memory.clone()));
            *content = Content {
                lower,
                visible: bytes,
                len: bytes,
                is_changed: true,
                ..Content::default()
            };
        });
        let (memory, token) = (mapped.memory.clone(), mapped.token.clone());
        *flat = Some(mapped);
        Ok(Mapping::new(name.to_owned(), memory, Box::new(VolatileBacking(token))))
    }

    /// Memory with the file's bytes: a private mapping of the lower file if possible, else a copy.
    fn flatten(&self, name: &str, bytes: u64) -> Result<MappedContent> {
        let token = Arc::default();
        if let Some((vfs, lower)) = self.unchanged()
            && let Some(private) = vfs.map_private(lower, bytes)?
        {
            return Ok(MappedContent {
                memory: private.memory().clone(),
                token,
                _private: Some(private),
            });
        }
        let len = usize::try_from(bytes);
        let len = len.map_err(|_| fault("map", name, ErrorKind::OutOfMemory))?;
        let memory = Memory::anonymous(len).map_err(|error| Error::io("map", name, &error))?;
        self.read(|content| {
            let mut piece = Vec::new();
            for start in (0..content.len).step_by(PIECE_BYTES as usize) {
                piece.resize(PIECE_BYTES.min(content.len - start) as usize, 0);
                content.read(start, &mut piece, Read::exact(Purpose::Recovery))?;
                // Zeros are there already, and take no memory.
                let pages = piece.chunks(MAP_BYTES).enumerate();
                for (at, page) in pages.filter(|(_, page)| !is_zero(page)) {
                    memory.store(start as usize + at * MAP_BYTES, page);
                }
            }
            Ok::<_, Error>(())
        })?;
        Ok(MappedContent { memory: Arc::new(memory), token, _private: None })
    }
}

/// How bytes are read.
#[derive(Clone, Copy)]
struct Read {
    purpose: Purpose,
    /// See [`File::read_lossy_at`].
    is_lossy: bool,
}

impl Read {
    fn exact(purpose: Purpose) -> Self {
        Read { purpose, is_lossy: false }
    }
}

impl Source {
    fn read_at(&self, offset: u64, buf: &mut [u8], read: Read) -> Result<()> {
        match self {
            Source::File(file) if read.is_lossy => file.read_lossy_at(offset, buf, read.purpose)?,
            Source::File(file) => file.read_at(offset, buf, read.purpose)?,
            Source::Memory(memory) => memory.load(offset as usize, buf),
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<u64> {
        match self {
            Source::File(file) => file.next_data(offset),
            Source::Memory(_) => Ok(offset),
        }
    }

    /// The cost of a read request; in memory a read is a copy.
    fn seek_cost_bytes(&self) -> u64 {
        match self {
            Source::File(file) => file.seek_cost_bytes(),
            Source::Memory(_) => SEEK_COST_BYTES,
        }
    }
}

impl Content {
    /// Whether the content is memory of this length without changed pages.
    fn is_flat(&self, bytes: u64) -> bool {
        let is_memory = matches!(self.lower, Some(Source::Memory(_)));
        is_memory && self.pages.is_empty() && (self.visible, self.len) == (bytes, bytes)
    }

    /// Fills `buf`; the range is within the file.
    fn read(&self, offset: u64, buf: &mut [u8], read: Read) -> Result<()> {
        let end = offset + buf.len() as u64;
        let mut at = offset;
        let part = |buf: &mut [u8], from: u64, to: u64| -> Result<()> {
            self.read_lower(from, &mut buf[(from - offset) as usize..(to - offset) as usize], read)
        };
        for (&number, page) in self.pages.range(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)) {
            let start = (number * PAGE_BYTES).max(offset);
            let stop = ((number + 1) * PAGE_BYTES).min(end);
            part(buf, at, start)?;
            let piece = &page
                [(start - number * PAGE_BYTES) as usize..(stop - number * PAGE_BYTES) as usize];
            buf[(start - offset) as usize..(stop - offset) as usize].copy_from_slice(piece);
            at = stop;
        }
        part(buf, at, end)
    }

    /// Fills `buf` from the lower file, with zeros past its visible part.
    fn read_lower(&self, offset: u64, buf: &mut [u8], read: Read) -> Result<()> {
        let there = self.visible.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (there, behind) = buf.split_at_mut(there);
        behind.fill(0);
        match &self.lower {
            Some(lower) if !there.is_empty() => lower.read_at(offset, there, read),
            _ => Ok(()),
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        let mut rest = bytes;
        let mut at = offset;
        while !rest.is_empty() {
            let number = at / PAGE_BYTES;
            let start = (at % PAGE_BYTES) as usize;
            let (head, tail) = rest.split_at(rest.len().min(PAGE_BYTES as usize - start));
            let page = match self.pages.entry(number) {
                std::collections::btree_map::Entry::Occupied(page) => page.into_mut(),
                std::collections::btree_map::Entry::Vacant(_) => {
                    let page = self.page(number, purpose)?;
                    self.pages.entry(number).or_insert(page)
                }
            };
            page[start..start + head.len()].copy_from_slice(head);
            at += head.len() as u64;
            rest = tail;
        }
        if !bytes.is_empty() {
            self.len = self.len.max(at);
        }
        Ok(())
    }

    /// A page of the lower file.
    fn page(&self, number: u64, purpose: Purpose) -> Result<Page> {
        let mut page = Box::new([0; PAGE_BYTES as usize]);
        self.read_lower(number * PAGE_BYTES, &mut page[..], Read::exact(purpose))?;
        Ok(page)
    }

    fn set_len(&mut self, len: u64) {
        self.visible = self.visible.min(len);
        self.len = len;
        drop(self.pages.split_off(&len.div_ceil(PAGE_BYTES)));
        if let Some(last) = self.pages.get_mut(&(len / PAGE_BYTES)) {
            last[(len % PAGE_BYTES) as usize..].fill(0);
        }
    }

    fn next_data(&self, offset: u64) -> Result<u64> {
        let changed = self.pages.range(offset / PAGE_BYTES..).next();
        let changed = changed.map_or(self.len, |(number, _)| (number * PAGE_BYTES).max(offset));
        let lower = match &self.lower {
            Some(lower) if offset < self.visible => Some(lower.next_data(offset)?),
            _ => None,
        };
        let lower = lower.filter(|&next| next < self.visible).unwrap_or(self.len);
        Ok(changed.min(lower))
    }
}

/// A handle of a file.
pub(super) struct OverlayFile {
    name: String,
    bytes: Arc<FileContent>,
    mode: Mode,
}

impl OverlayFile {
    pub(super) fn new(name: String, bytes: Arc<FileContent>, mode: Mode) -> Self {
        OverlayFile { name, bytes, mode }
    }

    fn fault(&self, operation: &'static str, kind: ErrorKind) -> Error {
        fault(operation, &*self.name, kind)
    }

    fn read(&self, offset: u64, buf: &mut [u8], read: Read) -> Result<()> {
        self.bytes.read(|content| match end_of(offset, buf.len() as u64) {
            Some(end) if end <= content.len => content.read(offset, buf, read),
            _ => Err(self.fault("read", ErrorKind::UnexpectedEof)),
        })
    }

    fn change<T>(
        &self,
        operation: &'static str,
        act: impl FnOnce(&mut Content) -> Result<T>,
    ) -> Result<T> {
        match self.mode {
            Mode::Read => Err(self.fault(operation, ErrorKind::PermissionDenied)),
            Mode::ReadWrite => self.bytes.change(act),
        }
    }
}

impl File for OverlayFile {
    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.read(offset, buf, Read::exact(purpose))
    }

    fn read_lossy_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.read(offset, buf, Read { purpose, is_lossy: true })
    }

    fn write_at(&self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        if end_of(offset, bytes.len() as u64).is_none() {
            return Err(self.fault("write", ErrorKind::FileTooLarge));
        }
        self.change("write", |content| content.write(offset, bytes, purpose))
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    fn seek_cost_bytes(&self) -> u64 {
        self.bytes
            .read(|content| content.lower.as_ref().map_or(SEEK_COST_BYTES, Source::seek_cost_bytes))
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes.read(|content| content.len))
    }

    fn next_data(&self, offset: u64) -> Result<u64> {
        self.bytes.read(|content| content.next_data(offset))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        if end_of(len, 0).is_none() {
            return Err(self.fault("set length of", ErrorKind::FileTooLarge));
        }
        self.change("set length of", |content| {
            content.set_len(len);
            Ok(())
        })
    }

    fn reserve(&self, _len: u64) -> Result<()> {
        Ok(())
    }

    fn punch_hole(&self, _offset: u64, _len: u64) -> Result<()> {
        // Memory of the lower file cannot be deallocated.
        Err(self.fault("punch a hole in", ErrorKind::Unsupported))
    }
}
