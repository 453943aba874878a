//! [`forward_engine`](crate::forward_engine) and [`forward_cursor`](crate::forward_cursor): engines
//! and cursors that wrap another one.
//!
//! A wrapper must forward methods with a default implementation, too; otherwise it would hide the
//! inner implementation. The macros list each forwarded method once. A new method of the contract
//! needs a line in them.

/// Defines methods of [`Engine`](crate::Engine) that call those of the engine in a field.
///
/// ```
/// use siltstone_engine::{Durability, Engine, Result, WriteBatch, forward_engine};
///
/// struct ReadOnly<E>(E);
///
/// impl<E: Engine> Engine for ReadOnly<E> {
///     forward_engine!(0: name capabilities get get_at lookup expiry multi_lookup);
///     forward_engine!(0: sync iter range snapshot at);
///     forward_engine!(0: flush maintain checkpoint verify stats warnings trouble close);
///
///     fn write(&self, _batch: &WriteBatch, _durability: Durability) -> Result<()> {
///         Err(self.unsupported("writes"))
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_engine {
    ($field:tt: $($method:ident)+) => {
        $($crate::forward_engine! { @one $method $field })+
    };
    (@one name $field:tt) => {
        fn name(&self) -> &'static str {
            self.$field.name()
        }
    };
    (@one capabilities $field:tt) => {
        fn capabilities(&self) -> $crate::Capabilities {
            self.$field.capabilities()
        }
    };
    (@one get $field:tt) => {
        fn get(&self, key: &[u8]) -> $crate::Result<Option<$crate::Entry>> {
            self.$field.get(key)
        }
    };
    (@one get_at $field:tt) => {
        fn get_at(
            &self,
            key: &[u8],
            at: &$crate::ReadPoint,
        ) -> $crate::Result<Option<$crate::Entry>> {
            self.$field.get_at(key, at)
        }
    };
    (@one lookup $field:tt) => {
        fn lookup(
            &self,
            key: &[u8],
            at: Option<&$crate::ReadPoint>,
            visit: &mut dyn FnMut(&[u8], Option<$crate::Timestamp>),
        ) -> $crate::Result<bool> {
            self.$field.lookup(key, at, visit)
        }
    };
    (@one expiry $field:tt) => {
        fn expiry(
            &self,
            key: &[u8],
            at: Option<&$crate::ReadPoint>,
        ) -> $crate::Result<Option<Option<$crate::Timestamp>>> {
            self.$field.expiry(key, at)
        }
    };
    (@one multi_lookup $field:tt) => {
        fn multi_lookup(
            &self,
            keys: &[&[u8]],
            at: Option<&$crate::ReadPoint>,
            visit: &mut $crate::VisitKeys<'_>,
        ) -> $crate::Result<()> {
            self.$field.multi_lookup(keys, at, visit)
        }
    };
    (@one begin_reads $field:tt) => {
        fn begin_reads(&self, keys: &[&[u8]]) {
            self.$field.begin_reads(keys);
        }
    };
    (@one prepare $field:tt) => {
        fn prepare<'a>(
            &'a self,
            batch: &'a $crate::WriteBatch,
            may_wait: bool,
        ) -> $crate::Result<Option<Box<dyn $crate::PreparedPart + 'a>>> {
            self.$field.prepare(batch, may_wait)
        }
    };
    (@one must_wait $field:tt) => {
        fn must_wait(&self, batch: &$crate::WriteBatch) -> bool {
            self.$field.must_wait(batch)
        }
    };
    (@one clear $field:tt) => {
        fn clear(&self) -> $crate::Result<()> {
            self.$field.clear()
        }
    };
    (@one sync $field:tt) => {
        fn sync(&self) -> $crate::Result<()> {
            self.$field.sync()
        }
    };
    (@one iter $field:tt) => {
        fn iter(&self) -> $crate::Result<Box<dyn $crate::Cursor>> {
            self.$field.iter()
        }
    };
    (@one range $field:tt) => {
        fn range(
            &self,
            range: $crate::KeyRange,
            at: Option<&$crate::ReadPoint>,
        ) -> $crate::Result<Box<dyn $crate::Cursor>> {
            self.$field.range(range, at)
        }
    };
    (@one random_key $field:tt) => {
        fn random_key(
            &self,
            below: &mut dyn FnMut(u64) -> u64,
        ) -> $crate::Result<Option<Vec<u8>>> {
            self.$field.random_key(below)
        }
    };
    (@one snapshot $field:tt) => {
        fn snapshot(&self) -> $crate::Result<$crate::ReadPoint> {
            self.$field.snapshot()
        }
    };
    (@one at $field:tt) => {
        fn at(&self, time: $crate::Timestamp) -> $crate::Result<$crate::ReadPoint> {
            self.$field.at(time)
        }
    };
    (@one changes $field:tt) => {
        fn changes(
            &self,
            options: $crate::ChangeOptions,
        ) -> $crate::Result<Box<dyn $crate::ChangeCursor>> {
            self.$field.changes(options)
        }
    };
    (@one flush $field:tt) => {
        fn flush(&self) -> $crate::Result<()> {
            self.$field.flush()
        }
    };
    (@one maintain $field:tt) => {
        fn maintain(&self) -> $crate::Result<()> {
            self.$field.maintain()
        }
    };
    (@one compact_range $field:tt) => {
        fn compact_range(&self, range: &$crate::KeyRange) -> $crate::Result<()> {
            self.$field.compact_range(range)
        }
    };
    (@one set_compaction_filter $field:tt) => {
        fn set_compaction_filter(
            &self,
            filter: Option<std::sync::Arc<dyn $crate::CompactionFilter>>,
        ) -> $crate::Result<()> {
            self.$field.set_compaction_filter(filter)
        }
    };
    (@one set_merge_operator $field:tt) => {
        fn set_merge_operator(
            &self,
            operator: Option<std::sync::Arc<dyn $crate::MergeOperator>>,
        ) -> $crate::Result<()> {
            self.$field.set_merge_operator(operator)
        }
    };
    (@one prepare_ingestion $field:tt) => {
        fn prepare_ingestion<'a>(
            &'a self,
            files: &[&std::path::Path],
            options: $crate::IngestOptions,
        ) -> $crate::Result<Box<dyn $crate::PreparedIngestion + 'a>> {
            self.$field.prepare_ingestion(files, options)
        }
    };
    (@one check_write $field:tt) => {
        fn check_write(&self, batch: &$crate::WriteBatch) -> $crate::Result<()> {
            self.$field.check_write(batch)
        }
    };
    (@one merge_operator $field:tt) => {
        fn merge_operator(&self) -> Option<std::sync::Arc<dyn $crate::MergeOperator>> {
            self.$field.merge_operator()
        }
    };
    (@one set_options $field:tt) => {
        fn set_options(
            &self,
            changes: &std::collections::BTreeMap<String, String>,
        ) -> $crate::Result<()> {
            self.$field.set_options(changes)
        }
    };
    (@one checkpoint $field:tt) => {
        fn checkpoint(&self, sink: &mut dyn $crate::CheckpointSink) -> $crate::Result<()> {
            self.$field.checkpoint(sink)
        }
    };
    (@one verify $field:tt) => {
        fn verify(
            &self,
            progress: &mut dyn FnMut(u64, u64),
        ) -> $crate::Result<$crate::VerifyReport> {
            self.$field.verify(progress)
        }
    };
    (@one stats $field:tt) => {
        fn stats(&self) -> $crate::Stats {
            self.$field.stats()
        }
    };
    (@one warnings $field:tt) => {
        fn warnings(&self) -> Vec<String> {
            self.$field.warnings()
        }
    };
    (@one trouble $field:tt) => {
        fn trouble(&self) -> Option<String> {
            self.$field.trouble()
        }
    };
    (@one check_open $field:tt) => {
        fn check_open(&self) -> $crate::Result<()> {
            self.$field.check_open()
        }
    };
    (@one close $field:tt) => {
        fn close(&self) -> $crate::Result<()> {
            self.$field.close()
        }
    };
}

/// Defines the methods of [`Cursor`](crate::Cursor) on the current entry, and `skip_values`: they
/// call those of the cursor in a field. `except key` leaves the key to the wrapper.
///
/// ```
/// use siltstone_engine::{Cursor, Result, forward_cursor};
///
/// /// Counts moves.
/// struct Counted(Box<dyn Cursor>, u64);
///
/// impl Counted {
///     fn moved(&mut self, moved: Result<bool>) -> Result<bool> {
///         self.1 += 1;
///         moved
///     }
/// }
///
/// impl Cursor for Counted {
///     forward_cursor!(0);
///
///     fn first(&mut self) -> Result<bool> {
///         let moved = self.0.first();
///         self.moved(moved)
///     }
///     // …
/// #   fn last(&mut self) -> Result<bool> { self.0.last() }
/// #   fn seek(&mut self, key: &[u8]) -> Result<bool> { self.0.seek(key) }
/// #   fn seek_back(&mut self, key: &[u8]) -> Result<bool> { self.0.seek_back(key) }
/// #   fn next(&mut self) -> Result<bool> { self.0.next() }
/// #   fn prev(&mut self) -> Result<bool> { self.0.prev() }
/// }
/// ```
#[macro_export]
macro_rules! forward_cursor {
    ($field:tt) => {
        $crate::forward_cursor!($field except key);

        fn key(&self) -> &[u8] {
            self.$field.key()
        }
    };
    ($field:tt except key) => {
        fn skip_values(&mut self) {
            self.$field.skip_values();
        }

        fn valid(&self) -> bool {
            self.$field.valid()
        }

        fn value(&self) -> &[u8] {
            self.$field.value()
        }

        fn expires_at(&self) -> Option<$crate::Timestamp> {
            self.$field.expires_at()
        }
    };
}
