//! A small file system in memory that can be filled.

use std::ffi::OsStr;
use std::fs::{File, remove_file};
use std::io::Result;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// Why none can be mounted here, if so.
pub fn obstacle() -> Option<String> {
    let is_root = rustix::process::geteuid().is_root();
    (!is_root).then(|| "it mounts a tmpfs, which asks for root".to_owned())
}

/// A mounted tmpfs; unmounted when it is dropped.
#[derive(Debug)]
pub struct Tmpfs {
    path: PathBuf,
}

impl Tmpfs {
    /// Mounts one of `bytes` at `path`, which is made.
    ///
    /// # Errors
    /// The system refuses.
    pub fn mount(path: PathBuf, bytes: u64) -> Result<Self> {
        std::fs::create_dir_all(&path)?;
        let size = format!("size={bytes}");
        run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs"], &path)?;
        Ok(Tmpfs { path })
    }

    /// Makes it larger.
    ///
    /// # Errors
    /// The system refuses.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        run("mount", &["-o", &format!("remount,size={bytes}")], &self.path)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> u64 {
        statvfs(&self.path).map_or(0, |found| found.f_bavail * found.f_frsize)
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        statvfs(&self.path).map_or(0, |found| found.f_blocks * found.f_frsize)
    }

    /// Takes all space but `slack` bytes for a ballast file, which grows if it is there.
    ///
    /// # Errors
    /// The file cannot be made. That the space is taken by others meanwhile is none.
    pub fn load_ballast(&self, slack: u64) -> Result<()> {
        let file = File::options().create(true).append(true).open(self.ballast())?;
        let from = file.metadata()?.len();
        let bytes = self.free_bytes().saturating_sub(slack);
        if bytes > 0 {
            // Whoever else takes the space meanwhile fills the disk as well.
            let _ = fallocate(&file, FallocateFlags::empty(), from, bytes);
        }
        Ok(())
    }

    /// Frees the space of the ballast file.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn drop_ballast(&self) -> Result<()> {
        remove_file(self.ballast())
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a server that is not gone yet must not keep it.
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
