//! The budget of open files: files that are closed and opened again behave as if they stayed open.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use siltstone_engine::{Error, Purpose};
use siltstone_structures::SplitMix64;
use siltstone_vfs::{Disk, DiskOptions, File, Mode, Vfs};

const BUDGET: usize = 4;
const WHY: Purpose = Purpose::Maintenance;

fn disk(path: &Path, max_open_files: usize) -> Disk {
    Disk::open(path).unwrap().with_options(DiskOptions { max_open_files, ..DiskOptions::default() })
}

fn write(vfs: &dyn Vfs, name: &str, bytes: &[u8]) {
    let file = vfs.create(name).unwrap();
    file.write_at(0, bytes, WHY).unwrap();
    file.sync(WHY).unwrap();
}

fn content(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes, WHY).unwrap();
    bytes
}

fn is_open(disk: &Disk) -> u64 {
    disk.open_files().unwrap().open
}

/// The descriptors of this process for files below `path` that have a name.
#[cfg(target_os = "linux")]
fn descriptors_below(path: &Path) -> u64 {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let below = targets.filter(|target| target.starts_with(path) && target.is_file());
    below.count() as u64
}

/// A handle and what it must read.
struct Handle {
    name: String,
    file: Arc<dyn File>,
    bytes: Vec<u8>,
    is_writer: bool,
    /// It is not closed: its name is gone, or it has unsynced bytes.
    is_kept_open: bool,
}

/// Random operations on two directories, compared with a model of names and handles.
#[test]
fn random_operations_within_a_small_budget_match_a_model() {
    for seed in 0..10 {
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let root = disk(scratch.path(), BUDGET);
        let sub = root.subdirectory("sub").unwrap();
        let vfs = |name: &str| -> &dyn Vfs { if name.starts_with('s') { &*sub } else { &root } };
        let mut random = SplitMix64::new(seed);
        let mut names: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut handles: Vec<Handle> = Vec::new();
        let new_name = |random: &mut SplitMix64| {
            format!("{}{}", ["r", "s"][random.below(2) as usize], random.below(8))
        };
        for step in 0..400 {
            let at = format!("seed {seed}, step {step}");
            let name = new_name(&mut random);
            match random.below(10) {
                0 | 1 if !names.contains_key(&name) => {
                    let bytes: Vec<u8> =
                        (0..random.below(5000)).map(|i| (i ^ step) as u8).collect();
                    let file = match random.below(2) {
                        0 => vfs(&name).create(&name).unwrap(),
                        _ => vfs(&name).create_append(&name).unwrap(),
                    };
                    file.allow_close();
                    file.write_at(0, &bytes, WHY).unwrap();
                    names.insert(name.clone(), bytes.clone());
                    handles.push(Handle { name, file, bytes, is_writer: true, is_kept_open: true });
                }
                // A preallocated tail may follow while the file is being written.
                2 | 3
                    if names.contains_key(&name)
                        && !handles
                            .iter()
                            .any(|handle| handle.is_writer && handle.name == name) =>
                {
                    let file = vfs(&name).open(&name, Mode::Read).unwrap();
                    let bytes = names[&name].clone();
                    assert_eq!(content(&*file), bytes, "{at}");
                    handles.push(Handle {
                        name,
                        file,
                        bytes,
                        is_writer: false,
                        is_kept_open: false,
                    });
                }
                4 if names.remove(&name).is_some() => {
                    vfs(&name).remove(&name).unwrap();
                    for handle in handles.iter_mut().filter(|handle| handle.name == name) {
                        handle.is_kept_open = true;
                        handle.name = "gone".to_owned();
                    }
                }
                5 if names.contains_key(&name) => {
                    let to = format!("{}{}", &name[..1], random.below(8));
                    vfs(&name).rename(&name, &to).unwrap();
                    let bytes = names.remove(&name).unwrap();
                    for handle in handles.iter_mut() {
                        if handle.name == name {
                            handle.is_kept_open = true;
                            handle.name.clone_from(&to);
                        } else if handle.name == to {
                            handle.is_kept_open = true;
                            handle.name = "gone".to_owned();
                        }
                    }
                    names.insert(to, bytes);
                }
                6 if !handles.is_empty() => {
                    let which = random.below(handles.len() as u64) as usize;
                    drop(handles.swap_remove(which));
                }
                7 if !handles.is_empty() => {
                    let which = random.below(handles.len() as u64) as usize;
                    let handle = &mut handles[which];
                    if handle.is_writer {
                        let more = vec![step as u8; random.below(300) as usize + 1];
                        handle.file.write_at(handle.bytes.len() as u64, &more, WHY).unwrap();
                        handle.bytes.extend(&more);
                        if let Some(named) = names.get_mut(&handle.name) {
                            named.extend(&more);
                        }
                    }
                    if handle.is_writer && random.below(2) == 0 {
                        handle.file.sync(WHY).unwrap();
                    }
                    handle.is_kept_open |= handle.is_writer;
                }
                _ if !handles.is_empty() => {
                    let handle = &handles[random.below(handles.len() as u64) as usize];
                    assert_eq!(handle.file.len().unwrap(), handle.bytes.len() as u64, "{at}");
                    assert_eq!(content(&*handle.file), handle.bytes, "{at}");
                    let is_gone = handle.name == "gone";
                    assert_eq!(handle.file.is_removed().unwrap(), is_gone, "{at}");
                }
                _ => {}
            }
            let kept = handles.iter().filter(|handle| handle.is_kept_open).count();
            let open = is_open(&root);
            // One more may have been opened while all others were kept.
            assert!(open <= BUDGET.max(kept + 1) as u64, "{at}: {open} open, {kept} kept");
            #[cfg(target_os = "linux")]
            assert!(descriptors_below(scratch.path()) <= open, "{at}");
        }
        let counts = root.open_files().unwrap();
        assert!(counts.evictions > 20 && counts.reopens > 10, "{counts:?}");
        drop(handles);
        assert_eq!(is_open(&root), 0);
    }
}

#[test]
fn concurrent_readers_of_more_files_than_the_budget_read_the_right_bytes() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = disk(scratch.path(), BUDGET);
    let bytes = |i: u64| -> Vec<u8> { (0..4096).map(|at| (at * 7 + i * 13) as u8).collect() };
    let files: Vec<_> = (0..40)
        .map(|i| {
            write(&disk, &i.to_string(), &bytes(i));
            disk.open(&i.to_string(), Mode::Read).unwrap()
        })
        .collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..6)
            .map(|seed| {
                let files = &files;
                scope.spawn(move || {
                    let mut random = SplitMix64::new(seed);
                    for _ in 0..3000 {
                        // Half of the reads are of two files.
                        let hot = random.below(2) == 0;
                        let i = random.below(if hot { 2 } else { 40 });
                        let at = random.below(4000);
                        let mut buf = [0; 96];
                        files[i as usize].read_at(at, &mut buf, WHY).unwrap();
                        assert_eq!(buf[..], bytes(i)[at as usize..][..96]);
                    }
                })
            })
            .collect();
        let (disk, is_done) = (&disk, &is_done);
        let remover = scope.spawn(move || {
            for i in 0.. {
                if is_done.load(Relaxed) {
                    return i;
                }
                let name = format!("short-lived-{i}");
                write(disk, &name, b"content");
                let file = disk.open(&name, Mode::Read).unwrap();
                disk.remove(&name).unwrap();
                assert_eq!(content(&*file), b"content");
            }
            unreachable!()
        });
        let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        is_done.store(true, Relaxed);
        assert!(remover.join().unwrap() > 0);
        assert!(ended.iter().all(Result::is_ok));
    });
    let counts = disk.open_files().unwrap();
    println!("{counts:?}");
    assert!(counts.evictions > 1000 && counts.reopens > 1000, "{counts:?}");
    assert!(counts.open <= BUDGET as u64, "{counts:?}");
}

#[test]
fn removed_and_replaced_files_stay_readable_by_closed_handles() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = disk(scratch.path(), BUDGET);
    let names: Vec<_> = (0..12).map(|i| format!("{i}")).collect();
    let files: Vec<_> = (names.iter())
        .map(|name| {
            write(&disk, name, name.as_bytes());
            disk.open(name, Mode::Read).unwrap()
        })
        .collect();
    assert_eq!(is_open(&disk), BUDGET as u64);
    names[..6].iter().for_each(|name| disk.remove(name).unwrap());
    for name in &names[6..9] {
        disk.remove(name).unwrap();
        write(&disk, name, b"another");
    }
    write(&disk, "draft", b"another");
    disk.rename("draft", &names[9]).unwrap();
    disk.rename(&names[10], "elsewhere").unwrap();
    for (name, file) in names.iter().zip(&files) {
        assert_eq!(content(&**file), name.as_bytes());
        assert_eq!(file.is_removed().unwrap(), name.len() == 1, "{name}");
    }
}

#[test]
fn file_replaced_from_outside_while_it_was_closed_is_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = disk(scratch.path(), 1);
    for name in ["replaced", "removed", "other"] {
        write(&disk, name, name.as_bytes());
    }
    let replaced = disk.open("replaced", Mode::Read).unwrap();
    let removed = disk.open("removed", Mode::Read).unwrap();
    let other = disk.open("other", Mode::Read).unwrap();
    let path = |name: &str| scratch.path().join(name);
    // Copied, so that the content is the same and the file is not.
    std::fs::copy(path("replaced"), path("copy")).unwrap();
    std::fs::rename(path("copy"), path("replaced")).unwrap();
    std::fs::remove_file(path("removed")).unwrap();
    let read = |file: &Arc<dyn File>| file.read_at(0, &mut [0], WHY);
    let error = read(&replaced).unwrap_err();
    assert!(
        matches!(&error, Error::Corruption { file, .. } if file.ends_with("replaced")),
        "{error}"
    );
    let error = read(&removed).unwrap_err();
    assert!(
        matches!(&error, Error::Io { kind: ErrorKind::NotFound, file, .. } if file.ends_with("removed")),
        "{error}"
    );
    assert!(removed.is_removed().unwrap() && replaced.is_removed().unwrap());
    read(&other).unwrap();
}

#[test]
fn removed_directory_leaves_open_files_readable_and_closed_ones_fail_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = disk(scratch.path(), 1);
    let sub = disk.subdirectory("sub").unwrap();
    write(&*sub, "closed", b"closed");
    write(&*sub, "open", b"open");
    let closed = sub.open("closed", Mode::Read).unwrap();
    let open = sub.open("open", Mode::Read).unwrap();
    disk.remove_subdirectory("sub").unwrap();
    assert_eq!(content(&*open), b"open");
    let error = closed.read_at(0, &mut [0], WHY).unwrap_err();
    assert!(matches!(&error, Error::Io { file, .. } if file.ends_with("sub/closed")), "{error}");
}

#[test]
fn file_with_unsynced_bytes_stays_open_until_it_is_synced() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = disk(scratch.path(), 3);
    let logs: Vec<_> = (0..5).map(|i| disk.create_append(&format!("{i}.log")).unwrap()).collect();
    logs.iter().for_each(|log| log.allow_close());
    drop(disk.create("to make room").unwrap());
    assert!(is_open(&disk) <= 3);
    logs.iter().for_each(|log| log.write_at(0, b"record", WHY).unwrap());
    assert_eq!(is_open(&disk), 5);
    logs[..4].iter().for_each(|log| log.sync(WHY).unwrap());
    write(&disk, "other", b"");
    assert!(is_open(&disk) <= 3);
    // Appends to closed and to open logs continue where they ended.
    for log in &logs {
        log.write_at(6, b" and another", WHY).unwrap();
        log.sync(WHY).unwrap();
    }
    for log in logs {
        assert_eq!(content(&*log), b"record and another");
    }
    assert!(disk.open_files().unwrap().reopens > 0);
}

#[test]
fn unsynced_logs_beyond_twice_the_budget_are_synced_and_closed() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = disk(scratch.path(), BUDGET);
    let logs: Vec<_> = (0..30u8)
        .map(|i| {
            let log = disk.create_append(&i.to_string()).unwrap();
            log.allow_close();
            log.write_at(0, &[i; 10], WHY).unwrap();
            assert!(is_open(&disk) <= 2 * BUDGET as u64 + 1);
            log
        })
        .collect();
    for (i, log) in logs.iter().enumerate() {
        log.write_at(10, &[i as u8; 10], WHY).unwrap();
        assert_eq!(content(&**log), [i as u8; 20]);
        assert!(is_open(&disk) <= 2 * BUDGET as u64 + 1);
    }
}

#[test]
fn direct_reads_within_a_small_budget_read_the_right_bytes() {
    // In the build directory: files in memory may not support direct reads.
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = DiskOptions { direct: true, max_open_files: 2, ..DiskOptions::default() };
    let disk = Disk::open(scratch.path()).unwrap().with_options(options);
    if disk.create("probe").is_err() {
        println!("skipped: no direct reads in {}", scratch.path().display());
        return;
    }
    let files: Vec<_> = (0..6u8)
        .map(|i| {
            write(&disk, &i.to_string(), &[i; 9000]);
            disk.open(&i.to_string(), Mode::Read).unwrap()
        })
        .collect();
    for _ in 0..3 {
        for (i, file) in files.iter().enumerate() {
            let mut buf = [9; 5000];
            file.read_at(3000, &mut buf, WHY).unwrap();
            assert_eq!(buf, [i as u8; 5000]);
            assert_eq!(is_open(&disk), 2);
        }
    }
}
