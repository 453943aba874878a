//! A small file system in memory, with a ballast file that fills it.

use std::ffi::OsStr;
use std::fs::{File, remove_file};
use std::io::Result;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// The reason why this process cannot mount a tmpfs, if there is one.
pub fn obstacle() -> Option<String> {
    let is_root = rustix::process::geteuid().is_root();
    (!is_root).then(|| "mounting a tmpfs requires root".to_owned())
}

/// A mounted tmpfs. Dropping it unmounts it.
#[derive(Debug)]
pub struct Tmpfs {
    path: PathBuf,
}

impl Tmpfs {
    /// Creates the directory `path` and mounts a tmpfs of `bytes` there.
    ///
    /// # Errors
    /// The system refuses.
    pub fn mount(path: PathBuf, bytes: u64) -> Result<Self> {
        std::fs::create_dir_all(&path)?;
        let size = format!("size={bytes}");
        run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs"], &path)?;
        Ok(Tmpfs { path })
    }

    /// Enlarges the file system.
    ///
    /// # Errors
    /// The system refuses.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        run("mount", &["-o", &format!("remount,size={bytes}")], &self.path)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Free bytes.
    pub fn free_bytes(&self) -> u64 {
        statvfs(&self.path).map_or(0, |found| found.f_bavail * found.f_frsize)
    }

    /// Total bytes.
    pub fn bytes(&self) -> u64 {
        statvfs(&self.path).map_or(0, |found| found.f_blocks * found.f_frsize)
    }

    /// Allocates all free space except `slack` bytes to the ballast file.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn fill_with_ballast(&self, slack: u64) -> Result<()> {
        let file = File::options().create(true).append(true).open(self.ballast())?;
        let from = file.metadata()?.len();
        let bytes = self.free_bytes().saturating_sub(slack);
        if bytes > 0 {
            // If this fails, the store has allocated the space in the meantime, and the disk is
            // full as well.
            let _ = fallocate(&file, FallocateFlags::empty(), from, bytes);
        }
        Ok(())
    }

    /// Removes the ballast file.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove_ballast(&self) -> Result<()> {
        remove_file(self.ballast())
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazy, because a server may still have files open.
        let _ = run("umount", &["-l"], &self.path);
    }
}

/// Runs a program on a path.
fn run(program: &str, words: &[&str], path: &Path) -> Result<()> {
    let words = words.iter().map(OsStr::new).chain([path.as_os_str()]);
    let status = Command::new(program).args(words).stdin(Stdio::null()).status()?;
    if status.success() {
        return Ok(());
    }
    Err(std::io::Error::other(format!("{program} of {} ends with {status}", path.display())))
}
