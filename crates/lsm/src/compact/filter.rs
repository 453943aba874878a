//! The compaction filter of one compaction: the content that it sees, and its panics.
//!
//! A panic in the filter becomes an error of the subcompaction, and is kept for the compaction,
//! which is repeated without the filter then.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use siltstone_engine::error::display_key;
use siltstone_engine::{
    CompactionFilter, Entry, Error, FilterContent, FilterDecision, FilterPass, FilterRow,
    ReadPoint, Result,
};
use siltstone_table::{EntryRef, Kind};

use crate::engine::Tree;

/// The filter of a compaction, and the point of the content that it sees.
pub(super) struct Filter {
    filter: Arc<dyn CompactionFilter>,
    point: ReadPoint,
    panic: OnceLock<Error>,
}

/// The content of the table at the point of a compaction.
pub(super) struct Content<'a> {
    tree: &'a Tree,
    point: &'a ReadPoint,
    now: u64,
}

impl FilterContent for Content<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.tree.get_unexpired(key, self.point, self.now)
    }
}

impl Filter {
    pub(super) fn new(filter: Arc<dyn CompactionFilter>, point: ReadPoint) -> Self {
        Filter { filter, point, panic: OnceLock::new() }
    }

    pub(super) fn content<'a>(&'a self, tree: &'a Tree, now: u64) -> Content<'a> {
        Content { tree, point: &self.point, now }
    }

    /// Begins a pass.
    ///
    /// # Errors
    /// The filter has panicked.
    pub(super) fn begin<'a>(
        &'a self,
        content: &'a Content<'_>,
    ) -> Result<Box<dyn FilterPass + 'a>> {
        self.call(None, || self.filter.begin(content))
    }

    /// The fate of a row in a pass.
    ///
    /// # Errors
    /// The filter has panicked.
    pub(super) fn decide(
        &self,
        pass: &mut dyn FilterPass,
        row: FilterRow<'_>,
    ) -> Result<FilterDecision> {
        self.call(Some(row.key), || pass.decide(row))
    }

    /// That the filter has panicked, if so.
    pub(super) fn panicked(&self) -> Option<Error> {
        self.panic.get().cloned()
    }

    fn call<R>(&self, key: Option<&[u8]>, call: impl FnOnce() -> R) -> Result<R> {
        catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
            let at = key.map(|key| format!(" at {}", display_key(key))).unwrap_or_default();
            let message = panic_message(panic.as_ref());
            let error = Error::Invalid(format!(
                "the compaction filter panicked{at}: {message}; compactions go on without it \
                 until it is set again or the store is opened again"
            ));
            self.panic.get_or_init(|| error).clone()
        })
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// A live entry as the compaction filter sees it.
pub(super) fn row<'a>(entry: &EntryRef<'a>) -> FilterRow<'a> {
    let expires_at = (entry.kind == Kind::PutExpiring).then_some(entry.expires_at);
    FilterRow { key: entry.key, value: entry.value, expires_at }
}
