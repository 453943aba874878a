//! The settings of a run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The settings of a run.
#[derive(Debug)]
pub struct Settings {
    /// The `siltstone` program.
    pub program: PathBuf,
    /// The parent of the histories' directories, which are removed after a history without a
    /// finding.
    pub scratch: PathBuf,
    /// The parent of the directories that findings keep.
    pub keep: PathBuf,
    /// Set to end the run.
    pub interrupted: Arc<AtomicBool>,
}

impl Settings {
    /// Whether the run should end.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(SeqCst)
    }
}
