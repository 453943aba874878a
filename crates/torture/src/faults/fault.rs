//! The interface of a class of faults.

use crate::finding::Result;
use crate::history::History;

/// A class of faults.
pub trait Fault: Sync {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// The fault and the requirement, in one line.
    fn about(&self) -> &'static str;

    /// The number of rounds on one store.
    fn rounds_per_history(&self) -> u64;

    /// The reason why this machine cannot run the class, if there is one.
    fn obstacle(&self) -> Option<String> {
        None
    }

    /// Runs a history.
    ///
    /// # Errors
    /// A finding, or another reason to stop; see [`Stop`](crate::finding::Stop).
    fn run(&self, history: &mut History<'_>) -> Result<()>;
}
