//! Shared libraries of the distribution, found when they are asked for.
//!
//! A peer lists the C functions that it uses, once; the list becomes a `Library` with a field for each.
//! Nothing is linked or compiled, so a program with this in it starts where the libraries are missing.
//!
//! Invariant: a `Library` holds its shared object, so its functions stay where they are as long as it
//! lives.
//!
//! Source: ours.

use std::ffi::{CStr, c_char, c_void};

use siltstone_engine::{Error, Result};

/// A pointer to an object of a library's.
pub(super) type Handle = *mut c_void;

/// Declares `Library` with the C functions of a header, by their names without a prefix.
macro_rules! library {
    ($prefix:literal $($name:ident: fn($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions, by their names without the prefix.
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            _object: libloading::Library,
        }

        impl Library {
            fn load(object: libloading::Library) -> std::result::Result<Self, libloading::Error> {
                // SAFETY: the symbols have these types in the header, and the pointers are kept beside
                // the object that they point into.
                unsafe {
                    Ok(Library {
                        $($name: *object.get(concat!($prefix, stringify!($name), "\0").as_bytes())?,)*
                        _object: object,
                    })
                }
            }
        }
    };
}
pub(super) use library;

/// Loads the first object that there is of `names`; `package` is what to install.
///
/// # Errors
/// [`Error::Refused`] if there is none.
pub(super) fn find<L>(
    names: &[&str],
    package: &str,
    load: impl Fn(libloading::Library) -> std::result::Result<L, libloading::Error>,
) -> Result<L> {
    let mut reason = String::new();
    for name in names {
        // SAFETY: the initialisers of these libraries do nothing that our process minds.
        let found = unsafe { libloading::Library::new(name) }.and_then(&load);
        match found {
            Ok(library) => return Ok(library),
            Err(error) => reason = error.to_string(),
        }
    }
    let path = names.first().map_or_else(String::new, |name| (*name).to_owned());
    Err(Error::Refused { path, reason: format!("{reason}: install {package}") })
}

/// Calls a function that reports an error by its last argument, a message to be freed.
pub(super) fn checked<T>(
    name: &str,
    free: unsafe extern "C" fn(Handle),
    call: impl FnOnce(*mut *mut c_char) -> T,
) -> Result<T> {
    let mut error = std::ptr::null_mut();
    let answer = call(&mut error);
    if error.is_null() {
        return Ok(answer);
    }
    // SAFETY: a message that the library allocated, ended by a zero byte.
    let reason = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    // SAFETY: it is ours to free, and not used afterwards.
    unsafe { free(error.cast()) };
    Err(Error::Invalid(format!("{name}: {reason}")))
}
