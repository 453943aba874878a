//! The value of a key whose newest version is an operand of a merge.
//!
//! A lookup or a cursor that meets an operand reads the key here: operands from the newest to the
//! oldest, through the memtables and then a merge of all files, until a value, a deletion or the
//! end of the key is met. Cost: the lookup of the key in each run that may have it, and the
//! operands that no compaction has folded.

use std::sync::Arc;

use siltstone_engine::{MergeOperator, Result, Timestamp, merge_operator};
use siltstone_table::Kind;

use super::merge::Merge;
use super::view_deletes;
use crate::memtable::kind_of;
use crate::merge_chain::MergeChain;
use crate::view::View;

/// Reads merged values from a view.
pub(super) struct MergeReader {
    pub(super) operator: Option<Arc<dyn MergeOperator>>,
    /// Whether RowTables narrow each other's searches.
    pub(super) hints: bool,
}

/// The version below all operands.
enum Base {
    Missing,
    Value(Vec<u8>, Option<Timestamp>),
}

impl MergeReader {
    /// The value of `key` in the view as of `at`, if operands are its newest versions, and when it
    /// expires. `now` is the time.
    ///
    /// # Errors
    /// `Invalid`: no operator is set, or it fails.
    pub(super) fn read(
        &self,
        view: &Arc<View>,
        key: &[u8],
        at: u64,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<Option<(Vec<u8>, Option<Timestamp>)>> {
        let fail = |reason: &str| Err(merge_operator::failure(key, reason));
        let Some(operator) = &self.operator else {
            let name = view.version.merge_operator.as_deref();
            return fail(&format!(
                "no merge operator is set; set '{}' after the open",
                name.unwrap_or("the one that they were written for")
            ));
        };
        let mut chain = MergeChain::default();
        let (value, expires_at) = match self.collect(view, key, at, &mut chain)? {
            Base::Missing => (None, None),
            Base::Value(_, Some(expires_at)) if expires_at <= now() => (None, None),
            Base::Value(value, expires_at) => (Some(value), expires_at),
        };
        if chain.is_empty() {
            // They are in the value below them already.
            return Ok(value.map(|value| (value, expires_at)));
        }
        match chain.full_merge(operator.as_ref(), key, value.as_deref()) {
            Ok(merged) => Ok(Some((merged, expires_at))),
            Err(reason) => fail(&reason),
        }
    }

    /// Collects the operands down to the base.
    fn collect(
        &self,
        view: &Arc<View>,
        key: &[u8],
        at: u64,
        chain: &mut MergeChain,
    ) -> Result<Base> {
        let deleted = view_deletes::newest(view, key, at);
        let mut take = |sequence: u64, kind: Kind, number: u64, value: &[u8]| {
            if sequence < deleted {
                return Some(Base::Missing);
            }
            if kind == Kind::Merge {
                chain.push(sequence, number, value);
                return None;
            }
            chain.remove_up_to(sequence);
            Some(match kind {
                Kind::Delete => Base::Missing,
                Kind::PutExpiring => Base::Value(value.to_vec(), Some(number)),
                _ => Base::Value(value.to_vec(), None),
            })
        };
        for entry in view.memtables().filter_map(|memtable| memtable.tree().entry(key)) {
            for version in entry.versions().filter(|version| version.sequence <= at) {
                let (kind, number) = (kind_of(version.kind), version.expires_at);
                if let Some(base) = take(version.sequence, kind, number, version.value) {
                    return Ok(base);
                }
            }
        }
        let mut merge = Merge::of_files(view.clone(), self.hints);
        merge.seek(key, at)?;
        while merge.valid() && merge.key() == key {
            merge.resolve()?;
            let (sequence, kind, number) = (merge.sequence(), merge.kind(), merge.expires_at());
            if let Some(base) = take(sequence, kind, number, merge.value()) {
                return Ok(base);
            }
            merge.next()?;
        }
        Ok(Base::Missing)
    }
}
