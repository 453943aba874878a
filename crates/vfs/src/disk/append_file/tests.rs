//! Append files: stored bytes are read back, and preallocated space is created and released.

use std::os::unix::fs::{FileExt, MetadataExt};

use super::*;
use crate::disk::descriptor::Descriptor;

fn append_file() -> (AppendFile, std::fs::File) {
    let file = tempfile::tempfile().unwrap();
    let other = file.try_clone().unwrap();
    let inner = DiskFile::new(Descriptor::unnamed(file));
    (AppendFile::new(inner, Arc::default()), other)
}

/// Appends `bytes` of a pattern in pieces of many sizes, and sometimes waits for a window.
fn fill(file: &AppendFile, bytes: u64) -> Vec<u8> {
    let mut all = Vec::new();
    let mut piece = 1;
    while (all.len() as u64) < bytes {
        piece = piece * 7 % 701 + 1;
        let from = all.len() as u64;
        all.extend((0..piece as u64).map(|i| ((from + i) * 31 % 251) as u8));
        file.write_at(from, &all[from as usize..], Purpose::Log).unwrap();
        if from.is_multiple_of(5)
            && let Some(next) = file.windows.lock().pending.back()
        {
            next.wait_until_ready();
        }
    }
    all
}

#[test]
fn appended_bytes_are_read_through_other_handles() {
    let (file, other) = append_file();
    let all = fill(&file, 5 * MAX_WINDOW_BYTES);
    assert!(file.windows.lock().current.is_some(), "no window was ever used");
    assert_eq!(file.len().unwrap(), all.len() as u64);
    let mut back = vec![0; all.len()];
    file.read_at(0, &mut back, Purpose::Get).unwrap();
    assert!(back == all);
    file.sync(Purpose::Log).unwrap();
    let mut back = vec![0; all.len()];
    other.read_exact_at(&mut back, 0).unwrap();
    assert!(back == all);
    // This handle ends at the last byte; others see zeros until the preallocation is trimmed.
    let end = all.len() as u64;
    assert!(file.read_at(end, &mut [0], Purpose::Get).is_err());
    assert!(file.read_at(end - 1, &mut [0; 2], Purpose::Get).is_err());
    let ready = other.metadata().unwrap().len();
    assert!(ready > end && ready <= end + 2 * MAX_WINDOW_BYTES, "{end} {ready}");
    let mut zeros = vec![1; (ready - end) as usize];
    other.read_exact_at(&mut zeros, end).unwrap();
    assert!(zeros.iter().all(|&byte| byte == 0));
    file.trim_preallocation().unwrap();
    assert_eq!(other.metadata().unwrap().len(), end);
    // It can still be written.
    file.write_at(end, b"seal", Purpose::Log).unwrap();
    assert_eq!(other.metadata().unwrap().len(), end + 4);
}

#[test]
fn frequent_syncs_choose_single_pages_until_syncs_are_rare() {
    let (file, other) = append_file();
    let folios = |file: &AppendFile| file.windows.lock().folios;
    let mut all = fill(&file, MAX_WINDOW_BYTES);
    // A sync of all of it at once.
    file.sync(Purpose::Log).unwrap();
    assert_eq!(folios(&file), FolioSize::Large);
    let append = |all: &mut Vec<u8>, bytes: &[u8]| {
        file.write_at(all.len() as u64, bytes, Purpose::Log).unwrap();
        all.extend(bytes);
    };
    append(&mut all, b"little");
    file.sync(Purpose::Log).unwrap();
    assert_eq!(folios(&file), FolioSize::Page);
    // The preallocated space was released; a later file of the directory starts with single pages.
    assert_eq!(other.metadata().unwrap().len(), all.len() as u64);
    let next = DiskFile::new(Descriptor::unnamed(tempfile::tempfile().unwrap()));
    assert_eq!(folios(&AppendFile::new(next, file.has_frequent_syncs.clone())), FolioSize::Page);
    for i in 0..3 * MAX_WINDOW_BYTES / 500 {
        append(&mut all, &[i as u8; 500]);
    }
    assert_eq!(folios(&file), FolioSize::Large);
    assert!(!file.has_frequent_syncs.load(Ordering::Relaxed));
    let mut back = vec![0; all.len()];
    file.read_at(0, &mut back, Purpose::Get).unwrap();
    assert!(back == all);
}

/// The writer is about as fast as the preallocator, so it meets each window in another state.
#[test]
fn zeros_of_a_window_never_overwrite_appends() {
    for turn in 0..40 {
        let (file, _) = append_file();
        let mut len = 0;
        while len < 2 * MAX_WINDOW_BYTES {
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
fn set_len_discards_windows_and_the_truncated_bytes() {
    let (file, other) = append_file();
    let all = fill(&file, 2 * MAX_WINDOW_BYTES);
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
fn large_appends_use_no_window() {
    let (file, _) = append_file();
    for i in 0..100 {
        file.write_at(i * 10_000, &[7; 10_000], Purpose::Log).unwrap();
    }
    assert!(file.windows.lock().pending.is_empty() && !file.windows.lock().has_preallocation);
}

#[test]
fn file_of_announced_size_is_mapped_from_its_first_byte_up_to_that_size() {
    for expected in [
        MAX_WINDOW_BYTES / 4,
        MAX_EXPECTED_WINDOW_BYTES,
        MAX_EXPECTED_WINDOW_BYTES + 4 * EXCESS_BYTES,
    ] {
        let (file, other) = append_file();
        file.preallocate(expected, 0);
        if let Some(next) = file.windows.lock().pending.back() {
            next.wait_until_ready();
        }
        file.write_at(0, b"the first", Purpose::Log).unwrap();
        assert_eq!(file.windows.lock().current.as_ref().map(Window::start), Some(0), "{expected}");
        let mut written = 9;
        while written < expected {
            file.write_at(written, &[7; 1000], Purpose::Log).unwrap();
            written += 1000;
            if let Some(next) = file.windows.lock().pending.back() {
                next.wait_until_ready();
            }
        }
        let ready = other.metadata().unwrap().len();
        // The last window may be a first one of a file without an announced size.
        assert!(
            ready <= expected + EXCESS_BYTES + FIRST_WINDOW_BYTES + MAP_BYTES as u64,
            "{expected} {ready}"
        );
        file.trim_preallocation().unwrap();
        assert_eq!(other.metadata().unwrap().len(), written);
        let mut back = vec![0; written as usize];
        file.read_at(0, &mut back, Purpose::Get).unwrap();
        assert!(back.starts_with(b"the first") && back[9..].iter().all(|&byte| byte == 7));
    }
}

#[test]
fn immediate_preallocation_is_there_on_return_and_the_rest_in_time() {
    let (file, other) = append_file();
    file.preallocate(4 * MAX_EXPECTED_WINDOW_BYTES, FIRST_WINDOW_BYTES);
    let windows = |file: &AppendFile| {
        let windows = file.windows.lock();
        (windows.current.as_ref().map(Window::end), !windows.pending.is_empty())
    };
    assert_eq!(
        (windows(&file), other.metadata().unwrap().len()),
        ((Some(FIRST_WINDOW_BYTES), false), FIRST_WINDOW_BYTES)
    );
    for at in (0..UNMAPPED_BYTES).step_by(1024) {
        file.write_at(at, &[7; 1024], Purpose::Log).unwrap();
    }
    assert_eq!(
        windows(&file),
        (Some(FIRST_WINDOW_BYTES), false),
        "a small file gets no further window"
    );
    file.write_at(UNMAPPED_BYTES, b"more", Purpose::Log).unwrap();
    if let Some(next) = file.windows.lock().pending.back() {
        next.wait_until_ready();
    }
    assert_eq!(other.metadata().unwrap().len(), FIRST_WINDOW_BYTES + MAX_EXPECTED_WINDOW_BYTES);
    for at in 0..10 {
        file.write_at(UNMAPPED_BYTES + 4 + at, b"+", Purpose::Log).unwrap();
    }
    let ends: Vec<u64> = file.windows.lock().pending.iter().map(|next| next.end()).collect();
    assert_eq!(
        ends,
        [
            FIRST_WINDOW_BYTES + MAX_EXPECTED_WINDOW_BYTES,
            FIRST_WINDOW_BYTES + 2 * MAX_EXPECTED_WINDOW_BYTES
        ]
    );
    drop(file);
    assert_eq!(other.metadata().unwrap().len(), UNMAPPED_BYTES + 14);
}

#[test]
fn unused_preallocation_is_released() {
    let (file, other) = append_file();
    file.preallocate(MAX_WINDOW_BYTES, 0);
    drop(file);
    assert_eq!(other.metadata().unwrap().len(), 0);
    // An announcement is ignored if the file has bytes already, or is small.
    let (file, _) = append_file();
    file.preallocate(UNMAPPED_BYTES, 0);
    file.write_at(0, b"a", Purpose::Log).unwrap();
    file.preallocate(MAX_WINDOW_BYTES, 0);
    assert!(file.windows.lock().pending.is_empty() && !file.windows.lock().has_preallocation);
}

#[test]
fn preallocated_space_is_reserved_and_released_on_trim() {
    let (file, other) = append_file();
    let space = || other.metadata().unwrap().blocks() * 512;
    let expected = 16 * MAX_EXPECTED_WINDOW_BYTES;
    let is_plentiful = free_space(&other) / MIN_FREE_FILES >= expected + EXCESS_BYTES;
    if !is_plentiful || file.inner.reserve(1).is_err() || space() == 0 {
        eprintln!("not checked: {} has no space to reserve", std::env::temp_dir().display());
        return;
    }
    file.preallocate(expected, 0);
    if let Some(next) = file.windows.lock().pending.back() {
        next.wait_until_ready();
    }
    assert!(space() >= expected, "{} of {expected}", space());
    let ready = other.metadata().unwrap().len();
    assert!(ready <= MAX_EXPECTED_WINDOW_BYTES, "only windows lengthen a file: {ready}");
    file.write_at(0, &[7; 1000], Purpose::Log).unwrap();
    file.trim_preallocation().unwrap();
    assert_eq!(other.metadata().unwrap().len(), 1000);
    assert!(space() <= 64 << 10, "{} for 1000 bytes", space());
}

#[test]
fn small_file_uses_no_window() {
    let (file, other) = append_file();
    file.write_at(0, &[7; UNMAPPED_BYTES as usize], Purpose::Log).unwrap();
    assert!(file.windows.lock().pending.is_empty());
    assert_eq!(other.metadata().unwrap().len(), UNMAPPED_BYTES);
}
