//! Collects the changes between two positions of a store from the change feeds of its tables.

use siltstone::{Change, ChangeOptions, Db};
use siltstone_engine::{ChangeCursor, Error, Result};

use crate::segment::{ArchivedFeed, ArchivedState, Changes};

/// The bytes of changes in one segment, unless one batch has more.
const MAX_SEGMENT_BYTES: usize = 16 << 20;

/// The result of [`collect`].
pub(crate) enum Collected {
    /// The changes that were not handed over before.
    Whole(Changes),
    /// A table was renamed or dropped after the mark: its changes are not to be had any more.
    Gone,
    /// Why the feed of a table does not have the changes.
    Unavailable(String),
}

/// Reads the changes of each table after its position in `reached` up to that in `mark`, and moves
/// `reached` on. All of them are durable. `hand_over` takes the changes whenever there are enough
/// for a segment.
///
/// # Errors
/// Those of the store and of `hand_over`.
pub(crate) fn collect(
    db: &Db,
    mark: &ArchivedState,
    reached: &mut ArchivedState,
    hand_over: &mut dyn FnMut(&ArchivedState, &mut Changes) -> Result<()>,
) -> Result<Collected> {
    let mut changes = Changes::default();
    for (table, feed) in mark.feeds() {
        let from = reached.sequence(feed.id).unwrap_or(0);
        if from == feed.sequence {
            continue;
        }
        let read = open_feed(db, feed, from).and_then(|cursor| {
            let Some(mut cursor) = cursor else { return Ok(None) };
            read_table(cursor.as_mut(), feed, from, reached, &mut changes, hand_over)
        });
        let name = &table.name;
        match read {
            Ok(None) => {}
            Ok(Some(reason)) => {
                return Ok(Collected::Unavailable(format!("table '{name}': {reason}")));
            }
            // A table that has gone is the reason for most errors.
            Err(_) if name_of(db, feed.id)?.as_deref() != Some(name) => return Ok(Collected::Gone),
            Err(error @ (Error::ChangesUnavailable { .. } | Error::Corruption { .. })) => {
                return Ok(Collected::Unavailable(format!("table '{name}': {error}")));
            }
            Err(error) => return Err(error),
        }
        if name_of(db, feed.id)?.is_none() {
            return Ok(Collected::Gone);
        }
    }
    Ok(Collected::Whole(changes))
}

/// The name that a table has now.
fn name_of(db: &Db, id: u64) -> Result<Option<String>> {
    let ids = db.catalogue()?.ids;
    Ok(ids.into_iter().find(|(_, known)| *known == id).map(|(name, _)| name))
}

/// The feed of a table; `None` if it was dropped. It does not keep the table from being renamed.
fn open_feed(db: &Db, feed: ArchivedFeed, from: u64) -> Result<Option<Box<dyn ChangeCursor>>> {
    let Some(name) = name_of(db, feed.id)? else { return Ok(None) };
    db.table(&name)?.engine().changes(ChangeOptions::since(from)).map(Some)
}

/// Reads one table up to the mark. Returns why the changes are not in the feed, if they are not.
fn read_table(
    cursor: &mut dyn ChangeCursor,
    feed: ArchivedFeed,
    from: u64,
    reached: &mut ArchivedState,
    changes: &mut Changes,
    hand_over: &mut dyn FnMut(&ArchivedState, &mut Changes) -> Result<()>,
) -> Result<Option<String>> {
    let mut position = from;
    while position < feed.sequence {
        let Some(change) = cursor.next()? else {
            return Err(Error::Invalid(format!(
                "the changes after {position} of a table are not durable after a sync"
            )));
        };
        match &change.change {
            Change::Write(batch) => changes.push_write(feed.id, change.first_sequence, batch),
            Change::Cleared => changes.push_cleared(feed.id, change.sequence),
            _ => return Ok(Some("sorted files were ingested, which its log does not have".into())),
        }
        position = change.sequence;
        reached.set_sequence(feed.id, position);
        if changes.len() >= MAX_SEGMENT_BYTES {
            hand_over(reached, changes)?;
        }
    }
    match position == feed.sequence {
        true => Ok(None),
        false => Err(Error::Invalid(format!("a change ends at {position}, beyond a position"))),
    }
}
