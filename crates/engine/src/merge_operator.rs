//! Merge operators: a write adds an operand to a key without reading its value.
//!
//! A counter or a list that is changed by reading, changing and writing it costs a read per change.
//! A merge writes the change alone. Reads, flushes and compactions apply the operands to the value
//! that the key had before, in the order of the writes:
//!
//! ```text
//!   put k = 5    merge k +1    merge k +3           get k: full_merge(5, [+1, +3]) = 9
//!   put k = 5    partial_merge([+1, +3]) = +4       the same: full_merge(5, [+4])
//!   (missing)    merge k +1                         get k: full_merge(None, [+1]) = 1
//! ```
//!
//! # The contract
//! * **Deterministic.** The result depends on the arguments alone: it is computed at any time, on
//!   any thread, and any number of times.
//! * **Partial merges change nothing.** `full_merge` with some adjacent operands replaced by their
//!   `partial_merge` has the same result, and so has `full_merge` in two steps, with the result of
//!   the first operands as the value for the others.
//! * **A failure concerns one key.** If `full_merge` fails, reads of the key and iterations over it
//!   fail with its reason. Compactions keep the operands. A put or a delete of the key ends that.
//! * **The name is the format of the operands.** It is stored in the table, which refuses an
//!   operator of another name.
//! * Operators read and write nothing else: they run inside reads and compactions.

use std::sync::Arc;

use crate::error::display_key;
use crate::{Error, Result};

/// Makes values of operands. See the [module](self) for what it must keep to.
pub trait MergeOperator: Send + Sync {
    /// The name, which is stored in the table. Names with the prefix `siltstone.` are reserved.
    fn name(&self) -> &str;

    /// Checks an operand before it is written.
    ///
    /// # Errors
    /// What is wrong with it; the write is refused with this reason.
    fn check_operand(&self, _operand: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// The value of `key` after `operands`, the oldest first; there is at least one. `value` is the
    /// one before, `None` if the key was missing.
    ///
    /// # Errors
    /// Why the operands do not apply to the value.
    fn full_merge(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String>;

    /// One operand with the effect of all of `operands`, the oldest first; there are at least two.
    /// `None`: there is none, and they are stored one by one.
    fn partial_merge(&self, _key: &[u8], _operands: &[&[u8]]) -> Option<Vec<u8>> {
        None
    }
}

/// Adds integers: values and operands are 64-bit integers of 8 bytes, little-endian.
///
/// The sum is modulo 2⁶⁴, so the same bytes serve `i64` and `u64`, subtraction is the addition of a
/// negative `i64`, and an overflow wraps around. A missing value is 0. An operand of another length
/// is refused when it is written; a value of another length, which a put has written, fails the
/// reads of its key.
///
/// ```
/// # use siltstone_engine::{MergeCounter, MergeOperator};
/// let (five, minus_two) = (5i64.to_le_bytes(), (-2i64).to_le_bytes());
/// let sum = MergeCounter.full_merge(b"k", Some(&five), &[&minus_two]).unwrap();
/// assert_eq!(sum, 3i64.to_le_bytes());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MergeCounter;

impl MergeCounter {
    /// The name.
    pub const NAME: &'static str = "siltstone.counter";
}

impl MergeOperator for MergeCounter {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn check_operand(&self, operand: &[u8]) -> Result<(), String> {
        integer("an operand", operand).map(drop)
    }

    fn full_merge(
        &self,
        _key: &[u8],
        value: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        let mut sum = value.map_or(Ok(0), |value| integer("the value", value))?;
        for operand in operands {
            sum = sum.wrapping_add(integer("an operand", operand)?);
        }
        Ok(sum.to_le_bytes().to_vec())
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.full_merge(key, None, operands).ok()
    }
}

fn integer(what: &str, bytes: &[u8]) -> Result<u64, String> {
    let fixed = bytes.try_into().map_err(|_| {
        format!("{what} of a counter has {} bytes in place of 8, little-endian", bytes.len())
    })?;
    Ok(u64::from_le_bytes(fixed))
}

/// Appends operands to the value, with a separator between them. A missing value becomes the first
/// operand, without a separator.
///
/// ```
/// # use siltstone_engine::{MergeAppend, MergeOperator};
/// let list = MergeAppend::new(b",");
/// assert_eq!(list.full_merge(b"k", None, &[b"a", b"b"]).unwrap(), b"a,b");
/// assert_eq!(list.full_merge(b"k", Some(b"x"), &[b"a"]).unwrap(), b"x,a");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeAppend {
    name: String,
    separator: Vec<u8>,
}

impl MergeAppend {
    /// The prefix of the name; the separator follows in hexadecimal digits.
    pub const NAME_PREFIX: &'static str = "siltstone.append:";

    /// An operator with a separator, which may be empty.
    pub fn new(separator: &[u8]) -> Self {
        let digits: String = separator.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{}{digits}", Self::NAME_PREFIX);
        MergeAppend { name, separator: separator.to_vec() }
    }

    fn of_name(name: &str) -> Option<Self> {
        let digits = name.strip_prefix(Self::NAME_PREFIX)?.as_bytes();
        if digits.len() % 2 != 0 {
            return None;
        }
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let separator = digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>()?;
        Some(Self::new(&separator))
    }
}

impl MergeOperator for MergeAppend {
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(
        &self,
        _key: &[u8],
        value: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        let parts: Vec<&[u8]> = value.into_iter().chain(operands.iter().copied()).collect();
        Ok(parts.join(&self.separator[..]))
    }

    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(operands.join(&self.separator[..]))
    }
}

/// Checks an operand for `key` by an operator.
///
/// # Errors
/// [`Error::Invalid`] with the key, the operator and its reason.
pub fn check_operand(operator: &dyn MergeOperator, key: &[u8], operand: &[u8]) -> Result<()> {
    operator.check_operand(operand).map_err(|reason| {
        let key = display_key(key);
        Error::Invalid(format!("the operand for {key} is refused by {}: {reason}", operator.name()))
    })
}

/// The error of a merge into `key` that failed.
pub fn failure(key: &[u8], reason: &str) -> Error {
    Error::Invalid(format!("the operands of {} do not merge: {reason}", display_key(key)))
}

/// The error of a merge into a table without an operator.
pub fn no_operator() -> Error {
    Error::Invalid("the table has no merge operator: set one before the first merge".to_owned())
}

/// The built-in operator of this name.
pub fn built_in(name: &str) -> Option<Arc<dyn MergeOperator>> {
    if name == MergeCounter::NAME {
        return Some(Arc::new(MergeCounter));
    }
    Some(Arc::new(MergeAppend::of_name(name)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_wraps_around_and_refuses_other_lengths() {
        let add = |value: Option<u64>, by: u64| {
            let value = value.map(u64::to_le_bytes);
            let value = value.as_ref().map(|value| &value[..]);
            let sum = MergeCounter.full_merge(b"k", value, &[&by.to_le_bytes()]).unwrap();
            u64::from_le_bytes(sum.try_into().unwrap())
        };
        assert_eq!(add(None, 7), 7);
        assert_eq!(add(Some(u64::MAX), 2), 1);
        assert_eq!(add(Some(5), -6i64 as u64) as i64, -1);
        let refused = MergeCounter.check_operand(b"123").unwrap_err();
        assert!(refused.contains("3 bytes"), "{refused}");
        assert!(MergeCounter.full_merge(b"k", Some(b"text"), &[&[0; 8]]).is_err());
        assert_eq!(MergeCounter.partial_merge(b"k", &[&[0; 8], b"1"]), None);
    }

    #[test]
    fn built_in_operator_is_found_by_its_name() {
        for separator in [&b""[..], b",", b"\x00\xff"] {
            let append = MergeAppend::new(separator);
            let found = built_in(append.name()).unwrap();
            assert_eq!(found.name(), append.name());
            let all = found.full_merge(b"k", Some(b"a"), &[b"b", b"c"]).unwrap();
            assert_eq!(all, [&b"a"[..], b"b", b"c"].join(separator));
            let two = found.partial_merge(b"k", &[b"b", b"c"]).unwrap();
            assert_eq!(found.full_merge(b"k", Some(b"a"), &[&two]).unwrap(), all);
        }
        assert_eq!(built_in(MergeCounter::NAME).unwrap().name(), MergeCounter::NAME);
        for other in ["siltstone.append:1", "siltstone.append:zz", "mine", ""] {
            assert!(built_in(other).is_none(), "{other}");
        }
    }
}
