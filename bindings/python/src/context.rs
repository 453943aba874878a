//! Context managers: classes that the end of a `with` block ends.

/// Adds `__enter__` and `__exit__` to a class. At the end of a block `end` gets the object, the
/// interpreter, and whether the block ended without an exception. An exception is not suppressed.
macro_rules! context_manager {
    ($class:ty, |$object:ident, $py:ident, $is_complete:pat_param| $end:expr) => {
        #[pymethods]
        impl $class {
            fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
                slf
            }

            #[pyo3(signature = (exception_type, *_rest))]
            fn __exit__(
                slf: &Bound<'_, Self>,
                $py: Python<'_>,
                exception_type: &Bound<'_, PyAny>,
                _rest: &Bound<'_, pyo3::types::PyTuple>,
            ) -> PyResult<bool> {
                let ($object, $is_complete) = (slf, exception_type.is_none());
                $end;
                Ok(false)
            }
        }
    };
}

pub(crate) use context_manager;
