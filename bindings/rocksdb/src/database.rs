//! An open database, and how it is opened: one store with one table.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use store::{
    BatchOp, Clock, Db, DbOptions, Durability, Error, Op, SystemClock, Table, WriteBatch,
    maintenance,
};

use crate::exports::array;
use crate::failure::Failure;
use crate::families::{DEFAULT_NAME, Families, Handle};
use crate::layout::{
    self, FIRST_WRITES, IDENTITY_KEY, TABLE, VERSION, VERSION_KEY, VERSION_WITH_PREPARED,
};
use crate::locks::Locks;
use crate::merge::Dispatch;
use crate::options::Options;
use crate::scalars::HasScalars;
use crate::secondary::{Secondary, Store};
use crate::statistics::Statistics;

/// An open database. Clones share it.
#[derive(Debug, Clone)]
pub struct Database {
    /// The store.
    pub(crate) store: Store,
    /// The column families.
    pub families: Arc<Families>,
    /// The locks of transactions, of a database that was opened for transactions with locks.
    pub locks: Option<Arc<Locks>>,
    /// The identity.
    pub identity: Arc<str>,
    /// What the options count, if they do.
    pub statistics: Option<Arc<Statistics>>,
}

/// A column family to be opened.
#[derive(Debug)]
pub struct Wanted {
    name: String,
    options: Options,
    ttl: Option<u64>,
}

impl Wanted {
    /// The default column family alone.
    pub fn default_family(options: &Options) -> Vec<Self> {
        vec![Self::family(DEFAULT_NAME, options)]
    }

    /// A column family without a time to live.
    pub fn family(name: &str, options: &Options) -> Self {
        Wanted { name: name.to_owned(), options: options.clone(), ttl: None }
    }

    /// Column families of the caller.
    ///
    /// # Safety
    /// The arrays have `count` names and options, and times to live in seconds if there are any.
    pub unsafe fn list(
        count: c_int,
        names: *const *const c_char,
        options: *const *const Options,
        ttls: *const c_int,
    ) -> Result<Vec<Self>, Failure> {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: by the contract of this function.
        let (names, options, ttls) = unsafe {
            let ttls = if ttls.is_null() { &[] } else { array(ttls, count) };
            (array(names, count), array(options, count), ttls)
        };
        let mut families = Vec::new();
        for (at, (name, options)) in names.iter().zip(options).enumerate() {
            // SAFETY: by the contract of this function.
            let (name, options) = unsafe { (CStr::from_ptr(*name), (**options).clone()) };
            let name = name.to_string_lossy().into_owned();
            let ttl = ttls.get(at).copied().and_then(milliseconds);
            families.push(Wanted { name, options, ttl });
        }
        Ok(families)
    }

    /// The same with a time to live in seconds.
    pub fn with_ttl(mut self, seconds: c_int) -> Self {
        self.ttl = milliseconds(seconds);
        self
    }
}

/// A time to live; none if it is not positive, as in RocksDB.
pub fn milliseconds(seconds: c_int) -> Option<u64> {
    (seconds > 0).then(|| seconds as u64 * 1000)
}

impl Database {
    /// Opens a database with the families that the caller wants, in their order.
    pub fn open(
        options: &Options,
        path: &str,
        wanted: &[Wanted],
        is_read_only: bool,
    ) -> Result<(Self, Vec<Handle>), Failure> {
        check_wanted(options, path, wanted)?;
        let exists = check_directory(options, path, is_read_only)?;
        if is_read_only && !exists {
            return Err(refuse(path, "does not exist"));
        }
        let families = Arc::new(Families::default());
        let db_options = db_options(options, wanted, &families);
        // A table that is open for writing gets the capacity as its own option, and counts the
        // usage.
        let cache_bytes = db_options.cache_bytes.filter(|_| is_read_only);
        let db_options = DbOptions { read_only: is_read_only, cache_bytes, ..db_options };
        let db = Db::open_or_create(path, db_options)?;
        let opened = Self::of_store(db, options, wanted, families, is_read_only, path)?;
        note_open(path, &opened.0.families);
        Ok(opened)
    }

    /// The database in a store, which is closed after an error.
    pub fn of_store(
        db: Db,
        options: &Options,
        wanted: &[Wanted],
        families: Arc<Families>,
        is_read_only: bool,
        path: &str,
    ) -> Result<(Self, Vec<Handle>), Failure> {
        let opened = open_table(&db, options, is_read_only, path).and_then(|table| {
            let store = Store::Own(db.clone(), table);
            Self::open_families(store, options, wanted, families, is_read_only, path)
        });
        // The error of opening is the one that counts.
        opened.inspect_err(|_| drop(db.close()))
    }

    /// Opens a database for reading, also beside the process that writes it.
    pub fn open_secondary(
        options: &Options,
        path: &str,
        wanted: &[Wanted],
    ) -> Result<(Self, Vec<Handle>), Failure> {
        check_wanted(options, path, wanted)?;
        if !Db::exists(path)? {
            return Err(refuse(path, "does not exist"));
        }
        let families = Arc::new(Families::default());
        let reader = Db::open_reader(path, db_options(options, wanted, &families))?;
        open_table(&reader.db(), options, true, path)?;
        let store = Store::Secondary(Arc::new(Secondary::new(reader)?));
        Self::open_families(store, options, wanted, families, true, path)
    }

    fn open_families(
        store: Store,
        options: &Options,
        wanted: &[Wanted],
        families: Arc<Families>,
        is_read_only: bool,
        path: &str,
    ) -> Result<(Self, Vec<Handle>), Failure> {
        let statistics = options.statistics.clone();
        let identity = Arc::default();
        let mut database = Database { store, families, locks: None, identity, statistics };
        let handles = database.open_wanted(options, wanted, is_read_only, path)?;
        if let (Some(statistics), Store::Own(_, table)) = (&database.statistics, &database.store) {
            statistics.begin(table.engine());
        }
        if let Some(cache) = options.cache() {
            cache.add_user(database.table().engine());
        }
        if !is_read_only && wanted.iter().any(|family| has_filter(&family.options)) {
            database.set_filter()?;
        }
        Ok((database, handles))
    }

    fn open_wanted(
        &mut self,
        options: &Options,
        wanted: &[Wanted],
        is_read_only: bool,
        path: &str,
    ) -> Result<Vec<Handle>, Failure> {
        let identity = identity(&self.table(), path)?;
        self.identity = identity.into();
        let (table, families) = (self.table(), &self.families);
        let mut known = Families::list(&table)?;
        known.insert(DEFAULT_NAME.to_owned(), 0);
        let scalars = options.scalars();
        if !is_read_only {
            check_all_opened(&known, wanted)?;
        }
        let mut handles = Vec::new();
        for family in wanted {
            let id = match known.get(&family.name) {
                Some(id) => *id,
                None if !is_read_only && scalars.is_set("create_missing_column_families") => {
                    families.create(&table, &family.name, &family.options)?.id
                }
                None => {
                    let text = format!("Column family not found: {}", family.name);
                    return Err(Failure::invalid(text));
                }
            };
            families.open(id, &family.name, &family.options, family.ttl);
            handles.push(Handle { id, name: family.name.clone() });
        }
        Ok(handles)
    }

    /// The store; of a secondary as of the last catch-up.
    pub fn db(&self) -> Cow<'_, Db> {
        self.store.db()
    }

    /// The table; of a secondary as of the last catch-up.
    pub fn table(&self) -> Cow<'_, Table> {
        self.store.table()
    }

    /// Keeps what was counted after the database is closed.
    pub fn finish_statistics(&self) {
        if let (Some(statistics), Store::Own(_, table)) = (&self.statistics, &self.store) {
            statistics.finish(table.engine());
        }
    }

    /// Puts the compaction filters of the families in force.
    fn set_filter(&self) -> Result<(), Failure> {
        let filter = Arc::new(Dispatch(self.families.clone()));
        Ok(self.table().set_compaction_filter(Some(filter))?)
    }

    /// Creates a column family.
    pub fn create_family(&self, name: &str, options: &Options) -> Result<Handle, Failure> {
        options.check(name)?;
        if options.merge.is_some() {
            let operator = Arc::new(Dispatch(self.families.clone()));
            self.table().set_merge_operator(Some(operator))?;
        }
        if name == DEFAULT_NAME {
            return Err(Failure::invalid("Column family already exists: default"));
        }
        let handle = self.families.create(&self.table(), name, options)?;
        if has_filter(options) {
            self.set_filter()?;
        }
        Ok(handle)
    }

    /// Writes a batch whose operations are in the column families `used`.
    pub fn write(
        &self,
        batch: &WriteBatch,
        used: &[u32],
        durability: Durability,
    ) -> Result<(), Failure> {
        used.iter().try_for_each(|family| self.families.check(*family))?;
        let _timer = self.statistics.as_deref().map(Statistics::time_write);
        if !self.families.has_ttl() {
            return Ok(self.table().write(batch, durability)?);
        }
        Ok(self.table().write(&self.with_expiry(batch), durability)?)
    }

    /// The batch with the times to live of the families.
    fn with_expiry(&self, batch: &WriteBatch) -> WriteBatch {
        let now = SystemClock.now();
        let mut expiring = WriteBatch::new();
        for op in batch.iter_all() {
            let op = match op {
                BatchOp::Point(Op::Put { key, value, .. }) => {
                    let ttl = layout::split(key).and_then(|(family, _)| self.families.ttl(family));
                    BatchOp::Point(Op::Put { key, value, expires_at: ttl.map(|ttl| now + ttl) })
                }
                op => op,
            };
            expiring.push_any(op);
        }
        expiring
    }

    /// The sequence number of the last write.
    pub fn sequence(&self) -> Result<u64, Failure> {
        Ok(self.table().snapshot()?.sequence().saturating_sub(FIRST_WRITES))
    }
}

/// The table of a store, which has no other one.
fn open_table(
    db: &Db,
    options: &Options,
    is_read_only: bool,
    path: &str,
) -> Result<Table, Failure> {
    let names = db.table_names()?;
    if !names.is_empty() && names != [TABLE] {
        let reason = "is a store of other tables, not a database of this interface";
        return Err(refuse(path, reason));
    }
    Ok(match is_read_only {
        true => db.table(TABLE)?,
        false => db.table_or_create(TABLE, "lsm", &options.to_table_options())?,
    })
}

/// Refuses options that the store does not have, and a list without the default family.
fn check_wanted(options: &Options, path: &str, wanted: &[Wanted]) -> Result<(), Failure> {
    options.check(path)?;
    wanted.iter().try_for_each(|family| family.options.check(path))?;
    if !wanted.iter().any(|family| family.name == DEFAULT_NAME) {
        let text = "Default column family not specified";
        return Err(Failure::invalid(text));
    }
    Ok(())
}

/// The options of the store, with the merge operators of the families.
fn db_options(options: &Options, wanted: &[Wanted], families: &Arc<Families>) -> DbOptions {
    let mut db_options = options.to_db_options();
    if wanted.iter().any(|family| family.options.merge.is_some()) {
        let operator = Arc::new(Dispatch(families.clone()));
        db_options.merge_operators.insert(TABLE.to_owned(), operator);
    }
    db_options
}

fn has_filter(options: &Options) -> bool {
    options.filter.is_some() || options.filter_factory.is_some()
}

fn refuse(path: &str, reason: &str) -> Failure {
    Failure::Store(Error::Refused { path: path.to_owned(), reason: reason.to_owned() })
}

/// Whether there is a database. Refuses RocksDB's own, and what the options exclude.
fn check_directory(options: &Options, path: &str, is_read_only: bool) -> Result<bool, Failure> {
    let exists = Db::exists(path)?;
    if exists && Path::new(path).join("CURRENT").exists() {
        return Err(refuse(
            path,
            "it is a database of RocksDB itself, whose files Siltstone does not read: copy the entries with a \
             program that is linked with RocksDB",
        ));
    }
    // As in RocksDB, which opens for reading what exists.
    if exists && !is_read_only && options.scalars().is_set("error_if_exists") {
        return Err(refuse(path, "exists (error_if_exists is true)"));
    }
    if !exists && !options.scalars().is_set("create_if_missing") {
        return Err(refuse(path, "does not exist (create_if_missing is false)"));
    }
    Ok(exists)
}

/// Refuses to open only some of the families, as RocksDB does.
fn check_all_opened(known: &BTreeMap<String, u32>, wanted: &[Wanted]) -> Result<(), Failure> {
    let is_wanted = |name: &&String| wanted.iter().any(|family| family.name == **name);
    let missing: Vec<&str> =
        known.keys().filter(|name| !is_wanted(name)).map(String::as_str).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid(format!("Column families not opened: {}", missing.join(", "))))
}

/// Checks the version of the layout, and returns the identity. Writes both into a new table.
fn identity(table: &Table, path: &str) -> Result<String, Failure> {
    let Some(version) = table.get(VERSION_KEY)? else {
        if !table.is_empty()? {
            return Err(refuse(path, "has entries without a version: not of this interface"));
        }
        let identity = new_identity();
        let mut batch = WriteBatch::new();
        batch.put(VERSION_KEY, &VERSION.to_le_bytes());
        batch.put(IDENTITY_KEY, identity.as_bytes());
        table.write(&batch, Durability::Synced)?;
        return Ok(identity);
    };
    let version = layout::number(&version)?;
    if !(VERSION..=VERSION_WITH_PREPARED).contains(&version) {
        let reason = format!(
            "has version {version} of the layout; this library has up to {VERSION_WITH_PREPARED}"
        );
        return Err(refuse(path, &reason));
    }
    let identity = table.get(IDENTITY_KEY)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&identity).into_owned())
}

/// A text in the form of a UUID, of the time and the process.
fn new_identity() -> String {
    use std::hash::{BuildHasher, RandomState};
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    let part = || RandomState::new().hash_one((now, std::process::id()));
    let (a, b) = (part(), part());
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xfff,
        b >> 52,
        b & 0xffff_ffff_ffff
    )
}

/// The databases that this process has open, by the directories that the system resolves.
static OPEN: Mutex<Vec<(PathBuf, Weak<Families>)>> = Mutex::new(Vec::new());

fn note_open(path: &str, families: &Arc<Families>) {
    let Ok(path) = Path::new(path).canonicalize() else { return };
    let mut open = OPEN.lock();
    open.retain(|(other, families)| *other != path && families.strong_count() > 0);
    open.push((path, Arc::downgrade(families)));
}

/// The column families of a database that this process has open.
fn open_families(path: &str) -> Option<Arc<Families>> {
    let path = Path::new(path).canonicalize().ok()?;
    OPEN.lock().iter().find(|(other, _)| *other == path)?.1.upgrade()
}

/// The names of the column families of a database, the default one first. No other process has it
/// open for writing.
pub fn list_families(path: &str) -> Result<Vec<String>, Failure> {
    if !Db::exists(path)? {
        return Err(refuse(path, "does not exist"));
    }
    let options = DbOptions { read_only: true, ..DbOptions::default() };
    let db = match (Db::open(path, options), open_families(path)) {
        (Err(Error::Locked { .. }), Some(families)) => return Ok(families.names()),
        (db, _) => db?,
    };
    let known = db.table(TABLE).map_err(Failure::from).and_then(|table| Families::list(&table));
    drop(db.close());
    let mut known: Vec<(u32, String)> = known?.into_iter().map(|(name, id)| (id, name)).collect();
    known.sort();
    let names = known.into_iter().map(|(_, name)| name);
    Ok(std::iter::once(DEFAULT_NAME.to_owned()).chain(names).collect())
}

/// Repairs a database that is not open.
pub fn repair(path: &str) -> Result<(), Failure> {
    maintenance::repair(path, None)?;
    Ok(())
}
