//! Sets: distinct members. Rows lie in the order of the members' hashes.

use siltstone_engine::Result;

use crate::collection::{Below, Collection, Page};
use crate::error::Result as OpenResult;
use crate::hash::name_in;
use crate::layout::Space;
use crate::metadata::{Encoding, Kind, Metadata};
use crate::rows::Order;
use crate::write_set::WriteSet;

/// A set in a [`WriteSet`].
///
/// Every change also writes the metadata. Errors are those of reads.
#[derive(Debug)]
pub struct Set<'w, 'r>(pub(crate) Collection<'w, 'r>);

impl<'w, 'r> Set<'w, 'r> {
    /// Opens the set at a key; an empty one if the key is missing.
    ///
    /// # Errors
    /// [`Error::WrongType`](crate::Error::WrongType), and those of reads.
    pub fn open(writes: &'w mut WriteSet<'r>, key: &'w [u8]) -> OpenResult<Self> {
        Ok(Set(Collection::open(writes, key, Kind::Set)?))
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// Number of members.
    pub fn len(&self) -> u64 {
        self.0.metadata.count
    }

    /// Whether the set is missing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has a member. Cost: a lookup.
    ///
    /// # Errors
    /// Those of reads.
    pub fn contains(&self, member: &[u8]) -> Result<bool> {
        self.0.has(&self.0.hashed(Space::Members, member))
    }

    /// Adds a member, and returns whether it is new.
    ///
    /// # Errors
    /// Those of reads.
    pub fn insert(&mut self, member: &[u8]) -> Result<bool> {
        let key = self.0.hashed(Space::Members, member);
        if self.0.has(&key)? {
            return Ok(false);
        }
        self.0.metadata.count += 1;
        let count = self.0.metadata.count;
        let before = self.0.metadata.encoding;
        self.0.metadata.encoding = self.0.limits().of_set(before, count, member);
        self.0.put(&key, &[]);
        self.0.save();
        Ok(true)
    }

    /// Removes a member, and returns whether it existed.
    ///
    /// # Errors
    /// Those of reads.
    pub fn remove(&mut self, member: &[u8]) -> Result<bool> {
        let key = self.0.hashed(Space::Members, member);
        let is_there = self.0.has(&key)?;
        if is_there {
            self.0.metadata.count -= 1;
            self.0.delete(&key);
            self.0.save();
        }
        Ok(is_there)
    }

    /// Removes all members, at a cost that does not depend on their number.
    pub fn clear(&mut self) {
        self.0.metadata.count = 0;
        self.0.save();
    }

    /// Visits the members until `visit` returns false. Cost: a step per member.
    ///
    /// # Errors
    /// Those of reads.
    pub fn for_each(&self, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        let range = self.0.space(Space::Members);
        self.0.scan(&range, Order::Ascending.keys_only(), &mut |row| visit(name_in(row.key)))
    }

    /// All members.
    ///
    /// # Errors
    /// Those of reads.
    pub fn members(&self) -> Result<Vec<Vec<u8>>> {
        let mut members = Vec::new();
        self.for_each(&mut |member| {
            members.push(member.to_vec());
            true
        })?;
        Ok(members)
    }

    /// Members from a position on, and the next position, as [`Hash::scan`](crate::Hash::scan).
    ///
    /// # Errors
    /// Those of reads.
    pub fn scan(&self, from: u32, count: usize) -> Result<Page<Vec<u8>>> {
        let (rows, next) = self.0.scan_hashed(Space::Members, from, count)?;
        Ok((rows.iter().map(|(key, _)| name_in(key).to_vec()).collect(), next))
    }

    /// A random member, with the probabilities and cost of [`Hash::draw`](crate::Hash::draw).
    ///
    /// # Errors
    /// Those of reads.
    pub fn draw(&self, below: &mut Below<'_>) -> Result<Option<Vec<u8>>> {
        Ok(self.0.draw(Space::Members, below)?.map(|(key, _)| name_in(&key).to_vec()))
    }

    /// Whether Redis would store it compactly.
    pub fn is_compact(&self) -> bool {
        self.0.metadata.encoding < Encoding::Large
    }
}
