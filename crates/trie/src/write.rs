//! The trie's part of the write path of [`siltstone_durable`]: log records, insertion into
//! memtables, and when a memtable is full.
//!
//! A batch is one record. Writers are delayed, and finally stopped, when a container has more
//! sub-levels (tables) than its limit.

use std::sync::Arc;

use siltstone_durable::{self as durable, Clear, EditOf, Group, LogRecords, LogStructured, Writer};
use siltstone_engine::{Error, FileInfo, Result, WriteBatch};

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
pub struct WriterState {
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
    type LoggedGroup<'b> = ();

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
        let mut sequence = writer.last_sequence + 1;
        let mut records = LogRecords::new(&mut headers);
        for batch in group.batches().filter(|batch| !batch.is_empty()) {
            let count = batch.len() as u32;
            let header = |out: &mut Vec<u8>| record::push_header(out, sequence, count);
            records.push(header, batch.as_bytes());
            sequence += u64::from(count);
        }
        let logged = durable::commit::append(self, writer, records.iter(), &mut Vec::new());
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

    fn is_busy(jobs: &Jobs) -> bool {
        jobs.compactions > 0
    }

    fn schedule_jobs(&self) {
        self.schedule_compaction();
    }

    fn flush_oldest(&self, view: &View) -> Result<Vec<FileInfo>> {
        self.flush_oldest_of(view)
    }

    fn pressure(&self, state: &State, _: &View) -> f64 {
        self.pressure_of(state)
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
