//! The names in a directory, for backends in memory, and the check of names for all backends.
//!
//! [`Names`] has files and subdirectories in one name space, as in POSIX, and reports each mistake
//! (a missing or existing name, the wrong kind) with the error that the operating system would
//! return.
//!
//! Invariant: every name in it has passed [`check`].

use std::collections::BTreeMap;
use std::io::ErrorKind;

use siltstone_engine::{Error, Result};

/// The longest name in bytes, as in Linux's file systems.
const MAX_NAME_BYTES: usize = 255;

/// Rejects a name that would lead out of the directory or that no file system accepts.
pub fn check(operation: &'static str, directory: &str, name: &str) -> Result<()> {
    let reason = match name {
        "" => "the name is empty",
        "." | ".." => "the name is not a file's",
        _ if name.contains(['/', '\0']) => "a name has no '/' and no NUL",
        _ if name.len() > MAX_NAME_BYTES => "the name is longer than 255 bytes",
        _ => return Ok(()),
    };
    let source = std::io::Error::new(ErrorKind::InvalidInput, reason);
    Err(Error::io(operation, join(directory, name), &source))
}

/// The name of a file for messages.
pub fn join(directory: &str, name: &str) -> String {
    format!("{directory}/{name}")
}

/// An error with the standard library's message for its kind.
pub fn fault(operation: &'static str, file: impl Into<String>, kind: ErrorKind) -> Error {
    Error::io(operation, file, &kind.into())
}

/// A file or a subdirectory.
#[derive(Clone)]
pub enum Node<F, D> {
    /// A file.
    File(F),
    /// A subdirectory.
    Directory(D),
}

/// Files and subdirectories by name.
#[derive(Clone)]
pub struct Names<F, D>(BTreeMap<String, Node<F, D>>);

impl<F, D> Default for Names<F, D> {
    fn default() -> Self {
        Names(BTreeMap::new())
    }
}

impl<F: Clone, D: Clone> Names<F, D> {
    /// The file or subdirectory `name`.
    pub fn get(&self, name: &str) -> Option<&Node<F, D>> {
        self.0.get(name)
    }

    /// Binds a name to a node, or removes it.
    pub fn set(&mut self, name: &str, node: Option<Node<F, D>>) {
        match node {
            Some(node) => self.0.insert(name.to_owned(), node),
            None => self.0.remove(name),
        };
    }

    /// All names in order, with their nodes.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Node<F, D>)> {
        self.0.iter()
    }

    /// The file `name`.
    pub fn file(&self, operation: &'static str, directory: &str, name: &str) -> Result<F> {
        check(operation, directory, name)?;
        match self.0.get(name) {
            Some(Node::File(file)) => Ok(file.clone()),
            Some(Node::Directory(_)) => {
                Err(fault(operation, join(directory, name), ErrorKind::IsADirectory))
            }
            None => Err(fault(operation, join(directory, name), ErrorKind::NotFound)),
        }
    }

    /// The subdirectory `name`, if it exists.
    pub fn directory(
        &self,
        operation: &'static str,
        directory: &str,
        name: &str,
    ) -> Result<Option<D>> {
        check(operation, directory, name)?;
        match self.0.get(name) {
            Some(Node::Directory(found)) => Ok(Some(found.clone())),
            Some(Node::File(_)) => {
                Err(fault(operation, join(directory, name), ErrorKind::NotADirectory))
            }
            None => Ok(None),
        }
    }

    /// Returns an error if a new file cannot have this name.
    pub fn check_free(&self, operation: &'static str, directory: &str, name: &str) -> Result<()> {
        check(operation, directory, name)?;
        match self.0.contains_key(name) {
            true => Err(fault(operation, join(directory, name), ErrorKind::AlreadyExists)),
            false => Ok(()),
        }
    }

    /// The file to rename, if it can be renamed to `to`.
    pub fn renamed(&self, directory: &str, from: &str, to: &str) -> Result<F> {
        let file = self.file("rename", directory, from)?;
        check("rename", directory, to)?;
        match self.0.get(to) {
            Some(Node::Directory(_)) => {
                Err(fault("rename", join(directory, to), ErrorKind::IsADirectory))
            }
            _ => Ok(file),
        }
    }

    /// The names of all files, sorted.
    pub fn files(&self) -> Vec<String> {
        let files = self.0.iter().filter(|(_, node)| matches!(node, Node::File(_)));
        files.map(|(name, _)| name.clone()).collect()
    }

    /// The names of all subdirectories, sorted.
    pub fn directories(&self) -> Vec<String> {
        let directories = self.0.iter().filter(|(_, node)| matches!(node, Node::Directory(_)));
        directories.map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_of_the_directory_are_rejected() {
        for bad in ["", ".", "..", "/", "a/b", "../a", "a\0b", &"x".repeat(256)] {
            let error = check("open", "dir", bad).unwrap_err();
            assert!(
                matches!(&error, Error::Io { operation: "open", kind: ErrorKind::InvalidInput, file, .. }
                    if file.starts_with("dir/")),
                "{bad:?}: {error}"
            );
        }
        for good in ["a", "...", "a..b", ".hidden", &"x".repeat(255)] {
            check("open", "dir", good).unwrap();
        }
    }
}
