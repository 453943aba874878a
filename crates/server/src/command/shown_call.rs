//! A command of a script, kept for MONITOR.

/// A command that a script ran.
pub(crate) struct ShownCall {
    pub(crate) table: usize,
    pub(crate) args: Vec<Vec<u8>>,
}
