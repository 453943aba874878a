//! The lag of a consumer group: the number of entries of the stream that it has yet to read.
//!
//! ```text
//!   added to the stream since ever    ─────────────────────────────────────▶ added
//!   delivered by the group            ─────────────────▶ read
//!                                                       └────── lag ───────┘
//! ```
//!
//! Entries that were deleted in between make the difference wrong, so then the lag is unknown.

use siltstone_collections::{Group, Stream, StreamId};

/// Whether an entry at or after an id may have been deleted. `first` is the first entry.
pub(super) fn has_deleted_after(
    stream: &Stream<'_, '_>,
    first: Option<StreamId>,
    start: StreamId,
) -> bool {
    let deleted = stream.state().deleted;
    deleted != StreamId::MIN && first.is_some_and(|first| first <= deleted) && start <= deleted
}

/// Number of entries that were ever added up to an id, if it is known.
pub(super) fn estimated_position(
    stream: &Stream<'_, '_>,
    first: Option<StreamId>,
    id: StreamId,
) -> Option<u64> {
    let state = stream.state();
    if state.added == 0 {
        return Some(0);
    }
    if id == state.last || stream.is_empty() && id < state.last {
        return Some(state.added);
    }
    let first = first.unwrap_or_default();
    let is_contiguous = state.deleted == StreamId::MIN || state.deleted < first;
    if id > state.last || id > first || !is_contiguous {
        return None;
    }
    let before = state.added.saturating_sub(stream.len());
    Some(before + u64::from(id == first))
}

/// Number of entries that a group has yet to read, if it is known.
pub(super) fn lag(stream: &Stream<'_, '_>, first: Option<StreamId>, group: &Group) -> Option<i64> {
    let added = stream.state().added;
    if added == 0 {
        return Some(0);
    }
    let read = match group.read {
        Some(read) if !has_deleted_after(stream, first, group.last) => Some(read),
        _ => estimated_position(stream, first, group.last),
    };
    read.map(|read| (added as i64).wrapping_sub(read as i64))
}
