//! The argument of callbacks that outlive the call that they are passed to.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Frees the argument of callbacks. It is called once, on any thread, when no callback will be
/// called with it any more. It must not use the store, unwind or jump out.
pub type SiltstoneFreeCallback = Option<unsafe extern "C" fn(arg: *mut c_void)>;

/// An argument, which is freed when this is dropped. An atomic pointer, because other threads use
/// it.
pub(crate) struct CallbackArg {
    arg: AtomicPtr<c_void>,
    free: SiltstoneFreeCallback,
}

impl CallbackArg {
    pub(crate) fn new(arg: *mut c_void, free: SiltstoneFreeCallback) -> Self {
        CallbackArg { arg: AtomicPtr::new(arg), free }
    }

    pub(crate) fn get(&self) -> *mut c_void {
        self.arg.load(Relaxed)
    }
}

impl Drop for CallbackArg {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: the caller has passed a function that takes this argument, and nothing else
            // has it any more.
            unsafe { free(self.get()) }
        }
    }
}
