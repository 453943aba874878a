//! Write operations: one atomic update under the bucket's version.
//!
//! Invariant: a rejected request changes nothing.
//!
//! Source: Lim, thesis, section 5.3.3; conditional operations and numbers as in memcached.

use std::sync::atomic::Ordering::Relaxed;

use super::{Context, ItemRef, Journal, Memory, Partition};
use crate::counters::Tally;
use crate::item::{Meta, NewItem};
use crate::request::{Action, Answer, Outcome, Request, Value};
use crate::version::{self, Access};

/// The new contents of an item.
enum Update<'a> {
    Value(Value<'a>),
    /// The old value with a prefix and a suffix.
    Concat(&'a [u8], &'a [u8]),
    Number(fn(u64, u64) -> u64, u64),
    Expiry(Option<u64>),
}

impl<M: Memory> Partition<M> {
    /// Executes a write request. Under EREW and CREW the caller holds the lock.
    #[inline]
    pub(crate) fn write(
        &self,
        request: &Request<'_>,
        bucket: &M::Bucket,
        context: &Context<'_>,
        tally: &mut Tally,
        journal: Option<&mut Journal>,
    ) -> Answer {
        tally.writes += 1;
        let access = context.access;
        let header = M::header(bucket);
        version::begin_write(header, access);
        let outcome = self.apply(request, bucket, context, tally, journal);
        version::end_write(header, access);
        self.memory.after_write(access, tally);
        let answer = outcome.unwrap_or_else(Answer::of);
        match answer.outcome {
            Outcome::Stored | Outcome::Deleted => {
                let bytes = request.key.len() + request.action.value_len();
                tally.user_bytes_written += bytes as u64;
            }
            Outcome::Full => tally.full_errors += 1,
            _ => {}
        }
        answer
    }

    #[inline(always)]
    fn apply(
        &self,
        request: &Request<'_>,
        bucket: &M::Bucket,
        context: &Context<'_>,
        tally: &mut Tally,
        journal: Option<&mut Journal>,
    ) -> Result<Answer, Outcome> {
        let found = self.find(bucket, request.hash, request.key, None);
        // An item that has expired or was overwritten meanwhile is missing.
        let old = found.and_then(|found| {
            let meta = found.item.meta();
            (!context.now.is_past(meta.expires_at) && self.memory.is_intact(found.offset))
                .then_some((found, meta))
        });
        let existing = old.ok_or(Outcome::Missing);
        let check_cas = |(_, meta): (ItemRef<'_>, Meta), cas| match meta.cas == cas {
            _ if !context.has_cas => Err(Outcome::CasDisabled),
            true => Ok(()),
            false => Err(Outcome::Exists),
        };
        let update = match request.action {
            Action::Get => return Err(Outcome::Missing),
            Action::Put(value) => Update::Value(value),
            Action::Add(_) if old.is_some() => return Err(Outcome::Exists),
            Action::Add(value) => Update::Value(value),
            Action::Replace(value) => {
                existing?;
                Update::Value(value)
            }
            Action::CompareAndSet(value, cas) => {
                check_cas(existing?, cas)?;
                Update::Value(value)
            }
            Action::Delete(cas) => {
                if let (Some(old), Some(cas)) = (old, cas) {
                    check_cas(old, cas)?;
                }
                if let Some(found) = found {
                    self.memory.remove(context, request.hash, found, tally, journal);
                }
                existing?;
                return Ok(Answer::of(Outcome::Deleted));
            }
            Action::Append(bytes) => Update::Concat(&[], bytes),
            Action::Prepend(bytes) => Update::Concat(bytes, &[]),
            Action::Increment(by) => Update::Number(u64::wrapping_add, by),
            Action::Decrement(by) => Update::Number(u64::saturating_sub, by),
            Action::Touch(expires_at) => Update::Expiry(expires_at),
        };
        let mut answer = Answer::of(Outcome::Stored);
        let (owned, value);
        match update {
            Update::Value(given) => value = given,
            change => {
                let (old, meta) = existing?;
                let bytes = self.value_of(&old)?;
                let mut expires_at = meta.expires_at;
                let is_concat = matches!(change, Update::Concat(..));
                owned = match change {
                    Update::Concat(before, after) => [before, &bytes, after].concat(),
                    Update::Number(compute, by) => {
                        answer.number = compute(number(&bytes).ok_or(Outcome::NotANumber)?, by);
                        answer.number.to_string().into_bytes()
                    }
                    Update::Expiry(at) => {
                        expires_at = at;
                        bytes
                    }
                    Update::Value(_) => bytes,
                };
                // Server marks belong to the old value.
                let marks = if is_concat { 0 } else { meta.marks };
                value = Value { bytes: &owned, expires_at, flags: meta.flags, marks };
            }
        }
        if value.bytes.len() > context.max_value {
            return Err(Outcome::TooLarge);
        }
        let cas = match context.has_cas {
            true => self.next_cas(context.access),
            false => 0,
        };
        let Value { expires_at, flags, marks, .. } = value;
        answer.meta = Meta { expires_at, flags, marks, cas };
        let new =
            NewItem { hash: request.hash, key: request.key, value: value.bytes, meta: answer.meta };
        self.memory.put(context, found, &new, tally, journal)?;
        Ok(answer)
    }

    /// A new CAS version.
    #[inline(always)]
    fn next_cas(&self, access: Access) -> u64 {
        if access == Access::Crcw {
            return self.next_cas.fetch_add(1, Relaxed);
        }
        // Writers hold the partition's lock.
        let cas = self.next_cas.load(Relaxed);
        self.next_cas.store(cas + 1, Relaxed);
        cas
    }

    /// A copy of an existing item's value.
    fn value_of(&self, found: &ItemRef<'_>) -> Result<Vec<u8>, Outcome> {
        let mut value = vec![0; found.item.value_len()];
        found.item.copy_value(&mut value);
        if self.memory.is_intact(found.offset) { Ok(value) } else { Err(Outcome::Missing) }
    }
}

/// Parses a decimal 64-bit number without a sign.
fn number(text: &[u8]) -> Option<u64> {
    let is_decimal = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_decimal)?.parse().ok()
}
