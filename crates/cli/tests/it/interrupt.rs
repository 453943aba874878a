//! An interrupted command cleans up, and reports what it has done.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};

fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_siltstone"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn siltstone(arguments: &[&str]) -> Output {
    start(arguments).wait_with_output().unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn wait_for(what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < Duration::from_secs(60), "timed out");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn interrupt(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Asserts the status and returns standard error; standard input may still be open.
fn wait_for_end(mut child: Child, status: i32) -> String {
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(status), "{error}");
    error
}

#[test]
fn interrupted_bench_removes_its_store() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().display().to_string();
        let child = start(&["bench", "--workload", "fillrandom", "--keys", "100M", "--dir", &dir]);
        let has_files = || match &names(scratch.path())[..] {
            [store] => !names(&scratch.path().join(store)).is_empty(),
            _ => false,
        };
        wait_for(has_files);
        std::thread::sleep(Duration::from_millis(300));
        interrupt(&child, signal);
        let error = wait_for_end(child, status);
        assert!(error.contains("interrupted; removed") && error.contains(&dir), "{error}");
        assert_eq!(names(scratch.path()), [""; 0]);
    }
}

#[test]
fn interrupted_import_keeps_its_rows_and_reports_them() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store").display().to_string();
    let mut child = start(&["import", &dir, "-"]);
    let mut input = child.stdin.take().unwrap();
    // The last line is incomplete, so it is not imported.
    input.write_all(b"a\t1\nb\t2\nc\t3").unwrap();
    wait_for(|| Path::new(&dir).join("CATALOG").exists());
    wait_for(|| ioctl_fionread(&input).unwrap() == 0);
    // It has read the lines, and now imports them.
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child, Signal::INT);
    let error = wait_for_end(child, 130);
    drop(input);
    assert!(error.contains("interrupted: 2 rows are imported; the same import again"), "{error}");
    assert_eq!(siltstone(&["scan", &dir]).stdout, b"a\t1\nb\t2\n");
}

#[test]
fn interrupted_export_leaves_no_partial_file() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let rows: String = (0..300_000).map(|i| format!("row:{i}\t{}\n", "v".repeat(100))).collect();
    std::fs::write(path("rows.tsv"), rows).unwrap();
    assert!(siltstone(&["import", &path("store"), &path("rows.tsv")]).status.success());
    let before = names(scratch.path()).len();
    let child = start(&["export", &path("store"), &path("out.jsonl")]);
    // The temporary file comes first.
    wait_for(|| names(scratch.path()).len() > before);
    assert!(!Path::new(&path("out.jsonl")).exists());
    std::thread::sleep(Duration::from_millis(20));
    interrupt(&child, Signal::INT);
    assert!(wait_for_end(child, 130).contains("interrupted"));
    assert_eq!(names(scratch.path()).len(), before, "{:?}", names(scratch.path()));
    // The next export finds nothing in its way.
    assert!(siltstone(&["export", &path("store"), &path("out.jsonl")]).status.success());
    let text = std::fs::read_to_string(path("out.jsonl")).unwrap();
    assert_eq!(text.lines().count(), 300_000);
}

#[test]
fn checkpoint_after_a_killed_one_succeeds() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let mut rows = String::new();
    (0..20_000).for_each(|i| rows.push_str(&format!("key-{i}\tvalue-{i}\n")));
    std::fs::write(path("rows.tsv"), rows).unwrap();
    assert!(siltstone(&["import", &path("store"), &path("rows.tsv")]).status.success());
    let partial = scratch.path().join("copy.partial");
    // A checkpoint of a small store takes milliseconds: some of them end before the signal arrives.
    let was_killed = (0..200).any(|_| {
        let child = start(&["checkpoint", &path("store"), &path("copy")]);
        wait_for(|| partial.exists() || scratch.path().join("copy").exists());
        interrupt(&child, Signal::KILL);
        let _ = child.wait_with_output().unwrap();
        let _ = std::fs::remove_dir_all(path("copy"));
        partial.exists()
    });
    assert!(was_killed, "every checkpoint ended before it was killed");
    let output = siltstone(&["checkpoint", &path("store"), &path("copy")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!partial.exists());
    assert!(siltstone(&["verify", &path("copy")]).status.success());
}
