//! Exports a checkpoint of the table: the device's file as of now.
//!
//! All records are programmed and a checkpoint is written to the device; then the file is streamed
//! under the writer lock. Reads continue. Parts of the file that were never written are skipped, so
//! that the copy takes no more space than the file.

use siltstone_engine::{CheckpointSink, Error, Purpose, Result};
use siltstone_vfs::Mode;

use crate::checkpoint;
use crate::device::DEVICE;
use crate::shared::ENGINE;
use crate::table::Table;

const PART_BYTES: u64 = 1 << 20;

/// Writes the device's file to `sink`.
pub(crate) fn export(table: &Table, sink: &mut dyn CheckpointSink) -> Result<()> {
    let Table { shared, mapping, .. } = table;
    shared.check_open()?;
    let Some(vfs) = &shared.vfs else {
        let operation = "checkpoints of a device that is not in a file";
        return Err(Error::Unsupported { engine: ENGINE, operation });
    };
    table.with_writer(|writer| {
        checkpoint::write(shared, &**mapping, writer)?;
        let file = vfs.open(DEVICE, Mode::Read)?;
        let bytes = file.len()?;
        sink.create(DEVICE)?;
        let mut at = 0;
        while at < bytes {
            let data_at = file.next_data(at)?.min(bytes);
            if data_at > at {
                sink.skip(data_at - at)?;
                at = data_at;
                continue;
            }
            let mut part = vec![0; PART_BYTES.min(bytes - at) as usize];
            file.read_at(at, &mut part, Purpose::Maintenance)?;
            sink.write(&part)?;
            at += part.len() as u64;
        }
        sink.finish()
    })
}
