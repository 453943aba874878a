//! Handles that are dropped detached from the interpreter.
//!
//! The last handle of a store closes it, which waits for background work and the disk. Other threads
//! run Python meanwhile.

use std::ops::Deref;

use pyo3::Python;

/// A handle of the store.
pub(crate) struct Detached<T: Send>(Option<T>);

impl<T: Send> Detached<T> {
    pub(crate) fn new(handle: T) -> Self {
        Detached(Some(handle))
    }
}

impl<T: Send> Deref for Detached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only dropping takes it")
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        let mut handle = self.0.take();
        // Without an interpreter, when it ends, there is nobody to let run.
        let _ = Python::try_attach(|py| py.detach(|| drop(handle.take())));
    }
}
