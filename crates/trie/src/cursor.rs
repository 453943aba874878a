//! Walking the whole table, place by place: the newest first.
//!
//! ```text
//!   memtables, newest first      a shard at a time; an item is shown unless a newer memtable has its key
//!   container, from the root     its tables are merged, stretch by stretch; an item is shown unless a memtable
//!                                or a container above has its key, which filters tell, mostly
//! ```
//!
//! The order is that of memtables, then containers, then hashes; it means nothing to anyone. A walk
//! holds a shard of a memtable or one segment of each table of a container in memory.
//!
//! A walk that is taken up again ([`position`](crate::position)) shows the moment of its new cursor, and hides
//! less: where only what may have come too late to be shown itself is newer than an item, that is shown in
//! its place. Taking one up costs the reads of one stretch: a segment, of up to 512 KiB, of each table of the
//! container in which it stands.
//!
//! Invariant: a cursor shows a key at most once, as its newest item says at the moment when the cursor
//! was made.
//!
//! Source: ours.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use siltstone_engine::{Cursor, Error, Forward, ForwardCursor, Purpose, Result, Timestamp};

use crate::compact::Merge;
use crate::engine::Inner;
use crate::hash::Hash;
use crate::htable::Found;
use crate::item::Item;
use crate::memtable::{Memtable, SHARDS};
use crate::position::{Position, Source};
use crate::read::View;
use crate::version::ENGINE;

/// A walk over the table.
struct Walk {
    tree: Weak<Inner>,
    view: Arc<View>,
    at: u64,
    /// Writes up to this number were there when the walk was begun.
    begun_at: u64,
    /// What comes after the place in hand.
    rest: VecDeque<Source>,
    /// The place in hand, and how far it is loaded.
    source: Source,
    loading: Loading,
    loaded: VecDeque<Shown>,
    current: Option<Shown>,
}

/// What is to be loaded of the place in hand.
enum Loading {
    Nothing,
    /// The shards from this one on, of them what is behind a key.
    Memtable {
        shard: usize,
        behind: Option<Vec<u8>>,
    },
    /// The stretches from the next one on, of them what is behind a hash and key.
    Container {
        merge: Box<Merge>,
        behind: Option<(Hash, Vec<u8>)>,
    },
}

struct Shown {
    key: Vec<u8>,
    value: Vec<u8>,
    expires_at: Option<Timestamp>,
}

impl Inner {
    /// A cursor over the table as of now.
    pub(crate) fn cursor(&self) -> Result<Box<dyn Cursor>> {
        let (view, at) = self.pin()?;
        let source = Source::Memtable(view.active.first_log);
        Ok(Box::new(Forward::new(Walk {
            tree: self.me.clone(),
            view,
            at,
            begun_at: at,
            rest: VecDeque::new(),
            source,
            loading: Loading::Nothing,
            loaded: VecDeque::new(),
            current: None,
        })))
    }
}

impl Walk {
    fn tree(&self) -> Result<Arc<Inner>> {
        self.tree.upgrade().ok_or(Error::Closed)
    }

    /// Stands before everything, in a walk that was begun when writes up to `begun_at` were there.
    fn rewind(&mut self, begun_at: u64) {
        self.current = None;
        self.loading = Loading::Nothing;
        self.loaded.clear();
        self.begun_at = begun_at;
        let memtables = self.view.memtables().map(|it| Source::Memtable(it.first_log));
        let containers = self.view.version.containers();
        let containers = containers.map(|(place, _)| Source::Container(place));
        self.rest = memtables.chain(containers).collect();
    }

    /// Stands on the next entry that is not gone, loading what it takes.
    fn go_on(&mut self) -> Result<bool> {
        self.current = None;
        let tree = self.tree()?;
        let now = tree.env.clock.now();
        loop {
            while let Some(shown) = self.loaded.pop_front() {
                // The clock may have moved since it was loaded.
                if shown.expires_at.is_none_or(|at| at > now) {
                    self.current = Some(shown);
                    return Ok(true);
                }
            }
            if !self.load_more(&tree)? {
                match self.rest.pop_front() {
                    None => return Ok(false),
                    Some(source) => self.begin(&tree, source, None),
                }
            }
        }
    }

    /// Takes a place in hand, of it what is behind a key.
    fn begin(&mut self, tree: &Inner, source: Source, behind: Option<Vec<u8>>) {
        self.source = source;
        self.loading = match source {
            Source::Memtable(_) => {
                let memtable = self.memtable().map(|(_, memtable)| memtable);
                let shard = behind.as_deref().and_then(|key| memtable.map(|it| it.shard(key)));
                Loading::Memtable { shard: shard.unwrap_or(0), behind }
            }
            Source::Container(place) => {
                let Some(container) = self.view.version.at(place) else { return };
                let kind = tree.versions.shape.hash;
                let mut merge = Box::new(Merge::new(&container.tables, kind, Purpose::Scan));
                let behind = behind.map(|key| (kind.hash(&key), key));
                if let Some((hash, _)) = &behind {
                    merge.skip_to(*hash);
                }
                Loading::Container { merge, behind }
            }
        };
    }

    /// The memtable in hand, and how many are newer.
    fn memtable(&self) -> Option<(usize, &Arc<Memtable>)> {
        let mut memtables = self.view.memtables().enumerate();
        memtables.find(|(_, it)| self.source == Source::Memtable(it.first_log))
    }

    /// Loads the next part of the place in hand; `false`: there is none.
    fn load_more(&mut self, tree: &Inner) -> Result<bool> {
        match std::mem::replace(&mut self.loading, Loading::Nothing) {
            Loading::Nothing => Ok(false),
            Loading::Memtable { shard, behind } => {
                if shard == SHARDS {
                    return Ok(false);
                }
                self.load_shard(tree, shard, behind.as_deref())?;
                self.loading = Loading::Memtable { shard: shard + 1, behind: None };
                Ok(true)
            }
            Loading::Container { mut merge, behind } => {
                if !merge.next_stretch()? {
                    return Ok(false);
                }
                self.load_stretch(tree, &merge, behind)?;
                self.loading = Loading::Container { merge, behind: None };
                Ok(true)
            }
        }
    }

    fn load_shard(&mut self, tree: &Inner, shard: usize, behind: Option<&[u8]>) -> Result<()> {
        let Some((newer, memtable)) = self.memtable() else { return Ok(()) };
        // Copied first, so that only one shard is locked at a time.
        let mut items = Vec::new();
        memtable.each_of(shard, self.at, |item| {
            if behind.is_none_or(|behind| item.key > behind) {
                items.extend(Shown::of(&item));
            }
        });
        items.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        for shown in items {
            let key = shown.key.clone();
            let shown = self.judged(tree, &key, (newer, 0), || shown)?;
            self.loaded.extend(shown);
        }
        Ok(())
    }

    fn load_stretch(
        &mut self,
        tree: &Inner,
        merge: &Merge,
        behind: Option<(Hash, Vec<u8>)>,
    ) -> Result<()> {
        let Source::Container(place) = self.source else { return Ok(()) };
        let places = (self.view.memtables().count(), place.level);
        let mut items: Vec<(Hash, Shown)> = Vec::new();
        let is_ahead = |hash: Hash, key: &[u8]| {
            behind.as_ref().is_none_or(|behind| (hash, key) > (behind.0, &behind.1[..]))
        };
        merge.each(|hash, item| {
            if let Some(value) = item.value.filter(|_| is_ahead(hash, item.key)) {
                let shown = || Shown::new(item.key, value, item.expires_at);
                let shown = self.judged(tree, item.key, places, shown)?;
                items.extend(shown.map(|shown| (hash, shown)));
            }
            Ok(())
        })?;
        // The order of different keys with one hash is that of their tables, which come and go.
        items.sort_by(|one, other| (one.0, &one.1.key).cmp(&(other.0, &other.1.key)));
        self.loaded.extend(items.into_iter().map(|(_, shown)| shown));
        Ok(())
    }

    /// What is to be shown where the walk comes to an item that is an entry: that entry; or, if only
    /// what came since the walk was begun is newer, what that says; or nothing. Newer are so many memtables
    /// and levels.
    fn judged(
        &self,
        tree: &Inner,
        key: &[u8],
        (memtables, levels): (usize, usize),
        entry: impl FnOnce() -> Shown,
    ) -> Result<Option<Shown>> {
        let mut newest = None;
        for memtable in self.view.memtables().take(memtables) {
            if memtable.has(key, self.begun_at) {
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
        let Some(Found { value, expires_at }) = newest else { return Ok(Some(entry())) };
        Ok(value.map(|value| Shown { key: key.to_vec(), value, expires_at }))
    }

    fn shown(&self) -> &Shown {
        self.current.as_ref().expect("the cursor stands on an entry")
    }
}

impl Shown {
    fn new(key: &[u8], value: &[u8], expires_at: Option<Timestamp>) -> Self {
        Shown { key: key.to_vec(), value: value.to_vec(), expires_at }
    }

    fn of(item: &Item<'_>) -> Option<Self> {
        item.value.map(|value| Shown::new(item.key, value, item.expires_at))
    }
}

impl ForwardCursor for Walk {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn first(&mut self) -> Result<bool> {
        self.rewind(self.at);
        self.tree()?.counters.seeks.fetch_add(1, Relaxed);
        self.go_on()
    }

    fn advance(&mut self) -> Result<bool> {
        self.go_on()
    }

    fn position(&self) -> Vec<u8> {
        let opening = self.tree.upgrade().map_or(0, |tree| tree.opening);
        let (sequence, source) = (self.begun_at, self.source);
        Position { opening, sequence, source, key: self.key().to_vec() }.encode()
    }

    fn resume(&mut self, position: &[u8]) -> Result<bool> {
        self.current = None;
        let none = || Error::Invalid("these bytes are no position of a walk".into());
        let Position { opening, sequence, source, key } =
            Position::decode(position).ok_or_else(none)?;
        let tree = self.tree()?;
        self.rewind(if opening == tree.opening { sequence } else { 0 });
        let is_ahead = |it: &Source| match (source, *it) {
            (Source::Memtable(log), Source::Memtable(older)) => older <= log,
            (Source::Memtable(_), Source::Container(_)) => true,
            (Source::Container(_), Source::Memtable(_)) => false,
            (Source::Container(place), Source::Container(ahead)) => ahead >= place,
        };
        self.rest.retain(is_ahead);
        if self.rest.front() == Some(&source) {
            self.rest.pop_front();
            self.begin(&tree, source, Some(key));
        }
        tree.counters.seeks.fetch_add(1, Relaxed);
        self.go_on()
    }

    fn valid(&self) -> bool {
        self.current.is_some()
    }

    fn key(&self) -> &[u8] {
        &self.shown().key
    }

    fn value(&self) -> &[u8] {
        &self.shown().value
    }

    fn expires_at(&self) -> Option<Timestamp> {
        self.shown().expires_at
    }
}
