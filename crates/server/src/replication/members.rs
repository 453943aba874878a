//! The members' addresses, in rows of the table: so the log and snapshots carry them to all nodes.
//!
//! ```text
// ANCHOR: layout
//! key   := 0xff 0xc0 0xfe "member"  node:u64, big endian
//! value := version:u8  directory:u64, little endian  address     UTF-8: IP:PORT@PORT
//!
//! key   := 0xff 0xc0 0xfe "next-node"
//! value := the smallest number that no node has had:u64, little endian
// ANCHOR_END: layout
//! ```
//!
//! The directory is the random id of the node's directory if it has joined, else 0. The address has
//! the port for clients, and behind the @ the port for the other nodes. A reader ignores rows of a
//! newer version. Who is a member, Raft's configuration says; a row without a member is removed.

use std::collections::BTreeMap;

use siltstone_engine::{Cursor, Engine, KeyRange, Result, WriteBatch};

use super::options::Member;

/// Keys of the rows of members, before the node's number.
pub(crate) const MEMBER_PREFIX: &[u8] = b"\xff\xc0\xfemember";
const NEXT_KEY: &[u8] = b"\xff\xc0\xfenext-node";
const VERSION: u8 = 1;

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemberRow {
    pub(crate) member: Member,
    /// The id of the directory that has joined; 0 for the first nodes of the group.
    pub(crate) directory: u64,
}

/// All rows of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MemberRows {
    pub(crate) by_node: BTreeMap<u64, MemberRow>,
    /// The smallest number that no node has had, as far as rows say.
    pub(crate) next_node: u64,
}

impl MemberRows {
    /// Reads the rows of a table.
    pub(crate) fn read(table: &dyn Engine) -> Result<Self> {
        let mut rows = MemberRows::default();
        if let Some(entry) = table.get(NEXT_KEY)? {
            rows.next_node = entry.value.first_chunk().map_or(0, |next| u64::from_le_bytes(*next));
        }
        let mut cursor = table.range(KeyRange::prefix(MEMBER_PREFIX), None)?;
        let mut is_there = cursor.first()?;
        while is_there {
            if let Some(row) = decode(cursor.as_ref()) {
                rows.by_node.insert(row.member.node, row);
            }
            is_there = cursor.next()?;
        }
        let last = rows.by_node.keys().next_back().copied().unwrap_or_default();
        rows.next_node = rows.next_node.max(last + 1);
        Ok(rows)
    }

    /// The row of a directory that has joined.
    pub(crate) fn of_directory(&self, directory: u64) -> Option<&MemberRow> {
        self.by_node.values().find(|row| directory != 0 && row.directory == directory)
    }
}

fn decode(cursor: &dyn Cursor) -> Option<MemberRow> {
    let node = u64::from_be_bytes(*cursor.key()[MEMBER_PREFIX.len()..].first_chunk()?);
    let (version, rest) = cursor.value().split_first()?;
    let (directory, address) = rest.split_first_chunk()?;
    let address = std::str::from_utf8(address).ok().filter(|_| *version == VERSION)?;
    let member = Member::at(node, address).ok()?;
    Some(MemberRow { member, directory: u64::from_le_bytes(*directory) })
}

fn key(node: u64) -> Vec<u8> {
    [MEMBER_PREFIX, &node.to_be_bytes()].concat()
}

/// Adds a row to the batch, and notes that its number is taken.
pub(crate) fn put(batch: &mut WriteBatch, row: &MemberRow, next_node: u64) {
    let address = row.member.address();
    let value = [&[VERSION][..], &row.directory.to_le_bytes(), address.as_bytes()].concat();
    batch.put(&key(row.member.node), &value);
    batch.put(NEXT_KEY, &next_node.max(row.member.node + 1).to_le_bytes());
}

/// Adds the removal of a row.
pub(crate) fn remove(batch: &mut WriteBatch, node: u64) {
    batch.delete(&key(node));
}
