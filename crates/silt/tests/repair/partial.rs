//! Repair of files of which a part is missing or cannot be read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use siltstone_engine::{Engine, Error, ManualClock, Purpose};
use siltstone_runtime::Env;
use siltstone_silt::{Options, Silt, repair};
use siltstone_testkit::HookedVfs;
use siltstone_vfs::{Mode, Vfs};

use super::{bytes, filled, flip, len, lose_the_manifest, names, open, read, repaired};

fn largest(vfs: &Arc<dyn Vfs>, ending: &str) -> String {
    names(vfs, ending).into_iter().max_by_key(|name| len(vfs, name)).unwrap()
}

fn truncate(vfs: &Arc<dyn Vfs>, name: &str, len: u64) {
    vfs.open(name, Mode::ReadWrite).unwrap().set_len(len).unwrap();
}

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

#[test]
fn sorted_store_that_a_merge_did_not_complete_replaces_no_other() {
    let (vfs, rows) = filled(false);
    let contents = |name: String| (name.clone(), bytes(&vfs, &name));
    let endings = [".hash", ".filter", ".sorted", ".index"];
    let old: Vec<_> = endings.map(|ending| names(&vfs, ending)).concat();
    let old: Vec<(String, Vec<u8>)> = old.into_iter().map(contents).collect();
    let is_old = |name: &String| old.iter().any(|(other, _)| other == name);
    let options = Options { merge_trigger: 1, ..Options::default() };
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 7);
    let silt = Silt::open(vfs.clone(), env, options).unwrap();
    silt.maintain().unwrap();
    silt.close().unwrap();
    drop(silt);
    // As if power had been cut during the merge.
    let new: Vec<_> = names(&vfs, ".sorted").into_iter().filter(|name| !is_old(name)).collect();
    assert!(!new.is_empty());
    new.iter().for_each(|name| truncate(&vfs, name, len(&vfs, name) / 2));
    for (name, bytes) in &old {
        if !vfs.exists(name).unwrap() {
            let file = vfs.create(name).unwrap();
            file.write_at(0, bytes, Purpose::Maintenance).unwrap();
        }
    }
    lose_the_manifest(&vfs);
    let (differ, story) = repaired(&vfs, &rows);
    assert_eq!(differ, 0, "{story}");
    assert!(story.contains("has no footer and may lack entries of"), "{story}");
    let mut found = read(&open(&vfs).unwrap());
    found.retain(|key, _| !key.starts_with(b"new"));
    assert!(found == rows, "{story}");
}

#[test]
fn truncated_hash_store_loses_only_what_was_cut_off() {
    const SLOTS: u64 = 64;
    const FOOTER: u64 = 52;
    let (vfs, rows) = filled(false);
    let name = largest(&vfs, ".hash");
    let slot = (len(&vfs, &name) - FOOTER) / SLOTS;
    assert!((len(&vfs, &name) - FOOTER).is_multiple_of(SLOTS) && slot > 100);
    truncate(&vfs, &name, slot * SLOTS * 3 / 4 + 10);
    let (differ, story) = repaired(&vfs, &rows);
    assert!((1..=SLOTS as usize / 4).contains(&differ), "{differ}\n{story}");
}

#[test]
fn unreadable_sector_costs_only_its_entries() {
    for ending in [".hash", ".sorted", ".filter", ".index"] {
        let (vfs, rows) = filled(true);
        let name = largest(&vfs, ending);
        let bad = len(&vfs, &name) / 2;
        let hooked = HookedVfs::wrap(&vfs, {
            let (name, is_renamed) = (name.clone(), AtomicBool::new(false));
            move |request| {
                // A new file of this name has other sectors.
                is_renamed.fetch_or(request.is("rename", &name), SeqCst);
                let is_bad = request.operation == "read"
                    && request.name == name
                    && !is_renamed.load(SeqCst)
                    && request.bytes.contains(&bad);
                let error = || Error::io("read", request.name, &io::Error::other("a bad sector"));
                if is_bad { Err(error()) } else { Ok(()) }
            }
        });
        let story = repair(&hooked).unwrap().lines.join("\n");
        let found = read(&open(&vfs).unwrap());
        let differ = rows.iter().filter(|(key, value)| found.get(*key) != Some(value)).count();
        let is_data = ending == ".hash" || ending == ".sorted";
        assert!(differ <= if is_data { 100 } else { 0 }, "{ending} {differ}\n{story}");
        assert!(story.contains(&name), "{story}");
    }
}
