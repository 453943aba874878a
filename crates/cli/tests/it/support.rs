//! Helpers shared by the tests of the program.

use std::collections::BTreeMap;
use std::path::Path;

/// Every file below a directory with its bytes.
pub(crate) fn contents(dir: impl AsRef<Path>) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in dir.as_ref().read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else {
            files.insert(path.display().to_string(), std::fs::read(&path).unwrap());
        }
    }
    files
}
