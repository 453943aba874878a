//! How the trie takes part in the write path of [`siltstone_durable`]: log records, memtables,
//! room.
//!
//! A batch is one record. Writers are delayed in proportion to the sub-levels that containers have
//! above their limit, before they are stopped.

use std::sync::Arc;

use siltstone_durable::{self as durable, Clear, Core, EditOf, Group, LogStructured, Writer};
use siltstone_engine::{Error, Result, WriteBatch};
use siltstone_table::RecordParts;

use crate::engine::{Jobs, State, Tree};
use crate::memtable::Memtable;
use crate::record;
use crate::version::{Edit, Version};
use crate::view::View;

/// The largest batch, in bytes of its log form: it becomes one record and goes to one table.
const MAX_BATCH_BYTES: u64 = 2 << 30;

/// The memory of a full memtable relative to the bytes of its log: small values have large headers.
const MEMORY_FACTOR: u64 = 3;

/// The headers of a group's records, kept between writes so that a write allocates little.
#[derive(Default)]
pub(crate) struct WriterState {
    headers: Vec<u8>,
}

impl durable::Memtable for Memtable {
    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn first_log(&self) -> u64 {
        self.first_log
    }
}

impl LogStructured for Tree {
    type Memtable = Memtable;
    type Version = Version;
    type Jobs = Jobs;
    type WriterState = WriterState;
    type Logged<'b> = ();

    const MAX_VALUE_BYTES: usize = crate::MAX_VALUE_BYTES;

    fn core(&self) -> &Core<Self> {
        &self.core
    }

    fn check_batch(&self, batch: &WriteBatch) -> Result<()> {
        match batch.as_bytes().len() as u64 {
            size if size > MAX_BATCH_BYTES => {
                Err(Error::TooLarge { what: "batch", size, limit: MAX_BATCH_BYTES })
            }
            _ => Ok(()),
        }
    }

    fn log_group(&self, writer: &mut Writer<Self>, group: &Group<'_>) -> Result<()> {
        let mut headers = std::mem::take(&mut writer.state.headers);
        headers.clear();
        let mut sequence = writer.last_sequence + 1;
        // The end of each record's header in `headers`, and its body.
        let mut bodies: Vec<(usize, &[u8])> = Vec::new();
        for batch in group.batches().filter(|batch| !batch.is_empty()) {
            record::push_header(&mut headers, sequence, batch.len() as u32);
            bodies.push((headers.len(), batch.as_bytes()));
            sequence += batch.len() as u64;
        }
        let starts = std::iter::once(0).chain(bodies.iter().map(|&(end, _)| end));
        let records: Vec<RecordParts<'_>> = starts
            .zip(&bodies)
            .map(|(start, &(end, bytes))| [&headers[start..end], bytes])
            .collect();
        let logged = durable::commit::append(self, writer, &records, &mut Vec::new());
        drop(records);
        writer.state.headers = headers;
        logged
    }

    fn insert_group(&self, writer: &mut Writer<Self>, group: &Group<'_>, (): ()) -> Result<()> {
        for op in group.batches().flat_map(WriteBatch::iter) {
            writer.last_sequence += 1;
            writer.memtable.add(writer.last_sequence, op);
        }
        Ok(())
    }

    fn fill(&self, writer: &Writer<Self>) -> f64 {
        let share = |part: u64, whole: u64| part as f64 / whole as f64;
        let memory = share(writer.memtable.bytes(), self.memory_limit());
        share(writer.log.len(), self.options.htable_bytes).max(memory)
    }

    fn max_memtables(&self) -> usize {
        self.options.memtables
    }

    fn next_memtable(&self, writer: &mut Writer<Self>, number: u64, _: bool) -> Memtable {
        let full = &writer.memtable;
        // After a batch of unusual size the next memtable is not to be as large.
        match full.bytes() <= self.memory_limit() {
            true => Memtable::with_capacity_of(full, number),
            false => Memtable::new(number, self.config.hash.seed),
        }
    }

    fn flush_oldest(&self, view: &View) -> Result<()> {
        self.flush_oldest_of(view)
    }

    fn on_publish(&self, state: &State, _: &View) {
        let is_exhausted = durable::core::are_memtables_exhausted(self, state);
        self.write_controller.set_memtables_exhausted(is_exhausted);
        self.write_controller.set(self.pressure_of(state));
    }

    fn on_new_version(&self, state: &mut State, version: &Arc<Version>, edit: &EditOf<Self>) {
        edit.container_ids()
            .into_iter()
            .for_each(|container_id| self.rescore(state, version, container_id));
    }
}

impl Clear for Tree {
    fn cleared(version: &Version) -> (Edit, Version) {
        version.cleared()
    }

    fn has_files(version: &Version) -> bool {
        version.tables().next().is_some()
    }

    fn on_cleared(&self, state: &mut State) {
        state.running.forget_garbage();
    }
}

impl Tree {
    /// Bytes of memory at which a memtable is full, regardless of its log.
    fn memory_limit(&self) -> u64 {
        MEMORY_FACTOR * self.options.htable_bytes.max(64 << 10)
    }
}
