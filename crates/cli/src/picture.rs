//! SVG files of plots.
//!
//! The file is checked for writing before a long run, not after it.

use std::path::{Path, PathBuf};

use siltstone_lab::plot::Plot;

use crate::Failure;

/// Parses the file name of `--plot`.
pub(crate) fn file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match extension.as_deref() {
        Some("svg") => Ok(path),
        _ => {
            Err(format!("pictures are SVG: name the file {}", path.with_extension("svg").display()))
        }
    }
}

/// Writes a plot to a file.
pub(crate) fn write(path: &Path, plot: &Plot) -> Result<(), Failure> {
    std::fs::write(path, plot.svg())
        .map_err(|e| Failure::file("write", &path.display().to_string(), &e))
}

/// Checks that a file can be written, without changing it.
pub(crate) fn check_writable(path: &Path) -> Result<(), Failure> {
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|e| Failure::file("write", &path.display().to_string(), &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_file_keeps_its_content_until_the_plot_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("old.svg");
        std::fs::write(&path, "old").unwrap();
        check_writable(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert!(check_writable(&directory.path().join("no/such.svg")).is_err());
    }

    #[test]
    fn other_picture_formats_are_refused() {
        assert_eq!(file("a/fill.SVG"), Ok(PathBuf::from("a/fill.SVG")));
        assert!(file("fill.png").unwrap_err().contains("fill.svg"));
        assert!(file("fill").unwrap_err().contains("fill.svg"));
    }
}
