//! `import` of a dump file of Redis (`dump.rdb`): strings and collections with their expiries.
//!
//! As with rows, a file is read twice: once to check all of it, and again to load it. A pipe is
//! read once, and the entries before a damaged part are imported.
//!
//! Strings are written in batches. A collection is written in parts of a limited number of
//! elements, so an import that is interrupted may leave a part of one; the same import again
//! completes it. Entries that have expired are skipped.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use serde_json::json;
use siltstone::{Clock, Durability, MAX_KEY_BYTES, SystemClock, Table, WriteBatch};
use siltstone_collections::{Collections, layout};
use siltstone_rdb::{DumpFile, Entry, Item, StoreError, Value};

use crate::interrupt::Interrupt;
use crate::outcome::Failure;
use crate::transfer::BATCH_BYTES;

/// Memory that one value may take.
const MAX_VALUE_MEMORY_BYTES: u64 = 16 << 30;
/// Elements of a collection per batch.
const PART_ELEMENTS: usize = 10_000;
/// Bytes of the key of a row besides a field or member.
const ELEMENT_KEY_BYTES: usize = 20;
const SHOWN_KEY_BYTES: usize = 64;

/// The numbers of a dump file that was read.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    version: u16,
    redis_version: String,
    is_checksummed: bool,
    /// Imported keys by type.
    keys: BTreeMap<&'static str, u64>,
    expiring: u64,
    elements: u64,
    /// Keys that have expired.
    expired: u64,
    /// Keys by database that were not chosen.
    others: BTreeMap<u64, u64>,
    libraries: u64,
    /// Names of module types whose data was skipped.
    modules: Vec<String>,
}

/// Which entries are imported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selection {
    /// The database; `None`: the only one that has keys.
    pub(crate) database: Option<u64>,
    /// Now, in milliseconds since 1970.
    pub(crate) now: u64,
}

/// Limits of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableLimits {
    pub(crate) max_value_bytes: usize,
    pub(crate) is_ordered: bool,
}

/// Reads a dump file, and passes each chosen entry to `take`. `name` is that of the file.
pub(crate) fn read(
    input: impl Read,
    name: &str,
    selection: Selection,
    limits: TableLimits,
    interrupt: &Interrupt,
    take: &mut dyn FnMut(Entry) -> Result<(), Failure>,
) -> Result<Summary, Failure> {
    let failed = |error: siltstone_rdb::Error| match error {
        siltstone_rdb::Error::Io { error, .. } => Failure::file("read", name, &error),
        error => Failure::Usage(format!("{name}, {error}")),
    };
    let mut file = DumpFile::open(input, MAX_VALUE_MEMORY_BYTES).map_err(failed)?;
    let mut summary = Summary { version: file.version(), ..Summary::default() };
    let mut chosen = selection.database;
    while let Some(item) = file.next_item().map_err(failed)? {
        interrupt.check()?;
        let entry = match item {
            Item::Entry(entry) => entry,
            Item::Fact(fact, value) => {
                if fact == b"redis-ver" || fact == b"valkey-ver" {
                    summary.redis_version = String::from_utf8_lossy(&value).into_owned();
                }
                continue;
            }
            Item::Functions(_) => {
                summary.libraries += 1;
                continue;
            }
            Item::ModuleData(module) => {
                summary.modules.push(module);
                continue;
            }
        };
        let bad = |reason: &str| {
            let key = entry.key[..entry.key.len().min(SHOWN_KEY_BYTES)].escape_ascii();
            Failure::Usage(format!("{name}, offset {}: key '{key}': {reason}", entry.offset))
        };
        if entry.database != *chosen.get_or_insert(entry.database) {
            if selection.database.is_none() {
                let [first, second] = [chosen.unwrap_or_default(), entry.database];
                return Err(bad(&format!(
                    "the file has keys in the databases {first} and {second}; choose one by \
                     --database"
                )));
            }
            *summary.others.entry(entry.database).or_default() += 1;
        } else if entry.expires_at.is_some_and(|at| at <= selection.now) {
            summary.expired += 1;
        } else {
            check(&entry, limits).map_err(|reason| bad(&reason))?;
            *summary.keys.entry(entry.value.type_name()).or_default() += 1;
            summary.expiring += u64::from(entry.expires_at.is_some());
            summary.elements += entry.value.len() as u64;
            take(entry)?;
        }
    }
    summary.is_checksummed = file.is_checksummed();
    Ok(summary)
}

/// Checks an entry against the limits of the table.
fn check(entry: &Entry, limits: TableLimits) -> Result<(), String> {
    let within = |what: &str, max_bytes: usize, bytes: usize| match bytes <= max_bytes {
        true => Ok(()),
        false => Err(format!("a {what} has {bytes} bytes; the limit is {max_bytes}")),
    };
    let max_member_bytes = MAX_KEY_BYTES - ELEMENT_KEY_BYTES;
    let value = |bytes: usize| within("value", limits.max_value_bytes, bytes);
    let member = |member: &Vec<u8>| within("field or member", max_member_bytes, member.len());
    within("key", MAX_KEY_BYTES, entry.key.len())?;
    if !limits.is_ordered && !matches!(entry.value, Value::String(_)) {
        return Err(format!(
            "a {}; the table's engine stores only strings: import into a table of the engine lsm",
            entry.value.type_name()
        ));
    }
    match &entry.value {
        Value::String(bytes) => value(bytes.len()),
        Value::List(elements) => elements.iter().try_for_each(|element| value(element.len())),
        Value::Set(members) => members.iter().try_for_each(member),
        Value::SortedSet(members) => members.iter().try_for_each(|(name, _)| member(name)),
        Value::Hash(fields) => fields.iter().try_for_each(|(field, bytes)| {
            member(field)?;
            value(bytes.len())
        }),
        Value::ExpiringHash(fields) => fields.iter().try_for_each(|(field, bytes, _)| {
            member(field)?;
            value(bytes.len())
        }),
        Value::Stream(stream) => {
            stream.entries.iter().try_for_each(|entry| {
                value(entry.fields.iter().map(|field| field.len() + 4).sum::<usize>())
            })?;
            stream.groups.iter().try_for_each(|group| {
                member(&group.name)?;
                group.consumers.iter().try_for_each(|consumer| member(&consumer.name))
            })
        }
    }
}

/// Writes entries to a table.
pub(crate) struct EntryLoader<'a> {
    table: &'a Table,
    collections: Option<Collections>,
    batch: WriteBatch,
    /// Number of keys written.
    pub(crate) keys: u64,
    pending: u64,
}

impl<'a> EntryLoader<'a> {
    pub(crate) fn new(table: &'a Table) -> Result<Self, Failure> {
        let is_ordered = table.engine().capabilities().ordered;
        let open = || Collections::open(table.clone(), Arc::new(SystemClock)).map_err(failure);
        let collections = is_ordered.then(open).transpose()?;
        Ok(EntryLoader { table, collections, batch: WriteBatch::new(), keys: 0, pending: 0 })
    }

    pub(crate) fn add(&mut self, entry: Entry) -> Result<(), Failure> {
        let Entry { key, value, expires_at, .. } = entry;
        let value = match value {
            Value::String(bytes) => Value::String(match self.table.engine().name() {
                "mica" => bytes,
                _ => siltstone_server::stored_string(&bytes).into_owned(),
            }),
            value => value,
        };
        match (value, &self.collections) {
            // A key under the prefix of reserved rows is stored elsewhere.
            (Value::String(bytes), collections)
                if collections.is_none() || !key.starts_with(&layout::PREFIX) =>
            {
                match expires_at {
                    None => self.batch.put(&key, &bytes),
                    Some(at) => self.batch.put_until(&key, &bytes, at),
                };
                self.pending += 1;
                if self.batch.as_bytes().len() >= BATCH_BYTES {
                    self.write()?;
                }
                Ok(())
            }
            (value, Some(collections)) => {
                store(collections, &key, value, expires_at)?;
                self.keys += 1;
                Ok(())
            }
            (value, None) => {
                let kind = value.type_name();
                Err(Failure::Usage(format!("the table stores only strings, and no {kind}")))
            }
        }
    }

    /// Writes the pending batch.
    pub(crate) fn write(&mut self) -> Result<(), Failure> {
        if !self.batch.is_empty() {
            self.table.write(&self.batch, Durability::Buffered)?;
            self.batch.clear();
            self.keys += std::mem::take(&mut self.pending);
        }
        Ok(())
    }
}

/// Cuts a value into parts of at most `PART_ELEMENTS` elements, from its end: each is moved once.
fn parts(mut value: Value) -> Vec<Value> {
    let mut parts = Vec::new();
    while value.len() > PART_ELEMENTS {
        let at = (value.len() - 1) / PART_ELEMENTS * PART_ELEMENTS;
        parts.push(value.split_off(at));
    }
    parts.push(value);
    parts.reverse();
    parts
}

/// Stores a value over a key, in parts. Each part sets the expiry, and a key that expires meanwhile
/// is left: the next part would begin a new collection, which does not expire.
fn store(
    collections: &Collections,
    key: &[u8],
    value: Value,
    expires_at: Option<u64>,
) -> Result<(), Failure> {
    for (at, part) in parts(value).into_iter().enumerate() {
        if at > 0 && expires_at.is_some_and(|at| at <= now()) {
            break;
        }
        let mut is_duplicate = false;
        let stored = collections.with(&[key], Durability::Buffered, |writes| {
            if at == 0 {
                writes.remove(key)?;
            }
            match part.store(writes, key) {
                Ok(()) => {}
                Err(StoreError::Table(error)) => return Err(error),
                Err(StoreError::Duplicate) => is_duplicate = true,
            }
            if expires_at.is_some() {
                writes.set_expiry(key, expires_at)?;
            }
            Ok(())
        });
        stored.map_err(failure)?;
        if is_duplicate {
            let (key, kind) = (key.escape_ascii(), part.type_name());
            return Err(Failure::Usage(format!("key '{key}': a {kind} has an element twice")));
        }
    }
    Ok(())
}

fn failure(error: siltstone_collections::Error) -> Failure {
    match error {
        siltstone_collections::Error::Store(error) => error.into(),
        error => Failure::Store(error.to_string()),
    }
}

impl Summary {
    /// Number of keys that were imported.
    fn imported(&self) -> u64 {
        self.keys.values().sum()
    }

    /// Prints the counts: as lines on standard error, or as a JSON object.
    pub(crate) fn print(&self, name: &str, is_json: bool) {
        let others: u64 = self.others.values().sum();
        if is_json {
            let others: BTreeMap<String, u64> =
                self.others.iter().map(|(number, keys)| (number.to_string(), *keys)).collect();
            println!(
                "{}",
                json!({
                    "keys": self.imported(),
                    "types": self.keys,
                    "elements": self.elements,
                    "expiring": self.expiring,
                    "rdb_version": self.version,
                    "redis_version": self.redis_version,
                    "checksummed": self.is_checksummed,
                    "skipped": {
                        "expired": self.expired,
                        "databases": others,
                        "libraries": self.libraries,
                        "modules": self.modules,
                    },
                })
            );
            return;
        }
        let types: Vec<_> = self.keys.iter().map(|(kind, keys)| format!("{keys} {kind}")).collect();
        let types =
            if types.is_empty() { String::new() } else { format!(": {}", types.join(", ")) };
        eprintln!(
            "imported {} keys of a dump of version {}{types}; {} of them expire",
            self.imported(),
            self.version,
            self.expiring
        );
        let mut skipped = Vec::new();
        for (count, what) in [
            (self.expired, "expired keys"),
            (others, "keys of other databases"),
            (self.libraries, "libraries of functions"),
        ] {
            skipped.extend((count > 0).then(|| format!("{count} {what}")));
        }
        skipped.extend(self.modules.iter().map(|module| format!("data of the module {module}")));
        if !skipped.is_empty() {
            eprintln!("skipped: {}", skipped.join(", "));
        }
        if !self.is_checksummed {
            eprintln!("siltstone: warning: {name} has no checksum, so damage may be unnoticed");
        }
    }
}

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    SystemClock.now()
}
