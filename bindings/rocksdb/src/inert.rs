//! Objects that have no effect: a program can make them, set them, pass them, and free them.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use shim::boundary::{Pointer, copy};
use shim::foreign::{Destructor, Foreign};

use crate::caches::Cache;
use crate::exports::exports;

/// An object without content.
#[derive(Debug, Default)]
pub struct Inert {
    // So that each has an address of its own.
    _size: u64,
}

/// Exports the creation and the destruction of inert objects.
macro_rules! inert {
    (create: $($create:ident)+; destroy: $($destroy:ident)+;) => {
        $(
            #[doc = "An object without effect."]
            #[unsafe(no_mangle)]
            pub extern "C" fn $create() -> Box<crate::inert::Inert> {
                Box::default()
            }
        )+
        $(
            #[doc = "Frees an object without effect."]
            #[unsafe(no_mangle)]
            pub extern "C" fn $destroy(object: Option<Box<crate::inert::Inert>>) {
                drop(object);
            }
        )+
    };
}

/// Exports the creation and the destruction of inert objects with a state of the program.
macro_rules! inert_of_program {
    (create: $($create:ident)+; destroy: $($destroy:ident)+;) => {
        $(
            #[doc = "An object of the program, which is never called."]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $create(
                state: *mut std::ffi::c_void,
                destructor: shim::foreign::Destructor,
            ) -> Box<shim::foreign::Foreign> {
                // SAFETY: the program passes a destructor of this state.
                unsafe { crate::inert::of_program(state, destructor) }
            }
        )+
        $(
            #[doc = "Frees an object of the program."]
            #[unsafe(no_mangle)]
            pub extern "C" fn $destroy(object: Option<Box<shim::foreign::Foreign>>) {
                drop(object);
            }
        )+
    };
}

/// Exports functions that return the floating-point number 0.
macro_rules! zero {
    ($($name:ident)+) => { $(
        #[doc = "0."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> f64 {
            0.0
        }
    )+ };
}

pub(crate) use {inert, inert_of_program, zero};

/// # Safety
/// The destructor frees this state, which nobody else frees.
pub(crate) unsafe fn of_program(state: *mut c_void, destructor: Destructor) -> Box<Foreign> {
    // SAFETY: by the contract of this function.
    Box::new(unsafe { Foreign::new(state, destructor) })
}

/// A limit of memtables over all databases, which is only remembered.
#[derive(Debug)]
pub struct WriteBufferManager(AtomicUsize);

exports! {
    /// A limit, which is only remembered.
    fn rocksdb_write_buffer_manager_create(
        size: usize, _allow_stall: bool
    ) -> Pointer<WriteBufferManager> {
        Pointer::new(WriteBufferManager(AtomicUsize::new(size)))
    }

    /// A limit, which is only remembered.
    fn rocksdb_write_buffer_manager_create_with_cache(
        size: usize, _cache: Option<&Cache>, _allow_stall: bool
    ) -> Pointer<WriteBufferManager> {
        Pointer::new(WriteBufferManager(AtomicUsize::new(size)))
    }

    /// Frees a limit.
    fn rocksdb_write_buffer_manager_destroy(manager: Option<Box<WriteBufferManager>>) {
        drop(manager)
    }

    /// Whether there is a limit.
    fn rocksdb_write_buffer_manager_enabled(manager: &WriteBufferManager) -> bool {
        manager.0.load(Ordering::Relaxed) > 0
    }

    /// The limit.
    fn rocksdb_write_buffer_manager_buffer_size(manager: &WriteBufferManager) -> usize {
        manager.0.load(Ordering::Relaxed)
    }

    /// Remembers a limit.
    fn rocksdb_write_buffer_manager_set_buffer_size(manager: &WriteBufferManager, size: usize) {
        manager.0.store(size, Ordering::Relaxed)
    }

    /// An empty text, to be freed.
    fn rocksdb_perfcontext_report(_context: &Inert, _exclude_zeros: u8) -> Pointer<c_char> {
        Pointer(copy(b""))
    }
}
