//! The content of a file in memory: sparse bytes or, after it was mapped, flat memory.
//!
//! ```text
//!   Sparse ──map──▶ Flat, mapped ──drop of the mapping──▶ Flat ──map──▶ …
//!      ▲                                                   │
//!      └──────────────── any other change ─────────────────┘
//! ```
//!
//! Flat memory is allocated when it is touched, so an empty pool of gigabytes costs nothing. The
//! conversion back is a copy, needed only by tests and tools.
//!
//! Invariant: mapped memory is changed only through its mapping.

use std::io;
use std::sync::{Arc, Weak};

use crate::bytes::SparseBytes;
use crate::pmem::Memory;
use crate::zeros::is_zero;

/// Flat memory is copied in pieces of this size; pieces of zeros are skipped.
const PIECE_BYTES: usize = 4096;

pub(super) enum Content {
    Sparse(SparseBytes),
    /// The mapping holds the token, if there is one.
    Flat(Arc<Memory>, Weak<()>),
}

impl Default for Content {
    fn default() -> Self {
        Content::Sparse(SparseBytes::default())
    }
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        match self {
            Content::Sparse(bytes) => bytes.len(),
            Content::Flat(memory, _) => memory.len() as u64,
        }
    }

    /// Fills `buf` from `offset`; returns `false` without reading if the range ends past the end.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> bool {
        match self {
            Content::Sparse(bytes) => bytes.read(offset, buf),
            Content::Flat(memory, _) => {
                let end = offset.checked_add(buf.len() as u64);
                let is_there = end.is_some_and(|end| end <= memory.len() as u64);
                if is_there {
                    memory.load(offset as usize, buf);
                }
                is_there
            }
        }
    }

    /// The bytes for a change; `None` while they are mapped.
    pub(super) fn change(&mut self) -> Option<&mut SparseBytes> {
        if self.is_mapped() {
            return None;
        }
        if let Content::Flat(..) = self {
            *self = Content::Sparse(self.copy());
        }
        match self {
            Content::Sparse(bytes) => Some(bytes),
            Content::Flat(..) => None,
        }
    }

    /// A copy of the bytes.
    pub(super) fn copy(&self) -> SparseBytes {
        let memory = match self {
            Content::Sparse(bytes) => return bytes.clone(),
            Content::Flat(memory, _) => memory,
        };
        let mut copy = SparseBytes::default();
        copy.set_len(memory.len() as u64);
        let mut piece = [0; PIECE_BYTES];
        for start in (0..memory.len()).step_by(PIECE_BYTES) {
            let piece = &mut piece[..(memory.len() - start).min(PIECE_BYTES)];
            memory.load(start, piece);
            if !is_zero(piece) {
                copy.write(start as u64, piece);
            }
        }
        copy
    }

    pub(super) fn is_mapped(&self) -> bool {
        matches!(self, Content::Flat(_, token) if token.strong_count() > 0)
    }

    /// Converts the bytes to `len` flat bytes. `len` is not less than the length; they are not
    /// mapped.
    pub(super) fn map(&mut self, len: usize) -> io::Result<(Arc<Memory>, Arc<()>)> {
        let token = Arc::new(());
        if let Content::Flat(memory, holder) = self
            && memory.len() == len
        {
            *holder = Arc::downgrade(&token);
            return Ok((memory.clone(), token));
        }
        let memory = Arc::new(Memory::with_content(&self.copy(), len)?);
        *self = Content::Flat(memory.clone(), Arc::downgrade(&token));
        Ok((memory, token))
    }
}
