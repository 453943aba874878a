//! Functions of the program: comparators, merge operators, compaction filters, prefix extractors.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use shim::boundary::{Pointer, address, bytes};
use shim::foreign::{Destructor, Foreign};
use store::FilterDecision;

use crate::exports::exports;

/// The name of an object of the program.
pub type Name = Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>;

/// # Safety
/// The function returns a NUL-terminated string for this state.
unsafe fn name_of(state: *mut c_void, name: Name) -> String {
    // SAFETY: by the contract of this function.
    unsafe {
        let name = name.map_or(std::ptr::null(), |name| name(state));
        if name.is_null() {
            return String::new();
        }
        CStr::from_ptr(name).to_string_lossy().into_owned()
    }
}

/// A comparator, of which only the name matters.
#[derive(Debug)]
pub struct Comparator {
    /// Its name.
    pub name: String,
    _state: Foreign,
}

impl Comparator {
    /// Whether its order is that of the store.
    pub fn is_bytewise(&self) -> bool {
        self.name == "leveldb.BytewiseComparator"
    }
}

type Compare =
    Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int>;

/// The result of a merge: memory of `malloc`, or of the operator's own.
type FullMerge = unsafe extern "C" fn(
    *mut c_void,
    key: *const c_char,
    key_length: usize,
    existing: *const c_char,
    existing_length: usize,
    operands: *const *const c_char,
    lengths: *const usize,
    count: c_int,
    success: *mut u8,
    length: *mut usize,
) -> *mut c_char;

type PartialMerge = unsafe extern "C" fn(
    *mut c_void,
    key: *const c_char,
    key_length: usize,
    operands: *const *const c_char,
    lengths: *const usize,
    count: c_int,
    success: *mut u8,
    length: *mut usize,
) -> *mut c_char;

type DeleteValue = Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize)>;

/// A merge operator of the program.
#[derive(Debug)]
pub struct MergeCallbacks {
    state: Foreign,
    full: Option<FullMerge>,
    partial: Option<PartialMerge>,
    delete: DeleteValue,
}

impl MergeCallbacks {
    /// The value after the operands.
    pub fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        let full = self.full.ok_or("the merge operator has no full merge")?;
        let (pointers, lengths) = parts(operands);
        let (mut success, mut length) = (0, 0);
        let before = existing.map_or(std::ptr::null(), address);
        // SAFETY: the program passes a function that takes this state; the bytes live for the call.
        let value = unsafe {
            full(
                self.state.state(),
                address(key),
                key.len(),
                before,
                existing.map_or(0, <[u8]>::len),
                pointers.as_ptr(),
                lengths.as_ptr(),
                operands.len() as c_int,
                &mut success,
                &mut length,
            )
        };
        self.take(value, length, success).ok_or_else(|| "Merge operator failed".to_owned())
    }

    /// One operand in place of several.
    pub fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let (pointers, lengths) = parts(operands);
        let (mut success, mut length) = (0, 0);
        // SAFETY: as in `full_merge`.
        let value = unsafe {
            self.partial?(
                self.state.state(),
                address(key),
                key.len(),
                pointers.as_ptr(),
                lengths.as_ptr(),
                operands.len() as c_int,
                &mut success,
                &mut length,
            )
        };
        self.take(value, length, success)
    }

    /// Copies and frees what a function of the operator has returned.
    fn take(&self, value: *mut c_char, length: usize, success: u8) -> Option<Vec<u8>> {
        // SAFETY: the function returned a value of this length, to be freed by `delete_value` or by
        // `free`.
        unsafe {
            let copied = (success != 0).then(|| bytes(value, length).to_vec());
            match self.delete {
                Some(delete) => delete(self.state.state(), value, length),
                None => libc::free(value.cast()),
            }
            copied
        }
    }
}

fn parts(operands: &[&[u8]]) -> (Vec<*const c_char>, Vec<usize>) {
    operands.iter().map(|operand| (address(operand), operand.len())).unzip()
}

type Filter = unsafe extern "C" fn(
    *mut c_void,
    level: c_int,
    key: *const c_char,
    key_length: usize,
    value: *const c_char,
    value_length: usize,
    new_value: *mut *mut c_char,
    new_length: *mut usize,
    changed: *mut u8,
) -> u8;

/// A compaction filter of the program.
#[derive(Debug)]
pub struct FilterCallbacks {
    state: Foreign,
    filter: Option<Filter>,
}

impl FilterCallbacks {
    /// What the filter does with the row.
    pub fn decide(&self, key: &[u8], value: &[u8]) -> FilterDecision {
        let Some(filter) = self.filter else { return FilterDecision::Keep };
        let (mut new, mut length, mut changed) = (null_mut(), 0, 0);
        // SAFETY: the program passes a function that takes this state; the bytes live for the call.
        // The new value stays the program's, until its next call on this thread.
        unsafe {
            let is_dropped = filter(
                self.state.state(),
                0,
                address(key),
                key.len(),
                address(value),
                value.len(),
                &mut new,
                &mut length,
                &mut changed,
            ) != 0;
            match (is_dropped, changed) {
                (true, _) => FilterDecision::Drop,
                (false, 0) => FilterDecision::Keep,
                (false, _) => FilterDecision::Change(bytes(new, length).to_vec()),
            }
        }
    }
}

/// The context that a factory of compaction filters receives.
#[derive(Debug)]
pub struct FilterContext {
    is_full: bool,
    is_manual: bool,
}

type CreateFilter =
    unsafe extern "C" fn(*mut c_void, *mut FilterContext) -> *mut Arc<FilterCallbacks>;

/// A factory of compaction filters.
#[derive(Debug)]
pub struct FilterFactory {
    state: Foreign,
    create: Option<CreateFilter>,
}

impl FilterFactory {
    /// A filter for one pass.
    pub fn create(&self) -> Option<Arc<FilterCallbacks>> {
        let mut context = FilterContext { is_full: false, is_manual: false };
        // SAFETY: the program's function returns a filter of `rocksdb_compactionfilter_create`,
        // which this library owns from then on, or NULL.
        unsafe {
            let filter = self.create?(self.state.state(), &mut context);
            (!filter.is_null()).then(|| *Box::from_raw(filter))
        }
    }
}

type Transform = unsafe extern "C" fn(
    *mut c_void,
    key: *const c_char,
    length: usize,
    result_length: *mut usize,
) -> *mut c_char;

type InDomain = unsafe extern "C" fn(*mut c_void, key: *const c_char, length: usize) -> u8;

/// A function from keys to their prefixes.
#[derive(Debug)]
pub enum PrefixExtractor {
    /// The first bytes of keys that have as many.
    Fixed(usize),
    /// The whole key.
    Whole,
    /// Functions of the program.
    Program {
        /// Their state.
        state: Foreign,
        /// The prefix of a key.
        transform: Option<Transform>,
        /// Whether a key has one.
        in_domain: Option<InDomain>,
    },
}

impl PrefixExtractor {
    /// The prefix of a key, if it has one.
    pub fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        match self {
            PrefixExtractor::Fixed(len) => key.get(..*len),
            PrefixExtractor::Whole => Some(key),
            PrefixExtractor::Program { state, transform, in_domain } => {
                let (state, data) = (state.state(), address(key));
                let mut len = 0;
                // SAFETY: the program passes functions that take this state; the result is a part
                // of the key, of which only the length is used.
                unsafe {
                    if in_domain.is_some_and(|is_in| is_in(state, data, key.len()) == 0) {
                        return None;
                    }
                    (*transform)?(state, data, key.len(), &mut len);
                }
                key.get(..len)
            }
        }
    }
}

exports! {
    /// A comparator. It is never called: one that is not named `leveldb.BytewiseComparator` is
    /// refused when a database is opened.
    fn rocksdb_comparator_create(
        state: *mut c_void, destructor: Destructor, _compare: Compare, name: Name
    ) -> Pointer<Comparator> {
        let (name, _state) = unsafe { (name_of(state, name), Foreign::new(state, destructor)) };
        Pointer::new(Comparator { name, _state })
    }

    /// A comparator of keys with timestamps, which is refused when a database is opened.
    fn rocksdb_comparator_with_ts_create(
        state: *mut c_void, destructor: Destructor, _compare: Compare, _compare_ts: Compare,
        _compare_without_ts: Compare, name: Name, _timestamp_size: usize
    ) -> Pointer<Comparator> {
        let (name, _state) = unsafe { (name_of(state, name), Foreign::new(state, destructor)) };
        Pointer::new(Comparator { name: format!("{name} with timestamps"), _state })
    }

    /// Frees a comparator.
    fn rocksdb_comparator_destroy(comparator: Option<Box<Comparator>>) {
        drop(comparator)
    }

    /// A merge operator.
    fn rocksdb_mergeoperator_create(
        state: *mut c_void, destructor: Destructor, full: Option<FullMerge>,
        partial: Option<PartialMerge>, delete: DeleteValue, _name: Name
    ) -> Pointer<Arc<MergeCallbacks>> {
        let state = unsafe { Foreign::new(state, destructor) };
        Pointer::new(Arc::new(MergeCallbacks { state, full, partial, delete }))
    }

    /// Frees a merge operator, unless options or databases have it.
    fn rocksdb_mergeoperator_destroy(operator: Option<Box<Arc<MergeCallbacks>>>) {
        drop(operator)
    }

    /// A compaction filter.
    fn rocksdb_compactionfilter_create(
        state: *mut c_void, destructor: Destructor, filter: Option<Filter>, _name: Name
    ) -> Pointer<Arc<FilterCallbacks>> {
        let state = unsafe { Foreign::new(state, destructor) };
        Pointer::new(Arc::new(FilterCallbacks { state, filter }))
    }

    /// Ignored: rows that a snapshot sees are kept.
    fn rocksdb_compactionfilter_set_ignore_snapshots(_filter: &Arc<FilterCallbacks>, _value: u8) {}

    /// Frees a compaction filter, unless options or databases have it.
    fn rocksdb_compactionfilter_destroy(filter: Option<Box<Arc<FilterCallbacks>>>) {
        drop(filter)
    }

    /// Always false: the store does not report it.
    fn rocksdb_compactionfiltercontext_is_full_compaction(context: &FilterContext) -> u8 {
        context.is_full.into()
    }

    /// Always false: the store does not report it.
    fn rocksdb_compactionfiltercontext_is_manual_compaction(context: &FilterContext) -> u8 {
        context.is_manual.into()
    }

    /// A factory of compaction filters.
    fn rocksdb_compactionfilterfactory_create(
        state: *mut c_void, destructor: Destructor, create: Option<CreateFilter>, _name: Name
    ) -> Pointer<Arc<FilterFactory>> {
        let state = unsafe { Foreign::new(state, destructor) };
        Pointer::new(Arc::new(FilterFactory { state, create }))
    }

    /// Frees a factory, unless options or databases have it.
    fn rocksdb_compactionfilterfactory_destroy(factory: Option<Box<Arc<FilterFactory>>>) {
        drop(factory)
    }

    /// A prefix extractor of the program.
    fn rocksdb_slicetransform_create(
        state: *mut c_void, destructor: Destructor, transform: Option<Transform>,
        in_domain: Option<InDomain>, _name: Name
    ) -> Pointer<Arc<PrefixExtractor>> {
        let state = unsafe { Foreign::new(state, destructor) };
        Pointer::new(Arc::new(PrefixExtractor::Program { state, transform, in_domain }))
    }

    /// The extractor of prefixes of a length.
    fn rocksdb_slicetransform_create_fixed_prefix(len: usize) -> Pointer<Arc<PrefixExtractor>> {
        Pointer::new(Arc::new(PrefixExtractor::Fixed(len)))
    }

    /// The extractor of whole keys.
    fn rocksdb_slicetransform_create_noop() -> Pointer<Arc<PrefixExtractor>> {
        Pointer::new(Arc::new(PrefixExtractor::Whole))
    }

    /// Frees an extractor, unless options or databases have it.
    fn rocksdb_slicetransform_destroy(extractor: Option<Box<Arc<PrefixExtractor>>>) {
        drop(extractor)
    }
}
