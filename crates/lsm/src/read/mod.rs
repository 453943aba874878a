//! The read path: a view is pinned, then searched from the newest data to the oldest.
//!
//! ```text
//!   get(key)   active memtable → flushing memtables, newest first → L0 runs, newest first
//!              → level 1 → level 2 → …      the first visible version is the result
//! ```
//!
//! The result is missing if a range deletion of the key is newer (`view_deletes`). If it is an
//! operand of a merge, the value is made of it and older versions (`merged_value`).
//!
//! A view is one pointer, loaded without a lock, and keeps the files that it names alive.

mod cursor;
mod l0_run_iter;
mod level;
mod merge;
mod merged_value;
mod multi_lookup;
mod random;
mod replay_filter;
mod run_head;
mod run_heap;
mod seek_state;
mod skip_guard;
mod source;
mod value_prefetcher;
mod view_deletes;

pub(crate) use level::LevelIter;
pub(crate) use merge::Merge;
pub(crate) use replay_filter::ReplayFilter;
pub(crate) use source::Source;
pub(crate) use value_prefetcher::PrefetchBudget;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use arc_swap::Guard;
use siltstone_engine::{Entry, Error, Purpose, ReadPoint, Result, Timestamp};
use siltstone_structures::{BloomProbe, hash64};
use siltstone_table::{Kind, PinnedEntry};

use crate::engine::Tree;
use crate::memtable::kind_of;
use crate::rowtable::{RowVersion, SearchStats, hints};
use crate::version::{L0Lookup, L0Run, Wanted};
use crate::view::View;
use merged_value::MergeReader;

/// The newest version of `key` up to `at`, with its value, or perhaps without. `hints`: adjacent
/// RowTables narrow each other's searches; `stats` counts their reads.
fn find<'v>(
    view: &'v View,
    key: &[u8],
    at: u64,
    wanted: Wanted,
    hints: bool,
    stats: &mut SearchStats,
) -> Result<Option<LookupResult<'v>>> {
    let hash = hash64(key);
    for memtable in view.memtables() {
        if let Some(version) = memtable.get(key, hash, at) {
            let kind = kind_of(version.kind);
            let value = Value::InMemtable(version.value);
            let (sequence, expires_at) = (version.sequence, version.expires_at);
            return Ok(Some(LookupResult { sequence, kind, expires_at, value }));
        }
    }
    let probe = &mut BloomProbe::new(hash);
    let found = find_in_level0(view, key, probe, at, wanted, hints, stats);
    // Looks for a run only if one was read.
    if stats.bytes > 0
        && let Some(run) = view.version.pmem_runs().next()
    {
        run.note_read(stats, Purpose::Get);
    }
    if let Some(found) = found? {
        return Ok(Some(found));
    }
    for tables in view.version.levels.iter().filter(|tables| !tables.is_empty()) {
        if let Some(file) = tables.get(tables.find(key))
            && let Some(found) = file.get(key, probe, at)?
        {
            if found.kind == Kind::Reference {
                let mut value = Vec::new();
                let logged = file.read_reference((key, &found), wanted, &mut value)?;
                return Ok(Some(L0Lookup::Log(found.sequence, logged, value).into()));
            }
            return Ok(Some(found.into()));
        }
    }
    Ok(None)
}

fn find_in_level0(
    view: &View,
    key: &[u8],
    probe: &mut BloomProbe,
    at: u64,
    wanted: Wanted,
    hints: bool,
    stats: &mut SearchStats,
) -> Result<Option<LookupResult<'static>>> {
    let version = &view.version;
    let live = &version.level0[..version.live_runs(key).0];
    for span in &version.filter_spans {
        let runs = live.get(span.runs.start..span.runs.end.min(live.len())).unwrap_or_default();
        if runs.is_empty() {
            break;
        }
        if let Some(sliced) = &span.sliced {
            // Newest first, so the live runs come first.
            for run in sliced.candidates(probe).map_while(|offset| runs.get(offset)) {
                if let Some(found) = run.find(key, at, wanted, stats)? {
                    return Ok(Some(found.into()));
                }
            }
        } else if hints && runs[0].pmem_table().is_some() {
            let live = runs.iter().filter(|run| run.live().contains(key));
            if let Some(found) = hints::get(live.filter_map(L0Run::pmem_table), key, at, stats)? {
                return Ok(Some(found.into()));
            }
        } else {
            for run in runs {
                if let Some(found) = run.get(key, probe, at, wanted, stats)? {
                    return Ok(Some(found.into()));
                }
            }
        }
    }
    Ok(None)
}

/// The version of a key that a lookup found.
struct LookupResult<'v> {
    sequence: u64,
    kind: Kind,
    expires_at: u64,
    value: Value<'v>,
}

/// A value where a lookup found it, not copied yet.
enum Value<'v> {
    InMemtable(&'v [u8]),
    InBlock(PinnedEntry),
    Owned(Vec<u8>),
}

impl Value<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Value::InMemtable(bytes) => bytes,
            Value::InBlock(entry) => entry.value(),
            Value::Owned(bytes) => bytes,
        }
    }

    fn into_bytes(self) -> Vec<u8> {
        match self {
            Value::Owned(bytes) => bytes,
            other => other.bytes().to_vec(),
        }
    }
}

impl From<RowVersion> for LookupResult<'_> {
    fn from(RowVersion { sequence, kind, expires_at, value }: RowVersion) -> Self {
        LookupResult { sequence, kind, expires_at, value: Value::Owned(value) }
    }
}

impl From<L0Lookup> for LookupResult<'_> {
    fn from(found: L0Lookup) -> Self {
        match found {
            L0Lookup::Table(found) => found.into(),
            L0Lookup::Pmem(found) => found.into(),
            L0Lookup::Log(sequence, logged, value) => {
                let (kind, expires_at) = (logged.kind(), logged.expires_at);
                LookupResult { sequence, kind, expires_at, value: Value::Owned(value) }
            }
        }
    }
}

impl From<PinnedEntry> for LookupResult<'_> {
    fn from(found: PinnedEntry) -> Self {
        LookupResult {
            sequence: found.sequence,
            kind: found.kind,
            expires_at: found.expires_at,
            value: Value::InBlock(found),
        }
    }
}

impl Tree {
    /// The entry of `key` as of `point`, or of now.
    pub(crate) fn get(&self, key: &[u8], point: Option<&ReadPoint>) -> Result<Option<Entry>> {
        siltstone_engine::entry::check_key(key)?;
        let (view, at) = self.pin(point)?;
        let found = self.find_live(&view, key, at, Wanted::Value, || self.env.clock.now())?;
        Ok(found.map(|(value, expires_at)| Entry { value: value.into_bytes(), expires_at }))
    }

    /// The entry of `key` as of `point`, of those that had not expired at a time.
    pub(crate) fn get_unexpired(
        &self,
        key: &[u8],
        point: &ReadPoint,
        time: Timestamp,
    ) -> Result<Option<Entry>> {
        siltstone_engine::entry::check_key(key)?;
        let (view, at) = self.pin(Some(point))?;
        let found = self.find_live(&view, key, at, Wanted::Value, || time)?;
        Ok(found.map(|(value, expires_at)| Entry { value: value.into_bytes(), expires_at }))
    }

    /// Lends the value of `key` as of `point`, or of now, to `visit`.
    pub(crate) fn lookup(
        &self,
        key: &[u8],
        point: Option<&ReadPoint>,
        visit: &mut dyn FnMut(&[u8], Option<Timestamp>),
    ) -> Result<bool> {
        siltstone_engine::entry::check_key(key)?;
        let (view, at) = self.pin(point)?;
        let found = self.find_live(&view, key, at, Wanted::Value, || self.env.clock.now())?;
        if let Some((value, expires_at)) = &found {
            visit(value.bytes(), *expires_at);
        }
        Ok(found.is_some())
    }

    /// When the entry of `key` as of `point`, or of now, expires; `None` if there is no entry.
    pub(crate) fn expiry(
        &self,
        key: &[u8],
        point: Option<&ReadPoint>,
    ) -> Result<Option<Option<Timestamp>>> {
        siltstone_engine::entry::check_key(key)?;
        let (view, at) = self.pin(point)?;
        let found = self.find_live(&view, key, at, Wanted::Expiry, || self.env.clock.now())?;
        Ok(found.map(|(_, expires_at)| expires_at))
    }

    /// The value of `key` in the view, if it is wanted, and when it expires, unless it is deleted,
    /// alone or with a range, or has expired at the time `now`, which is asked for if it matters.
    fn find_live<'v>(
        &self,
        view: &'v Arc<View>,
        key: &[u8],
        at: u64,
        wanted: Wanted,
        now: impl Fn() -> Timestamp,
    ) -> Result<Option<(Value<'v>, Option<Timestamp>)>> {
        self.counters.gets.increment();
        let mut stats = SearchStats::default();
        let found = find(view, key, at, wanted, self.hints, &mut stats);
        self.counters.count_pmem_search(&stats);
        let Some(found) = found? else { return Ok(None) };
        let expires_at = (found.kind == Kind::PutExpiring).then_some(found.expires_at);
        let is_gone = found.kind == Kind::Delete
            || expires_at.is_some_and(|expires_at| expires_at <= now())
            || view_deletes::newest(view, key, at) > found.sequence;
        if is_gone {
            return Ok(None);
        }
        if found.kind == Kind::Merge {
            self.counters.merged_reads.fetch_add(1, Relaxed);
            let Some((value, expires_at)) = self.merge_reader().read(view, key, at, now)? else {
                return Ok(None);
            };
            self.counters.gets_found.increment();
            return Ok(Some((Value::Owned(value), expires_at)));
        }
        self.counters.gets_found.increment();
        Ok(Some((found.value, expires_at)))
    }

    /// Reads keys with operands of merges.
    fn merge_reader(&self) -> MergeReader {
        MergeReader { operator: self.merges.operator(), hints: self.hints }
    }

    /// A view, and the sequence number at which to read it.
    ///
    /// The view is loaded before the sequence number. So it contains every write up to the number
    /// that this thread could have seen, and no needed version was compacted away in between.
    ///
    /// Memtables are normally filled one after the other, so the view contains a prefix of the
    /// later writes. A NoveLSM overlay takes writes beside the active memtable: after a rotation
    /// the old view would contain some of the later writes and lack others. So with an overlay the
    /// view must still be the current one after the sequence number is loaded.
    pub(crate) fn pin(&self, point: Option<&ReadPoint>) -> Result<(Guard<Arc<View>>, u64)> {
        self.background.check_open()?;
        let mut view = self.view.load();
        match point {
            None => loop {
                let at = self.visible.load(Acquire);
                let present = self.has_overlay().then(|| self.view.load());
                match present.filter(|present| !Arc::ptr_eq(present, &view)) {
                    Some(present) => view = present,
                    None => return Ok((view, at)),
                }
            },
            Some(point) if self.snapshots.owns(point) => {
                let at = point.sequence();
                // Loaded after the present view, which may be too new for the snapshot.
                let before_clear = self.snapshots.view_before_clear(at).map(Guard::from_inner);
                Ok((before_clear.unwrap_or(view), at))
            }
            Some(_) => Err(Error::Invalid("this snapshot belongs to another table".into())),
        }
    }
}
