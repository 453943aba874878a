//! Shared libraries of the distribution, loaded at run time.
//!
//! A peer lists the C functions that it uses; the list becomes a `Library` with a field for each.
//! Nothing is linked or compiled, so the program starts without the libraries.
//!
//! Invariant: a `Library` owns its shared object, so its functions are valid as long as it lives.

use std::ffi::{CStr, c_char, c_void};

use siltstone_engine::{Error, Result};

/// A pointer to an object of a library.
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
                // SAFETY: the symbols have these types in the header, and the pointers are stored
                // with the object that they point into.
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

/// Loads the first existing object of `names`; `package` is the package to install.
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
        // SAFETY: the initialisers of these libraries have no side effects on this process.
        let found = unsafe { libloading::Library::new(name) }.and_then(&load);
        match found {
            Ok(library) => return Ok(library),
            Err(error) => reason = error.to_string(),
        }
    }
    let path = names.first().map_or_else(String::new, |name| (*name).to_owned());
    Err(Error::Refused { path, reason: format!("{reason}: install {package}") })
}

/// Calls a function that reports an error as a message in its last argument, which must be freed.
pub(super) fn checked<T>(
    name: &str,
    free: unsafe extern "C" fn(Handle),
    call: impl FnOnce(*mut *mut c_char) -> T,
) -> Result<T> {
    let mut error = std::ptr::null_mut();
    let result = call(&mut error);
    if error.is_null() {
        return Ok(result);
    }
    // SAFETY: a message allocated by the library, terminated by a zero byte.
    let reason = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    // SAFETY: we own it, and it is not used afterwards.
    unsafe { free(error.cast()) };
    Err(Error::Invalid(format!("{name}: {reason}")))
}
