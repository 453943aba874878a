//! The report of a repair: findings, actions and losses.
//!
//! ```text
//!   RepairReport  lines    findings and actions, as text
//!                 losses   every extent that could not be saved, for programs
//!
//!   Loss   file, bytes     the extent of the lost entries
//!          sequences       their sequence numbers, where neighbours bound them
//!          keys            the key range, where neighbours bound it
//! ```
//!
//! An extent is an upper bound: every lost entry was in a reported extent, but not everything in an
//! extent was an entry. The loss of a newer version or of a delete may uncover an older version of
//! the same key; the extent of the newer one is reported.
//!
//! Invariant: if a report has no losses, every entry is still there.

use std::fmt;
use std::ops::Range;

#[cfg(feature = "serde")]
use serde::Serialize;

use crate::inspection::shown;

/// The result of a repair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct RepairReport {
    /// Findings and actions, line by line, including losses.
    pub lines: Vec<String>,
    /// What could not be saved.
    pub losses: Vec<Loss>,
}

impl RepairReport {
    /// Adds a line.
    pub fn note(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// Adds a loss and its line.
    pub fn record_loss(&mut self, loss: Loss) {
        self.lines.push(loss.to_string());
        self.losses.push(loss);
    }

    /// Whether nothing was lost.
    pub fn is_lossless(&self) -> bool {
        self.losses.is_empty()
    }
}

/// A report of a single line.
impl From<String> for RepairReport {
    fn from(line: String) -> Self {
        RepairReport { lines: vec![line], losses: Vec::new() }
    }
}

/// An extent that could not be saved.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Loss {
    /// The file.
    pub file: String,
    /// The bytes of the file. The end may be past the end of a truncated file; it is `u64::MAX` if
    /// the file's length is unknown.
    pub bytes: Range<u64>,
    /// What the loss means.
    pub effect: LossEffect,
    /// The first and the last operation of the extent, as sequence numbers.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub sequences: Option<(u64, u64)>,
    /// Bounds of the keys of the extent.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub keys: Option<KeyBounds>,
}

/// What the loss of an extent means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum LossEffect {
    /// The entries in the extent are lost.
    Entries,
    /// All entries are there, but the information which files are current is lost: deleted and
    /// overwritten versions may be visible again.
    Order,
}

/// The nearest saved keys on both sides of an extent; `None`: no key on this side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyBounds {
    /// The extent is after this key, or has other versions of it.
    pub after: Option<Vec<u8>>,
    /// The extent is before this key, or has other versions of it.
    pub before: Option<Vec<u8>>,
}

#[cfg(feature = "serde")]
impl Serialize for KeyBounds {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |key: &Option<Vec<u8>>| key.as_ref().map(|key| key.escape_ascii().to_string());
        [text(&self.after), text(&self.before)].serialize(serializer)
    }
}

impl Loss {
    /// The entries in these bytes of the file are lost.
    pub fn entries(file: impl Into<String>, bytes: Range<u64>) -> Self {
        let (sequences, keys) = (None, None);
        Loss { file: file.into(), bytes, effect: LossEffect::Entries, sequences, keys }
    }

    /// The information which files are current is lost with this file.
    pub fn order(file: impl Into<String>) -> Self {
        let effect = LossEffect::Order;
        Loss { effect, ..Loss::entries(file, 0..u64::MAX) }
    }

    /// The same, with the first and the last operation of the extent.
    #[must_use]
    pub fn with_sequences(mut self, first: u64, last: u64) -> Self {
        self.sequences = (first <= last).then_some((first, last));
        self
    }

    /// The same, with the keys on both sides of the extent.
    #[must_use]
    pub fn with_keys(mut self, after: Option<&[u8]>, before: Option<&[u8]>) -> Self {
        let [after, before] = [after, before].map(|key| key.map(<[u8]>::to_vec));
        self.keys = (after.is_some() || before.is_some()).then_some(KeyBounds { after, before });
        self
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { file, bytes, effect, sequences, keys } = self;
        match effect {
            LossEffect::Entries if bytes.end == u64::MAX && bytes.start == 0 => {
                write!(f, "lost what was in {file}")?;
            }
            LossEffect::Entries if bytes.end == u64::MAX => {
                write!(f, "lost what was in {file} from byte {}", bytes.start)?;
            }
            LossEffect::Entries => {
                write!(f, "lost what was in {file}, bytes {} to {}", bytes.start, bytes.end)?;
            }
            LossEffect::Order => {
                write!(f, "lost with {file}: which files are current; ")?;
                write!(f, "deleted and overwritten versions may be visible again")?;
            }
        }
        if let Some((first, last)) = sequences {
            write!(f, ", operations {first} to {last}")?;
        }
        match keys.as_ref().map(|keys| (&keys.after, &keys.before)) {
            Some((Some(after), Some(before))) => {
                write!(f, ", keys from {} to {}", shown(after), shown(before))
            }
            Some((Some(after), None)) => write!(f, ", keys from {} on", shown(after)),
            Some((None, Some(before))) => write!(f, ", keys up to {}", shown(before)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_displayed_with_every_known_bound() {
        let loss = Loss::entries("000001.log", 24..99).with_sequences(7, 9);
        assert_eq!(
            loss.to_string(),
            "lost what was in 000001.log, bytes 24 to 99, operations 7 to 9"
        );
        let loss = Loss::entries("000004.sst", 0..u64::MAX).with_keys(Some(b"a"), None);
        assert_eq!(loss.to_string(), "lost what was in 000004.sst, keys from a on");
        assert!(Loss::order("CURRENT").to_string().contains("CURRENT"));
        let mut report = RepairReport::from("intact".to_owned());
        assert!(report.is_lossless());
        report.record_loss(loss);
        assert_eq!((report.lines.len(), report.is_lossless()), (2, false));
    }
}
