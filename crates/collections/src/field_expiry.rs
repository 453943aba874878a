//! Expiry of a hash's fields.
//!
//! ```text
//!   row of a field       its value, with the field's expiry as that of the row
//!   row of a time        number of fields that expire then          in the order of time
//!   metadata             count of all fields, of those that expire, earliest and latest expiry,
//!                        "counted to"; the row expires with the last field if all of them expire
//! ```
//!
//! The table hides the row of an expired field and drops it in a compaction, like any other row. So
//! only the count needs care: the metadata still counts the field. The rows of times outlive their
//! fields, and say how many fields have expired since the last look. Whoever opens a hash whose
//! earliest expiry has passed subtracts them and moves "counted to" to now, so the count is exact
//! from then on. If all fields expire, the row of the metadata expires with the last one: a hash
//! whose last field has expired is missing, also for commands that do not open it, and its rows are
//! dead rows.
//!
//! Cost: opening a hash of which no field expires costs nothing more. Each time of expiry is
//! counted once, by a step. Rows of times that were counted are removed up to
//! [`MAX_REMOVED_TIMES`] at a time, so no batch is large.
//!
//! Invariant: the numbers in the rows of times after "counted to" add up to
//! [`FieldExpiry::fields`], and to the fields with such an expiry. A field whose expiry is not
//! after "counted to" is not there, also if the clock goes back.

use std::ops::Bound;

use siltstone_engine::{Entry, KeyRange, Result, Timestamp};

use crate::hash::Hash;
use crate::layout::{Space, time_in};
use crate::metadata::FieldExpiry;
use crate::rows::Order;
use crate::write_set::ExpiredFields;

/// Rows of times that are removed when a hash is opened.
pub const MAX_REMOVED_TIMES: usize = 1024;

/// What became of a change of a field's expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryChange {
    /// There is no such field.
    NoField,
    /// The condition refused it.
    Refused,
    /// The field has the new expiry, or none.
    Changed,
    /// The new expiry has passed, so the field was removed.
    Removed,
}

fn number_in(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |number| u64::from_le_bytes(*number))
}

impl Hash<'_, '_> {
    /// When a field expires; `None` if there is no such field. Cost: a lookup.
    ///
    /// # Errors
    /// Those of reads.
    pub fn expiry(&self, field: &[u8]) -> Result<Option<Option<Timestamp>>> {
        self.0.expiry(&self.0.hashed(Space::Fields, field))
    }

    /// Sets or removes the expiry of a field, if `allows` the old one to be replaced. A new one
    /// that has passed removes the field.
    ///
    /// # Errors
    /// Those of reads.
    pub fn set_expiry(
        &mut self,
        field: &[u8],
        expires_at: Option<Timestamp>,
        allows: impl FnOnce(Option<Timestamp>) -> bool,
    ) -> Result<ExpiryChange> {
        let Some(Entry { value, expires_at: old }) = self.entry(field)? else {
            return Ok(ExpiryChange::NoField);
        };
        if !allows(old) {
            return Ok(ExpiryChange::Refused);
        }
        if expires_at.is_some_and(|at| at <= self.0.hidden_to.max(self.0.now())) {
            self.remove(field)?;
            return Ok(ExpiryChange::Removed);
        }
        if old != expires_at {
            self.uncount_expiry(old)?;
            self.count_expiry(expires_at)?;
            let key = self.0.hashed(Space::Fields, field);
            self.0.put_until(&key, &value, expires_at);
            self.0.save();
        }
        Ok(ExpiryChange::Changed)
    }

    pub(crate) fn entry(&self, field: &[u8]) -> Result<Option<Entry>> {
        self.0.entry(&self.0.hashed(Space::Fields, field))
    }

    fn time_key(&self, time: Timestamp) -> Vec<u8> {
        self.0.element(Space::FieldExpiries, &time.to_be_bytes(), &[])
    }

    /// Adds a field to the row of its expiry.
    fn count_expiry(&mut self, expires_at: Option<Timestamp>) -> Result<()> {
        let Some(at) = expires_at else { return Ok(()) };
        let key = self.time_key(at);
        let number = self.0.get(&key)?.map_or(0, |value| number_in(&value));
        self.0.put(&key, &(number + 1).to_le_bytes());
        self.0.hidden_to = self.0.hidden_to.max(self.0.now());
        let expiry = self.0.metadata.field_expiry.get_or_insert_default();
        expiry.latest = if expiry.fields == 0 { at } else { expiry.latest.max(at) };
        expiry.earliest = expiry.earliest.min(at);
        expiry.fields += 1;
        Ok(())
    }

    /// Takes a field off the row of its expiry.
    pub(crate) fn uncount_expiry(&mut self, expires_at: Option<Timestamp>) -> Result<()> {
        let (Some(at), Some(mut expiry)) = (expires_at, self.0.metadata.field_expiry) else {
            return Ok(());
        };
        let key = self.time_key(at);
        let number = self.0.get(&key)?.map_or(0, |value| number_in(&value));
        expiry.fields = expiry.fields.saturating_sub(1);
        if number > 1 {
            self.0.put(&key, &(number - 1).to_le_bytes());
        } else {
            self.0.delete(&key);
            if at == expiry.latest && expiry.fields > 0 {
                let times = self.0.space(Space::FieldExpiries);
                self.0.scan(&times, Order::Descending.keys_only(), &mut |row| {
                    expiry.latest = time_in(row.key);
                    false
                })?;
            }
        }
        self.0.metadata.field_expiry = Some(expiry);
        Ok(())
    }

    /// Takes fields that have expired out of the count, and hides them.
    pub(crate) fn count_out_expired(&mut self) -> Result<()> {
        let Some(mut expiry) = self.0.metadata.field_expiry else { return Ok(()) };
        let now = self.0.now().max(expiry.counted_to);
        // Rows of times have no expiry, and are seen anyway.
        self.0.hidden_to = now;
        if expiry.earliest > now {
            return Ok(());
        }
        self.0.writes().check_writable()?;
        let range = KeyRange {
            start: Bound::Excluded(self.time_key(expiry.counted_to)),
            end: Bound::Included(self.time_key(now)),
        };
        let mut expired = 0;
        if expiry.counted_to < now {
            self.0.scan(&range, Order::Ascending, &mut |row| {
                expired += number_in(row.value);
                true
            })?;
        }
        let mut removed = Vec::new();
        expiry.earliest = FieldExpiry::default().earliest;
        let times = self.0.space(Space::FieldExpiries);
        self.0.scan(&times, Order::Ascending.keys_only(), &mut |row| {
            let is_left = time_in(row.key) > now || removed.len() == MAX_REMOVED_TIMES;
            match is_left {
                true => expiry.earliest = time_in(row.key),
                false => removed.push(row.key.to_vec()),
            }
            !is_left
        })?;
        let was_changed = self.0.writes().is_changed();
        removed.iter().for_each(|key| self.0.delete(key));
        expiry.fields = expiry.fields.saturating_sub(expired);
        expiry.counted_to = now;
        self.0.metadata.field_expiry = Some(expiry);
        self.0.metadata.count = self.0.metadata.count.saturating_sub(expired);
        let (key, is_removed) = (self.0.key().to_vec(), self.0.metadata.count == 0);
        self.0.save();
        let expired = ExpiredFields { key, count: expired, is_removed };
        self.0.writes().record_expired(was_changed, expired);
        Ok(())
    }
}
