//! The row of a table with the last applied entry of its group's log, and the members after it.
//!
//! The row is written in the batch whose effect it describes, so the two cannot disagree after a
//! power cut. All integers are little endian; the table's own checksums cover the row.
//!
//! ```text
// ANCHOR: layout
//! key   := 0xff 0xc0 0xff "applied"
//! value := version:u8  index:u64  term:u64
//!          voters  learners  outgoing  learners_next  auto_leave:u8
//! voters, learners, outgoing, learners_next := count:u32  node:u64[count]
// ANCHOR_END: layout
//! ```
//!
//! `outgoing` and what follows are not empty during a joint change of membership only. A reader
//! refuses a newer version.

use raft::eraftpb::ConfState;
use siltstone_engine::{BatchOp, Engine, Error, KeyRange, ReadPoint, Result, WriteBatch};
use siltstone_table::fixed::{take_u32, take_u64};

/// Keys with this prefix belong to the group itself; a user's key is never one of them. The server
/// never stores a user's key there either: it escapes keys that begin with `ff c0`.
pub const RESERVED_PREFIX: [u8; 3] = [0xff, 0xc0, 0xff];

/// Keys of the other rows of a group that are not its user's begin with this.
pub const OWN_ROWS: &[u8] = b"\xff\xc0\xfe";

/// A batch that only writes this key marks a point in the log: its entry is applied as the last one
/// of a batch. So every node that applies it can look at its table as of exactly this entry.
pub const POINT_KEY: &[u8] = b"\xff\xc0\xfepoint";

const KEY: &[u8] = b"\xff\xc0\xffapplied";
/// The first key after the reserved ones.
const AFTER_RESERVED: [u8; 2] = [0xff, 0xc1];
const VERSION: u8 = 1;
/// The row in error messages.
const ROW: &str = "the row \\xff\\xc0\\xffapplied";

/// The last applied entry and the members after it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Applied {
    /// The index of the entry; 0 if none.
    pub index: u64,
    /// The term of the entry.
    pub term: u64,
    /// The members.
    pub members: ConfState,
}

impl Applied {
    /// Reads the row, as of `at` or now; `None` if the table has none.
    ///
    /// # Errors
    /// Those of the read; `Corruption` if the row is malformed; `Refused` for a newer version.
    pub fn read(table: &dyn Engine, at: Option<&ReadPoint>) -> Result<Option<Self>> {
        let entry = match at {
            Some(at) => table.get_at(KEY, at)?,
            None => table.get(KEY)?,
        };
        let Some(entry) = entry else { return Ok(None) };
        let mut bytes = entry.value.as_slice();
        match bytes.split_off_first() {
            Some(&VERSION) => {}
            Some(version) => {
                let reason = format!("the row has version {version}; run a newer program");
                return Err(Error::Refused { path: ROW.into(), reason });
            }
            None => return Err(malformed()),
        }
        decode(&mut bytes).map(Some).ok_or_else(malformed)
    }

    /// Sets the members, sorted: the row of an index is the same on all nodes.
    pub(crate) fn set_members(&mut self, mut members: ConfState) {
        members.voters.sort_unstable();
        members.learners.sort_unstable();
        members.voters_outgoing.sort_unstable();
        members.learners_next.sort_unstable();
        self.members = members;
    }

    /// Adds the row to the batch.
    pub fn put_into(&self, batch: &mut WriteBatch) {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.term.to_le_bytes());
        push_members(&mut out, &self.members);
        batch.put(KEY, &out);
    }
}

/// The keys after `after`, or all; the caller skips those that are reserved ([`is_reserved`]).
pub(crate) fn keys_after(after: Option<&[u8]>) -> KeyRange {
    use std::ops::Bound::{Excluded, Unbounded};
    let start = after.map_or(Unbounded, |key| Excluded(key.to_vec()));
    KeyRange { start, end: Unbounded }
}

/// Whether a key belongs to the group itself.
pub(crate) fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(&RESERVED_PREFIX)
}

/// Checks that the batch changes no reserved key, and that all nodes can apply it alike: a merge
/// depends on the operator that each node has.
pub(crate) fn check_user_batch(batch: &WriteBatch) -> Result<()> {
    if batch.merges() > 0 {
        let reason = "merges are not replicated; write the merged value";
        return Err(Error::Invalid(reason.into()));
    }
    let is_bad = batch.iter_all().any(|op| match op {
        BatchOp::Point(op) => is_reserved(op.key()),
        BatchOp::Merge { .. } => true,
        BatchOp::DeleteRange { start, end } => {
            start < AFTER_RESERVED.as_slice() && end.is_none_or(|end| end > &RESERVED_PREFIX[..])
        }
    });
    match is_bad {
        true => Err(Error::Invalid(
            "keys that begin with the bytes ff c0 ff are reserved in a replicated table; delete \
             ranges before and after them"
                .into(),
        )),
        false => Ok(()),
    }
}

fn decode(bytes: &mut &[u8]) -> Option<Applied> {
    let (index, term) = (take_u64(bytes)?, take_u64(bytes)?);
    let members = take_members(bytes)?;
    bytes.is_empty().then_some(Applied { index, term, members })
}

/// Appends members as in the row.
pub(crate) fn push_members(out: &mut Vec<u8>, members: &ConfState) {
    for nodes in
        [&members.voters, &members.learners, &members.voters_outgoing, &members.learners_next]
    {
        out.extend_from_slice(&(nodes.len() as u32).to_le_bytes());
        nodes.iter().for_each(|node| out.extend_from_slice(&node.to_le_bytes()));
    }
    out.push(u8::from(members.auto_leave));
}

/// Decodes members from the front of the bytes.
pub(crate) fn take_members(bytes: &mut &[u8]) -> Option<ConfState> {
    Some(ConfState {
        voters: take_nodes(bytes)?,
        learners: take_nodes(bytes)?,
        voters_outgoing: take_nodes(bytes)?,
        learners_next: take_nodes(bytes)?,
        auto_leave: *bytes.split_off_first()? != 0,
        ..ConfState::default()
    })
}

fn take_nodes(bytes: &mut &[u8]) -> Option<Vec<u64>> {
    let count = take_u32(bytes)?;
    (0..count).map(|_| take_u64(bytes)).collect()
}

fn malformed() -> Error {
    Error::corruption(ROW, 0, "it is malformed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_with_reserved_key_is_rejected() {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").put(b"\xff\xc0", b"2").put(b"\xff\xff", b"3");
        batch.delete_range(&b"b"[..]..&b"\xff\xc0\xff"[..]).delete_range(&b"\xff\xc1"[..]..);
        assert!(check_user_batch(&batch).is_ok());
        for change in [
            |batch: &mut WriteBatch| batch.put(KEY, b"").len(),
            |batch: &mut WriteBatch| batch.delete(&RESERVED_PREFIX).len(),
            |batch: &mut WriteBatch| batch.delete_range(&b"b"[..]..).len(),
            |batch: &mut WriteBatch| batch.delete_range(&b"\xff\xc0\xffz"[..]..).len(),
            |batch: &mut WriteBatch| batch.delete_range(&b"b"[..]..=&RESERVED_PREFIX[..]).len(),
        ] {
            let mut batch = batch.clone();
            change(&mut batch);
            assert!(check_user_batch(&batch).is_err());
        }
    }
}
