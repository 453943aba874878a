//! The form of exported functions.
//!
//! [`exports!`] turns a list of functions into exported ones. It converts arguments, and puts an
//! end to panics, so that the conversions and their unsafe code are in one place:
//!
//! ```text
//!   fn rocksdb_delete | rocksdb_delete_cf(db: &Database, ?family, key: bytes; err) { .. }
//!
//!   key: bytes        two C arguments, pointer and length, become a slice
//!   name: text        a NUL-terminated string becomes a Result of a &str
//!   key_at: list      a pointer, a pointer to lengths: see List
//!   ?family           of two names the second has this argument, a column family; the first has
//!                     the default family in its place
//!   ...; err)         the function has `char **errptr` as its last argument, and its body returns
//!                     a Result
//! ```
//!
//! All other arguments are passed as they are. References must not be NULL, an `Option` of one may.
//!
//! [`rejected!`] makes functions that only return an error that names them, [`aborting!`] ones that
//! end the process because they have no way to return one. Both rely on the C calling conventions
//! of the supported platforms: arguments that a function does not declare are ignored, and a result
//! in the return register is ignored by callers of `void` functions.

use std::ffi::c_char;

use crate::failure::Failure;

/// Strings of the caller: an array of pointers and one of lengths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    pointers: *const *const c_char,
    lengths: *const usize,
}

impl List {
    /// # Safety
    /// Both arrays have as many elements as are read, which are strings of the caller.
    pub(crate) unsafe fn new(pointers: *const *const c_char, lengths: *const usize) -> Self {
        List { pointers, lengths }
    }

    /// The first `count` strings.
    pub(crate) fn iter<'a>(self, count: usize) -> impl Iterator<Item = &'a [u8]> {
        // SAFETY: by the contract of `new`.
        (0..count).map(move |at| unsafe {
            shim::boundary::bytes(*self.pointers.add(at), *self.lengths.add(at))
        })
    }
}

/// An array of the caller; empty if it is NULL.
///
/// # Safety
/// `data` points to `len` values, or is NULL.
pub(crate) unsafe fn array<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: by the contract of this function.
    unsafe { std::slice::from_raw_parts(data, len) }
}

/// Text of the caller, copied; `None` if it is NULL.
///
/// # Safety
/// `text` points to a NUL-terminated string, or is NULL.
pub(crate) unsafe fn owned_text(text: *const c_char) -> Result<String, Failure> {
    // SAFETY: by the contract of this function.
    Ok(unsafe { shim::boundary::text(text) }?.to_owned())
}

/// Writes a result to where the caller wants it, if anywhere.
///
/// # Safety
/// `place` is valid for a write, or NULL.
pub(crate) unsafe fn give<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: by the contract of this function.
        unsafe { place.write(value) }
    }
}

/// Exports functions: see the [module](self).
macro_rules! exports {
    () => {};
    ($(#[$meta:meta])* fn $name:ident($($args:tt)*) $(-> $result:ty)? $body:block $($rest:tt)*) => {
        crate::exports::exports!(@parse [$(#[$meta])* $name] [] [] [$($result)?] $body ($($args)*));
        crate::exports::exports!($($rest)*);
    };
    ($(#[$meta:meta])* fn $name:ident | $cf:ident($($args:tt)*) $(-> $result:ty)? $body:block
     $($rest:tt)*) => {
        crate::exports::exports!(@default [$(#[$meta])* $name] [] [$($result)?] $body ($($args)*));
        crate::exports::exports!(@family [$(#[$meta])* $cf] [] [$($result)?] $body ($($args)*));
        crate::exports::exports!($($rest)*);
    };
    // The two forms of a function with an optional column family.
    (@default $head:tt [$($before:tt)*] $result:tt $body:block (?$family:ident, $($args:tt)*)) => {
        crate::exports::exports!(@parse $head [] [let $family = &crate::families::DEFAULT;] $result
            $body ($($before)* $($args)*));
    };
    (@default $head:tt [$($before:tt)*] $result:tt $body:block ($next:tt $($args:tt)*)) => {
        crate::exports::exports!(@default $head [$($before)* $next] $result $body ($($args)*));
    };
    (@family $head:tt [$($before:tt)*] $result:tt $body:block (?$family:ident, $($args:tt)*)) => {
        crate::exports::exports!(@parse $head [] [] $result $body
            ($($before)* $family: &crate::families::Handle, $($args)*));
    };
    (@family $head:tt [$($before:tt)*] $result:tt $body:block ($next:tt $($args:tt)*)) => {
        crate::exports::exports!(@family $head [$($before)* $next] $result $body ($($args)*));
    };
    // Arguments, one by one.
    (@parse $head:tt [$($sig:tt)*] [$($let:tt)*] $result:tt $body:block
     ($arg:ident: bytes $(, $($rest:tt)*)?)) => {
        crate::exports::exports!(@parse $head
            [$($sig)* $arg: *const std::ffi::c_char, length: usize,]
            [$($let)* let $arg: &[u8] = unsafe { shim::boundary::bytes($arg, length) };]
            $result $body ($($($rest)*)?));
    };
    (@parse $head:tt [$($sig:tt)*] [$($let:tt)*] $result:tt $body:block
     ($arg:ident: bytes; err)) => {
        crate::exports::exports!(@parse $head
            [$($sig)* $arg: *const std::ffi::c_char, length: usize,]
            [$($let)* let $arg: &[u8] = unsafe { shim::boundary::bytes($arg, length) };]
            $result $body (; err));
    };
    (@parse $head:tt [$($sig:tt)*] [$($let:tt)*] $result:tt $body:block
     ($arg:ident: list $(, $($rest:tt)*)?)) => {
        crate::exports::exports!(@parse $head
            [$($sig)* $arg: *const *const std::ffi::c_char, lengths: *const usize,]
            [$($let)* let $arg = unsafe { crate::exports::List::new($arg, lengths) };]
            $result $body ($($($rest)*)?));
    };
    (@parse $head:tt [$($sig:tt)*] [$($let:tt)*] $result:tt $body:block
     ($arg:ident: text $(, $($rest:tt)*)?)) => {
        crate::exports::exports!(@parse $head
            [$($sig)* $arg: *const std::ffi::c_char,]
            [$($let)* let $arg = unsafe { shim::boundary::text($arg) };]
            $result $body ($($($rest)*)?));
    };
    (@parse $head:tt [$($sig:tt)*] [$($let:tt)*] $result:tt $body:block
     ($arg:ident: text; err)) => {
        crate::exports::exports!(@parse $head
            [$($sig)* $arg: *const std::ffi::c_char,]
            [$($let)* let $arg = unsafe { shim::boundary::text($arg) };]
            $result $body (; err));
    };
    (@parse $head:tt [$($sig:tt)*] [$($let:tt)*] $result:tt $body:block
     ($arg:ident: $type:ty $(, $($rest:tt)*)?)) => {
        crate::exports::exports!(@parse $head [$($sig)* $arg: $type,] [$($let)*]
            $result $body ($($($rest)*)?));
    };
    (@parse $head:tt [$($sig:tt)*] [$($let:tt)*] $result:tt $body:block
     ($arg:ident: $type:ty; err)) => {
        crate::exports::exports!(@parse $head [$($sig)* $arg: $type,] [$($let)*]
            $result $body (; err));
    };
    // The function: with an error, or without one.
    (@parse [$(#[$meta:meta])* $name:ident] [$($sig:tt)*] [$($let:tt)*] [$($result:ty)?] $body:block
     (; err)) => {
        $(#[$meta])*
        // SAFETY of the conversions: RocksDB's header has the contract of every pointer.
        #[allow(clippy::undocumented_unsafe_blocks, unused_unsafe)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($sig)* errptr: *mut *mut std::ffi::c_char) $(-> $result)? {
            $($let)*
            #[allow(unused_parens)]
            let body = || -> Result<($($result)?), crate::failure::Failure> { $body };
            unsafe { shim::boundary::guard(errptr, body) }
        }
    };
    (@parse [$(#[$meta:meta])* $name:ident] [$($sig:tt)*] [$($let:tt)*] [$($result:ty)?] $body:block
     ()) => {
        $(#[$meta])*
        // SAFETY of the conversions: RocksDB's header has the contract of every pointer.
        #[allow(clippy::undocumented_unsafe_blocks, unused_unsafe)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($sig)*) $(-> $result)? {
            $($let)*
            shim::boundary::quietly(|| $body)
        }
    };
}

/// Exports functions that return the error that they are not implemented. The number is that of the
/// arguments before `errptr`.
macro_rules! rejected {
    ($($count:tt: $($name:ident)+;)+) => { $($(crate::exports::rejected!(@one $count $name);)+)+ };
    (@one 0 $name:ident) => { crate::exports::rejected!(@function $name ()); };
    (@one 1 $name:ident) => { crate::exports::rejected!(@function $name (_a)); };
    (@one 2 $name:ident) => { crate::exports::rejected!(@function $name (_a _b)); };
    (@one 3 $name:ident) => { crate::exports::rejected!(@function $name (_a _b _c)); };
    (@one 4 $name:ident) => { crate::exports::rejected!(@function $name (_a _b _c _d)); };
    (@one 5 $name:ident) => { crate::exports::rejected!(@function $name (_a _b _c _d _e)); };
    (@one 6 $name:ident) => { crate::exports::rejected!(@function $name (_a _b _c _d _e _f)); };
    (@one 7 $name:ident) => { crate::exports::rejected!(@function $name (_a _b _c _d _e _f _g)); };
    (@one 8 $name:ident) => { crate::exports::rejected!(@function $name (_a _b _c _d _e _f _g _h)); };
    (@one 9 $name:ident) => { crate::exports::rejected!(@function $name (_a _b _c _d _e _f _g _h _i)); };
    (@one 10 $name:ident) => {
        crate::exports::rejected!(@function $name (_a _b _c _d _e _f _g _h _i _j));
    };
    (@function $name:ident ($($arg:ident)*)) => {
        #[doc = "Not implemented: returns an error."]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($arg: usize,)* errptr: *mut *mut std::ffi::c_char,
        ) -> usize {
            // SAFETY: the caller passes a place for an error.
            unsafe { crate::failure::reject(stringify!($name), errptr) }
        }
    };
}

/// Exports functions that end the process with a message that names them.
macro_rules! aborting {
    ($($name:ident)+) => { $(
        #[doc = "Not implemented: ends the process."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> usize {
            crate::failure::abort(stringify!($name))
        }
    )+ };
}

/// Exports functions that do nothing, and return 0 or NULL.
macro_rules! ignored {
    ($($name:ident)+) => { $(
        #[doc = "Does nothing."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> usize {
            0
        }
    )+ };
}

pub(crate) use {aborting, exports, ignored, rejected};
