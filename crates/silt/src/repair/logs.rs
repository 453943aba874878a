//! Logs that do not replay: what is whole of each becomes a new chain.
//!
//! A log is read up to its first damage: behind it nothing tells which batches there were. Logs behind
//! a damaged or missing one are kept, too: they are the newest that there is of their keys.

use siltstone_engine::{Error, Result};
use siltstone_table::{ChainWriter, Link, LogEnd, LogMode, LogReader};

use super::Repair;
use crate::names::{self, Kind};
use crate::record::Record;
use crate::recover;
use crate::version::Edit;

impl Repair<'_> {
    /// Leaves the logs as they are if they replay; else makes a new chain of them. `is_known`: the
    /// manifest tells which is the first.
    pub(super) fn check_logs(
        &mut self,
        state: &mut Edit,
        sealed_log: Option<(u64, u64)>,
        is_known: bool,
    ) -> Result<()> {
        let first = state.first_log.unwrap_or(0);
        let mut logs: Vec<u64> = (self.media.list()?.iter())
            .filter_map(|name| match names::parse(name) {
                Some((Kind::Log, number)) if number >= first => Some(number),
                _ => None,
            })
            .collect();
        logs.sort_unstable();
        // Without a manifest nothing tells which log is the first of the chain.
        if is_known {
            match recover::check_logs(self.media, state, sealed_log) {
                Ok(()) => {
                    state.sealed_log = sealed_log;
                    return Ok(());
                }
                Err(error) if error.is_corruption() => {
                    self.tell(format!("the logs do not replay ({error})"));
                }
                Err(other) => return Err(other),
            }
        }
        if let Some((sealed, bytes)) = sealed_log.filter(|(sealed, _)| !logs.contains(sealed)) {
            let name = Kind::Log.name(sealed);
            self.tell(format!("{name} is missing: what was in it is lost (bytes 0 to {bytes})"));
        }
        self.has_changed = true;
        if is_known {
            // Behind the table's own logs, what a repair that lost power had copied of them.
            let own = self.own_logs(&logs)?;
            let copied = logs.split_off(own);
            self.aside.extend(copied.into_iter().map(|number| Kind::Log.name(number)));
        }
        let first = self.new_number();
        let mut chain = ChainWriter::create(self.media, first, Link::default())?;
        // So that this chain can be told from the one before if its copying loses power.
        chain.sync()?;
        for (at, &number) in logs.iter().enumerate() {
            if at > 0 {
                let number = self.new_number();
                chain.rotate(number)?;
            }
            self.copy_log(number, &mut chain)?;
        }
        // Synced, so that the logs before may go; not sealed, for no close has been here.
        chain.sync()?;
        for number in logs {
            self.aside.push(Kind::Log.name(number));
        }
        state.first_log = Some(first);
        Ok(())
    }

    /// How many of the logs stand before the first, but for the very first, that begins a chain: the
    /// table's own begin none.
    fn own_logs(&self, logs: &[u64]) -> Result<usize> {
        for (at, &number) in logs.iter().enumerate().skip(1) {
            let name = Kind::Log.name(number);
            let opened = LogReader::open(self.media.as_ref(), &name, number, LogMode::Recover);
            let begins = opened.and_then(|mut reader| {
                let link = reader.next()?.map(|record| Record::decode(record.bytes));
                Ok(matches!(link, Some(Ok(Record::Link(link))) if link == Link::default()))
            });
            match begins {
                Ok(true) => return Ok(at),
                Ok(false) => {}
                Err(error) if error.is_corruption() => {}
                Err(other) => return Err(other),
            }
        }
        Ok(logs.len())
    }

    /// Appends the whole batches of a log, up to its first damage, to the new chain.
    fn copy_log(&mut self, number: u64, chain: &mut ChainWriter) -> Result<()> {
        let name = Kind::Log.name(number);
        let mut reader = LogReader::open(self.media.as_ref(), &name, number, LogMode::Recover)?;
        let (mut batch, mut positions): (Vec<Vec<u8>>, _) = (Vec::new(), Vec::new());
        let (mut saved, mut end) = (0, 0);
        let damage = loop {
            let (position, bytes) = match reader.next() {
                Ok(None) => break None,
                Ok(Some(record)) => (record.position, record.bytes),
                Err(Error::Corruption { reason, .. }) => break Some(reason),
                Err(other) => return Err(other),
            };
            match Record::decode(bytes) {
                Ok(Record::Link(_)) => {}
                Ok(Record::Operation { is_last, .. }) => {
                    batch.push(bytes.to_vec());
                    if is_last {
                        let parts: Vec<[&[u8]; 2]> = (batch.iter())
                            .map(|record| <[&[u8]; 2]>::from(record.split_at(1)))
                            .collect();
                        chain.append(&parts, &mut positions)?;
                        positions.clear();
                        saved += batch.len();
                        batch.clear();
                        end = reader.valid_bytes();
                    }
                }
                Err(reason) => break Some(format!("{reason} at byte {position}")),
            }
        };
        let total = self.media.open(&name, siltstone_media::Mode::Read)?.len()?;
        let dropped = match reader.end() {
            Some(LogEnd::Torn { dropped_bytes }) if damage.is_none() => dropped_bytes,
            _ => 0,
        };
        self.tell(match damage {
            Some(reason) => format!(
                "{name} is damaged ({reason}): {saved} operations saved, bytes {end} to {total} are \
                 lost"
            ),
            None if dropped > 0 => format!(
                "{name}: {saved} operations saved; bytes {end} to {total} were never synced"
            ),
            None => format!("{name}: {saved} operations saved"),
        });
        Ok(())
    }
}
