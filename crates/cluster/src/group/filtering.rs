//! When the compactions of a table drop rows by its filter.
//!
//! A filter may judge a row by other rows: the elements of a collection are obsolete if there is no
//! row of the collection itself. Its decisions are final, so it must not see a table that lacks
//! rows which belong to it:
//!
//! * While a snapshot is received, the rows that a decision depends on may follow later.
//! * A snapshot lacks rows that have expired while it was sent. Entries of the log that follow it
//!   may have prolonged them in time, and write them again.
//!
//! So a table has no filter until the node has applied all that had been committed when the table
//! was complete. A leader has once it has applied an entry of its term. Another node has once it
//! has also reached the commit index of an append that arrived after the table was opened: a leader
//! sends appends behind the snapshot, and the first entry of a new leader is behind all that
//! earlier ones have committed.

use raft::eraftpb::{Message, MessageType};
use siltstone_engine::Result;

use super::Group;
use super::options::TableFilter;

impl Group {
    /// Notes what a leader says is committed.
    pub(super) fn note_commit(&mut self, message: &Message) {
        if message.get_msg_type() == MessageType::MsgAppend && message.term >= self.term() {
            self.heard_commit.get_or_insert(message.commit);
        }
    }

    /// Another table is in use, which has no filter.
    pub(super) fn begin_without_filter(&mut self) {
        (self.heard_commit, self.is_filtering) = (None, false);
    }

    /// Sets the table's filter once the node has caught up.
    pub(super) fn filter_when_caught_up(&mut self) -> Result<()> {
        let TableFilter(Some(filter)) = &self.options.filter else { return Ok(()) };
        if self.is_filtering || !self.has_caught_up() {
            return Ok(());
        }
        self.is_filtering = true;
        self.table.set_compaction_filter(Some(filter.clone()))
    }

    fn has_caught_up(&self) -> bool {
        let applied = &self.raft.store().applied;
        let has_reached = |commit| applied.index >= commit;
        applied.term == self.term() && (self.leads() || self.heard_commit.is_some_and(has_reached))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use parking_lot::Mutex;
    use siltstone_engine::{
        CompactionFilter, Engine, FilterContent, FilterDecision, FilterPass, FilterRow, KeyRange,
        ManualClock, WriteBatch,
    };
    use siltstone_lsm::{Lsm, Options};
    use siltstone_runtime::Env;
    use siltstone_vfs::Ram;

    use super::*;
    use crate::{Change, GroupOptions, OpenTable};

    /// Drops the row `element` if there is no row `owner`.
    struct NeedsOwner;

    impl CompactionFilter for NeedsOwner {
        fn begin<'a>(&'a self, content: &'a dyn FilterContent) -> Box<dyn FilterPass + 'a> {
            Box::new(move |row: FilterRow<'_>| {
                let is_dead = row.key == b"element" && content.get(b"owner").unwrap().is_none();
                if is_dead { FilterDecision::Drop } else { FilterDecision::Keep }
            })
        }
    }

    type Tables = Arc<Mutex<Vec<Arc<dyn Engine>>>>;

    /// Opens tables and notes them.
    fn opener(clock: &Arc<ManualClock>, tables: &Tables) -> OpenTable {
        let (clock, tables) = (clock.clone(), tables.clone());
        Arc::new(move |vfs| {
            let env = Env::replayable(clock.clone(), 1);
            let table = Arc::new(Lsm::open(vfs, env, Options::default())?) as Arc<dyn Engine>;
            tables.lock().push(table.clone());
            Ok(table)
        })
    }

    /// Compacts the table that was opened last, and returns whether it has the element then.
    fn has_element_after_compaction(tables: &Tables) -> bool {
        let table = tables.lock().last().unwrap().clone();
        table.flush().unwrap();
        table.compact_range(&KeyRange::all()).unwrap();
        table.get(b"element").unwrap().is_some()
    }

    /// Exchanges packets until there are none.
    fn settle(nodes: &mut [Group; 2]) {
        for _ in 0..100 {
            let packets = nodes.iter_mut().flat_map(|node| node.ready().unwrap().packets);
            for packet in packets.collect::<Vec<_>>() {
                nodes[packet.to() as usize - 1].handle(packet).unwrap();
            }
        }
    }

    fn propose(node: &mut Group, change: impl FnOnce(&mut WriteBatch)) {
        let mut batch = WriteBatch::new();
        change(&mut batch);
        node.propose(&batch).unwrap();
        node.ready().unwrap();
    }

    #[test]
    fn row_that_is_obsolete_only_in_a_part_of_a_snapshot_is_kept() {
        let clock = Arc::new(ManualClock::at(1));
        let tables = [Tables::default(), Tables::default()];
        let create = |id: u64, voters: &[u64]| {
            let mut options = GroupOptions::new(1, id, id);
            options.max_chunk_bytes = 1;
            options.filter = TableFilter(Some(Arc::new(NeedsOwner)));
            let open = opener(&clock, &tables[id as usize - 1]);
            Group::create(Arc::new(Ram::new()), open, options, voters).unwrap()
        };
        let mut nodes = [create(1, &[1]), create(2, &[])];
        nodes[0].campaign_if_alone();
        nodes[0].ready().unwrap();
        propose(&mut nodes[0], |batch| {
            batch.put(b"element", b"1").put_until(b"owner", b"2", 100);
        });
        assert!(has_element_after_compaction(&tables[0]));
        nodes[0].change_membership(&[Change::AddLearner(2)]).unwrap();
        let mut is_prolonged = false;
        for _ in 0..20 {
            nodes[0].tick();
            for from in [0, 1] {
                for packet in nodes[from].ready().unwrap().packets {
                    nodes[1 - from].handle(packet).unwrap();
                }
                if tables[1].lock().len() == 2 && !is_prolonged {
                    // The element is there, the owner is not yet; it expires before it is sent.
                    propose(&mut nodes[0], |batch| {
                        batch.put(b"owner", b"2");
                    });
                    clock.set(200);
                    is_prolonged = true;
                }
                let is_received = tables[1].lock().last().unwrap().get(b"element").unwrap();
                assert_eq!(has_element_after_compaction(&tables[1]), is_received.is_some());
            }
        }
        settle(&mut nodes);
        assert!(is_prolonged && nodes[1].table().get(b"owner").unwrap().is_some());
        assert!(has_element_after_compaction(&tables[1]));
        // Now it is obsolete.
        propose(&mut nodes[0], |batch| {
            batch.delete(b"owner");
        });
        for _ in 0..4 {
            nodes[0].tick();
            settle(&mut nodes);
        }
        assert!(tables.iter().all(|tables| !has_element_after_compaction(tables)));
    }
}
