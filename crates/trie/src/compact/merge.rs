//! Merging tables as streams: the newest item of every key, in the order of hashes.
//!
//! ```text
//!   hash space   │ stretch 0 │ stretch 1 │ stretch 2 │ …          as many as the finest table has segments
//!   table 9      │ segment   │ segment   │ segment   │
//!   table 8      │ segment               │ segment               its items wait for their stretch
//!   table 7      │ segment   │ segment   │ segment   │
//! ```
//!
//! Tables have powers of two of segments, so every stretch lies in one segment of each. A stretch's
//! items are brought into one order by a stable sort of runs that are sorted already; of equal hashes
//! the keys decide. In memory is one segment of each table, some 512 KiB and 36 bytes for each of its
//! items, whatever the tables' size.
//!
//! Invariant: of every key exactly one item comes out, from the first table that has it.
//!
//! Source: LSM-trie paper, section 2.3; the streams are ours.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};

use crate::hash::{Hash, HashKind};
use crate::htable::{Expected, HTable, Stream};
use crate::item::Item;

/// A merge under way.
pub(crate) struct Merge {
    /// Newest first.
    inputs: Vec<Input>,
    expected: Expected,
    last_sequence: u64,
    bits: u32,
    /// The stretch to come.
    next: u64,
    /// The stretch in hand: hash, input, and the item's number there; of every key the newest.
    order: Vec<(Hash, u32, u32)>,
}

struct Input {
    stream: Stream,
    /// Items of its segment that earlier stretches took.
    taken: usize,
}

impl Merge {
    /// Of `tables`, which come newest first.
    pub(crate) fn new(tables: &[Arc<HTable>], hash: HashKind, purpose: Purpose) -> Self {
        let input = |table: &Arc<HTable>| Input {
            stream: Stream::new(table.clone(), hash, purpose),
            taken: 0,
        };
        let inputs: Vec<Input> = tables.iter().map(input).collect();
        let expected = Expected {
            items: tables.iter().map(|table| table.entries()).sum(),
            bytes: tables.iter().map(|table| table.bytes()).sum(),
        };
        let bits = inputs.iter().map(|input| input.stream.bits()).max().unwrap_or(0);
        let last_sequence = tables.iter().map(|table| table.origin().last_sequence).max();
        let last_sequence = last_sequence.unwrap_or(0);
        Merge { inputs, expected, last_sequence, bits, next: 0, order: Vec::new() }
    }

    /// Goes on at the stretch that holds `hash`, as if those before had been seen.
    pub(crate) fn skip_to(&mut self, hash: Hash) {
        self.next = stretch(hash, self.bits);
        for input in &mut self.inputs {
            let segment = self.next >> (self.bits - input.stream.bits());
            input.stream.skip_to(segment as usize);
        }
    }

    /// What goes in.
    pub(crate) fn expected(&self) -> Expected {
        self.expected
    }

    /// The newest sequence number in it.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Takes the next stretch in hand; `false`: there is none.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub(crate) fn next_stretch(&mut self) -> Result<bool> {
        self.order.clear();
        if self.next == 1 << self.bits || self.inputs.is_empty() {
            return Ok(false);
        }
        let (bits, next) = (self.bits, self.next);
        let stretch_of = |hash: Hash| stretch(hash, bits);
        for (age, input) in (0u32..).zip(&mut self.inputs) {
            let segment = (self.next >> (self.bits - input.stream.bits())) as usize;
            if input.stream.loaded() == segment {
                input.stream.load_next()?;
                // Items of earlier stretches were skipped.
                let slots = input.stream.slots();
                input.taken = slots.partition_point(|slot| stretch_of(slot.hash) < next);
            }
            let slots = &input.stream.slots()[input.taken..];
            let count = slots.partition_point(|slot| stretch_of(slot.hash) == next);
            let here = (input.taken as u32..).zip(&slots[..count]);
            self.order.extend(here.map(|(at, slot)| (slot.hash, age, at)));
            input.taken += count;
        }
        self.next += 1;
        // Stable: of equal hashes the newest stays first.
        self.order.sort_by_key(|&(hash, ..)| hash);
        self.drop_shadowed()?;
        Ok(true)
    }

    /// Of items with one hash, almost always of one key, the first of every key stays.
    fn drop_shadowed(&mut self) -> Result<()> {
        let mut order = std::mem::take(&mut self.order);
        let (mut kept, mut group) = (0, 0);
        for at in 0..order.len() {
            let item = order[at];
            if kept > group && order[group].0 != item.0 {
                group = kept;
            }
            let mut is_shadowed = false;
            for newer in &order[group..kept] {
                is_shadowed = is_shadowed || self.have_one_key(newer, &item)?;
            }
            if !is_shadowed {
                order[kept] = item;
                kept += 1;
            }
        }
        order.truncate(kept);
        self.order = order;
        Ok(())
    }

    fn have_one_key(&self, one: &(Hash, u32, u32), other: &(Hash, u32, u32)) -> Result<bool> {
        let stream = |&(_, age, _): &(Hash, u32, u32)| &self.inputs[age as usize].stream;
        stream(one).with_item(one.2 as usize, |one| {
            stream(other).with_item(other.2 as usize, |other| Ok(one.key == other.key))
        })
    }

    /// Shows the items of the stretch in hand: the newest of every key, deletions counted, in the
    /// order of hashes.
    ///
    /// # Errors
    /// `Corruption`; the medium's; those of `look`.
    pub(crate) fn each(&self, mut look: impl FnMut(Hash, &Item<'_>) -> Result<()>) -> Result<()> {
        for &(hash, age, at) in &self.order {
            let stream = &self.inputs[age as usize].stream;
            stream.with_item(at as usize, |item| look(hash, item))?;
        }
        Ok(())
    }

    /// Bytes that it holds in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let inputs: usize = self.inputs.iter().map(|input| input.stream.memory_bytes()).sum();
        inputs + self.order.capacity() * size_of::<(Hash, u32, u32)>()
    }
}

/// The stretch of a hash if there are 2^`bits`.
fn stretch(hash: Hash, bits: u32) -> u64 {
    (u128::from(hash.suffix) >> (64 - bits)) as u64
}
