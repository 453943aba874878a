//! Hashes: fields with values. Rows lie in the order of the fields' hashes. Fields may expire
//! ([`crate::field_expiry`]).

use siltstone_engine::{Error, Result, Timestamp};

use crate::collection::{Below, Collection, Page, Pair};
use crate::error::Result as OpenResult;
use crate::layout::{ELEMENT_PREFIX_BYTES, HASH_BYTES, Space};
use crate::metadata::{Encoding, Kind, Metadata};
use crate::rows::Order;
use crate::write_set::WriteSet;

/// A hash in a [`WriteSet`].
///
/// Every change also writes the metadata. Errors are those of reads.
#[derive(Debug)]
pub struct Hash<'w, 'r>(pub(crate) Collection<'w, 'r>);

/// Receives a field, its value and its expiry; returns whether to continue.
pub type VisitField<'v> = dyn FnMut(&[u8], &[u8], Option<Timestamp>) -> bool + 'v;

/// The name of the field or member that follows the hash in a key.
pub(crate) fn name_in(key: &[u8]) -> &[u8] {
    key.get(ELEMENT_PREFIX_BYTES + HASH_BYTES..).unwrap_or_default()
}

/// Pairs of names and values, from rows.
pub(crate) fn pairs(rows: Vec<Pair>) -> Vec<Pair> {
    rows.into_iter().map(|(key, value)| (name_in(&key).to_vec(), value)).collect()
}

impl<'w, 'r> Hash<'w, 'r> {
    /// Opens the hash at a key; an empty one if the key is missing. Fields that have expired are
    /// taken out of its count.
    ///
    /// # Errors
    /// [`Error::WrongType`](crate::Error::WrongType), and those of reads.
    pub fn open(writes: &'w mut WriteSet<'r>, key: &'w [u8]) -> OpenResult<Self> {
        let mut hash = Hash(Collection::open(writes, key, Kind::Hash)?);
        hash.count_out_expired()?;
        Ok(hash)
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// Number of fields.
    pub fn len(&self) -> u64 {
        self.0.metadata.count
    }

    /// Whether the hash is missing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Value of a field. Cost: a lookup.
    ///
    /// # Errors
    /// Those of reads.
    pub fn get(&self, field: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(&self.0.hashed(Space::Fields, field))
    }

    /// Sets a field, which does not expire then, and returns whether it is new.
    ///
    /// # Errors
    /// Those of reads.
    pub fn insert(&mut self, field: &[u8], value: &[u8]) -> Result<bool> {
        let key = self.0.hashed(Space::Fields, field);
        let old = self.0.expiry(&key)?;
        self.uncount_expiry(old.flatten())?;
        self.put((&key, field), value, old.is_none(), None);
        Ok(old.is_none())
    }

    /// Sets a field that does not exist, and returns whether it did not. Cost: a lookup.
    ///
    /// # Errors
    /// Those of reads.
    pub fn insert_new(&mut self, field: &[u8], value: &[u8]) -> Result<bool> {
        let key = self.0.hashed(Space::Fields, field);
        let is_new = !self.0.has(&key)?;
        if is_new {
            self.put((&key, field), value, true, None);
        }
        Ok(is_new)
    }

    /// Sets a field to what `new_value` makes of its old value. An expiry of the field stays. Cost:
    /// a lookup.
    ///
    /// # Errors
    /// Those of reads, and that of `new_value`; nothing has changed then.
    pub fn update<E: From<Error>>(
        &mut self,
        field: &[u8],
        new_value: impl FnOnce(Option<&[u8]>) -> Result<Vec<u8>, E>,
    ) -> Result<(), E> {
        let key = self.0.hashed(Space::Fields, field);
        let old = self.0.entry(&key)?;
        let value = new_value(old.as_ref().map(|entry| entry.value.as_slice()))?;
        self.put((&key, field), &value, old.is_none(), old.and_then(|entry| entry.expires_at));
        Ok(())
    }

    fn put(
        &mut self,
        (key, field): (&[u8], &[u8]),
        value: &[u8],
        is_new: bool,
        expires_at: Option<Timestamp>,
    ) {
        self.0.metadata.count += u64::from(is_new);
        self.0.raise_encoding(self.0.limits().hash, field.len().max(value.len()));
        self.0.put_until(key, value, expires_at);
        self.0.save();
    }

    /// Removes a field, and returns whether it existed.
    ///
    /// # Errors
    /// Those of reads.
    pub fn remove(&mut self, field: &[u8]) -> Result<bool> {
        let key = self.0.hashed(Space::Fields, field);
        let Some(expires_at) = self.0.expiry(&key)? else { return Ok(false) };
        self.uncount_expiry(expires_at)?;
        self.0.metadata.count -= 1;
        self.0.delete(&key);
        self.0.save();
        Ok(true)
    }

    /// Visits fields and values until `visit` returns false. Cost: a step per field.
    ///
    /// # Errors
    /// Those of reads.
    pub fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let range = self.0.space(Space::Fields);
        self.0.scan(&range, Order::Ascending, &mut |row| visit(name_in(row.key), row.value))
    }

    /// As [`for_each`](Self::for_each), with the expiry of each field.
    ///
    /// # Errors
    /// Those of reads.
    pub fn for_each_with_expiry(&self, visit: &mut VisitField<'_>) -> Result<()> {
        let range = self.0.space(Space::Fields);
        self.0.scan(&range, Order::Ascending, &mut |row| {
            visit(name_in(row.key), row.value, row.expires_at())
        })
    }

    /// Fields and values from a position on: at least `count`, if there are as many, and the
    /// position from which to continue, if there are more. A scan from 0 to the end returns every
    /// field that exists throughout.
    ///
    /// # Errors
    /// Those of reads.
    pub fn scan(&self, from: u32, count: usize) -> Result<Page<Pair>> {
        let (rows, next) = self.0.scan_hashed(Space::Fields, from, count)?;
        Ok((pairs(rows), next))
    }

    /// A random field and its value. Up to 128 fields all have the same probability, more have
    /// about the same. Cost: up to 128 steps.
    ///
    /// # Errors
    /// Those of reads.
    pub fn draw(&self, below: &mut Below<'_>) -> Result<Option<Pair>> {
        let drawn = self.0.draw(Space::Fields, below)?;
        Ok(drawn.map(|(key, value)| (name_in(&key).to_vec(), value)))
    }

    /// Whether Redis would store it compactly.
    pub fn is_compact(&self) -> bool {
        self.0.metadata.encoding < Encoding::Large
    }
}
