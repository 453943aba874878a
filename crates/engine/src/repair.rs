//! What a repair did, and what it could not save.
//!
//! ```text
//!   RepairReport  lines    what was found and done, for people
//!                 losses   each extent that could not be saved, for programs
//!
//!   Loss   file, bytes     where the lost entries were
//!          sequences       which operations they were, where the neighbours tell
//!          keys            between which keys they were, where the neighbours tell
//! ```
//!
//! An extent is an upper bound: every entry that is lost was in a reported extent, and not
//! everything in an extent need have been an entry. The loss of a newer version or of a delete may
//! uncover an older version of the same key; the extent that held the newer one is reported then.
//!
//! Invariant: a report without losses means that every entry is still there.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

use crate::inspection::shown;

/// The answer of a repair.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// What was found and done, line by line. Losses have their lines here, too.
    pub lines: Vec<String>,
    /// What could not be saved.
    pub losses: Vec<Loss>,
}

impl RepairReport {
    /// Adds a line.
    pub fn note(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// Adds a loss, and its line.
    pub fn lose(&mut self, loss: Loss) {
        self.lines.push(loss.to_string());
        self.losses.push(loss);
    }

    /// Whether nothing was lost.
    pub fn is_lossless(&self) -> bool {
        self.losses.is_empty()
    }
}

/// A report that is just one line.
impl From<String> for RepairReport {
    fn from(line: String) -> Self {
        RepairReport { lines: vec![line], losses: Vec::new() }
    }
}

/// An extent that could not be saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The file.
    pub file: String,
    /// The bytes of the file. The end may lie behind the end of a file that was cut off; it is
    /// `u64::MAX` where nothing tells how long the file was.
    pub bytes: Range<u64>,
    /// What is lost with them.
    pub effect: LossEffect,
    /// The first and the last operation of the extent, by their sequence numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequences: Option<(u64, u64)>,
    /// The keys of the extent lie between these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<KeyBounds>,
}

/// What the loss of an extent means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LossEffect {
    /// The entries in the extent are lost.
    Entries,
    /// Entries are all there, but which files are current is lost with the extent: deleted and
    /// overwritten versions may be visible again.
    Order,
}

/// The nearest keys that were saved on both sides of an extent; `None`: there is none on this side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyBounds {
    /// The extent lies behind this key, or holds other versions of it.
    pub after: Option<Vec<u8>>,
    /// And before this one, or holds other versions of it.
    pub before: Option<Vec<u8>>,
}

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

    /// Which files are current is lost with this file.
    pub fn order(file: impl Into<String>) -> Self {
        let effect = LossEffect::Order;
        Loss { effect, ..Loss::entries(file, 0..u64::MAX) }
    }

    /// The same with the first and the last operation of the extent.
    #[must_use]
    pub fn with_sequences(mut self, first: u64, last: u64) -> Self {
        self.sequences = (first <= last).then_some((first, last));
        self
    }

    /// The same with the keys on both sides of the extent.
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
    fn a_loss_names_its_extent_in_every_way_that_is_known() {
        let loss = Loss::entries("000001.log", 24..99).with_sequences(7, 9);
        assert_eq!(
            loss.to_string(),
            "lost what was in 000001.log, bytes 24 to 99, operations 7 to 9"
        );
        let loss = Loss::entries("000004.sst", 0..u64::MAX).with_keys(Some(b"a"), None);
        assert_eq!(loss.to_string(), "lost what was in 000004.sst, keys from a on");
        assert!(Loss::order("CURRENT").to_string().contains("CURRENT"));
        let mut report = RepairReport::from("sound".to_owned());
        assert!(report.is_lossless());
        report.lose(loss);
        assert_eq!((report.lines.len(), report.is_lossless()), (2, false));
    }
}
