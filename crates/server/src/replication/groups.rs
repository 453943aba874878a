//! All groups of a replicated table at this node, and which group has which slots.
//!
//! ```text
//!   key ─▶ slot (0 to 16383) ─▶ group = slot × groups / 16384 ─▶ its table, Raft log, leader
//! ```
//!
//! Group `i` has consecutive slots, and the table of SELECT 0 in its part: internally it is the
//! database with index `i`. The first group also decides who the nodes are
//! ([`super::membership`]).

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use siltstone_cluster::node::Role;
use siltstone_cluster::publication::Publication;
use siltstone_cluster::transport::{Connection, PublicationCounts, Transport};

use super::group_set::{GroupSet, members, only};
use super::publications::ReceivedPublications;
use super::slots::{SLOTS, slot_of};
use super::{Replication, State};
use crate::net::wakeups::Wakeups;

/// The groups at this node.
pub(crate) struct Groups {
    groups: Vec<Replication>,
    /// The groups at which a command of a follower reads a snapshot.
    snapshots: AtomicU64,
    transport: Weak<Transport>,
    /// Messages of PUBLISH at other nodes.
    pub(crate) publications: Arc<ReceivedPublications>,
}

impl Groups {
    /// At least one group.
    pub(crate) fn new(
        groups: Vec<Replication>,
        transport: Weak<Transport>,
        publications: Arc<ReceivedPublications>,
    ) -> Self {
        Groups { groups, snapshots: AtomicU64::new(0), transport, publications }
    }

    /// Passes a message of PUBLISH on to all other nodes, or drops it. Does not block.
    pub(crate) fn publish(&self, channel: &[u8], message: &[u8]) {
        if let Some(transport) = self.transport.upgrade() {
            let (channel, message) = (channel.to_vec(), message.to_vec());
            transport.publish(Publication { channel, message });
        }
    }

    /// What has become of messages between nodes.
    pub(crate) fn publication_counts(&self) -> PublicationCounts {
        let transport = self.transport.upgrade();
        let counts = transport.map(|transport| transport.publication_counts());
        let counts = counts.unwrap_or_default();
        PublicationCounts { dropped: counts.dropped + self.publications.dropped(), ..counts }
    }

    /// The open connections to and from other nodes.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        self.transport.upgrade().map(|transport| transport.connections()).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there are several groups, so that commands need one slot.
    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        self.groups.len() > 1
    }

    #[inline]
    pub(crate) fn get(&self, group: usize) -> &Replication {
        &self.groups[group]
    }

    pub(crate) fn find(&self, group: u64) -> Option<&Replication> {
        self.groups.get(usize::try_from(group).ok()?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Replication> {
        self.groups.iter()
    }

    /// The group that decides who the nodes are.
    pub(crate) fn first(&self) -> &Replication {
        &self.groups[0]
    }

    /// The group of a slot.
    #[inline]
    pub(crate) fn of_slot(&self, slot: u16) -> usize {
        usize::from(slot) * self.groups.len() / usize::from(SLOTS)
    }

    /// The group of a key.
    #[inline]
    pub(crate) fn of_key(&self, key: &[u8]) -> usize {
        if self.are_several() { self.of_slot(slot_of(key)) } else { 0 }
    }

    /// The slots of a group.
    pub(crate) fn slots(&self, group: usize) -> RangeInclusive<u16> {
        slots_of(group, self.groups.len())
    }

    /// The groups that this node leads and serves.
    pub(crate) fn led(&self) -> GroupSet {
        let leads = |replication: &Replication| replication.leads(&replication.node.status());
        let led = self.groups.iter().enumerate().filter(|(_, group)| leads(group));
        led.fold(0, |set, (group, _)| set | only(group))
    }

    /// The group whose view of the cluster stands for the node: the first one that it leads, or
    /// the first of all.
    pub(crate) fn shown(&self) -> &Replication {
        let leads = |group: &&Replication| group.node.status().role == Role::Leader;
        self.groups.iter().find(leads).unwrap_or(self.first())
    }

    /// Sets the worker that is woken by answers.
    pub(crate) fn wake(&self, worker: &Arc<Wakeups>) {
        self.groups.iter().for_each(|group| group.wake(worker.clone()));
    }

    /// Whether commands have to wait for a request in flight.
    pub(crate) fn is_congested(&self) -> bool {
        self.groups.iter().any(Replication::is_congested)
    }

    /// Whether no further command should run before open writes are proposed.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.groups.iter().any(|group| group.table.is_full())
    }

    /// Lets the next command read the table of a group, which this node follows, as it is now.
    pub(crate) fn begin_snapshot(&self, group: usize) -> siltstone_engine::Result<()> {
        debug_assert_eq!(self.groups[group].state(), State::Following);
        self.groups[group].table.begin_snapshot()?;
        self.snapshots.fetch_or(only(group), Ordering::Relaxed);
        Ok(())
    }

    /// Lets commands read the newest rows. Cost if they do: an atomic load.
    #[inline]
    pub(crate) fn end_snapshots(&self) {
        if self.snapshots.load(Ordering::Relaxed) != 0 {
            members(self.snapshots.swap(0, Ordering::Relaxed))
                .for_each(|group| self.groups[group].table.end_snapshot());
        }
    }
}

/// The slots of one of several groups.
fn slots_of(group: usize, groups: usize) -> RangeInclusive<u16> {
    let first = |group: usize| (group * usize::from(SLOTS)).div_ceil(groups) as u16;
    first(group)..=first(group + 1) - 1
}

#[cfg(test)]
mod tests {
    use super::super::options::MAX_GROUPS;
    use super::*;

    #[test]
    fn each_slot_has_one_group_for_any_number_of_groups() {
        for groups in 1..=usize::from(MAX_GROUPS) {
            let mut next = 0;
            for group in 0..groups {
                let slots = slots_of(group, groups);
                assert_eq!(*slots.start(), next);
                next = slots.end() + 1;
                for slot in [*slots.start(), *slots.end()] {
                    assert_eq!(usize::from(slot) * groups / usize::from(SLOTS), group);
                }
            }
            assert_eq!(next, SLOTS);
        }
    }
}
