//! Growing files: what is stored is what is read, and the space behind the end comes and goes.

use std::os::unix::fs::{FileExt, MetadataExt};

use super::*;

fn growing() -> (AppendFile, std::fs::File) {
    let file = tempfile::tempfile().unwrap();
    let other = file.try_clone().unwrap();
    let inner = DiskFile::new("log".to_owned(), file, None);
    (AppendFile::new(inner, Arc::default()), other)
}

/// Appends `bytes` of a pattern in pieces of all sizes, waiting for windows now and then.
fn fill(file: &AppendFile, bytes: u64) -> Vec<u8> {
    let mut all = Vec::new();
    let mut piece = 1;
    while (all.len() as u64) < bytes {
        piece = piece * 7 % 701 + 1;
        let from = all.len() as u64;
        all.extend((0..piece as u64).map(|i| ((from + i) * 31 % 251) as u8));
        file.write_at(from, &all[from as usize..], Purpose::Log).unwrap();
        if from.is_multiple_of(5)
            && let Some(next) = file.windows.lock().next.back()
        {
            next.wait_until_ready();
        }
    }
    all
}

#[test]
fn is_what_was_stored_what_others_read() {
    let (file, other) = growing();
    let all = fill(&file, 5 * MOST);
    assert!(file.windows.lock().present.is_some(), "no window was ever used");
    assert_eq!(file.len().unwrap(), all.len() as u64);
    let mut back = vec![0; all.len()];
    file.read_at(0, &mut back, Purpose::Get).unwrap();
    assert!(back == all);
    file.sync(Purpose::Log).unwrap();
    let mut back = vec![0; all.len()];
    other.read_exact_at(&mut back, 0).unwrap();
    assert!(back == all);
    // Behind the end is nothing for this handle, and for others there are zeros, until it is finished.
    let end = all.len() as u64;
    assert!(file.read_at(end, &mut [0], Purpose::Get).is_err());
    assert!(file.read_at(end - 1, &mut [0; 2], Purpose::Get).is_err());
    let ready = other.metadata().unwrap().len();
    assert!(ready > end && ready <= end + 2 * MOST, "{end} {ready}");
    let mut zeros = vec![1; (ready - end) as usize];
    other.read_exact_at(&mut zeros, end).unwrap();
    assert!(zeros.iter().all(|&byte| byte == 0));
    file.trim_preallocation().unwrap();
    assert_eq!(other.metadata().unwrap().len(), end);
    // It can still be written to.
    file.write_at(end, b"seal", Purpose::Log).unwrap();
    assert_eq!(other.metadata().unwrap().len(), end + 4);
}

#[test]
fn frequent_syncs_choose_single_pages_until_syncs_are_rare() {
    let (file, other) = growing();
    let folios = |file: &AppendFile| file.windows.lock().folios;
    let mut all = fill(&file, MOST);
    // All of it at once.
    file.sync(Purpose::Log).unwrap();
    assert_eq!(folios(&file), FolioSize::Large);
    let append = |all: &mut Vec<u8>, bytes: &[u8]| {
        file.write_at(all.len() as u64, bytes, Purpose::Log).unwrap();
        all.extend(bytes);
    };
    append(&mut all, b"little");
    file.sync(Purpose::Log).unwrap();
    assert_eq!(folios(&file), FolioSize::Page);
    // The space behind the end was given back; a later file of the directory begins with pages.
    assert_eq!(other.metadata().unwrap().len(), all.len() as u64);
    let next = DiskFile::new("next".to_owned(), tempfile::tempfile().unwrap(), None);
    assert_eq!(folios(&AppendFile::new(next, file.has_frequent_syncs.clone())), FolioSize::Page);
    for i in 0..3 * MOST / 500 {
        append(&mut all, &[i as u8; 500]);
    }
    assert_eq!(folios(&file), FolioSize::Large);
    assert!(!file.has_frequent_syncs.load(Ordering::Relaxed));
    let mut back = vec![0; all.len()];
    file.read_at(0, &mut back, Purpose::Get).unwrap();
    assert!(back == all);
}

/// The writer is about as fast as the thread that makes windows ready, so it comes to each in another
/// state.
#[test]
fn do_no_zeros_overtake_what_is_written() {
    for turn in 0..40 {
        let (file, _) = growing();
        let mut len = 0;
        while len < 2 * MOST {
            let bytes = vec![(len % 255) as u8 + 1; 300 + (len % 1500) as usize];
            file.write_at(len, &bytes, Purpose::Log).unwrap();
            len += bytes.len() as u64;
        }
        if turn % 2 == 0 {
            file.trim_preallocation().unwrap();
        }
        let mut back = vec![0; len as usize];
        file.read_at(0, &mut back, Purpose::Get).unwrap();
        let lost = back.iter().position(|&byte| byte == 0);
        assert_eq!(lost, None, "in turn {turn}");
    }
}

#[test]
fn does_a_cut_take_what_is_behind_it_for_good() {
    let (file, other) = growing();
    let all = fill(&file, 2 * MOST);
    let cut = all.len() as u64 - 1000;
    file.set_len(cut).unwrap();
    assert_eq!((file.len().unwrap(), other.metadata().unwrap().len()), (cut, cut));
    file.write_at(cut + 10, b"behind a gap", Purpose::Log).unwrap();
    let mut back = [1; 22];
    file.read_at(cut, &mut back, Purpose::Get).unwrap();
    assert_eq!(&back, b"\0\0\0\0\0\0\0\0\0\0behind a gap");
    drop(file);
    assert_eq!(other.metadata().unwrap().len(), cut + 22);
}

#[test]
fn are_large_appends_written() {
    let (file, _) = growing();
    for i in 0..100 {
        file.write_at(i * 10_000, &[7; 10_000], Purpose::Log).unwrap();
    }
    assert!(file.windows.lock().next.is_empty() && !file.windows.lock().has_more);
}

#[test]
fn is_an_expected_file_stored_to_from_its_first_byte_and_no_further_than_expected() {
    for expected in [MOST / 4, MOST_EXPECTED, MOST_EXPECTED + 4 * BEYOND] {
        let (file, other) = growing();
        file.preallocate(expected, 0);
        if let Some(next) = file.windows.lock().next.back() {
            next.wait_until_ready();
        }
        file.write_at(0, b"the first", Purpose::Log).unwrap();
        assert_eq!(file.windows.lock().present.as_ref().map(Window::start), Some(0), "{expected}");
        let mut written = 9;
        while written < expected {
            file.write_at(written, &[7; 1000], Purpose::Log).unwrap();
            written += 1000;
            if let Some(next) = file.windows.lock().next.back() {
                next.wait_until_ready();
            }
        }
        let ready = other.metadata().unwrap().len();
        // What was asked for beyond comes in the first step of files of which nothing is expected.
        assert!(ready <= expected + BEYOND + FIRST + MAP_BYTES as u64, "{expected} {ready}");
        file.trim_preallocation().unwrap();
        assert_eq!(other.metadata().unwrap().len(), written);
        let mut back = vec![0; written as usize];
        file.read_at(0, &mut back, Purpose::Get).unwrap();
        assert!(back.starts_with(b"the first") && back[9..].iter().all(|&byte| byte == 7));
    }
}

#[test]
fn is_what_is_wanted_now_there_when_the_call_returns_and_the_rest_in_time() {
    let (file, other) = growing();
    file.preallocate(4 * MOST_EXPECTED, FIRST);
    let windows = |file: &AppendFile| {
        let windows = file.windows.lock();
        (windows.present.as_ref().map(Window::end), !windows.next.is_empty())
    };
    assert_eq!((windows(&file), other.metadata().unwrap().len()), ((Some(FIRST), false), FIRST));
    for at in (0..SMALL).step_by(1024) {
        file.write_at(at, &[7; 1024], Purpose::Log).unwrap();
    }
    assert_eq!(windows(&file), (Some(FIRST), false), "small files are given no more");
    file.write_at(SMALL, b"more", Purpose::Log).unwrap();
    if let Some(next) = file.windows.lock().next.back() {
        next.wait_until_ready();
    }
    assert_eq!(other.metadata().unwrap().len(), FIRST + MOST_EXPECTED);
    for at in 0..10 {
        file.write_at(SMALL + 4 + at, b"+", Purpose::Log).unwrap();
    }
    let ends: Vec<u64> = file.windows.lock().next.iter().map(|next| next.end()).collect();
    assert_eq!(ends, [FIRST + MOST_EXPECTED, FIRST + 2 * MOST_EXPECTED]);
    drop(file);
    assert_eq!(other.metadata().unwrap().len(), SMALL + 14);
}

#[test]
fn is_what_was_expected_of_a_file_and_never_came_given_back() {
    let (file, other) = growing();
    file.preallocate(MOST, 0);
    drop(file);
    assert_eq!(other.metadata().unwrap().len(), 0);
    // Of a file that has bytes already, or will stay small, nothing is expected.
    let (file, _) = growing();
    file.preallocate(SMALL, 0);
    file.write_at(0, b"a", Purpose::Log).unwrap();
    file.preallocate(MOST, 0);
    assert!(file.windows.lock().next.is_empty() && !file.windows.lock().has_more);
}

#[test]
fn is_the_space_of_an_expected_file_there_before_its_bytes_and_what_is_left_given_back() {
    let (file, other) = growing();
    let space = || other.metadata().unwrap().blocks() * 512;
    let expected = 16 * MOST_EXPECTED;
    let has_room = space_to_reserve(&other) / ROOM_FOR >= expected + BEYOND;
    if !has_room || file.inner.reserve(1).is_err() || space() == 0 {
        eprintln!("not checked: {} has no space to reserve", std::env::temp_dir().display());
        return;
    }
    file.preallocate(expected, 0);
    if let Some(next) = file.windows.lock().next.back() {
        next.wait_until_ready();
    }
    assert!(space() >= expected, "{} of {expected}", space());
    let ready = other.metadata().unwrap().len();
    assert!(ready <= MOST_EXPECTED, "only windows lengthen a file: {ready}");
    file.write_at(0, &[7; 1000], Purpose::Log).unwrap();
    file.trim_preallocation().unwrap();
    assert_eq!(other.metadata().unwrap().len(), 1000);
    assert!(space() <= 64 << 10, "{} for 1000 bytes", space());
}

#[test]
fn is_a_small_file_written_as_any() {
    let (file, other) = growing();
    file.write_at(0, &[7; SMALL as usize], Purpose::Log).unwrap();
    assert!(file.windows.lock().next.is_empty());
    assert_eq!(other.metadata().unwrap().len(), SMALL);
}
