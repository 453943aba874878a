//! The fault classes by name, a file each.

mod kill;
mod kill_at_open;
mod term;

use crate::finding::Result;
use crate::history::History;

/// A class of faults.
pub trait Fault: Sync {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// What is done and what must follow, in one line.
    fn about(&self) -> &'static str;

    /// How many rounds one store lives through.
    fn rounds_per_history(&self) -> u64;

    /// Why it cannot be done on this machine, if so.
    fn obstacle(&self) -> Option<String> {
        None
    }

    /// Runs a history to its end.
    ///
    /// # Errors
    /// What was found; see [`Stop`](crate::finding::Stop).
    fn run(&self, history: &mut History<'_>) -> Result<()>;
}

/// All fault classes.
pub const FAULTS: &[&dyn Fault] = &[&kill::Kill, &kill_at_open::KillAtOpen, &term::Term];

/// The class of a name.
pub fn find(name: &str) -> Option<&'static dyn Fault> {
    FAULTS.iter().copied().find(|fault| fault.name() == name)
}
