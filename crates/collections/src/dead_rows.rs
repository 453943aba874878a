//! A compaction filter that drops the rows of collections that no longer exist.
//!
//! Rows of one collection are adjacent, so a pass looks each version up once: two lookups.

use siltstone_engine::{CompactionFilter, FilterContent, FilterDecision, FilterPass, FilterRow};

use crate::keyspace::is_version_live;
use crate::layout::version_of;

/// The filter. It may be set once [`Keyspace::open`](crate::Keyspace::open) has upgraded the table.
///
/// It relies on a clock that does not go back: a collection that has expired, and whose elements
/// were dropped, must not reappear. So whoever changes the expiry of a collection stops the clock
/// ([`siltstone_engine::clock::stop`]) from the lookup until the write: compactions then judge by
/// a time at which it had not expired.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeadRows;

impl CompactionFilter for DeadRows {
    fn begin<'a>(&'a self, content: &'a dyn FilterContent) -> Box<dyn FilterPass + 'a> {
        let mut last = None;
        Box::new(move |row: FilterRow<'_>| {
            let Some(version) = version_of(row.key) else { return FilterDecision::Keep };
            let is_live = match last {
                Some((known, is_live)) if known == version => is_live,
                _ => match is_version_live(version, &|key| content.get(key)) {
                    // A row that cannot be judged stays.
                    Err(_) => return FilterDecision::Keep,
                    Ok(is_live) => {
                        last = Some((version, is_live));
                        is_live
                    }
                },
            };
            if is_live { FilterDecision::Keep } else { FilterDecision::Drop }
        })
    }
}
