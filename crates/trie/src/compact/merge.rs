//! Merges tables as streams: the newest item of every key, in hash order.
//!
//! ```text
//!   hash space   │ range 0   │ range 1   │ range 2   │ …     as many as the finest table's segments
//!   table 9      │ segment   │ segment   │ segment   │
//!   table 8      │ segment               │ segment         its items wait for their range
//!   table 7      │ segment   │ segment   │ segment   │
//! ```
//!
//! The number of segments of a table is a power of two, so every range is within one segment of
//! each table. The items of a range are ordered by a stable sort of runs that are sorted already;
//! for equal hashes the keys are compared. In memory is one segment of each table: about 512 KiB,
//! and 36 bytes per item of it, whatever the size of the tables.
//!
//! Invariant: exactly one item of every key is returned, from the first table that has it.
//!
//! Source: LSM-trie paper, section 2.3.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};

use crate::hash::{Hash, HashKind};
use crate::htable::{ExpectedSize, HTable, Stream};
use crate::item::Item;

/// A merge of tables.
pub(crate) struct Merge {
    /// Newest first.
    inputs: Vec<Input>,
    expected: ExpectedSize,
    last_sequence: u64,
    bits: u32,
    /// The next hash range.
    next: u64,
    /// The current range: hash, input, and item number; only the newest item of every key.
    order: Vec<(Hash, u32, u32)>,
}

struct Input {
    stream: Stream,
    /// The number of items of its segment in earlier ranges.
    consumed: usize,
}

impl Merge {
    /// A merge of `tables`, which are newest first.
    pub(crate) fn new(tables: &[Arc<HTable>], hash: HashKind, purpose: Purpose) -> Self {
        let input = |table: &Arc<HTable>| Input {
            stream: Stream::new(table.clone(), hash, purpose),
            consumed: 0,
        };
        let inputs: Vec<Input> = tables.iter().map(input).collect();
        let expected = ExpectedSize {
            items: tables.iter().map(|table| table.entries()).sum(),
            bytes: tables.iter().map(|table| table.bytes()).sum(),
        };
        let bits = inputs.iter().map(|input| input.stream.bits()).max().unwrap_or(0);
        let last_sequence = tables.iter().map(|table| table.origin().last_sequence).max();
        let last_sequence = last_sequence.unwrap_or(0);
        Merge { inputs, expected, last_sequence, bits, next: 0, order: Vec::new() }
    }

    /// Skips to the range with `hash`.
    pub(crate) fn skip_to(&mut self, hash: Hash) {
        self.next = range_of(hash, self.bits);
        for input in &mut self.inputs {
            let segment = self.next >> (self.bits - input.stream.bits());
            input.stream.skip_to(segment as usize);
        }
    }

    /// The total size of the inputs.
    pub(crate) fn expected(&self) -> ExpectedSize {
        self.expected
    }

    /// The newest sequence number of the inputs.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Loads the next range; `false`: there is none.
    ///
    /// # Errors
    /// `Corruption`; errors of the file system.
    pub(crate) fn next_range(&mut self) -> Result<bool> {
        self.order.clear();
        if self.next == 1 << self.bits || self.inputs.is_empty() {
            return Ok(false);
        }
        let (bits, next) = (self.bits, self.next);
        let range_of_hash = |hash: Hash| range_of(hash, bits);
        for (age, input) in (0u32..).zip(&mut self.inputs) {
            let segment = (self.next >> (self.bits - input.stream.bits())) as usize;
            if input.stream.loaded() == segment {
                input.stream.load_next()?;
                // Skips the items of earlier ranges.
                let slots = input.stream.slots();
                input.consumed = slots.partition_point(|slot| range_of_hash(slot.hash) < next);
            }
            let slots = &input.stream.slots()[input.consumed..];
            let count = slots.partition_point(|slot| range_of_hash(slot.hash) == next);
            let in_range = (input.consumed as u32..).zip(&slots[..count]);
            self.order.extend(in_range.map(|(at, slot)| (slot.hash, age, at)));
            input.consumed += count;
        }
        self.next += 1;
        // Stable: of equal hashes the newest stays first.
        self.order.sort_by_key(|&(hash, ..)| hash);
        self.drop_shadowed()?;
        Ok(true)
    }

    /// Keeps the first item of every key among items with equal hashes, which nearly always are one
    /// key.
    fn drop_shadowed(&mut self) -> Result<()> {
        let mut order = std::mem::take(&mut self.order);
        let (mut retained, mut group) = (0, 0);
        for at in 0..order.len() {
            let item = order[at];
            if retained > group && order[group].0 != item.0 {
                group = retained;
            }
            let mut is_shadowed = false;
            for newer in &order[group..retained] {
                is_shadowed = is_shadowed || self.have_same_key(newer, &item)?;
            }
            if !is_shadowed {
                order[retained] = item;
                retained += 1;
            }
        }
        order.truncate(retained);
        self.order = order;
        Ok(())
    }

    fn have_same_key(&self, one: &(Hash, u32, u32), other: &(Hash, u32, u32)) -> Result<bool> {
        let stream = |&(_, age, _): &(Hash, u32, u32)| &self.inputs[age as usize].stream;
        stream(one).with_item(one.2 as usize, |one| {
            stream(other).with_item(other.2 as usize, |other| Ok(one.key == other.key))
        })
    }

    /// Visits the items of the current range in hash order: the newest item of every key, deletions
    /// included.
    ///
    /// # Errors
    /// `Corruption`; errors of the file system; those of `visit`.
    pub(crate) fn for_each(
        &self,
        mut visit: impl FnMut(Hash, &Item<'_>) -> Result<()>,
    ) -> Result<()> {
        for &(hash, age, at) in &self.order {
            let stream = &self.inputs[age as usize].stream;
            stream.with_item(at as usize, |item| visit(hash, item))?;
        }
        Ok(())
    }

    /// Memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let inputs: usize = self.inputs.iter().map(|input| input.stream.memory_bytes()).sum();
        inputs + self.order.capacity() * size_of::<(Hash, u32, u32)>()
    }
}

/// The range of a hash out of 2^`bits`.
fn range_of(hash: Hash, bits: u32) -> u64 {
    (u128::from(hash.suffix) >> (64 - bits)) as u64
}
