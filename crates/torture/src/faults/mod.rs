//! The fault classes by name, one file each; `steps` has what they share.

mod damage;
mod deleted_directory;
mod failing_calls;
mod fault;
mod few_files;
mod file_size;
mod full_disk;
mod hostile_clients;
mod kill;
mod kill_at_open;
mod steps;
mod term;

pub use fault::Fault;

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
