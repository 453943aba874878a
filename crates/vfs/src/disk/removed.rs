//! Removed files are let go of on a thread of their own.
//!
//! A file goes with its last handle, and whoever closes that waits until the file system has freed its space:
//! longest where that is told to the device at once (mount option `discard`). A compaction removes as many tables as it
//! writes. So a removal keeps a handle, and this thread closes it when the others are closed.
//!
//! Invariant: the name is gone when the removal returns. That the space comes back a moment later is what any
//! open handle does.
//!
//! Source: ours.

use std::fs::File;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use siltstone_runtime::thread_priority;

/// Who removes a file closes it within this time, as a rule.
const OTHERS_CLOSE: Duration = Duration::from_millis(5);

/// Closes a removed file elsewhere.
pub(super) fn let_go(file: File) {
    static THREAD: OnceLock<Option<Sender<File>>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (give, files) = channel::<File>();
        let work = move || {
            thread_priority::lower_priority();
            thread_priority::set_batch_policy();
            while let Ok(first) = files.recv() {
                std::thread::sleep(OTHERS_CLOSE);
                drop(first);
                files.try_iter().for_each(drop);
            }
        };
        std::thread::Builder::new().name("siltstone-removed".to_owned()).spawn(work).ok()?;
        Some(give)
    });
    // Without the thread it is closed here.
    if let Some(thread) = thread {
        let _ = thread.send(file);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::fd::AsRawFd;
    use std::time::Instant;

    use super::*;

    #[test]
    fn is_a_removed_file_closed_soon() {
        let file = tempfile::tempfile().unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let target = std::fs::read_link(&path).unwrap();
        let_go(file);
        let began = Instant::now();
        while std::fs::read_link(&path).is_ok_and(|now| now == target) {
            assert!(began.elapsed() < Duration::from_secs(10), "{} stays open", target.display());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
