//! Objects of the program.

use std::ffi::c_void;

/// A function that frees the state of an object.
pub type Destructor = Option<unsafe extern "C" fn(state: *mut c_void)>;

/// The state of an object of the program, which is destroyed once, with this value.
#[derive(Debug)]
pub struct Foreign {
    state: *mut c_void,
    destructor: Destructor,
}

// SAFETY: the interfaces require that the functions of an object can be called on any thread.
unsafe impl Send for Foreign {}
// SAFETY: as above, by several threads at once.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// An object of the program.
    ///
    /// # Safety
    /// The destructor frees this state, which nobody else frees; both can be used on any thread.
    pub unsafe fn new(state: *mut c_void, destructor: Destructor) -> Self {
        Foreign { state, destructor }
    }

    /// The state, for the functions that the program passed with it.
    pub fn state(&self) -> *mut c_void {
        self.state
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the program passed this destructor for this state; it is called once.
            unsafe { destructor(self.state) }
        }
    }
}
