//! Exports a checkpoint of the table: the device's file as of now.
//!
//! All records are programmed and a checkpoint is written to the device; then the file is streamed
//! under the writer lock. Reads continue. Parts of the file that were never written are streamed as
//! zeros.

use siltstone_engine::{CheckpointSink, Purpose, Result};
use siltstone_vfs::Mode;

use crate::engine::{DEVICE, ENGINE, Inner};

const PART_BYTES: u64 = 1 << 20;

impl Inner {
    pub(crate) fn copy_to(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        self.check_open()?;
        let Some(vfs) = &self.vfs else {
            let operation = "checkpoints of a device that is not in a file";
            return Err(siltstone_engine::Error::Unsupported { engine: ENGINE, operation });
        };
        self.with_writer(|writer| {
            self.checkpoint(writer)?;
            let file = vfs.open(DEVICE, Mode::Read)?;
            let bytes = file.len()?;
            sink.create(DEVICE)?;
            let mut at = 0;
            while at < bytes {
                let mut part = vec![0; PART_BYTES.min(bytes - at) as usize];
                file.read_at(at, &mut part, Purpose::Maintenance)?;
                sink.write(&part)?;
                at += part.len() as u64;
            }
            sink.finish()
        })
    }
}
