//! The parameters of a table that are fixed at its creation and stored in its files.

use crate::hash::HashKind;

/// The configuration that is fixed for the life of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TrieConfig {
    pub(crate) hash: HashKind,
    pub(crate) fanout_bits: u32,
}
