//! The index of all commands: their definitions by name and by number.
//!
//! The number of a command is its place in the order of names. It stands for the command in the
//! client registry, in the metrics and in queued transactions.

use super::definition::Definition;

/// Definitions of all commands.
pub(crate) struct CommandIndex {
    /// Packed names in the order of `definitions`, contiguous for the binary search.
    names: Vec<Packed>,
    /// Sorted by packed name.
    definitions: Vec<Definition>,
}

impl CommandIndex {
    /// Indexes definitions that are sorted by [`pack`]ed name.
    pub(super) fn new(definitions: Vec<Definition>) -> Self {
        let names = definitions.iter().filter_map(|d| pack(d.name.as_bytes())).collect();
        CommandIndex { names, definitions }
    }

    /// All definitions, sorted by packed name.
    pub(crate) fn all(&self) -> &[Definition] {
        &self.definitions
    }

    /// Number of a command, case-insensitive. Does not allocate.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        let name = pack(name)?;
        self.names.binary_search(&name).ok()
    }
}

impl std::ops::Index<usize> for CommandIndex {
    type Output = Definition;

    fn index(&self, number: usize) -> &Definition {
        &self.definitions[number]
    }
}

/// A packed name: its first 16 bytes, and the others.
pub(super) type Packed = (u128, u32);

/// Packs a name of up to 20 bytes into numbers of the same order, in lower case.
#[inline]
pub(super) fn pack(name: &[u8]) -> Option<Packed> {
    // Trailing zeros would be confused with padding.
    if name.last() == Some(&0) {
        return None;
    }
    let mut bytes = [0; 20];
    let slot = bytes.get_mut(..name.len())?;
    slot.copy_from_slice(name);
    bytes.make_ascii_lowercase();
    let (first, rest) = bytes.split_first_chunk()?;
    Some((u128::from_be_bytes(*first), u32::from_be_bytes(*rest.first_chunk()?)))
}
