//! `compact`: compaction of a table or of a range of its keys.

use clap::Args;
use indicatif::HumanBytes;

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::store::{RangeArgs, StoreArgs};

/// Compact a table, or a range of its keys
///
/// Moves the entries to their deepest level, and drops deleted, expired and overwritten ones. It
/// reads and writes the range about once per level. Background compactions do the same in time, so
/// it is useful after many deletions, and before a store is only read. For tables on `lsm`.
#[derive(Args)]
pub(crate) struct Compact {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    range: RangeArgs,
}

impl Compact {
    pub(crate) fn run(self) -> CommandResult {
        let (db, table) = self.store.write()?;
        let engine = table.engine();
        if !engine.capabilities().ordered {
            return Err(Failure::Usage(format!(
                "table '{}' is on the engine {}, whose files have no ranges of keys; it compacts by itself",
                table.name(),
                engine.name()
            )));
        }
        let before = table.stats().space_bytes;
        table.compact_range::<&[u8]>(self.range.bounds())?;
        let after = table.stats().space_bytes;
        db.close()?;
        println!("{} on disk, {} before", HumanBytes(after), HumanBytes(before));
        Ok(Outcome::Done)
    }
}
