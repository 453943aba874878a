//! Repair of files of which a part is missing or cannot be read.

use siltstone_engine::Engine;
use siltstone_silt::repair;
use siltstone_vfs::Vfs;

use super::{filled, flip, names, open, read};

#[test]
fn damaged_indexes_of_blocks_of_one_length_are_rebuilt_at_once() {
    let (vfs, rows) = filled(false);
    let indexes = names(&vfs, ".index");
    indexes.iter().for_each(|name| flip(&vfs, name, 20));
    let story = repair(&vfs).unwrap().lines.join("\n");
    assert!(story.contains("it is rebuilt from"), "{story}");
    assert_eq!(names(&vfs, ".index"), indexes, "{story}");
    let again = repair(&vfs).unwrap();
    assert_eq!(again.lines, ["everything that the manifest names is intact"]);
    assert_eq!(read(&open(&vfs).unwrap()), rows);
}
