//! Merge operators and compaction filters of column families, as those of the table.
//!
//! The table has one operator and one filter, which look up the column family of the key. The
//! operator has one name for all databases, so the program may change its own, as in RocksDB. A key
//! whose family has no operator, also while the families are being read at open, keeps its operands
//! and fails its reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use store::{
    CompactionFilter, FilterContent, FilterDecision, FilterPass, FilterRow, MergeOperator,
};

use crate::callbacks::{FilterCallbacks, MergeCallbacks};
use crate::families::Families;
use crate::layout;

/// A merge operator of a column family.
#[derive(Debug, Clone)]
pub enum Merge {
    /// Functions of the program.
    Program(Arc<MergeCallbacks>),
    /// The sum of 64-bit integers, little-endian. Other lengths count as 0.
    AddU64,
}

impl Merge {
    /// The value after the operands.
    pub fn full(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        match self {
            Merge::Program(operator) => operator.full_merge(key, value, operands),
            Merge::AddU64 => {
                let all = value.iter().chain(operands);
                Ok(all.fold(0u64, |sum, part| sum.wrapping_add(integer(part))).to_le_bytes().into())
            }
        }
    }

    fn partial(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        match self {
            Merge::Program(operator) => operator.partial_merge(key, operands),
            Merge::AddU64 => self.full(key, None, operands).ok(),
        }
    }
}

fn integer(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// The operator and the filter of the table.
#[derive(Debug, Clone)]
pub struct Dispatch(pub Arc<Families>);

impl MergeOperator for Dispatch {
    fn name(&self) -> &str {
        "rocksdb.families"
    }

    fn full_merge(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        let (family, key) = layout::split(key).ok_or("no key of a column family")?;
        let merge = self.0.merge_of(family).ok_or("the column family has no merge operator")?;
        merge.full(key, value, operands)
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let (family, key) = layout::split(key)?;
        self.0.merge_of(family)?.partial(key, operands)
    }
}

impl CompactionFilter for Dispatch {
    fn begin<'a>(&'a self, _content: &'a dyn FilterContent) -> Box<dyn FilterPass + 'a> {
        // A filter of a factory lives for one pass.
        let mut filters: BTreeMap<u32, Option<Arc<FilterCallbacks>>> = BTreeMap::new();
        Box::new(move |row: FilterRow<'_>| {
            let Some((family, key)) = layout::split(row.key) else { return FilterDecision::Keep };
            let filter = filters.entry(family).or_insert_with(|| self.0.filter_of(family));
            filter.as_ref().map_or(FilterDecision::Keep, |filter| filter.decide(key, row.value))
        })
    }
}
