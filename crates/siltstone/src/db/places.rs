//! Places: which table a server shows in the place of another (SWAPDB of Redis clients).
//!
//! Each table name is also a place, and a table is in the place of its own name until two tables
//! exchange theirs. The catalogue has the exceptions:
//!
//! ```text
//!   place:  stock   old   new                swap(old, new)         "places": {"new": "old",
//!   table:  stock   old   new           ──▶  stock  new  old                   "old": "new"}
//! ```
//!
//! Invariant: the exceptions are a permutation of listed tables without fixed points. Names,
//! directories and everything else but servers are not concerned.

use siltstone_engine::{Error, Result};

use super::Db;
use crate::Table;
use crate::catalogue::Catalogue;

impl Catalogue {
    /// The table that servers show in the place of the table `name`: itself, unless tables have
    /// been exchanged ([`Table::swap_places`]).
    #[must_use]
    pub fn in_place_of<'a>(&'a self, name: &'a str) -> &'a str {
        self.places.get(name).map_or(name, String::as_str)
    }

    /// The place of a table.
    fn place_of(&self, table: &str) -> String {
        let place = self.places.iter().find(|(_, shown)| *shown == table);
        place.map_or(table, |(place, _)| place).to_owned()
    }

    fn put(&mut self, place: String, table: String) {
        match place == table {
            true => drop(self.places.remove(&place)),
            false => drop(self.places.insert(place, table)),
        }
    }

    /// Exchanges the places of two tables.
    pub(super) fn swap_places(&mut self, first: &str, second: &str) {
        let (place, other) = (self.place_of(first), self.place_of(second));
        self.put(place, second.to_owned());
        self.put(other, first.to_owned());
    }

    /// Removes a table and its place; the table in its place moves to the place that is free then.
    pub(super) fn remove_place(&mut self, table: &str) {
        let in_place = self.in_place_of(table).to_owned();
        if in_place != table {
            self.swap_places(table, &in_place);
        }
    }

    /// Renames a table and its place.
    pub(super) fn rename_place(&mut self, from: &str, to: &str) {
        let renamed = |name: String| if name == from { to.to_owned() } else { name };
        let places = std::mem::take(&mut self.places).into_iter();
        self.places = places.map(|(place, table)| (renamed(place), renamed(table))).collect();
    }
}

impl Db {
    /// See [`Table::swap_places`].
    pub(super) fn swap_places(&self, first: &Table, second: &Table) -> Result<()> {
        self.check_writable()?;
        let mut open = self.state()?;
        for table in [first, second] {
            // It may have been dropped, or belong to another store.
            if !open.tables.get(table.name()).is_some_and(|listed| listed.is_same(table)) {
                return Err(Error::Closed);
            }
        }
        let mut catalogue = open.catalogue.clone();
        catalogue.swap_places(first.name(), second.name());
        open.replace_catalogue(self.inner.vfs.as_ref(), catalogue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_random_swaps_are_those_of_an_array() {
        let names = ["a", "b", "c", "d"];
        let mut shown = names;
        let mut catalogue = Catalogue::default();
        let mut state = 1u32;
        for step in 0..1000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (i, j) = ((state >> 16) as usize % 4, (state >> 24) as usize % 4);
            catalogue.swap_places(shown[i], shown[j]);
            shown.swap(i, j);
            let places = names.map(|name| catalogue.in_place_of(name));
            assert_eq!(places, shown, "step {step}");
            assert!(catalogue.places.iter().all(|(place, table)| place != table));
        }
    }

    #[test]
    fn removed_and_renamed_tables_keep_the_places_a_permutation() {
        let mut catalogue = Catalogue::default();
        // a shows b, b shows c, c shows a.
        catalogue.swap_places("a", "b");
        catalogue.swap_places("a", "c");
        assert_eq!(["a", "b", "c"].map(|name| catalogue.in_place_of(name)), ["b", "c", "a"]);
        catalogue.rename_place("b", "e");
        assert_eq!(["a", "e", "c"].map(|name| catalogue.in_place_of(name)), ["e", "c", "a"]);
        catalogue.remove_place("e");
        assert_eq!(["a", "c"].map(|name| catalogue.in_place_of(name)), ["c", "a"]);
        catalogue.remove_place("a");
        assert!(catalogue.places.is_empty());
    }
}
