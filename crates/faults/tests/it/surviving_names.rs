//! Names after a power cut: those of a synced directory are there, and each later change of one name
//! survives independently of those of others.

use siltstone_faults::{FaultKind, FaultyVfs};
use siltstone_vfs::Vfs;

use crate::support::{WHY, contents, durable_file, every_way, outcomes};

#[test]
fn synced_file_in_unsynced_directory_may_lose_its_name_but_not_its_bytes() {
    let vfs = FaultyVfs::new(1);
    let file = vfs.create("a").unwrap();
    file.write_at(0, b"synced", WHY).unwrap();
    file.sync(WHY).unwrap();
    let expected = [vec![], vec![("a".to_owned(), b"synced".to_vec())]];
    assert_eq!(outcomes(&vfs, contents), expected.clone().into());
    vfs.sync_dir(WHY).unwrap();
    assert_eq!(outcomes(&vfs, contents), [expected[1].clone()].into());
}

#[test]
fn synced_name_does_not_make_bytes_durable() {
    let vfs = FaultyVfs::new(1);
    vfs.create("a").unwrap().write_at(0, b"unsynced", WHY).unwrap();
    vfs.sync_dir(WHY).unwrap();
    let found = outcomes(&vfs, |survivor| survivor.read_raw("a").unwrap());
    let known = [vec![], vec![0; 8], b"unsynced".to_vec()];
    assert!(known.iter().all(|bytes| found.contains(bytes)), "{found:?}");
    let (few, garbage): (Vec<_>, Vec<_>) = found.iter().partition(|bytes| known.contains(bytes));
    assert!(few.len() == 3 && garbage.iter().all(|bytes| bytes.len() == 8), "{found:?}");
}

#[test]
fn unsynced_removal_may_be_undone_completely() {
    let vfs = FaultyVfs::new(1);
    durable_file(&vfs, "a", b"bytes");
    vfs.remove("a").unwrap();
    let there = vec![("a".to_owned(), b"bytes".to_vec())];
    assert_eq!(outcomes(&vfs, contents), [vec![], there].into());
    vfs.sync_dir(WHY).unwrap();
    assert_eq!(outcomes(&vfs, contents), [vec![]].into());
}

#[test]
fn rename_is_atomic() {
    let vfs = FaultyVfs::new(1);
    durable_file(&vfs, "CURRENT", b"old");
    durable_file(&vfs, "tmp", b"new");
    vfs.rename("tmp", "CURRENT").unwrap();
    let file = |name: &str, bytes: &[u8]| (name.to_owned(), bytes.to_vec());
    let old = vec![file("CURRENT", b"old"), file("tmp", b"new")];
    let new = vec![file("CURRENT", b"new")];
    assert_eq!(outcomes(&vfs, contents), [old, new.clone()].into());
    vfs.sync_dir(WHY).unwrap();
    assert_eq!(outcomes(&vfs, contents), [new].into());
}

#[test]
fn names_survive_independently_and_each_in_order() {
    let vfs = FaultyVfs::new(1);
    for name in ["1", "2", "3"] {
        vfs.create(name).unwrap();
    }
    vfs.rename("1", "4").unwrap();
    vfs.rename("4", "5").unwrap();
    let found = outcomes(&vfs, |survivor| survivor.list().unwrap().concat());
    let chain = ["1", "4", "5", ""];
    for lost_or_kept in ["", "2", "3", "23"] {
        for state in chain {
            let mut names: Vec<char> = format!("{state}{lost_or_kept}").chars().collect();
            names.sort_unstable();
            let names: String = names.into_iter().collect();
            assert!(found.contains(&names), "{names:?} never came out of {found:?}");
        }
    }
    assert_eq!(found.len(), 16, "{found:?}");
}

#[test]
fn new_subdirectory_is_durable_at_once_without_other_names() {
    let vfs = FaultyVfs::new(1);
    vfs.create("beside").unwrap();
    let sub = vfs.subdirectory("sub").unwrap();
    let found =
        outcomes(&vfs, |survivor| (survivor.list().unwrap(), survivor.subdirectories().unwrap()));
    let sub_there = vec!["sub".to_owned()];
    assert_eq!(found, [(vec![], sub_there.clone()), (vec!["beside".into()], sub_there)].into());

    // Its removal is many operations, of which a power cut leaves any part.
    durable_file(&*sub, "x", b"");
    durable_file(&*sub, "y", b"");
    vfs.remove_subdirectory("sub").unwrap();
    let found = outcomes(&vfs, |survivor| {
        let files = survivor.files().into_iter().map(|file| file.path);
        (survivor.subdirectories().unwrap().len(), files.filter(|p| p != "beside").collect())
    });
    let part = |files: &[&str]| (1, files.iter().map(|&f| f.to_owned()).collect::<Vec<_>>());
    let parts = [part(&["sub/x", "sub/y"]), part(&["sub/x"]), part(&["sub/y"]), part(&[])];
    assert_eq!(found, parts.into_iter().chain([(0, vec![])]).collect());
}

#[test]
fn file_with_two_names_survives_as_one_file() {
    let vfs = FaultyVfs::new(1);
    durable_file(&vfs, "a", b"bytes");
    let sub = vfs.subdirectory("sub").unwrap();
    assert!(vfs.link("a", &*sub, "b").unwrap());
    sub.sync_dir(WHY).unwrap();
    for (_, survivor) in every_way(&vfs) {
        survivor.write_raw("a", 0, b"BYTES").unwrap();
        assert_eq!(survivor.read_raw("sub/b").unwrap(), b"BYTES");
    }
}

#[test]
fn failed_directory_sync_is_not_repaired_by_a_later_one() {
    let vfs = FaultyVfs::new(1);
    vfs.create("a").unwrap();
    vfs.fail_next(FaultKind::DirSync, 1);
    vfs.sync_dir(WHY).unwrap_err();
    vfs.create("b").unwrap();
    vfs.sync_dir(WHY).unwrap();
    let found = outcomes(&vfs, |survivor| survivor.list().unwrap().concat());
    assert_eq!(found, ["b".to_owned(), "ab".to_owned()].into());
}
