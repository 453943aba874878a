//! Invalid input is refused with a clear error and a non-zero status, and changes nothing.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::contents;

fn siltstone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap()
}

fn with_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_siltstone"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses early closes its end of the pipe.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Asserts the status and that the error has these words.
fn refused(output: &Output, status: i32, words: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{error}");
    for word in words {
        assert!(error.contains(word), "'{word}' is not in: {error}");
    }
    assert!(!error.contains("panicked"), "{error}");
    assert!(output.stdout.is_empty());
}

struct Store {
    _scratch: tempfile::TempDir,
    dir: String,
}

fn store() -> Store {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store").display().to_string();
    assert!(siltstone(&["put", &dir, "k", "v"]).status.success());
    Store { _scratch: scratch, dir }
}

#[test]
fn keys_and_values_over_their_limits_are_refused() {
    let store = store();
    let before = contents(Path::new(&store.dir));
    let long = "k".repeat((64 << 10) + 1);
    refused(&siltstone(&["put", &store.dir, &long, "v"]), 2, &["key", "65537", "65536"]);
    let large = vec![b'v'; (512 << 20) + 1];
    let output = with_input(&["put", &store.dir, "k", "-"], &large);
    refused(&output, 2, &["value", "536870913", "536870912"]);
    assert!(contents(Path::new(&store.dir)) == before, "the store was changed");
    // No store is created for a refused write.
    let none = format!("{}-none", store.dir);
    refused(&siltstone(&["put", &none, &long, "v"]), 2, &["key", "65537", "65536"]);
    assert!(!Path::new(&none).exists());
}

#[test]
fn directories_that_are_no_stores_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().display().to_string();
    std::fs::write(scratch.path().join("letter.txt"), "dear").unwrap();
    for command in ["get", "put"] {
        let mut arguments = vec![command, &dir, "k"];
        arguments.extend((command == "put").then_some("v"));
        refused(&siltstone(&arguments), 3, &[&dir, "not a siltstone store"]);
    }
    refused(&siltstone(&["serve", &dir]), 3, &["not a siltstone store"]);
    assert_eq!(contents(scratch.path()).len(), 1);
    refused(&siltstone(&["scan", &format!("{dir}/none")]), 3, &["no such directory"]);
}

#[test]
fn store_of_a_newer_format_is_refused() {
    let store = store();
    let catalogue = format!("{}/CATALOG", store.dir);
    let newer = std::fs::read_to_string(&catalogue).unwrap().replace("catalogue 1", "catalogue 7");
    std::fs::write(&catalogue, newer).unwrap();
    let before = contents(Path::new(&store.dir));
    refused(&siltstone(&["get", &store.dir, "k"]), 3, &["format 7", "use a newer siltstone"]);
    assert!(contents(Path::new(&store.dir)) == before);
}

#[test]
fn second_process_on_a_store_is_refused() {
    let store = store();
    let mut server = Command::new(env!("CARGO_BIN_EXE_siltstone"))
        .args(["serve", &store.dir, "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stderr = server.stderr.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stderr), &mut line).unwrap();
    assert!(line.starts_with("serving"), "{line}");
    let attempt = siltstone(&["put", &store.dir, "k", "w"]);
    // Before the assertions, which would leave the server running.
    server.kill().unwrap();
    server.wait().unwrap();
    let process = format!("process {}", server.id());
    refused(&attempt, 3, &[&store.dir, &process, "redis-cli"]);
    let output = siltstone(&["get", &store.dir, "k"]);
    assert_eq!(output.stdout, b"v\n");
}

#[test]
fn unknown_options_and_tables_are_refused() {
    let store = store();
    refused(&siltstone(&["get", &store.dir, "k", "--table", "nope"]), 2, &["nope", "default"]);
    let table = "t=lsm,memtable=1,colour=red";
    let output = siltstone(&["serve", &store.dir, "--listen", "127.0.0.1:0", "--table", table]);
    refused(&output, 2, &["memtable", "colour"]);
    let output = siltstone(&["serve", &store.dir, "--listen", "0.0.0.0:0"]);
    assert_ne!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("password"));
    assert_eq!(siltstone(&["frobnicate"]).status.code(), Some(2));
}

#[test]
fn addresses_in_use_or_open_to_all_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store").display().to_string();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let serve = |more: &[&str]| siltstone(&[&["serve", &dir], more].concat());
    refused(&serve(&["--listen", &taken]), 3, &[&taken, "in use"]);
    refused(&serve(&["--listen", "127.0.0.1:0", "--metrics", &taken]), 3, &[&taken, "in use"]);
    refused(&serve(&["--listen", "0.0.0.0:0"]), 2, &["password"]);
    assert!(!Path::new(&dir).exists(), "a store was created that cannot be served");
}

#[test]
fn unservable_datagrams_and_tables_create_no_store() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store").display().to_string();
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let there = scratch.path().join("there").display().to_string();
    std::fs::write(&there, "mine").unwrap();
    let new = scratch.path().join("new").display().to_string();
    let cache = ["--table", "default", "--table", "cache=mica,mode=cache,memory=64MiB"];
    let serve = |more: &[&str]| {
        siltstone(&[&["serve", &dir, "--listen", "127.0.0.1:0"], &cache[..], more].concat())
    };
    refused(&serve(&["--udp", &taken]), 3, &[&taken, "in use"]);
    refused(&serve(&["--memcached-udp", &taken]), 3, &[&taken, "in use"]);
    refused(&serve(&["--udp", "127.0.0.1:0", "--udp-table", "default"]), 2, &["mica", "cache"]);
    refused(
        &serve(&["--memcached", "127.0.0.1:0", "--memcached-table", "x"]),
        2,
        &["'x'", "cache"],
    );
    refused(&serve(&["--trace-out", &there]), 3, &[&there, "exists already"]);
    // Under their old names.
    refused(&serve(&["--record", &new, "--record-table", "x"]), 2, &["'x'", "cache"]);
    let none_of_mica = ["serve", &dir, "--listen", "127.0.0.1:0", "--udp", "127.0.0.1:0"];
    refused(&siltstone(&none_of_mica), 2, &["mica", "cache=mica"]);
    assert!(!Path::new(&dir).exists(), "a store was created that cannot be served");
    assert!(!Path::new(&new).exists());
    // No table is created in an existing store either.
    assert!(siltstone(&["put", &dir, "k", "v"]).status.success());
    let before = contents(Path::new(&dir));
    refused(&serve(&["--udp", &taken]), 3, &[&taken, "in use"]);
    assert!(
        contents(Path::new(&dir))[&format!("{dir}/CATALOG")] == before[&format!("{dir}/CATALOG")]
    );
    assert!(!Path::new(&format!("{dir}/table-cache")).exists());
}

#[test]
fn missing_keys_to_remove_are_listed() {
    let store = store();
    let del = |keys: &[&str]| siltstone(&[&["del", &store.dir], keys].concat());
    refused(&del(&["none"]), 1, &["no such key: none"]);
    // The others are removed, and each counts once.
    refused(&del(&["none", "k", "k"]), 1, &["no such key: none"]);
    refused(&siltstone(&["get", &store.dir, "k"]), 1, &["no such key"]);
    assert!(siltstone(&["put", &store.dir, "k", "v"]).status.success());
    let output = del(&["k", "x\ty", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"{\"missing\":[{\"key\":\"x\\ty\"}],\"removed\":1}\n");
    assert!(siltstone(&["put", &store.dir, "k", "v"]).status.success());
    let output = del(&["k"]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
}

#[test]
fn existing_export_file_is_refused() {
    let store = store();
    let file = format!("{}.tsv", store.dir);
    std::fs::write(&file, "mine").unwrap();
    let words = [&file[..], "exists already", "choose another name"];
    refused(&siltstone(&["export", &store.dir, &file]), 3, &words);
    // Before the store is opened.
    refused(&siltstone(&["export", "/no/such/store", &file]), 3, &words);
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    let nowhere = format!("{}/none/out.tsv", store.dir);
    refused(&siltstone(&["export", &store.dir, &nowhere]), 3, &["cannot create", &nowhere]);
}

#[test]
fn import_file_with_a_bad_row_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store").display().to_string();
    for (name, rows, words) in [
        ("rows.tsv", "a\t1\nb\\q\t2\n", "line 2: unknown escape"),
        ("rows.tsv", "a\t1\nonlykey\n", "line 2: no tab between key and value"),
        ("rows.txt", "a b 3\n", "--format csv"),
        ("rows.jsonl", "{\"key\":\"a\",\"value\":\"1\"}\n{\"kee\":\"b\"}\n", "line 2"),
        (
            "rows.jsonl",
            "{\"key\":\"a\",\"value\":\"1\"}\n{1:2}\n",
            "line 2: key must be a string (column 2)",
        ),
        ("rows.csv", "a,1\nb,2,3\n", "line 2: 3 columns, but the first row has 2"),
        ("rows.csv", "a,1\nb,\"2\nc,3\n", "line 2: a quote opens here and is never closed"),
        ("rows.csv", "a;1\nb;2\n", "line 1: one column only"),
        ("rows.csv", "a;1\nb;2\n", "separated by ';'?"),
        ("rows.csv", "a\nb\n", "write 'key,'"),
    ] {
        let file = scratch.path().join(name);
        std::fs::write(&file, rows).unwrap();
        let file = file.display().to_string();
        let output = siltstone(&["import", &dir, &file]);
        refused(&output, 2, &[&file, words]);
        assert_eq!(String::from_utf8_lossy(&output.stderr).matches("line ").count(), 1, "{rows}");
        assert!(!Path::new(&dir).exists(), "a refused file created a store");
    }
    refused(&siltstone(&["import", &dir, "/no/such/file"]), 3, &["/no/such/file"]);
}

/// Engines have different value limits: a value over the table's limit is a bad row.
#[test]
fn import_file_with_a_value_over_the_tables_limit_is_refused() {
    let store = store();
    let file = format!("{}.tsv", store.dir);
    let rows: String = (0..100_000).map(|n| format!("{n:06}\t{n:0>60}\n")).collect();
    std::fs::write(&file, format!("{rows}large\t{}\n", "v".repeat((1 << 20) + 1))).unwrap();
    let before = contents(Path::new(&store.dir));
    for table in ["t=skimpy,capacity=64MiB", "t=mica,memory=64MiB"] {
        let output = siltstone(&["import", &store.dir, &file, "--table", table]);
        refused(&output, 2, &["line 100001", "1048577", "1048576"]);
        assert_eq!(contents(Path::new(&store.dir)), before, "{table}");
    }
    // Also for an existing table.
    assert!(
        siltstone(&["put", &store.dir, "k", "v", "--table", "t=skimpy,capacity=64MiB"])
            .status
            .success()
    );
    refused(&siltstone(&["import", &store.dir, &file, "--table", "t"]), 2, &["line 100001"]);
    let left = siltstone(&["get", &store.dir, "000001", "--table", "t"]);
    assert_eq!(left.status.code(), Some(1), "a row of a refused file was imported");
}

#[test]
fn import_of_a_directory_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store").display().to_string();
    let output = siltstone(&["import", &dir, &scratch.path().display().to_string()]);
    refused(&output, 3, &["cannot read", "is a directory"]);
    assert!(!Path::new(&dir).exists());
}

#[test]
fn invalid_tables_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store").display().to_string();
    let put = |table: &str| siltstone(&["put", &dir, "k", "v", "--table", table]);
    refused(&put("t=glass"), 2, &["glass", "lsm, trie"]);
    refused(&put("t=lsm,memtable=1,colour=red"), 2, &["memtable", "colour"]);
    refused(&put("t=lsm,memtable"), 2, &["key=value"]);
    refused(&put("a/b"), 2, &["a/b"]);
    assert!(!Path::new(&dir).exists(), "a store was created for an invalid table");
    let serve = ["serve", &dir, "--listen", "127.0.0.1:0", "--table", "t=glass"];
    refused(&siltstone(&serve), 2, &["glass"]);
    assert!(!Path::new(&dir).exists(), "a store was created for a table that cannot be served");
    assert!(put("t=silt").status.success());
    refused(&put("t=lsm"), 2, &["silt", "lsm"]);
    // A name alone stands for the existing table.
    assert!(put("t").status.success());
    refused(&siltstone(&["scan", &dir, "--table", "t"]), 2, &["silt", "export"]);
}

/// A store removes unknown files when it is opened, including copies and stores inside it.
#[test]
fn directories_inside_a_store_are_refused() {
    let store = store();
    let inside = ["copy", "table-copy", "table-default/copy", "new/deep", "table-x/../y"];
    let link = format!("{}-link", store.dir);
    std::os::unix::fs::symlink(&store.dir, &link).unwrap();
    // A store without a lock file counts, too.
    std::fs::remove_file(format!("{}/LOCK", store.dir)).unwrap();
    let before = contents(Path::new(&store.dir));
    for dir in inside
        .map(|name| format!("{}/{name}", store.dir))
        .into_iter()
        .chain([format!("{link}/copy")])
    {
        let output = siltstone(&["checkpoint", &store.dir, &dir]);
        refused(&output, 3, &[&dir, "is inside the store", &store.dir]);
        refused(&siltstone(&["put", &dir, "k", "v"]), 3, &[&dir, "is inside the store"]);
    }
    assert!(contents(Path::new(&store.dir)) == before, "the store was changed");
    // Allowed beside it, and in a directory with an unrelated file of that name.
    assert!(
        siltstone(&["checkpoint", &store.dir, &format!("{}-copy", store.dir)]).status.success()
    );
    let shelf = format!("{}-shelf", store.dir);
    std::fs::create_dir(&shelf).unwrap();
    std::fs::write(format!("{shelf}/CATALOG"), "of stones, in boxes").unwrap();
    assert!(siltstone(&["put", &format!("{shelf}/store"), "k", "v"]).status.success());
}

#[test]
fn zero_ttl_is_refused() {
    let store = store();
    for ttl in ["0s", "0ms", "1us"] {
        let output = siltstone(&["put", &store.dir, "k", "w", "--ttl", ttl]);
        assert_eq!(output.status.code(), Some(2), "{ttl}");
    }
    refused(
        &siltstone(&["put", &store.dir, "k", "w", "--ttl", "0s"]),
        2,
        &["1ms", "siltstone del"],
    );
    assert_eq!(siltstone(&["get", &store.dir, "k"]).stdout, b"v\n");
}

#[test]
fn duplicate_columns_are_refused() {
    let store = store();
    let arguments = ["import", &store.dir, "-", "--format", "csv", "--header"];
    let output = with_input(&arguments, b"key,size,size\nstone,1,2\n");
    refused(&output, 2, &["line 2", "two columns 'size'"]);
    assert_eq!(siltstone(&["get", &store.dir, "stone"]).status.code(), Some(1));
    // The name of the key column is not part of the value.
    assert!(with_input(&arguments, b"size,weight,size\nstone,1,2\n").status.success());
}

#[test]
fn table_named_twice_creates_no_store() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store").display().to_string();
    for second in ["a", "a=lsm", "a=mica"] {
        let tables = ["--table", "a=lsm", "--table", "b=lsm", "--table", second];
        let output =
            siltstone(&[&["serve", &dir, "--listen", "127.0.0.1:0"], &tables[..]].concat());
        refused(&output, 2, &["'a'", "named twice"]);
        assert!(!Path::new(&dir).exists(), "{second}");
    }
}

#[test]
fn checkpoint_over_an_existing_directory_is_refused() {
    let store = store();
    let before = contents(Path::new(&store.dir));
    refused(&siltstone(&["checkpoint", &store.dir, &store.dir]), 3, &[&store.dir]);
    let none = format!("{}-none", store.dir);
    refused(&siltstone(&["checkpoint", &none, &store.dir]), 3, &["no such directory"]);
    let catalogue = format!("{}/CATALOG", store.dir);
    assert_eq!(contents(Path::new(&store.dir))[&catalogue], before[&catalogue]);
}

#[test]
fn mistyped_names_get_a_suggestion() {
    refused(
        &siltstone(&["bnech"]),
        2,
        &["'bnech'", "'bench'", "The commands are serve, cluster, top"],
    );
    refused(&siltstone(&["bench", "--workload", "fillrandm"]), 2, &["did you mean fillrandom?"]);
    refused(&siltstone(&["bench", "--workload", "load", "--engine", "slit"]), 2, &["silt"]);
    let store = store();
    let table = siltstone(&["get", &store.dir, "k", "--table", "defualt"]);
    refused(&table, 2, &["no table 'defualt'", "did you mean default?"]);
    let option = ["put", &store.dir, "k", "v", "--table", "t=lsm,memtabel=4MiB"];
    refused(&siltstone(&option), 2, &["did you mean memtable?"]);
}

#[test]
fn invalid_counts_and_picture_formats_are_refused() {
    let bench = |more: &[&str]| siltstone(&[&["bench", "--workload", "load"], more].concat());
    refused(&bench(&["--keys", "1MiB"]), 2, &["'1MiB' is not a count", "20M"]);
    refused(&siltstone(&["scan", "none", "--limit", "x"]), 2, &["'x' is not a count"]);
    refused(&bench(&["--dir", "/no/such"]), 2, &["no directory /no/such", "make it"]);
    refused(&bench(&["--plot", "fill.png"]), 2, &["plots are SVG", "fill.svg"]);
}

/// In its own mount name space, if the system allows one, on a disk of two megabytes.
#[test]
fn full_disk_is_reported_and_loses_no_earlier_row() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = scratch.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let rows = scratch.path().join("rows.tsv");
    let lines: String =
        (0..60_000).map(|n| format!("key{n:07}\tthe value of {n}, and more of it\n")).collect();
    std::fs::write(&rows, lines).unwrap();
    let script = r#"
        mount -t tmpfs -o size=2m tmpfs "$2" || { echo no mount; exit 77; }
        "$1" import "$2/store" "$3"; echo "import $?"
        "$1" get "$2/store" key0000001; echo "get $?"
        "$1" verify "$2/store"; echo "verify $?"
    "#;
    let output = Command::new("unshare")
        .args([
            "--mount",
            "--map-root-user",
            "sh",
            "-c",
            script,
            "sh",
            env!("CARGO_BIN_EXE_siltstone"),
        ])
        .args([&disk, &rows])
        .output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        println!("skipped: no file system can be mounted here");
        return;
    };
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    for part in [
        "import 3",
        "rows are imported; the same import again completes them",
        "No space left",
        "the value of 1,",
        "get 0",
        "verify 0",
        "free some space",
    ] {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
}
