//! A value with its flags and its cas, as memcached's clients know it, over any engine.
//!
//! | | `mica` | every other engine |
//! | --- | --- | --- |
//! | flags and marks | in the item | behind the value, if there are any ([`annex`]) |
//! | cas | the item's stamp with its partition's number, in a table with `stamps=on`; else as the others | a counter ([`versions`](super::versions)) |
//!
//! Invariant: the caller of a write holds the key's lock, so what it read before is still so.

use siltstone_engine::{Result, Timestamp, WriteBatch};
use siltstone_mica::{Action, Outcome, Request, Store, Value};

use super::Database;
use super::annex::{self, Beside};

/// The value is to be replaced: who reads it is told so.
pub(crate) const STALE: u8 = 1;
/// A reader was told to replace the value.
pub(crate) const WON: u8 = 2;

/// A value and what goes with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) value: Vec<u8>,
    pub(crate) flags: u32,
    /// [`STALE`] and [`WON`]. A write over another protocol leaves none.
    pub(crate) marks: u8,
    pub(crate) expires_at: Option<Timestamp>,
    /// What `cas` compares: another after each write.
    pub(crate) cas: u64,
}

/// A stamp as a number that no other item has: each partition counts for itself.
fn cas_of(store: &Store, request: &Request<'_>, stamp: u64) -> u64 {
    let partitions = store.partitions() as u64;
    stamp.wrapping_mul(partitions) + store.partition_of(request.hash) as u64
}

impl Database {
    /// Whether flags stand behind values.
    #[inline]
    pub(crate) fn has_annexes(&self) -> bool {
        self.mica.is_none()
    }

    /// The item of a key.
    pub(crate) fn item(&self, key: &[u8]) -> Result<Option<Item>> {
        // Before the value: a write in between makes it too old, not too new.
        let version = self.versions.as_ref().map_or(0, |versions| versions.of(key));
        let Some(store) = &self.mica else {
            let Some(mut entry) = self.engine.get(key)? else { return Ok(None) };
            let Beside { flags, marks } = annex::take(&mut entry.value);
            let (value, expires_at) = (entry.value, entry.expires_at);
            return Ok(Some(Item { value, flags, marks, expires_at, cas: version }));
        };
        let mut value = Vec::new();
        let request = Request { hash: store.hash(key), key, action: Action::Get };
        let answer = store.one(&request, &mut value);
        let meta = answer.meta;
        let cas = if store.keeps_stamps() { cas_of(store, &request, meta.stamp) } else { version };
        let siltstone_mica::Meta { flags, marks, expires_at, .. } = meta;
        let item = Item { value, flags, marks, expires_at, cas };
        Ok((answer.outcome == Outcome::Found).then_some(item))
    }

    /// Stores an item; its cas, from then on.
    pub(crate) fn put_item(&self, key: &[u8], item: &Item) -> Result<u64> {
        let Item { ref value, flags, marks, expires_at, .. } = *item;
        let Some(store) = &self.mica else {
            let stored = annex::put(value, Beside { flags, marks });
            let value = stored.as_deref().unwrap_or(value);
            let mut batch = WriteBatch::new();
            match expires_at {
                None => batch.put(key, value),
                Some(at) => batch.put_until(key, value, at),
            };
            self.write(&batch)?;
            return Ok(self.versions.as_ref().map_or(0, |versions| versions.of(key)));
        };
        self.watches.touch([key].into_iter());
        let action = Action::Put(Value { bytes: value, expires_at, flags, marks });
        let request = Request { hash: store.hash(key), key, action };
        let answer = store.one(&request, &mut ());
        let version = self.versions.as_ref().map_or(0, |versions| versions.count(key));
        let size = (key.len() + value.len()) as u64;
        match answer.outcome.failure("value", size, self.max_value_bytes as u64) {
            Some(error) => Err(error),
            None if store.keeps_stamps() => Ok(cas_of(store, &request, answer.meta.stamp)),
            None => Ok(version),
        }
    }

    /// Removes a key.
    pub(crate) fn remove_item(&self, key: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete(key);
        self.write(&batch)
    }
}
