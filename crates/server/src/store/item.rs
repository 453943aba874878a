//! A memcached item: a value with flags and cas, over any engine.
//!
//! | | `mica` | every other engine |
//! | --- | --- | --- |
//! | flags and state bits | in the item | in a trailer, if non-zero ([`flags_trailer`]) |
//! | cas | the item's CAS version and partition number, with `cas=on`; else as the others | a counter ([`versions`](super::versions)) |
//!
//! Invariant: the caller of a write holds the key's lock, so what it has read is still current.

use siltstone_collections::Metadata;
use std::borrow::Cow;

use siltstone_engine::{Result, Timestamp, WriteBatch};
use siltstone_mica::{Action, Outcome, Request, Store, Value};

use super::Database;
use super::expiries::NextExpiry;
use super::flags_trailer::{self, ItemMeta};

/// The value is stale: a reader is asked to refresh it.
pub(crate) const STALE: u8 = 1;
/// A reader has won the right to refresh the value.
pub(crate) const WON: u8 = 2;

/// A value and its metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) value: Vec<u8>,
    pub(crate) flags: u32,
    /// [`STALE`] and [`WON`]. Writes over other protocols clear them.
    pub(crate) marks: u8,
    pub(crate) expires_at: Option<Timestamp>,
    /// Value that `cas` compares; changes with each write.
    pub(crate) cas: u64,
}

/// Combines the CAS version of an item with its partition, since each partition has its own
/// counter.
fn cas_of(store: &Store, request: &Request<'_>, version: u64) -> u64 {
    let partitions = store.partitions() as u64;
    version.wrapping_mul(partitions) + store.partition_of(request.hash) as u64
}

impl Database {
    /// Whether flags are stored in a trailer of the value.
    #[inline]
    pub(crate) fn has_flags_trailers(&self) -> bool {
        self.mica.is_none()
    }

    /// Returns the item of a key.
    pub(crate) fn item(&self, key: &[u8]) -> Result<Option<Item>> {
        // Read before the value: a concurrent write makes it too old, never too new.
        let version = self.versions.as_ref().map_or(0, |versions| versions.of(key));
        let Some(store) = &self.mica else {
            let Some(mut entry) = self.get(key)? else { return Ok(None) };
            // memcached clients do not see collections, and may overwrite them.
            if self.keyspace.is_some() && Metadata::decode(&entry.value).is_some() {
                return Ok(None);
            }
            let ItemMeta { flags, marks } = flags_trailer::strip(&mut entry.value);
            let (value, expires_at) = (entry.value, entry.expires_at);
            return Ok(Some(Item { value, flags, marks, expires_at, cas: version }));
        };
        let mut value = Vec::new();
        let request = Request { hash: store.hash(key), key, action: Action::Get };
        let answer = store.one(&request, &mut value);
        let meta = answer.meta;
        let cas = if store.has_cas() { cas_of(store, &request, meta.cas) } else { version };
        let siltstone_mica::Meta { flags, marks, expires_at, .. } = meta;
        let item = Item { value, flags, marks, expires_at, cas };
        Ok((answer.outcome == Outcome::Found).then_some(item))
    }

    /// Stores an item, and returns its new cas.
    pub(crate) fn put_item(&self, key: &[u8], item: &Item) -> Result<u64> {
        let Item { ref value, flags, marks, expires_at, .. } = *item;
        let Some(store) = &self.mica else {
            let stored = flags_trailer::append(value, ItemMeta { flags, marks });
            let value = stored.as_deref().unwrap_or(value);
            let mut batch = WriteBatch::new();
            match expires_at {
                None => batch.put(key, value),
                Some(at) => batch.put_until(key, value, at),
            };
            self.store_keys(&mut batch);
            self.write(&batch)?;
            return Ok(self.versions.as_ref().map_or(0, |versions| versions.of(key)));
        };
        self.watches.touch([key].into_iter());
        let action = Action::Put(Value { bytes: value, expires_at, flags, marks });
        let request = Request { hash: store.hash(key), key, action };
        let answer = store.one(&request, &mut ());
        let version = self.versions.as_ref().map_or(0, |versions| versions.record_write(key));
        let next = expires_at.map(NextExpiry::of_key);
        self.record_change([(Cow::Borrowed(key), next)].into_iter());
        let size = (key.len() + value.len()) as u64;
        match answer.outcome.failure("value", size, self.max_value_bytes as u64) {
            Some(error) => Err(error),
            None if store.has_cas() => Ok(cas_of(store, &request, answer.meta.cas)),
            None => Ok(version),
        }
    }

    /// Removes a key.
    pub(crate) fn remove_item(&self, key: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete(key);
        self.store_keys(&mut batch);
        self.write(&batch)
    }
}
