//! The metadata of the collection at a key, decoded and perhaps not written yet.
//!
//! Operations that follow each other in one batch often use one collection. The metadata pass from
//! one [`WriteSet`](crate::WriteSet) to the next in this form, so that each of them neither reads
//! nor decodes a row, and the row is encoded and written once.

use std::sync::Arc;

use siltstone_engine::{Entry, Timestamp, WriteBatch};

use crate::layout::stored_key;
use crate::metadata::Metadata;
use crate::stored_value::StoredValue;

/// Metadata of the collection at a key.
#[derive(Debug, Clone)]
pub struct KeyMetadata {
    /// The user's key.
    pub(crate) key: Arc<[u8]>,
    pub(crate) metadata: Metadata,
    /// When the key expires.
    pub(crate) expires_at: Option<Timestamp>,
    /// The row does not have them yet.
    pub(crate) is_unsaved: bool,
}

/// The metadata that a write set leaves to the next one of its group.
#[derive(Debug)]
pub enum NextMetadata {
    /// Those that it was given.
    Same,
    /// Others, or none.
    Other(Option<KeyMetadata>),
}

impl KeyMetadata {
    /// The user's key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether the row at the key does not have them yet.
    pub fn is_unsaved(&self) -> bool {
        self.is_unsaved
    }

    /// Whether the row at the key is visible.
    fn is_visible(&self, now: Timestamp) -> bool {
        self.metadata.row_expiry(self.expires_at).is_none_or(|at| at > now)
    }

    /// The metadata and the expiry of the key, unless the row has expired.
    pub(crate) fn visible(&self, now: Timestamp) -> Option<(Metadata, Option<Timestamp>)> {
        self.is_visible(now).then_some((self.metadata, self.expires_at))
    }

    /// The value at the key, unless the row has expired.
    pub fn stored(&self, now: Timestamp) -> Option<StoredValue> {
        let stored = || {
            let entry = Entry { value: self.row().0, expires_at: self.expires_at };
            StoredValue { entry, metadata: Some(self.metadata) }
        };
        self.is_visible(now).then(stored)
    }

    /// The value of the row, and its expiry.
    pub(crate) fn row(&self) -> (Vec<u8>, Option<Timestamp>) {
        let mut metadata = self.metadata;
        if let Some(expiry) = &mut metadata.field_expiry {
            expiry.key_expires_at = self.expires_at;
        }
        (metadata.encode(), metadata.row_expiry(self.expires_at))
    }

    /// Adds the row to a batch of stored keys.
    pub fn write_to(&self, batch: &mut WriteBatch) {
        let ((value, expires_at), key) = (self.row(), stored_key(&self.key));
        match expires_at {
            None => batch.put(&key, &value),
            Some(at) => batch.put_until(&key, &value, at),
        };
    }
}
