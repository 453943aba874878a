//! The fault classes by name, one file each; `steps` has what they share.

mod damage;
mod deleted_directory;
mod failing_calls;
mod few_files;
mod file_size;
mod full_disk;
mod hostile_clients;
mod kill;
mod kill_at_open;
mod steps;
mod term;

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

/// All fault classes.
pub const FAULTS: &[&dyn Fault] = &[
    &kill::Kill,
    &kill_at_open::KillAtOpen,
    &term::Term,
    &full_disk::FullDisk,
    &few_files::FewFiles,
    &file_size::FileSize,
    &failing_calls::FailingCalls,
    &damage::Damage,
    &deleted_directory::DeletedDirectory,
    &hostile_clients::HostileClients,
];

/// The class of a name.
pub fn find(name: &str) -> Option<&'static dyn Fault> {
    FAULTS.iter().copied().find(|fault| fault.name() == name)
}
