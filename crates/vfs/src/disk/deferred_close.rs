//! Closes removed files on a background thread.
//!
//! A removed file is freed with its last handle, and the thread that closes it waits until the file
//! system has freed its space. That takes longest if the space is discarded on the device at once
//! (mount option `discard`). A compaction removes as many files as it writes. So a removal keeps a
//! handle open, and this thread closes it after the other handles are closed. Where the budget of
//! open files leaves no room for that, the removal closes the file itself.
//!
//! Invariant: the name is gone when the removal returns. Its space may be freed a moment later.

use std::fs::File;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use siltstone_runtime::thread_priority;

use super::open_files::{HeldDescriptor, OpenFiles};

/// The other handles of a removed file are usually closed within this time.
const CLOSE_DELAY: Duration = Duration::from_millis(5);

/// A removed file that is still open.
pub(super) struct RemovedFile {
    // Closed before the count is lowered: the order of the fields.
    _file: Arc<File>,
    _count: HeldDescriptor,
}

impl RemovedFile {
    pub(super) fn new(files: &Arc<OpenFiles>, file: Arc<File>) -> Self {
        RemovedFile { _file: file, _count: HeldDescriptor::new(files) }
    }
}

/// Closes a removed file on the background thread.
pub(super) fn close_later(file: RemovedFile) {
    static THREAD: OnceLock<Option<Sender<RemovedFile>>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (sender, files) = channel::<RemovedFile>();
        let work = move || {
            thread_priority::lower_priority();
            thread_priority::set_batch_policy();
            while let Ok(first) = files.recv() {
                std::thread::sleep(CLOSE_DELAY);
                drop(first);
                files.try_iter().for_each(drop);
            }
        };
        std::thread::Builder::new().name("siltstone-removed".to_owned()).spawn(work).ok()?;
        Some(sender)
    });
    // Without the thread it is closed on return.
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
    fn removed_file_is_closed_soon() {
        let file = tempfile::tempfile().unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let target = std::fs::read_link(&path).unwrap();
        let files = Arc::new(OpenFiles::new(1));
        close_later(RemovedFile::new(&files, Arc::new(file)));
        let began = Instant::now();
        while std::fs::read_link(&path).is_ok_and(|now| now == target) {
            assert!(began.elapsed() < Duration::from_secs(60), "{} stays open", target.display());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
