//! What a node has of its machine besides the network: a small file system, which can be filled,
//! and a clock, which can be set.
//!
//! The file system is an image, mounted from a loop device, so that a sync costs what it does on
//! the disk below. The clock is that of [`SHIM`], a library that is loaded before the program: it
//! adds the seconds in a shared file to the time of day. The monotonic clock stays as it is.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};

const DISK_BYTES: u64 = 512 << 20;

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *seconds;

__attribute__((constructor)) static void map_seconds(void) {
    const char *path = getenv("CLOCK_OFFSET_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(0, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) seconds = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME && seconds) now->tv_sec += *seconds;
    return result;
}
"#;

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

/// Compiles the library of clocks.
pub fn compile_shim(dir: &Path) -> PathBuf {
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    std::fs::write(&source, SHIM).unwrap();
    let [shown_source, shown_library] = [&source, &library].map(|path| path.display().to_string());
    run("cc", &["-shared", "-fPIC", "-O1", "-o", &shown_library, &shown_source]);
    library
}

/// A machine; dropping it unmounts its file system.
pub struct Machine {
    mount: PathBuf,
    clock: PathBuf,
    shim: PathBuf,
}

impl Machine {
    pub fn create(dir: &Path, shim: &Path) -> Self {
        std::fs::create_dir(dir).unwrap();
        let (image, mount, clock) = (dir.join("image"), dir.join("disk"), dir.join("clock"));
        File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
        std::fs::create_dir(&mount).unwrap();
        let [image, mounted] = [&image, &mount].map(|path| path.display().to_string());
        run("mkfs.ext4", &["-q", "-m", "0", &image]);
        run("mount", &["-o", "loop", &image, &mounted]);
        std::fs::write(&clock, [0; 8]).unwrap();
        let machine = Machine { mount, clock, shim: shim.to_owned() };
        std::fs::write(machine.synced(), "x").unwrap();
        machine
    }

    /// Where the node's directory is.
    pub fn dir(&self) -> PathBuf {
        self.mount.join("node")
    }

    /// A file that no node uses.
    pub fn synced(&self) -> PathBuf {
        self.mount.join("synced")
    }

    pub fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        vec![("LD_PRELOAD", self.shim.clone()), ("CLOCK_OFFSET_FILE", self.clock.clone())]
    }

    fn filler(&self) -> PathBuf {
        self.mount.join("filler")
    }

    /// Takes all free space.
    pub fn fill(&self) {
        let file = File::create(self.filler()).unwrap();
        let (mut bytes, mut piece) = (0, 64 << 20);
        while piece >= 4096 {
            match fallocate(&file, FallocateFlags::empty(), bytes, piece) {
                Ok(()) => bytes += piece,
                Err(_) => piece /= 2,
            }
        }
    }

    /// Gives the space back.
    pub fn free(&self) {
        if self.filler().exists() {
            std::fs::remove_file(self.filler()).unwrap();
        }
    }

    /// Sets the clock, relative to the right time.
    pub fn set_clock(&self, seconds: i64) {
        let file = OpenOptions::new().write(true).open(&self.clock).unwrap();
        file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }
}

/// Syncs a file on each of some disks until the end. Returns the longest time that it took: what
/// the machine itself has held up, whatever the nodes do.
pub fn longest_sync(files: &[PathBuf], ends: &AtomicBool) -> Duration {
    let open = |path: &PathBuf| OpenOptions::new().write(true).open(path).unwrap();
    let files: Vec<_> = files.iter().map(open).collect();
    let mut longest = Duration::ZERO;
    while !ends.load(SeqCst) {
        for file in &files {
            let begin = Instant::now();
            file.write_all_at(b"x", 0).unwrap();
            file.sync_data().unwrap();
            longest = longest.max(begin.elapsed());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    longest
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mount).output();
    }
}
