//! Objects that a program may free with `rocksdb_free`, because RocksDB lends them in a shell of
//! `malloc`: snapshots and batches of transactions.

use shim::boundary::Pointer;

/// A shell around an object, which somebody else owns, or the shell itself.
#[derive(Debug)]
#[repr(C)]
pub struct Shell<T> {
    object: *mut T,
}

impl<T> Shell<T> {
    /// A shell that owns its object, until [`destroy`](Self::destroy); NULL after an error.
    pub fn create<E>(object: Result<T, E>) -> Pointer<Shell<T>> {
        object.map_or(Pointer::null(), |object| Self::around(Box::into_raw(Box::new(object))))
    }

    /// A shell around an object of another owner, who keeps it as long as the shell is used. It is
    /// freed with `free`.
    pub fn around(object: *mut T) -> Pointer<Shell<T>> {
        // SAFETY: malloc has no requirements; the memory has the size of a shell and is aligned.
        unsafe {
            let shell = libc::malloc(size_of::<Shell<T>>()).cast::<Shell<T>>();
            if !shell.is_null() {
                shell.write(Shell { object });
            }
            Pointer(shell)
        }
    }

    /// The object.
    pub fn get(&self) -> &T {
        // SAFETY: the object lives as long as the shell is used.
        unsafe { &*self.object }
    }

    /// The object.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the program uses it by one thread at a time.
        unsafe { &mut *self.object }
    }

    /// Frees a shell and its object. NULL is allowed.
    ///
    /// # Safety
    /// The shell is one of [`create`](Self::create), and is destroyed once.
    pub unsafe fn destroy(shell: *mut Shell<T>) {
        if !shell.is_null() {
            // SAFETY: by the contract of this function.
            unsafe {
                drop(Box::from_raw((*shell).object));
                libc::free(shell.cast());
            }
        }
    }
}
