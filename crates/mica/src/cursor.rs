//! A walk over everything, as of one moment: a copy.
//!
//! There are no versions to walk by, so a cursor copies the table while it stands still, and costs
//! as much memory as there are keys and values, outside of the table's budget, until it is dropped.
//! How much all cursors hold is among the table's figures (`cursors`).
//!
//! Source: ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_engine::{ForwardCursor, Result, Timestamp};

use crate::engine::NAME;
use crate::store::Store;

/// An item in the copy.
struct Span {
    start: usize,
    key_len: usize,
    value_len: usize,
    expires_at: Option<Timestamp>,
}

/// A cursor over a copy.
pub(crate) struct CopyCursor {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    at: Option<usize>,
    held: Arc<AtomicU64>,
    holds: u64,
}

impl CopyCursor {
    /// Copies the table; adds to `held` what the copy takes.
    pub(crate) fn of(store: &Store, held: &Arc<AtomicU64>) -> Self {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        store.see_all(|item| {
            let start = bytes.len();
            bytes.extend_from_slice(&item.key());
            let (key_len, value_len) = (bytes.len() - start, item.value_len());
            bytes.resize(start + key_len + value_len, 0);
            item.copy_value(&mut bytes[start + key_len..]);
            spans.push(Span { start, key_len, value_len, expires_at: item.meta().expires_at });
        });
        let holds = (bytes.capacity() + spans.capacity() * size_of::<Span>()) as u64;
        held.fetch_add(holds, Relaxed);
        CopyCursor { bytes, spans, at: None, held: held.clone(), holds }
    }

    fn span(&self) -> &Span {
        let at = self.at.expect("the cursor stands on an entry");
        &self.spans[at]
    }

    fn place(&mut self, at: usize) -> bool {
        self.at = Some(at).filter(|&at| at < self.spans.len());
        self.valid()
    }
}

impl Drop for CopyCursor {
    fn drop(&mut self) {
        self.held.fetch_sub(self.holds, Relaxed);
    }
}

impl ForwardCursor for CopyCursor {
    fn engine(&self) -> &'static str {
        NAME
    }

    fn first(&mut self) -> Result<bool> {
        Ok(self.place(0))
    }

    fn advance(&mut self) -> Result<bool> {
        Ok(self.place(self.at.map_or(0, |at| at + 1)))
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
