//! Operations on whole keys, of any type: values, removal, expiry, renaming and copying.
//!
//! They change the metadata alone, besides copying: their cost does not depend on the number of
//! elements.

use siltstone_engine::{Result, Timestamp};

use crate::layout::{ELEMENT_PREFIX_BYTES, elements_of, owner_key, stored_key};
use crate::metadata::Metadata;
use crate::pending_rows::ROW_OVERHEAD_BYTES;
use crate::rows::{Order, Rows};
use crate::stored_value::StoredValue;
use crate::write_set::WriteSet;

impl WriteSet<'_> {
    /// Stores a plain value over a key of any type. `value` is what is stored, so one that looks
    /// like metadata must have been escaped.
    ///
    /// # Errors
    /// Those of reads.
    pub fn put_string(
        &mut self,
        key: &[u8],
        value: &[u8],
        expires_at: Option<Timestamp>,
    ) -> Result<()> {
        self.remove(key)?;
        self.put(&stored_key(key), value, expires_at);
        Ok(())
    }

    /// Removes a key of any type, and returns whether it existed. The cost does not depend on the
    /// size of a collection.
    ///
    /// # Errors
    /// Those of reads.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool> {
        self.write_metadata();
        let Some((metadata, _)) = self.metadata(key)? else { return Ok(false) };
        if let Some(metadata) = metadata {
            self.delete(&owner_key(metadata.version));
        }
        self.delete(&stored_key(key));
        Ok(true)
    }

    /// Sets or removes the expiry of a key of any type, and returns whether the key exists. An
    /// expiry in the past removes the key. The caller has stopped the clock
    /// ([`DeadRows`](crate::DeadRows)).
    ///
    /// # Errors
    /// Those of reads.
    pub fn set_expiry(&mut self, key: &[u8], expires_at: Option<Timestamp>) -> Result<bool> {
        if expires_at.is_some_and(|at| at <= self.now()) {
            return self.remove(key);
        }
        self.write_metadata();
        let Some(stored) = self.stored(key)? else { return Ok(false) };
        self.put_value(key, &stored, expires_at);
        Ok(true)
    }

    fn put_value(&mut self, key: &[u8], stored: &StoredValue, expires_at: Option<Timestamp>) {
        match stored.metadata {
            Some(metadata) => self.put_metadata(key, metadata, expires_at),
            None => self.put(&stored_key(key), &stored.entry.value, expires_at),
        }
    }

    /// Moves a key of any type, with its expiry, over another one. Returns whether `from` exists.
    /// The cost does not depend on the size of a collection.
    ///
    /// # Errors
    /// Those of reads.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<bool> {
        self.write_metadata();
        let Some(stored) = self.stored(from)? else { return Ok(false) };
        if from == to {
            return Ok(true);
        }
        self.remove(to)?;
        self.delete(&stored_key(from));
        self.put_value(to, &stored, stored.entry.expires_at);
        if let Some(metadata) = stored.metadata {
            self.put(&owner_key(metadata.version), to, None);
        }
        Ok(true)
    }

    /// Copies a key of any type, with its expiry, from a table (this or another one) over a key of
    /// this one. Returns whether `from` exists. The cost grows with the size of the collection, and
    /// the copy is one batch.
    ///
    /// # Errors
    /// Those of reads.
    pub fn copy_from(&mut self, source: &dyn Rows, from: &[u8], to: &[u8]) -> Result<bool> {
        self.write_metadata();
        let Some(entry) = source.row(&stored_key(from))? else { return Ok(false) };
        let stored = StoredValue::new(entry);
        let Some(metadata) = stored.metadata else {
            self.remove(to)?;
            self.put(&stored_key(to), &stored.entry.value, stored.entry.expires_at);
            return Ok(true);
        };
        let copy = Metadata { version: self.keyspace().next_version(), ..metadata };
        let (mut elements, mut bytes) = (Vec::new(), 0);
        let max_bytes = self.max_bytes();
        source.scan(&elements_of(metadata.version), Order::Ascending.into(), &mut |row| {
            bytes += row.key.len() + row.value.len() + ROW_OVERHEAD_BYTES;
            elements.push((row.key.to_vec(), row.value.to_vec(), row.expires_at()));
            // What was read exceeds the limit of what is written, too.
            bytes <= max_bytes
        })?;
        self.remove(to)?;
        for (mut key, value, expires_at) in elements {
            // The space follows the version.
            key[ELEMENT_PREFIX_BYTES - 9..ELEMENT_PREFIX_BYTES - 1]
                .copy_from_slice(&copy.version.to_be_bytes());
            self.put(&key, &value, expires_at);
        }
        self.put_metadata(to, copy, stored.entry.expires_at);
        self.put(&owner_key(copy.version), to, None);
        Ok(true)
    }
}
