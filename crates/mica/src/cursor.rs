//! Cursor over a copy of the table.
//!
//! The engine keeps no versions, so a cursor copies all keys and values under an exclusive lock.
//! The copy is outside the `memory` option and lives until the cursor is dropped. The statistic
//! `cursors` reports the memory of all copies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_engine::{ForwardCursor, Result, Timestamp};

use crate::NAME;
use crate::store::Store;

/// An item in the copy.
struct Span {
    start: usize,
    key_len: usize,
    value_len: usize,
    expires_at: Option<Timestamp>,
}

/// A cursor over the copy.
pub(crate) struct CopyCursor {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    at: Option<usize>,
    total_bytes: Arc<AtomicU64>,
    own_bytes: u64,
}

impl CopyCursor {
    /// Copies the table; adds the copy's size to `total_bytes`.
    pub(crate) fn of(store: &Store, total_bytes: &Arc<AtomicU64>) -> Self {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        store.for_each_item(|item| {
            let start = bytes.len();
            bytes.extend_from_slice(&item.key());
            let (key_len, value_len) = (bytes.len() - start, item.value_len());
            bytes.resize(start + key_len + value_len, 0);
            item.copy_value(&mut bytes[start + key_len..]);
            spans.push(Span { start, key_len, value_len, expires_at: item.meta().expires_at });
        });
        let own_bytes = (bytes.capacity() + spans.capacity() * size_of::<Span>()) as u64;
        total_bytes.fetch_add(own_bytes, Relaxed);
        CopyCursor { bytes, spans, at: None, total_bytes: total_bytes.clone(), own_bytes }
    }

    fn span(&self) -> &Span {
        let at = self.at.expect("the cursor is valid");
        &self.spans[at]
    }

    fn move_to(&mut self, at: usize) -> bool {
        self.at = Some(at).filter(|&at| at < self.spans.len());
        self.valid()
    }
}

impl Drop for CopyCursor {
    fn drop(&mut self) {
        self.total_bytes.fetch_sub(self.own_bytes, Relaxed);
    }
}

impl ForwardCursor for CopyCursor {
    fn engine(&self) -> &'static str {
        NAME
    }

    fn first(&mut self) -> Result<bool> {
        Ok(self.move_to(0))
    }

    fn advance(&mut self) -> Result<bool> {
        Ok(self.move_to(self.at.map_or(0, |at| at + 1)))
    }

    fn valid(&self) -> bool {
        self.at.is_some()
    }

    fn key(&self) -> &[u8] {
        let span = self.span();
        &self.bytes[span.start..span.start + span.key_len]
    }

    fn value(&self) -> &[u8] {
        let span = self.span();
        let start = span.start + span.key_len;
        &self.bytes[start..start + span.value_len]
    }

    fn expires_at(&self) -> Option<Timestamp> {
        self.span().expires_at
    }
}
