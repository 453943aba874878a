//! Column families: their catalogue in the table, and what the program has set for each.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use shim::boundary::{Pointer, copy};
use store::{Durability, Table, WriteBatch};

use crate::callbacks::{FilterCallbacks, PrefixExtractor};
use crate::exports::{exports, give};
use crate::failure::Failure;
use crate::layout;
use crate::merge::Merge;
use crate::options::Options;

/// The name of the default column family.
pub const DEFAULT_NAME: &str = "default";

/// A column family, as the program names it in calls.
#[derive(Debug, Clone)]
pub struct Handle {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
}

/// The default column family.
pub static DEFAULT: Handle = Handle { id: 0, name: String::new() };

/// An open column family.
#[derive(Debug, Clone)]
struct Family {
    name: String,
    options: Options,
    /// How long entries live, in milliseconds.
    ttl: Option<u64>,
}

/// The column families of a database.
#[derive(Debug, Default)]
pub struct Families {
    /// Never locked during a write to the table: a write can wait for a compaction, which reads it.
    open: RwLock<BTreeMap<u32, Family>>,
    /// One creation at a time.
    creation: Mutex<()>,
}

impl Families {
    /// Reads the catalogue of a table: names and numbers.
    pub fn list(table: &Table) -> Result<BTreeMap<String, u32>, Failure> {
        let mut cursor = table.cursor_range((layout::families().start, layout::families().end))?;
        let mut families = BTreeMap::new();
        while let Some(entry) = cursor.next()? {
            families.insert(layout::family_name(entry.key)?, layout::number(entry.value)?);
        }
        Ok(families)
    }

    /// Creates a column family.
    pub fn create(&self, table: &Table, name: &str, options: &Options) -> Result<Handle, Failure> {
        let _one = self.creation.lock();
        if table.contains_key(&layout::family_key(name.as_bytes()))? {
            let text = format!("Column family already exists: {name}");
            return Err(Failure::invalid(text));
        }
        let next = table.get(layout::NEXT_KEY)?;
        let id = next.map_or(Ok(1), |next| layout::number(&next))?;
        let mut batch = WriteBatch::new();
        batch.put(layout::NEXT_KEY, &(id + 1).to_le_bytes());
        batch.put(&layout::family_key(name.as_bytes()), &id.to_le_bytes());
        table.write(&batch, Durability::Synced)?;
        let family = Family { name: name.to_owned(), options: options.clone(), ttl: None };
        self.open.write().insert(id, family);
        Ok(Handle { id, name: name.to_owned() })
    }

    /// Drops a column family with its entries.
    pub fn drop_family(&self, table: &Table, handle: &Handle) -> Result<(), Failure> {
        if handle.id == 0 {
            return Err(Failure::invalid("Can't drop default column family"));
        }
        let removed = self.open.write().remove(&handle.id);
        let Some(family) = removed else {
            return Err(Failure::invalid("Column family already dropped!"));
        };
        let mut batch = WriteBatch::new();
        batch.delete(&layout::family_key(handle.name.as_bytes()));
        let range = layout::range(handle.id);
        batch.delete_range((range.start, range.end));
        let written = table.write(&batch, Durability::Synced);
        if written.is_err() {
            self.open.write().insert(handle.id, family);
        }
        Ok(written?)
    }

    /// Opens a column family that exists.
    pub fn open(&self, id: u32, name: &str, options: &Options, ttl: Option<u64>) {
        let family = Family { name: name.to_owned(), options: options.clone(), ttl };
        self.open.write().insert(id, family);
    }

    /// Sets how long the entries of a family live, in milliseconds.
    pub fn set_ttl(&self, id: u32, ttl: Option<u64>) {
        if let Some(family) = self.open.write().get_mut(&id) {
            family.ttl = ttl;
        }
    }

    /// How long the entries of a family live, in milliseconds.
    pub fn ttl(&self, id: u32) -> Option<u64> {
        self.open.read().get(&id).and_then(|family| family.ttl)
    }

    /// Whether entries of any family expire.
    pub fn has_ttl(&self) -> bool {
        self.open.read().values().any(|family| family.ttl.is_some())
    }

    /// Refuses a family that was dropped.
    pub fn check(&self, id: u32) -> Result<(), Failure> {
        if self.open.read().contains_key(&id) {
            return Ok(());
        }
        Err(Failure::invalid(format!("the column family with the number {id} is not open")))
    }

    /// The name of a family.
    pub fn name(&self, id: u32) -> Option<String> {
        self.open.read().get(&id).map(|family| family.name.clone())
    }

    /// The names of the families, in the order of their numbers.
    pub fn names(&self) -> Vec<String> {
        self.open.read().values().map(|family| family.name.clone()).collect()
    }

    /// How many families there are, with the default one.
    pub fn count(&self) -> usize {
        self.open.read().len()
    }

    /// The merge operator of a family.
    pub fn merge_of(&self, id: u32) -> Option<Merge> {
        self.open.read().get(&id)?.options.merge.clone()
    }

    /// A compaction filter of a family for one pass.
    pub fn filter_of(&self, id: u32) -> Option<Arc<FilterCallbacks>> {
        let options = self.open.read().get(&id)?.options.clone();
        options.filter.or_else(|| options.filter_factory?.create())
    }

    /// The prefix extractor of a family.
    pub fn prefix_of(&self, id: u32) -> Option<Arc<PrefixExtractor>> {
        self.open.read().get(&id)?.options.prefix.clone()
    }
}

exports! {
    /// Frees the handle of a column family, not the family.
    fn rocksdb_column_family_handle_destroy(handle: Option<Box<Handle>>) {
        drop(handle)
    }

    /// The number of a column family.
    fn rocksdb_column_family_handle_get_id(handle: &Handle) -> u32 {
        handle.id
    }

    /// The name of a column family, to be freed.
    fn rocksdb_column_family_handle_get_name(
        handle: &Handle, size: *mut usize
    ) -> Pointer<c_char> {
        unsafe { give(size, handle.name.len()) };
        Pointer(copy(handle.name.as_bytes()))
    }
}
