//! Public API: opens a table on a flash device, and implements [`Engine`] for it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::flash::{Emulator, Flash};
use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Durability, Engine, Entry, Error, Forward, ReadPoint,
    Result, Stats, Timestamp, VerifyReport, WriteBatch,
};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

use crate::cursor::SkimpyCursor;
use crate::device::{DEVICE, device_options};
use crate::options::Options;
use crate::shared::ENGINE;
use crate::table::Table;
use crate::{copy, recover, stats, tail, verify};

/// An open table of the engine.
pub struct Skimpy {
    pub(crate) table: Arc<Table>,
}

impl Skimpy {
    /// Opens the table in `vfs`, or creates it if there is none: a flash device in the file
    /// `flash`, without simulated latencies. The caller ensures that it is not open elsewhere.
    ///
    /// # Errors
    /// `Refused` for a device of another geometry or mapping, or with missing files; corruption;
    /// I/O errors. Nothing is changed then.
    pub fn open(vfs: Arc<dyn Vfs>, env: Env, options: Options) -> Result<Self> {
        let is_complete = recover::is_complete(&*vfs)?;
        let flash_options = device_options(options.geometry()?, options.channels);
        let open = || Emulator::in_file(&*vfs, DEVICE, flash_options.clone());
        let mut device = open()?;
        // Recreate a device whose creation was interrupted: its name may not be durable, and after
        // a failed directory sync another one does not repair it.
        if !is_complete && recover::is_blank(&device)? {
            drop(device);
            vfs.remove(DEVICE)?;
            device = open()?;
        }
        let table = recover::open(Arc::new(device), Some(vfs), env, options)?;
        Ok(Skimpy { table })
    }

    /// Opens the table on a device, or creates it on an erased device. Buffered writes are in
    /// memory until enough have accumulated, or a write finds them older than `buffer_delay`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn over(flash: Arc<dyn Flash>, env: Env, options: Options) -> Result<Self> {
        Ok(Skimpy { table: recover::open(flash, None, env, options)? })
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Flash> {
        &self.table.shared.device.flash
    }
}

impl Engine for Skimpy {
    fn name(&self) -> &'static str {
        ENGINE
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: false,
            durable: true,
            versioned: true,
            incremental_gc: true,
            range_deletes: false,
            merge: false,
            change_feed: false,
            max_value_bytes: self.table.shared.options.max_value_bytes(),
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.table.get(key)
    }

    fn get_at(&self, key: &[u8], at: &ReadPoint) -> Result<Option<Entry>> {
        self.table.get_at(key, at)
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        batch.reject_range_deletions(self.name())?;
        batch.reject_merges(self.name())?;
        self.table.write(batch, durability)
    }

    /// At one timestamp: reads before it still see the keys. Cost: two checkpoints of the device.
    fn clear(&self) -> Result<()> {
        self.table.clear()
    }

    fn sync(&self) -> Result<()> {
        self.table.sync()
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        self.table.shared.counters.seeks.fetch_add(1, Relaxed);
        Ok(Box::new(Forward::new(SkimpyCursor::new(&self.table)?)))
    }

    fn snapshot(&self) -> Result<ReadPoint> {
        self.table.snapshot()
    }

    fn at(&self, time: Timestamp) -> Result<ReadPoint> {
        self.table.at(time)
    }

    fn flush(&self) -> Result<()> {
        self.table.sync()
    }

    fn maintain(&self) -> Result<()> {
        let table = &*self.table;
        table.with_writer(|writer| tail::collect_all(&table.shared, &*table.mapping, writer))
    }

    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        copy::export(&self.table, sink)
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        verify::verify(&self.table.shared, &*self.table.mapping, progress)
    }

    fn stats(&self) -> Stats {
        stats::stats(&self.table)
    }

    fn trouble(&self) -> Option<String> {
        let cause = self.table.shared.poisoned.get()?;
        Some(format!("it is read-only since an earlier fault ({cause})"))
    }

    fn warnings(&self) -> Vec<String> {
        let checked = self.table.shared.device.flash.check_end();
        checked.err().map(|error| Error::from(error).to_string()).into_iter().collect()
    }

    fn check_open(&self) -> Result<()> {
        self.table.shared.check_open()
    }

    fn close(&self) -> Result<()> {
        self.table.close()
    }
}
