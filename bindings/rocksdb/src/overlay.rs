//! Writes that lie over a database: those of an indexed batch or of a transaction.
//!
//! Of each key an overlay has the change: the new value, or a deletion, or what the database has,
//! with operands of merges on top. The stored value is needed only to resolve operands over it.

use std::collections::BTreeMap;

use crate::failure::Failure;
use crate::families::Families;
use crate::layout;

/// Changes by the keys of the store.
pub type Overlay = BTreeMap<Vec<u8>, Change>;

/// What an overlay does to a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    base: Base,
    operands: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Base {
    /// What is in the database.
    #[default]
    Stored,
    Deleted,
    Value(Vec<u8>),
}

impl Change {
    /// A new value.
    pub fn put(value: &[u8]) -> Self {
        Change { base: Base::Value(value.to_vec()), operands: Vec::new() }
    }

    /// A deletion.
    pub fn delete() -> Self {
        Change { base: Base::Deleted, operands: Vec::new() }
    }

    /// One more operand.
    pub fn merge(&mut self, operand: &[u8]) {
        self.operands.push(operand.to_vec());
    }

    /// Whether the value depends on the stored one.
    pub fn needs_stored(&self) -> bool {
        self.base == Base::Stored
    }

    /// The value of a key after the change; `stored` is the one in the database.
    pub fn resolve(
        &self,
        families: &Families,
        key: &[u8],
        stored: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let base = match &self.base {
            Base::Stored => stored,
            Base::Deleted => None,
            Base::Value(value) => Some(value.as_slice()),
        };
        if self.operands.is_empty() {
            return Ok(base.map(<[u8]>::to_vec));
        }
        let (family, key) = layout::split(key).unwrap_or_default();
        let merge = families.merge_of(family);
        let merge =
            merge.ok_or_else(|| Failure::invalid("the column family has no merge operator"))?;
        let operands: Vec<&[u8]> = self.operands.iter().map(Vec::as_slice).collect();
        merge.full(key, base, &operands).map(Some).map_err(Failure::invalid)
    }
}
