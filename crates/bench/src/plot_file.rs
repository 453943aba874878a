//! The SVG file that `--plot` names.
//!
//! An unwritable file is reported before a long run, not after it.

use std::path::{Path, PathBuf};

use siltstone_engine::{Error, Result};

use crate::plot::Plot;

/// Parses the value of `--plot`; the error names the file that would be accepted.
///
/// # Errors
/// A file name that does not end with `.svg`.
pub fn parse(text: &str) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match extension.as_deref() {
        Some("svg") => Ok(path),
        _ => Err(format!("plots are SVG: name the file {}", path.with_extension("svg").display())),
    }
}

/// Writes a plot to a file, replacing what is there.
///
/// # Errors
/// [`Error::Io`].
pub fn write(path: &Path, plot: &Plot) -> Result<()> {
    std::fs::write(path, plot.svg()).map_err(|e| fault(path, &e))
}

/// Checks that a file can be written, without changing its contents.
///
/// # Errors
/// [`Error::Io`].
pub fn check_writable(path: &Path) -> Result<()> {
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|e| fault(path, &e))
}

fn fault(path: &Path, error: &std::io::Error) -> Error {
    Error::io("write", path.display().to_string(), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_keeps_an_existing_file_and_reports_a_missing_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("old.svg");
        std::fs::write(&path, "old").unwrap();
        check_writable(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert!(check_writable(&directory.path().join("no/such.svg")).is_err());
    }

    #[test]
    fn other_file_formats_are_refused() {
        assert_eq!(parse("a/fill.SVG"), Ok(PathBuf::from("a/fill.SVG")));
        assert!(parse("fill.png").unwrap_err().contains("fill.svg"));
        assert!(parse("fill").unwrap_err().contains("fill.svg"));
    }
}
