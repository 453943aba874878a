//! A small file system in memory that can be filled.

use std::ffi::CString;
use std::fs::{File, remove_file};
use std::io::Result;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

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
        let data = CString::new(format!("size={bytes}"))?;
        mount("tmpfs", &path, "tmpfs", MountFlags::empty(), data.as_c_str())?;
        Ok(Tmpfs { path })
    }

    /// Makes it larger.
    ///
    /// # Errors
    /// The system refuses.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        let data = CString::new(format!("size={bytes}"))?;
        mount_remount(&self.path, MountFlags::empty(), data.as_c_str())?;
        Ok(())
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
        let _ = unmount(&self.path, UnmountFlags::DETACH);
    }
}
