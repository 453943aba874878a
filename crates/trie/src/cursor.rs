//! Scans the whole table, source by source, the newest first.
//!
//! ```text
//!   memtables, newest first    one shard at a time; an item is returned unless a newer memtable
//!                              has its key
//!   containers, from the root  their tables are merged, one hash range at a time; an item is
//!                              returned unless a memtable or a container above has its key,
//!                              which filters usually exclude
//! ```
//!
//! The order is memtables, then containers, then hashes, and is arbitrary for clients. In memory is
//! a shard of a memtable, or one segment of each table of a container.
//!
//! A resumed scan ([`position`](crate::position)) returns the present entries, and hides fewer
//! items: if only writes after its beginning are newer than an item, the newest of them is returned
//! in its place. To resume costs the reads of one hash range: a segment, of up to 512 KiB, of each
//! table of the container.
//!
//! Invariant: a cursor returns a key at most once, with its newest item when the cursor was
//! created.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use siltstone_engine::{Cursor, Error, Forward, ForwardCursor, Purpose, Result, Timestamp};

use crate::compact::Merge;
use crate::engine::Tree;
use crate::hash::Hash;
use crate::htable::LookupResult;
use crate::item::Item;
use crate::memtable::{Memtable, SHARDS};
use crate::position::{Position, Source};
use crate::version::ENGINE;
use crate::view::View;

/// A scan over the table.
struct TrieCursor {
    tree: Weak<Tree>,
    view: Arc<View>,
    at: u64,
    /// The last sequence number when the scan began.
    begun_at: u64,
    /// The sources after the current one.
    remaining: VecDeque<Source>,
    /// The current source, and its next part.
    source: Source,
    load_state: LoadState,
    loaded: VecDeque<CursorEntry>,
    current: Option<CursorEntry>,
}

/// The next part to load of the current source.
enum LoadState {
    Done,
    /// The shards from this one on, only keys after `behind`.
    Memtable {
        shard: usize,
        behind: Option<Vec<u8>>,
    },
    /// The remaining hash ranges, only items after `behind`.
    Container {
        merge: Box<Merge>,
        behind: Option<(Hash, Vec<u8>)>,
    },
}

struct CursorEntry {
    key: Vec<u8>,
    value: Vec<u8>,
    expires_at: Option<Timestamp>,
}

impl Tree {
    /// A cursor over the present table.
    pub(crate) fn cursor(&self) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(Forward::new(self.cursor_of(Tree::pin)?)))
    }

    /// A cursor over what `pin` returns.
    fn cursor_of(&self, pin: impl Fn(&Tree) -> Result<(Arc<View>, u64)>) -> Result<TrieCursor> {
        let (view, at) = loop {
            let (view, at) = pin(self)?;
            // If the view changed meanwhile, writes up to `at` may be in a memtable that it lacks.
            // A cursor that resumes the scan would take them for returned.
            if Arc::ptr_eq(&view, &self.view.load_full()) {
                break (view, at);
            }
        };
        let source = Source::Memtable(view.active.first_log);
        Ok(TrieCursor {
            tree: self.me.clone(),
            view,
            at,
            begun_at: at,
            remaining: VecDeque::new(),
            source,
            load_state: LoadState::Done,
            loaded: VecDeque::new(),
            current: None,
        })
    }
}

impl TrieCursor {
    fn tree(&self) -> Result<Arc<Tree>> {
        self.tree.upgrade().ok_or(Error::Closed)
    }

    /// Moves before all entries, in a scan that began at the sequence number `begun_at`.
    fn rewind(&mut self, begun_at: u64) {
        self.current = None;
        self.load_state = LoadState::Done;
        self.loaded.clear();
        self.begun_at = begun_at;
        let memtables = self.view.memtables().map(|it| Source::Memtable(it.first_log));
        let containers = self.view.version.containers();
        let containers = containers.map(|(container_id, _)| Source::Container(container_id));
        self.remaining = memtables.chain(containers).collect();
    }

    /// Moves to the next live entry, and loads what is needed.
    fn advance_to_live(&mut self) -> Result<bool> {
        self.current = None;
        let tree = self.tree()?;
        let now = tree.env.clock.now();
        loop {
            while let Some(found) = self.loaded.pop_front() {
                // It may have expired since it was loaded.
                if found.expires_at.is_none_or(|at| at > now) {
                    self.current = Some(found);
                    return Ok(true);
                }
            }
            if !self.load_more(&tree)? {
                match self.remaining.pop_front() {
                    None => return Ok(false),
                    Some(source) => self.open_source(&tree, source, None),
                }
            }
        }
    }

    /// Makes `source` the current one, only items after the key `behind`.
    fn open_source(&mut self, tree: &Tree, source: Source, behind: Option<Vec<u8>>) {
        self.source = source;
        self.load_state = match source {
            Source::Memtable(_) => {
                let memtable = self.memtable().map(|(_, memtable)| memtable);
                let shard = behind.as_deref().and_then(|key| memtable.map(|it| it.shard(key)));
                LoadState::Memtable { shard: shard.unwrap_or(0), behind }
            }
            Source::Container(container_id) => {
                let Some(container) = self.view.version.at(container_id) else { return };
                let kind = tree.config.hash;
                let mut merge = Box::new(Merge::new(&container.tables, kind, Purpose::Scan));
                let behind = behind.map(|key| (kind.hash(&key), key));
                if let Some((hash, _)) = &behind {
                    merge.skip_to(*hash);
                }
                LoadState::Container { merge, behind }
            }
        };
    }

    /// The current memtable, and the number of newer ones.
    fn memtable(&self) -> Option<(usize, &Arc<Memtable>)> {
        let mut memtables = self.view.memtables().enumerate();
        memtables.find(|(_, it)| self.source == Source::Memtable(it.first_log))
    }

    /// Loads the next part of the current source; `false`: there is none.
    fn load_more(&mut self, tree: &Tree) -> Result<bool> {
        match std::mem::replace(&mut self.load_state, LoadState::Done) {
            LoadState::Done => Ok(false),
            LoadState::Memtable { shard, behind } => {
                if shard == SHARDS {
                    return Ok(false);
                }
                self.load_shard(tree, shard, behind.as_deref())?;
                self.load_state = LoadState::Memtable { shard: shard + 1, behind: None };
                Ok(true)
            }
            LoadState::Container { mut merge, behind } => {
                if !merge.next_range()? {
                    return Ok(false);
                }
                self.load_range(tree, &merge, behind)?;
                self.load_state = LoadState::Container { merge, behind: None };
                Ok(true)
            }
        }
    }

    fn load_shard(&mut self, tree: &Tree, shard: usize, behind: Option<&[u8]>) -> Result<()> {
        let Some((newer, memtable)) = self.memtable() else { return Ok(()) };
        // Copied first, so that only one shard is locked at a time.
        let mut items = Vec::new();
        memtable.for_each_in_shard(shard, self.at, |item| {
            if behind.is_none_or(|behind| item.key > behind) {
                items.extend(CursorEntry::of(&item));
            }
        });
        items.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        for found in items {
            let key = found.key.clone();
            let found = self.resolve(tree, &key, (newer, 0), || found)?;
            self.loaded.extend(found);
        }
        Ok(())
    }

    fn load_range(
        &mut self,
        tree: &Tree,
        merge: &Merge,
        behind: Option<(Hash, Vec<u8>)>,
    ) -> Result<()> {
        let Source::Container(container_id) = self.source else { return Ok(()) };
        let newer = (self.view.memtables().count(), container_id.level);
        let mut items: Vec<(Hash, CursorEntry)> = Vec::new();
        let is_ahead = |hash: Hash, key: &[u8]| {
            behind.as_ref().is_none_or(|behind| (hash, key) > (behind.0, &behind.1[..]))
        };
        merge.for_each(|hash, item| {
            if let Some(value) = item.value.filter(|_| is_ahead(hash, item.key)) {
                let found = || CursorEntry::new(item.key, value, item.expires_at);
                let found = self.resolve(tree, item.key, newer, found)?;
                items.extend(found.map(|found| (hash, found)));
            }
            Ok(())
        })?;
        // Keys with equal hashes are otherwise ordered by their tables, which change.
        items.sort_by(|one, other| (one.0, &one.1.key).cmp(&(other.0, &other.1.key)));
        self.loaded.extend(items.into_iter().map(|(_, found)| found));
        Ok(())
    }

    /// The entry to return for an item of `key`: `entry` if nothing is newer, the newest item if
    /// only writes after the beginning of the scan are newer, or none. The newer sources are the
    /// first `memtables` memtables and the first `levels` levels.
    fn resolve(
        &self,
        tree: &Tree,
        key: &[u8],
        (memtables, levels): (usize, usize),
        entry: impl FnOnce() -> CursorEntry,
    ) -> Result<Option<CursorEntry>> {
        let mut newest = None;
        for memtable in self.view.memtables().take(memtables) {
            if memtable.contains(key, self.begun_at) {
                return Ok(None);
            }
            newest = newest.or_else(|| memtable.get(key, self.at));
        }
        if newest.is_none()
            && let Some((found, last_sequence)) =
                tree.find(&self.view.version, key, levels, Purpose::Scan)?
        {
            if last_sequence <= self.begun_at {
                return Ok(None);
            }
            newest = Some(found);
        }
        let Some(LookupResult { value, expires_at }) = newest else { return Ok(Some(entry())) };
        Ok(value.map(|value| CursorEntry { key: key.to_vec(), value, expires_at }))
    }

    fn current_entry(&self) -> &CursorEntry {
        self.current.as_ref().expect("the cursor is on an entry")
    }
}

impl CursorEntry {
    fn new(key: &[u8], value: &[u8], expires_at: Option<Timestamp>) -> Self {
        CursorEntry { key: key.to_vec(), value: value.to_vec(), expires_at }
    }

    fn of(item: &Item<'_>) -> Option<Self> {
        item.value.map(|value| CursorEntry::new(item.key, value, item.expires_at))
    }
}

impl ForwardCursor for TrieCursor {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn first(&mut self) -> Result<bool> {
        self.rewind(self.at);
        self.tree()?.counters.seeks.fetch_add(1, Relaxed);
        self.advance_to_live()
    }

    fn advance(&mut self) -> Result<bool> {
        self.advance_to_live()
    }

    fn position(&self) -> Vec<u8> {
        let opening = self.tree.upgrade().map_or(0, |tree| tree.opening);
        let (sequence, source) = (self.begun_at, self.source);
        Position { opening, sequence, source, key: self.key().to_vec() }.encode()
    }

    fn resume(&mut self, position: &[u8]) -> Result<bool> {
        self.current = None;
        let none = || Error::Invalid("these bytes are not the position of a scan".into());
        let Position { opening, sequence, source, key } =
            Position::decode(position).ok_or_else(none)?;
        let tree = self.tree()?;
        self.rewind(if opening == tree.opening { sequence } else { 0 });
        let is_ahead = |it: &Source| match (source, *it) {
            (Source::Memtable(log), Source::Memtable(older)) => older <= log,
            (Source::Memtable(_), Source::Container(_)) => true,
            (Source::Container(_), Source::Memtable(_)) => false,
            (Source::Container(container_id), Source::Container(ahead)) => ahead >= container_id,
        };
        self.remaining.retain(is_ahead);
        if self.remaining.front() == Some(&source) {
            self.remaining.pop_front();
            self.open_source(&tree, source, Some(key));
        }
        tree.counters.seeks.fetch_add(1, Relaxed);
        self.advance_to_live()
    }

    fn valid(&self) -> bool {
        self.current.is_some()
    }

    fn key(&self) -> &[u8] {
        &self.current_entry().key
    }

    fn value(&self) -> &[u8] {
        &self.current_entry().value
    }

    fn expires_at(&self) -> Option<Timestamp> {
        self.current_entry().expires_at
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::Ordering::Acquire;

    use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
    use siltstone_runtime::Env;
    use siltstone_vfs::Ram;

    use super::*;
    use crate::{Options, Trie};

    /// Regression: the write to the next memtable counted as one that the scan had returned, and
    /// hid the older item of its key.
    #[test]
    fn scan_that_begins_during_a_rotation_returns_every_key() {
        let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
        let trie = Trie::open(Arc::new(Ram::new()), env, Options::default()).unwrap();
        let put = |key: &[u8], value: &[u8]| {
            let mut batch = WriteBatch::new();
            batch.put(key, value);
            trie.write(&batch, Durability::Buffered).unwrap();
        };
        put(b"overwritten", b"old");
        trie.flush().unwrap();
        put(b"other", b"value");
        let is_first = Cell::new(true);
        let pin = |tree: &Tree| {
            let view = tree.view.load_full();
            if is_first.replace(false) {
                trie.flush().unwrap();
                put(b"overwritten", b"new");
            }
            Ok((view, tree.visible.load(Acquire)))
        };
        let mut cursor = trie.table().cursor_of(pin).unwrap();
        assert!(cursor.first().unwrap());
        let mut keys = vec![cursor.key().to_vec()];
        let position = cursor.position();
        let mut resumed = trie.iter().unwrap();
        let mut is_there = resumed.resume(&position).unwrap();
        while is_there {
            keys.push(resumed.key().to_vec());
            is_there = resumed.next().unwrap();
        }
        for key in [&b"overwritten"[..], b"other"] {
            assert!(keys.iter().any(|it| it == key), "{} is missing", key.escape_ascii());
        }
    }
}
