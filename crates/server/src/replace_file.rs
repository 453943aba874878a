//! Replaces a file as a whole.
//!
//! The new file is written beside the old one, synced, and renamed, so a crash leaves one of the
//! two.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Replaces a file, durably. A new file gets `new_mode`, an old one keeps its own.
///
/// # Errors
/// Those of the system.
pub(crate) fn replace_file(path: &Path, bytes: &[u8], new_mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".tmp-{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = write_beside(path, &temporary, bytes, new_mode);
    if written.is_err() {
        // What was written of it is of no use.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_beside(path: &Path, temporary: &Path, bytes: &[u8], new_mode: u32) -> io::Result<()> {
    let mode = fs::metadata(path).map_or(new_mode, |file| file.permissions().mode() & 0o777);
    // A file that a crashed server left is replaced.
    let _ = fs::remove_file(temporary);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}
