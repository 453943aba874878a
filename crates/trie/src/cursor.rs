//! Walking the whole table, container by container.
//!
//! ```text
//!   memtables, newest first      an item counts unless a newer memtable has its key
//!   container, from the root     its tables are merged, stretch by stretch; an item counts unless a memtable
//!                                or a container above has its key, which filters tell, mostly
//! ```
//!
//! The order is that of memtables, then containers, then hashes; it means nothing to anyone. A walk
//! holds a memtable's entries or one segment of each table of a container in memory.
//!
//! Invariant: a key is shown at most once, as its newest item says at the moment when the cursor
//! was made.
//!
//! Source: ours.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use siltstone_engine::{Cursor, Error, Forward, ForwardCursor, Purpose, Result, Timestamp};

use crate::compact::Merge;
use crate::engine::Inner;
use crate::item::Item;
use crate::read::View;
use crate::version::{ENGINE, Place};

/// A walk over the table.
struct Walk {
    tree: Weak<Inner>,
    view: Arc<View>,
    at: u64,
    /// What comes after what is loaded.
    rest: VecDeque<Source>,
    /// The container in hand.
    merge: Option<(Place, Merge)>,
    loaded: VecDeque<Shown>,
    current: Option<Shown>,
}

enum Source {
    /// By its number, newest first.
    Memtable(usize),
    Container(Place),
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
        Ok(Box::new(Forward::new(Walk {
            tree: self.me.clone(),
            view,
            at,
            rest: VecDeque::new(),
            merge: None,
            loaded: VecDeque::new(),
            current: None,
        })))
    }
}

impl Walk {
    fn tree(&self) -> Result<Arc<Inner>> {
        self.tree.upgrade().ok_or(Error::Closed)
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
            if !self.load_stretch(&tree)? {
                match self.rest.pop_front() {
                    None => return Ok(false),
                    Some(source) => self.begin(&tree, source),
                }
            }
        }
    }

    fn begin(&mut self, tree: &Inner, source: Source) {
        match source {
            Source::Memtable(age) => {
                let newer: Vec<_> = self.view.memtables().take(age).collect();
                let Some(memtable) = self.view.memtables().nth(age) else { return };
                memtable.each(self.at, |item| {
                    if !newer.iter().any(|newer| newer.has(item.key, self.at)) {
                        self.loaded.extend(Shown::of(&item));
                    }
                });
            }
            Source::Container(place) => {
                let Some(container) = self.view.version.at(place) else { return };
                let hash = tree.versions.shape.hash;
                self.merge = Some((place, Merge::new(&container.tables, hash, Purpose::Scan)));
            }
        }
    }

    /// Loads the next stretch of the container in hand; `false`: there is none.
    fn load_stretch(&mut self, tree: &Inner) -> Result<bool> {
        let Some((place, mut merge)) = self.merge.take() else { return Ok(false) };
        if !merge.next_stretch()? {
            return Ok(false);
        }
        let mut loaded = std::mem::take(&mut self.loaded);
        merge.each(|_, item| {
            let mut memtables = self.view.memtables();
            let is_hidden = item.value.is_none()
                || memtables.any(|memtable| memtable.has(item.key, self.at))
                || self.is_above(tree, item.key, place)?;
            if !is_hidden {
                loaded.extend(Shown::of(item));
            }
            Ok(())
        })?;
        self.loaded = loaded;
        self.merge = Some((place, merge));
        Ok(true)
    }

    fn is_above(&self, tree: &Inner, key: &[u8], place: Place) -> Result<bool> {
        let found = tree.find(&self.view.version, key, place.level, Purpose::Scan)?;
        Ok(found.is_some())
    }

    fn shown(&self) -> &Shown {
        self.current.as_ref().expect("the cursor stands on an entry")
    }
}

impl Shown {
    fn of(item: &Item<'_>) -> Option<Self> {
        let value = item.value?.to_vec();
        Some(Shown { key: item.key.to_vec(), value, expires_at: item.expires_at })
    }
}

impl ForwardCursor for Walk {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn first(&mut self) -> Result<bool> {
        self.current = None;
        self.merge = None;
        self.loaded.clear();
        let memtables = (0..self.view.memtables().count()).map(Source::Memtable);
        let containers = self.view.version.containers().map(|(place, _)| place);
        self.rest = memtables.chain(containers.map(Source::Container)).collect();
        self.tree()?.counters.seeks.fetch_add(1, Relaxed);
        self.go_on()
    }

    fn advance(&mut self) -> Result<bool> {
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
