//! Consumer groups of a stream, their consumers, and the entries that these have yet to
//! acknowledge.
//!
//! ```text
//!   group "g" (number 1)     last id, entries read, number of pending entries
//!     consumer "a" (1)       times, number of pending entries
//!     pending 5-0            consumer "a", time, deliveries     'p' row, by group
//!                            and an empty 'q' row               by group and consumer
//! ```
//!
//! Groups and consumers have numbers, so that the keys of pending entries are short and those of
//! one group are adjacent. Groups and consumers are enumerated in the order of their names.
//!
//! Changes of a group write its own rows. They leave the metadata alone, except that a new group
//! takes a number, and that removing a group writes it so that waiting readers learn of it.
//!
//! Invariant: each pending entry has both rows, of an existing group and consumer, whose counts
//! include it.

use std::ops::{Bound, RangeInclusive};

use siltstone_engine::{KeyRange, Result, Timestamp};

use crate::layout::{ELEMENT_PREFIX_BYTES, Space};
use crate::rows::Order;
use crate::stream::Stream;
use crate::stream_id::StreamId;

/// Bytes of a number in a key.
const NUMBER_BYTES: usize = 8;
/// Stored in place of a number that is not known.
const UNKNOWN: u64 = u64::MAX;

/// A consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Name.
    pub name: Vec<u8>,
    number: u64,
    /// Id of the last entry that was delivered.
    pub last: StreamId,
    /// Number of entries of the stream up to that one, those deleted since included; `None` if it
    /// is not known.
    pub read: Option<u64>,
    /// Number of pending entries.
    pub pending: u64,
    /// Number of the next consumer.
    next_consumer: u64,
}

/// A consumer of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    /// Name.
    pub name: Vec<u8>,
    number: u64,
    /// When it last tried to read or claim.
    pub seen_at: Timestamp,
    /// When it last got an entry, if ever.
    pub active_at: Option<Timestamp>,
    /// Number of pending entries.
    pub pending: u64,
}

/// An entry that was delivered and not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingEntry {
    /// Id of the entry, which may have been deleted.
    pub id: StreamId,
    /// Name of the consumer that has it.
    pub consumer: Vec<u8>,
    /// When it was last delivered.
    pub delivered_at: Timestamp,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// The first `N` numbers of a row, and the rest of it.
fn numbers<const N: usize>(value: &[u8]) -> ([u64; N], &[u8]) {
    let at = |at: usize| value.get(at * NUMBER_BYTES..).and_then(|bytes| bytes.first_chunk());
    let numbers = std::array::from_fn(|i| at(i).map_or(0, |bytes| u64::from_le_bytes(*bytes)));
    (numbers, value.get(N * NUMBER_BYTES..).unwrap_or_default())
}

fn encode(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn decode_group(name: &[u8], value: &[u8]) -> Group {
    let ([number, ms, seq, read, pending, next_consumer], _) = numbers(value);
    let read = (read != UNKNOWN).then_some(read);
    let (name, last) = (name.to_vec(), StreamId { ms, seq });
    Group { name, number, last, read, pending, next_consumer }
}

fn decode_consumer(name: &[u8], value: &[u8]) -> Consumer {
    let ([number, seen_at, active, pending], _) = numbers(value);
    let active_at = (active != UNKNOWN).then_some(active);
    Consumer { name: name.to_vec(), number, seen_at, active_at, pending }
}

fn decode_pending(id: StreamId, value: &[u8]) -> PendingEntry {
    let ([delivered_at, deliveries], consumer) = numbers(value);
    PendingEntry { id, consumer: consumer.to_vec(), delivered_at, deliveries }
}

impl Stream<'_, '_> {
    fn group_key(&self, name: &[u8]) -> Vec<u8> {
        self.0.element(Space::Groups, name, &[])
    }

    fn consumer_key(&self, group: &Group, name: &[u8]) -> Vec<u8> {
        self.0.element(Space::Consumers, &group.number.to_be_bytes(), name)
    }

    fn pending_key(&self, group: &Group, id: StreamId) -> Vec<u8> {
        self.0.element(Space::Pending, &group.number.to_be_bytes(), &id.to_bytes())
    }

    fn consumer_pending_key(&self, group: &Group, consumer: &Consumer, id: StreamId) -> Vec<u8> {
        let head = [group.number.to_be_bytes(), consumer.number.to_be_bytes()].concat();
        self.0.element(Space::PendingByConsumer, &head, &id.to_bytes())
    }

    /// A group. Cost: a lookup.
    ///
    /// # Errors
    /// Those of reads.
    pub fn group(&self, name: &[u8]) -> Result<Option<Group>> {
        Ok(self.0.get(&self.group_key(name))?.map(|value| decode_group(name, &value)))
    }

    /// All groups.
    ///
    /// # Errors
    /// Those of reads.
    pub fn groups(&self) -> Result<Vec<Group>> {
        let mut groups = Vec::new();
        self.0.scan(&self.0.space(Space::Groups), Order::Ascending, &mut |row| {
            let name = row.key.get(ELEMENT_PREFIX_BYTES..).unwrap_or_default();
            groups.push(decode_group(name, row.value));
            true
        })?;
        Ok(groups)
    }

    /// Adds a group, and the stream if it does not exist. Returns whether the group is new.
    ///
    /// # Errors
    /// Those of reads.
    pub fn create_group(&mut self, name: &[u8], last: StreamId, read: Option<u64>) -> Result<bool> {
        if self.group(name)?.is_some() {
            return Ok(false);
        }
        let (name, number) = (name.to_vec(), self.draw_group_number());
        self.save_group(&Group { name, number, last, read, pending: 0, next_consumer: 1 });
        Ok(true)
    }

    /// Writes a changed group.
    pub fn save_group(&mut self, group: &Group) {
        let Group { number, last, read, pending, next_consumer, .. } = *group;
        let read = read.unwrap_or(UNKNOWN);
        let value = encode(&[number, last.ms, last.seq, read, pending, next_consumer]);
        let key = self.group_key(&group.name);
        self.0.put(&key, &value);
    }

    /// Removes a group with its consumers and pending entries. Cost: a deletion for each of them.
    ///
    /// # Errors
    /// Those of reads.
    pub fn remove_group(&mut self, group: &Group) -> Result<()> {
        let mut keys = vec![self.group_key(&group.name)];
        for space in [Space::Consumers, Space::Pending, Space::PendingByConsumer] {
            let range = KeyRange::prefix(&self.0.element(space, &group.number.to_be_bytes(), &[]));
            self.0.scan(&range, Order::Ascending.keys_only(), &mut |row| {
                keys.push(row.key.to_vec());
                true
            })?;
        }
        keys.iter().for_each(|key| self.0.delete(key));
        self.0.save();
        Ok(())
    }

    /// A consumer of a group. Cost: a lookup.
    ///
    /// # Errors
    /// Those of reads.
    pub fn consumer(&self, group: &Group, name: &[u8]) -> Result<Option<Consumer>> {
        let value = self.0.get(&self.consumer_key(group, name))?;
        Ok(value.map(|value| decode_consumer(name, &value)))
    }

    /// All consumers of a group.
    ///
    /// # Errors
    /// Those of reads.
    pub fn consumers(&self, group: &Group) -> Result<Vec<Consumer>> {
        let prefix = self.0.element(Space::Consumers, &group.number.to_be_bytes(), &[]);
        let mut consumers = Vec::new();
        self.0.scan(&KeyRange::prefix(&prefix), Order::Ascending, &mut |row| {
            let name = row.key.get(prefix.len()..).unwrap_or_default();
            consumers.push(decode_consumer(name, row.value));
            true
        })?;
        Ok(consumers)
    }

    /// Adds a consumer, which must not exist.
    pub fn create_consumer(&mut self, group: &mut Group, name: &[u8], now: Timestamp) -> Consumer {
        let number = group.next_consumer;
        group.next_consumer += 1;
        self.save_group(group);
        let name = name.to_vec();
        let consumer = Consumer { name, number, seen_at: now, active_at: None, pending: 0 };
        self.save_consumer(group, &consumer);
        consumer
    }

    /// Writes a changed consumer.
    pub fn save_consumer(&mut self, group: &Group, consumer: &Consumer) {
        let Consumer { number, seen_at, active_at, pending, .. } = *consumer;
        let value = encode(&[number, seen_at, active_at.unwrap_or(UNKNOWN), pending]);
        let key = self.consumer_key(group, &consumer.name);
        self.0.put(&key, &value);
    }

    /// Removes a consumer with its pending entries. Cost: a deletion for each of them.
    ///
    /// # Errors
    /// Those of reads.
    pub fn remove_consumer(&mut self, group: &mut Group, consumer: &Consumer) -> Result<()> {
        let ids = self.pending_of(group, consumer, StreamId::MIN..=StreamId::MAX, u64::MAX)?;
        for id in ids {
            let keys =
                [self.pending_key(group, id), self.consumer_pending_key(group, consumer, id)];
            keys.iter().for_each(|key| self.0.delete(key));
            group.pending -= 1;
        }
        let key = self.consumer_key(group, &consumer.name);
        self.0.delete(&key);
        self.save_group(group);
        Ok(())
    }

    /// A pending entry. Cost: a lookup.
    ///
    /// # Errors
    /// Those of reads.
    pub fn pending(&self, group: &Group, id: StreamId) -> Result<Option<PendingEntry>> {
        let value = self.0.get(&self.pending_key(group, id))?;
        Ok(value.map(|value| decode_pending(id, &value)))
    }

    /// Visits the pending entries of a group in a range of ids until `visit` returns false. Cost: a
    /// seek and a step per entry.
    ///
    /// # Errors
    /// Those of reads.
    pub fn for_each_pending(
        &self,
        group: &Group,
        ids: RangeInclusive<StreamId>,
        order: Order,
        visit: &mut dyn FnMut(PendingEntry) -> bool,
    ) -> Result<()> {
        let bound = |id: &StreamId| Bound::Included(self.pending_key(group, *id));
        let at = ELEMENT_PREFIX_BYTES + NUMBER_BYTES;
        self.visit_ids(ids, bound, order, at, &mut |id, value| visit(decode_pending(id, value)))
    }

    /// Ids of up to `max` pending entries of a consumer in a range of ids. Cost: a seek and a step
    /// per entry.
    ///
    /// # Errors
    /// Those of reads.
    pub fn pending_of(
        &self,
        group: &Group,
        consumer: &Consumer,
        ids: RangeInclusive<StreamId>,
        max: u64,
    ) -> Result<Vec<StreamId>> {
        let bound =
            |id: &StreamId| Bound::Included(self.consumer_pending_key(group, consumer, *id));
        let mut found = Vec::new();
        if max > 0 {
            let at = ELEMENT_PREFIX_BYTES + 2 * NUMBER_BYTES;
            self.visit_ids(ids, bound, Order::Ascending, at, &mut |id, _| {
                found.push(id);
                (found.len() as u64) < max
            })?;
        }
        Ok(found)
    }

    /// Makes an entry pending for a consumer, and takes it from another one that has it. The caller
    /// saves the group and the consumer afterwards.
    ///
    /// # Errors
    /// Those of reads.
    pub fn deliver(
        &mut self,
        group: &mut Group,
        consumer: &mut Consumer,
        (id, delivered_at, deliveries): (StreamId, Timestamp, u64),
    ) -> Result<()> {
        let old = self.pending(group, id)?;
        let is_own = old.as_ref().is_some_and(|old| old.consumer == consumer.name);
        if !is_own {
            if let Some(old) = old {
                self.take_from(group, &old)?;
            }
            group.pending += 1;
            consumer.pending += 1;
            let key = self.consumer_pending_key(group, consumer, id);
            self.0.put(&key, &[]);
        }
        let mut value = encode(&[delivered_at, deliveries]);
        value.extend_from_slice(&consumer.name);
        let key = self.pending_key(group, id);
        self.0.put(&key, &value);
        Ok(())
    }

    /// Ends a pending entry, and returns whether there was one. The caller saves the group
    /// afterwards.
    ///
    /// # Errors
    /// Those of reads.
    pub fn acknowledge(&mut self, group: &mut Group, id: StreamId) -> Result<bool> {
        let Some(old) = self.pending(group, id)? else { return Ok(false) };
        self.take_from(group, &old)?;
        let key = self.pending_key(group, id);
        self.0.delete(&key);
        Ok(true)
    }

    /// Takes a pending entry from its consumer.
    fn take_from(&mut self, group: &mut Group, old: &PendingEntry) -> Result<()> {
        group.pending -= 1;
        if let Some(mut consumer) = self.consumer(group, &old.consumer)? {
            consumer.pending -= 1;
            let key = self.consumer_pending_key(group, &consumer, old.id);
            self.0.delete(&key);
            self.save_consumer(group, &consumer);
        }
        Ok(())
    }
}
