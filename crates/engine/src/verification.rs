//! The result of a verification: how much was checked, and the damage that was found.

#[cfg(feature = "serde")]
use serde::Serialize;

use crate::{Error, Result};

/// The result of [`Engine::verify`](crate::Engine::verify).
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Bytes read and checked.
    pub bytes: u64,
    /// Entries read, counting all versions.
    pub entries: u64,
    /// The damage found.
    pub damage: Vec<Damage>,
}

impl VerifyReport {
    /// Records the result of checking one file: its bytes and entries, or its damage.
    ///
    /// # Errors
    /// Any error other than `Corruption`: the file could not be checked.
    pub fn note(&mut self, checked: Result<(u64, u64)>) -> Result<()> {
        match checked {
            Ok((bytes, entries)) => {
                self.bytes += bytes;
                self.entries += entries;
            }
            Err(Error::Corruption { file, offset, reason }) => {
                self.damage.push(Damage { file, offset, reason });
            }
            Err(other) => return Err(other),
        }
        self.files += 1;
        Ok(())
    }

    /// Whether no damage was found.
    pub fn is_intact(&self) -> bool {
        self.damage.is_empty()
    }
}

/// One damaged place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Damage {
    /// The file.
    pub file: String,
    /// The offset in bytes.
    pub offset: u64,
    /// What is wrong.
    pub reason: String,
}
