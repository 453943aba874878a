//! The operations that write: one decision under the bucket's version.
//!
//! Invariant: what is refused has changed nothing.
//!
//! Source: thesis, section 5.3.3; conditions and numbers as memcached has them.

use std::sync::atomic::Ordering::Relaxed;

use super::{Context, Found, Journal, Memory, Partition};
use crate::counters::Tally;
use crate::item::{Meta, NewItem};
use crate::request::{Action, Answer, Outcome, Request, Value};
use crate::version::{self, Access};

/// What an item is to become.
enum Next<'a> {
    Value(Value<'a>),
    /// The old value with bytes before and behind.
    Joined(&'a [u8], &'a [u8]),
    Number(fn(u64, u64) -> u64, u64),
    Expiry(Option<u64>),
}

impl<M: Memory> Partition<M> {
    /// Does a request that may write. Under EREW and CREW the caller holds the lock.
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
        let outcome = self.decide(request, bucket, context, tally, journal);
        version::end_write(header, access);
        self.memory.after_write(access, tally);
        let answer = outcome.unwrap_or_else(Answer::of);
        match answer.outcome {
            Outcome::Stored | Outcome::Deleted => {
                let bytes = request.key.len() + request.action.value_len();
                tally.user_bytes_written += bytes as u64;
            }
            Outcome::Full => tally.full += 1,
            _ => {}
        }
        answer
    }

    #[inline(always)]
    fn decide(
        &self,
        request: &Request<'_>,
        bucket: &M::Bucket,
        context: &Context<'_>,
        tally: &mut Tally,
        journal: Option<&mut Journal>,
    ) -> Result<Answer, Outcome> {
        let found = self.find(bucket, request.hash, request.key, None);
        // What has expired, or was overwritten in the log while it was looked at, is not there.
        let old = found.and_then(|found| {
            let meta = found.item.meta();
            (!context.now.is_past(meta.expires_at) && self.memory.holds(found.offset))
                .then_some((found, meta))
        });
        let there = old.ok_or(Outcome::Missing);
        let is_stamped = |(_, meta): (Found<'_>, Meta), stamp| match meta.stamp == stamp {
            _ if !context.keeps_stamps => Err(Outcome::NoStamps),
            true => Ok(()),
            false => Err(Outcome::Exists),
        };
        let next = match request.action {
            Action::Get => return Err(Outcome::Missing),
            Action::Put(value) => Next::Value(value),
            Action::Add(_) if old.is_some() => return Err(Outcome::Exists),
            Action::Add(value) => Next::Value(value),
            Action::Replace(value) => {
                there?;
                Next::Value(value)
            }
            Action::CompareAndSet(value, stamp) => {
                is_stamped(there?, stamp)?;
                Next::Value(value)
            }
            Action::Delete(stamp) => {
                if let (Some(old), Some(stamp)) = (old, stamp) {
                    is_stamped(old, stamp)?;
                }
                if let Some(found) = found {
                    self.memory.remove(context.access, request.hash, found, journal);
                }
                there?;
                return Ok(Answer::of(Outcome::Deleted));
            }
            Action::Append(bytes) => Next::Joined(&[], bytes),
            Action::Prepend(bytes) => Next::Joined(bytes, &[]),
            Action::Increment(by) => Next::Number(u64::wrapping_add, by),
            Action::Decrement(by) => Next::Number(u64::saturating_sub, by),
            Action::Touch(expires_at) => Next::Expiry(expires_at),
        };
        let mut answer = Answer::of(Outcome::Stored);
        let (owned, value);
        match next {
            Next::Value(given) => value = given,
            change => {
                let (old, meta) = there?;
                let bytes = self.value_of(&old)?;
                let mut expires_at = meta.expires_at;
                let is_joined = matches!(change, Next::Joined(..));
                owned = match change {
                    Next::Joined(before, behind) => [before, &bytes, behind].concat(),
                    Next::Number(compute, by) => {
                        answer.number = compute(number(&bytes).ok_or(Outcome::NotANumber)?, by);
                        answer.number.to_string().into_bytes()
                    }
                    Next::Expiry(at) => {
                        expires_at = at;
                        bytes
                    }
                    Next::Value(_) => bytes,
                };
                // What is joined is another value than the one that was marked.
                let marks = if is_joined { 0 } else { meta.marks };
                value = Value { bytes: &owned, expires_at, flags: meta.flags, marks };
            }
        }
        if value.bytes.len() > context.max_value {
            return Err(Outcome::TooLarge);
        }
        let stamp = match context.keeps_stamps {
            true => self.next_stamp(context.access),
            false => 0,
        };
        let Value { expires_at, flags, marks, .. } = value;
        answer.meta = Meta { expires_at, flags, marks, stamp };
        let new =
            NewItem { hash: request.hash, key: request.key, value: value.bytes, meta: answer.meta };
        self.memory.put(context.access, found, &new, tally, journal)?;
        Ok(answer)
    }

    /// Another stamp than any before.
    #[inline(always)]
    fn next_stamp(&self, access: Access) -> u64 {
        if access == Access::Crcw {
            return self.stamp.fetch_add(1, Relaxed);
        }
        // Whoever writes has the partition's lock.
        let stamp = self.stamp.load(Relaxed);
        self.stamp.store(stamp + 1, Relaxed);
        stamp
    }

    /// The value of an item that is there, copied.
    fn value_of(&self, found: &Found<'_>) -> Result<Vec<u8>, Outcome> {
        let mut value = vec![0; found.item.value_len()];
        found.item.copy_value(&mut value);
        if self.memory.holds(found.offset) { Ok(value) } else { Err(Outcome::Missing) }
    }
}

/// A decimal number of 64 bits, of digits alone.
fn number(text: &[u8]) -> Option<u64> {
    let is_decimal = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_decimal)?.parse().ok()
}
