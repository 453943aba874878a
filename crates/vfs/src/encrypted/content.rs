//! The content of an encrypted file: its key, its end, and appends.
//!
//! ```text
//!   created here    the end is known; appends and truncations to the beginning of an append
//!   opened          the end is that of the last authentic frame; read, synced, never appended to
//! ```
//!
//! The header is written with the first frames, so an empty file has no bytes. A power cut before
//! the first sync may leave neither; then nothing of the file was durable.
//!
//! Invariant: `End::position` is where the last frame ends, and bytes before it never change.

use std::io::ErrorKind;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use siltstone_engine::{Error, Purpose, Result};

use super::frame::{BLOCK_BYTES, FrameCipher, MAX_CONTENT};
use super::header::{self, FileKey, HEADER_BYTES, Header, SLOT_OFFSETS};
use super::key::{KeyId, KeyProvider, random};
use super::recover::{EMPTY, End, Extents, find_end};
use crate::File;

/// A gap before an append is filled with zeros; a larger one is refused.
const MAX_GAP_BYTES: u64 = 64 << 20;

/// The key of a file and its cipher.
pub(super) struct Key {
    pub(super) cipher: FrameCipher,
    file_key: FileKey,
    pub(super) master: KeyId,
}

/// An encrypted file, shared by its handles.
pub(super) struct Content {
    pub(super) inner: Arc<dyn File>,
    /// For messages.
    pub(super) name: String,
    /// `Err`: why the header is invalid.
    pub(super) key: Result<Key, &'static str>,
    pub(super) end: RwLock<End>,
    /// Of a file that was created here.
    writer: Option<Mutex<Writer>>,
    /// The offset of the first frame of each block; of a file that grows by small appends.
    pub(super) starts: Option<RwLock<Vec<u64>>>,
    /// The length of an opened file at which `end` was determined.
    measured_at: Mutex<Option<u64>>,
    /// The authentic frames of a damaged file, and the end for which they were determined.
    pub(super) extents: Mutex<Option<(End, Arc<Extents>)>>,
}

struct Writer {
    /// Written with the first frames.
    header: Vec<u8>,
    is_header_written: bool,
    generation: u64,
    buffer: Vec<u8>,
}

impl Content {
    /// A file that was just created, and is empty.
    pub(super) fn created(
        inner: Arc<dyn File>,
        name: String,
        identity: &str,
        keys: &dyn KeyProvider,
        is_append: bool,
    ) -> Result<Self> {
        let (file_key, master) = (random()?, keys.current());
        let header = header::page(&header::encode_slot(&master, &file_key, identity)?);
        let writer = Writer { header, is_header_written: false, generation: 0, buffer: Vec::new() };
        let cipher = FrameCipher::new(&file_key);
        Ok(Content {
            inner,
            name,
            key: Ok(Key { cipher, file_key, master: master.id() }),
            end: RwLock::new(EMPTY),
            writer: Some(Mutex::new(writer)),
            starts: is_append.then(RwLock::default),
            measured_at: Mutex::new(None),
            extents: Mutex::new(None),
        })
    }

    /// An existing file.
    ///
    /// # Errors
    /// `Refused` if its key is not known or its format is newer; I/O errors.
    pub(super) fn opened(
        inner: Arc<dyn File>,
        name: String,
        path: &str,
        identity: &str,
        keys: &dyn KeyProvider,
    ) -> Result<Self> {
        let mut page = vec![0; inner.len()?.min(HEADER_BYTES) as usize];
        inner.read_at(0, &mut page, Purpose::Recovery)?;
        let key = match header::decode(&page, identity, path, keys)? {
            Header::Valid(file_key, master) => {
                Ok(Key { cipher: FrameCipher::new(&file_key), file_key, master })
            }
            Header::Invalid(reason) => Err(reason),
        };
        Ok(Content {
            inner,
            name,
            key,
            end: RwLock::new(EMPTY),
            writer: None,
            starts: None,
            measured_at: Mutex::new(None),
            extents: Mutex::new(None),
        })
    }

    /// Where the authentic content ends.
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn end(&self) -> Result<End> {
        let Ok(key) = &self.key else { return Ok(EMPTY) };
        if self.writer.is_none() {
            let len = self.inner.len()?;
            let mut measured_at = self.measured_at.lock();
            if *measured_at != Some(len) {
                *self.end.write() = find_end(self.inner.as_ref(), &key.cipher)?;
                *measured_at = Some(len);
            }
        }
        Ok(*self.end.read())
    }

    /// The length of the decrypted file. Bytes behind the last authentic frame, such as a torn
    /// append, count one to one.
    pub(super) fn len(&self) -> Result<u64> {
        if self.writer.is_some() {
            return Ok(self.end.read().offset);
        }
        let end = self.end()?;
        let len = self.inner.len()?;
        match self.key {
            Ok(_) => Ok(end.offset + len.saturating_sub(end.position)),
            Err(_) => Ok(len),
        }
    }

    fn fault(&self, operation: &'static str, reason: &str) -> Error {
        let source = std::io::Error::new(ErrorKind::Unsupported, reason);
        Error::io(operation, &*self.name, &source)
    }

    fn writer(&self, operation: &'static str) -> Result<parking_lot::MutexGuard<'_, Writer>> {
        let reason = "an encrypted file is only changed by the process that created it";
        self.writer.as_ref().map(Mutex::lock).ok_or_else(|| self.fault(operation, reason))
    }

    /// Appends `bytes` at `offset`.
    pub(super) fn write(&self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        let mut writer = self.writer("write")?;
        let end = *self.end.read();
        if offset < end.offset {
            return Err(self.fault("write", "an encrypted file cannot be overwritten in place"));
        }
        let gap = offset - end.offset;
        if gap > MAX_GAP_BYTES {
            return Err(self.fault("write", "an encrypted file has no holes"));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let zeros = vec![0; gap as usize];
        self.append(&mut writer, [&zeros, bytes], purpose)
    }

    fn append(&self, writer: &mut Writer, pieces: [&[u8]; 2], purpose: Purpose) -> Result<()> {
        let key = self.key.as_ref().map_err(|reason| self.fault("write", reason))?;
        let end = *self.end.read();
        let mut starts = Vec::new();
        let Writer { header, is_header_written, generation, buffer } = writer;
        buffer.clear();
        let from = if *is_header_written { end.position } else { 0 };
        if !*is_header_written {
            buffer.extend_from_slice(header);
        }
        let mut offset = end.offset;
        for piece in pieces {
            let at = from + buffer.len() as u64;
            key.cipher.seal(piece, offset, *generation, at, buffer, |start| starts.push(start))?;
            offset += piece.len() as u64;
        }
        let written = self.inner.write_at(from, buffer, purpose);
        if written.is_err() {
            // Parts of these frames may be in the file: their nonces are used.
            *generation += 1;
            return written;
        }
        *is_header_written = true;
        if let Some(known) = &self.starts {
            known.write().append(&mut starts);
        }
        *self.end.write() = End { offset, position: from + buffer.len() as u64 };
        // A large append must not keep its memory.
        if buffer.capacity() > 1 << 20 {
            *buffer = Vec::new();
        }
        Ok(())
    }

    /// Truncates to the end of an earlier write, or extends with zeros.
    pub(super) fn set_len(&self, len: u64) -> Result<()> {
        let Some(writer) = &self.writer else {
            let reason = "an encrypted file is only changed by the process that created it";
            return if len == self.len()? { Ok(()) } else { Err(self.fault("set length", reason)) };
        };
        let mut writer = writer.lock();
        let end = *self.end.read();
        if len > end.offset {
            if len - end.offset > MAX_GAP_BYTES {
                return Err(self.fault("set length", "an encrypted file has no holes"));
            }
            let zeros = vec![0; (len - end.offset) as usize];
            return self.append(&mut writer, [&zeros, &[]], Purpose::Maintenance);
        }
        let cut = match len {
            0 => EMPTY,
            _ if len == end.offset => end,
            _ => self.frame_boundary(len)?.ok_or_else(|| {
                self.fault("set length", "an encrypted file is only cut where a write ended")
            })?,
        };
        writer.generation += 1;
        if let Some(starts) = &self.starts {
            let blocks = (cut.position - HEADER_BYTES).div_ceil(BLOCK_BYTES);
            starts.write().truncate(blocks as usize);
        }
        *self.end.write() = cut;
        *self.extents.lock() = None;
        self.inner.set_len(if writer.is_header_written { cut.position } else { 0 })
    }

    /// Begins to change the identity `before` or the master key: writes one slot durably, and keeps
    /// one that is valid for `before`. Returns what that one is to become; `None` if there is none.
    pub(super) fn begin_rebind(
        &self,
        file: &dyn File,
        before: &str,
        identity: &str,
        keys: &dyn KeyProvider,
    ) -> Result<Option<SlotChange>> {
        let Ok(key) = &self.key else { return Ok(None) };
        let slot = header::encode_slot(&keys.current(), &key.file_key, identity)?;
        if let Some(writer) = &self.writer {
            let mut writer = writer.lock();
            writer.header = header::page(&slot);
            if !writer.is_header_written {
                return Ok(None);
            }
        }
        let mut page = vec![0; file.len()?.min(HEADER_BYTES) as usize];
        file.read_at(0, &mut page, Purpose::Maintenance)?;
        let kept = header::valid_slot(&page, before, keys).unwrap_or(0);
        SlotChange { number: 1 - kept, slot }.write(file)?;
        Ok(Some(SlotChange { number: kept, slot }))
    }

    /// Preallocates for about `bytes` of content.
    pub(super) fn preallocate(&self, bytes: u64, now: u64) {
        // Small appends have more overhead than full blocks; the file may grow beyond.
        let sealed = |bytes: u64| {
            HEADER_BYTES + bytes.div_ceil(MAX_CONTENT as u64).saturating_mul(BLOCK_BYTES)
        };
        self.inner.preallocate(sealed(bytes), if now == 0 { 0 } else { sealed(now) });
    }
}

/// The next content of a slot.
pub(super) struct SlotChange {
    number: usize,
    slot: [u8; header::SLOT_BYTES],
}

impl SlotChange {
    /// Writes the slot durably.
    pub(super) fn write(&self, file: &dyn File) -> Result<()> {
        file.write_at(SLOT_OFFSETS[self.number], &self.slot, Purpose::Maintenance)?;
        file.sync(Purpose::Maintenance)
    }
}
