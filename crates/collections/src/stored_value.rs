//! What is stored at a user's key: a plain value, or the metadata of a collection.

use siltstone_engine::Entry;

use crate::metadata::{Kind, Metadata};

/// The value that is stored at a user's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredValue {
    /// A plain value, or encoded metadata; and when the key expires. The row of a hash may expire
    /// earlier ([`Metadata::row_expiry`]).
    pub entry: Entry,
    /// The metadata, if it is a collection.
    pub metadata: Option<Metadata>,
}

impl StoredValue {
    /// Interprets a row.
    pub fn new(mut entry: Entry) -> Self {
        let metadata = Metadata::decode(&entry.value);
        if let Some(expiry) = metadata.and_then(|metadata| metadata.field_expiry) {
            entry.expires_at = expiry.key_expires_at;
        }
        StoredValue { entry, metadata }
    }

    /// The type, if it is a collection.
    pub fn kind(&self) -> Option<Kind> {
        self.metadata.map(|metadata| metadata.kind)
    }
}
