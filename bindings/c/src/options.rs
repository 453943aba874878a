//! Options of opening a store, and `key=value` options of tables.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use store::encryption::{KeyRing, Keys, MasterKey};
use store::{DbOptions, Env, Error, EventListener, InvalidOption, MergeOperator};

use crate::error::{SiltstoneError, guard, invalid, release, required};
use crate::memory::{array, bytes, text};

/// Options of opening a store. They are copied when a store is opened and can be used again.
#[derive(Default)]
pub struct SiltstoneOptions {
    read_only: bool,
    direct_reads: bool,
    threads: Option<usize>,
    max_open_files: Option<usize>,
    cache_bytes: Option<u64>,
    idle_ms: Option<u64>,
    transaction_memory_bytes: Option<usize>,
    /// The first one is the current one.
    keys: Vec<MasterKey>,
    pub(crate) merge_operators: BTreeMap<String, Arc<dyn MergeOperator>>,
    pub(crate) listeners: Vec<Arc<dyn EventListener>>,
}

impl fmt::Debug for SiltstoneOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiltstoneOptions").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl SiltstoneOptions {
    fn to_db_options(&self) -> DbOptions {
        let mut options = DbOptions {
            read_only: self.read_only,
            direct_reads: self.direct_reads,
            cache_bytes: self.cache_bytes,
            merge_operators: self.merge_operators.clone(),
            listeners: self.listeners.clone(),
            ..DbOptions::default()
        };
        options.encryption = self.keys();
        if let Some(threads) = self.threads {
            options.env = Env::system(threads.clamp(1, 256));
        }
        if let Some(files) = self.max_open_files {
            options.max_open_files = files;
        }
        if let Some(idle) = self.idle_ms {
            options.transactions.idle = (idle > 0).then(|| Duration::from_millis(idle));
        }
        if let Some(bytes) = self.transaction_memory_bytes {
            options.transactions.remembered_bytes = bytes;
        }
        options
    }

    /// The keys of an encrypted store, if there are any.
    pub(crate) fn keys(&self) -> Keys {
        let Some((current, earlier)) = self.keys.split_first() else { return Keys::default() };
        Keys::new(Arc::new(KeyRing::new(current.clone(), earlier.to_vec())))
    }
}

/// The options as the store wants them; without options the defaults.
pub(crate) fn db_options(options: Option<&SiltstoneOptions>) -> DbOptions {
    options.map(SiltstoneOptions::to_db_options).unwrap_or_default()
}

/// Parses options of a table, "key=value" each.
///
/// # Safety
/// `options` points to `count` NUL-terminated strings, unless it is NULL.
pub(crate) unsafe fn table_options(
    options: *const *const c_char,
    count: usize,
) -> Result<BTreeMap<String, String>, Error> {
    let (mut parsed, mut mistakes) = (BTreeMap::new(), Vec::new());
    // SAFETY: by the contract of this function.
    for &option in unsafe { array(options, count, "options") }? {
        // SAFETY: by the contract of this function.
        let option = unsafe { text(option, "options[]") }?;
        match option.split_once('=') {
            Some((key, value)) => drop(parsed.insert(key.to_owned(), value.to_owned())),
            None => mistakes.push(InvalidOption {
                option: option.to_owned(),
                reason: "is not of the form key=value".to_owned(),
            }),
        }
    }
    if mistakes.is_empty() { Ok(parsed) } else { Err(Error::InvalidOptions(mistakes)) }
}

/// New options with the defaults. Free them with siltstone_options_free().
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_options_create() -> Box<SiltstoneOptions> {
    Box::default()
}

/// Frees options. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_options_free(options: Option<Box<SiltstoneOptions>>) {
    release(options);
}

/// Opens the store read-only: nothing in its directory changes, writes fail, and other processes
/// may read it at the same time, but none may write it. Default: false.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_options_set_read_only(
    options: Option<&mut SiltstoneOptions>,
    read_only: bool,
) {
    set(options, |options| options.read_only = read_only);
}

/// Reads bypass the page cache, so that memory holds only the engines' own caches. Default: false.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_options_set_direct_reads(
    options: Option<&mut SiltstoneOptions>,
    direct_reads: bool,
) {
    set(options, |options| options.direct_reads = direct_reads);
}

/// Threads for background work, 1 to 256, besides one for flushes. Default: one per core, up to 4.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_options_set_threads(
    options: Option<&mut SiltstoneOptions>,
    threads: usize,
) {
    set(options, |options| options.threads = Some(threads));
}

/// The maximum number of files that the store has open. Default: 256.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_options_set_max_open_files(
    options: Option<&mut SiltstoneOptions>,
    files: usize,
) {
    set(options, |options| options.max_open_files = Some(files));
}

/// The size of one block cache for all tables, in place of one per table. 0: one per table, which
/// is the default.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_options_set_cache_bytes(
    options: Option<&mut SiltstoneOptions>,
    bytes: u64,
) {
    set(options, |options| options.cache_bytes = (bytes > 0).then_some(bytes));
}

/// The time in milliseconds after which an idle snapshot or transaction expires. 0: never.
/// Default: 300000.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_options_set_idle_ms(
    options: Option<&mut SiltstoneOptions>,
    milliseconds: u64,
) {
    set(options, |options| options.idle_ms = Some(milliseconds));
}

/// Memory per table for the keys written while transactions are open, in bytes. Default: 32 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_options_set_transaction_memory_bytes(
    options: Option<&mut SiltstoneOptions>,
    bytes: usize,
) {
    set(options, |options| options.transaction_memory_bytes = Some(bytes));
}

/// Adds a key of an encrypted store: 32 bytes from a secure random number generator. The first one
/// encrypts a new store and new files; the others are those of existing files, after the key was
/// replaced (siltstone_rekey()). A store that is not encrypted is refused with a key, and an
/// encrypted one without it. Tables on skimpy, with `pmem.size` or with `fast_dir` cannot be
/// encrypted.
///
/// The key is copied, and overwritten when the last copy is freed: that of these options, and of
/// each open store.
///
/// Errors: INVALID for a key of another length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_options_add_key(
    options: Option<&mut SiltstoneOptions>,
    key: *const c_char,
    key_len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let key = unsafe { bytes(key, key_len, "key") }?;
        let key = key
            .try_into()
            .map_err(|_| invalid(format!("a key has 32 bytes, and this one has {}", key.len())))?;
        required(options, "options")?.keys.push(MasterKey::new(key));
        Ok(())
    })
}

/// Changes options; NULL is ignored, as there is nothing to report it with.
fn set(options: Option<&mut SiltstoneOptions>, change: impl FnOnce(&mut SiltstoneOptions)) {
    if let Some(options) = options {
        change(options);
    }
}
