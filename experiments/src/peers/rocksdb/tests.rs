//! Tests of the command line of db_bench, and of refused tasks.

use siltstone_bench::engines::Target;
use siltstone_bench::run::Settings;

use super::*;

fn target(base: &Path) -> Target {
    Target {
        engine: "lsm".to_owned(),
        options: [("memtable", "1MiB"), ("cache", "2MiB")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        storage: Storage::Disk(base.to_owned()),
        keep: false,
        background_threads: 2,
    }
}

fn with_task<T>(names: &str, settings: &Settings, check: impl FnOnce(&Task<'_>) -> T) -> T {
    let base = tempfile::tempdir().unwrap();
    let target = target(base.path());
    let workloads = Workload::list(names, &Choices::default()).unwrap();
    check(&Task { target: &target, settings, workloads: &workloads, seek_nexts: 3 })
}

fn benchmarks(names: &str) -> Result<Vec<&'static str>> {
    let runs = with_task(names, &Settings::default(), runs)?;
    Ok(runs.iter().map(|run| run.benchmark).collect())
}

#[test]
fn workloads_map_to_benchmarks() {
    let fill = benchmarks("fillrandom,overwrite,readrandom,seekrandom").unwrap();
    assert_eq!(fill, ["fillrandom", "overwrite", "readrandom", "seekrandom"]);
    assert_eq!(benchmarks("readrandom").unwrap(), ["filluniquerandom", "readrandom"]);
    assert_eq!(benchmarks("fillseq,fillrandom").unwrap(), ["fillseq", "overwrite"]);
    for unable in ["ycsb-a", "ws1", "readrandom,fillseq"] {
        assert!(matches!(benchmarks(unable), Err(Error::InvalidOptions(_))), "{unable}");
    }
}

#[test]
fn skew_is_refused() {
    let choices = Choices { skew: Some(0.99), seek_nexts: 0 };
    let workload = Workload::named("overwrite", &choices).unwrap();
    assert!(matches!(benchmark(&workload, false), Err(Error::InvalidOptions(_))));
}

#[test]
fn arguments_equal_our_settings() {
    let settings =
        Settings { keys: 1000, ops: Some(500), threads: 2, seed: 9, ..Settings::default() };
    with_task("fillrandom,readrandom", &settings, |task| {
        let all = runs(task).unwrap();
        let line = arguments(task, &all[0], Path::new("/x")).unwrap();
        for expected in [
            "--num=1000",
            "--writes=250",
            "--threads=2",
            "--write_buffer_size=1048576",
            "--cache_size=2097152",
            "--bloom_bits=10",
            "--max_background_jobs=2",
            "--compression_type=none",
            "--use_existing_db=0",
            "--seed=9",
        ] {
            assert!(line.contains(&expected.to_owned()), "{expected} in {line:?}");
        }
        let line = arguments(task, &all[1], Path::new("/x")).unwrap();
        assert!(line.contains(&"--use_existing_db=1".to_owned()));
        assert!(line.contains(&"--use_direct_reads=0".to_owned()));
        let storage = Storage::Direct(PathBuf::from("/x"));
        let target = Target { storage, ..task.target.clone() };
        let line = arguments(&Task { target: &target, ..*task }, &all[1], Path::new("/x")).unwrap();
        assert!(line.contains(&"--use_direct_reads=1".to_owned()));
    });
}

#[test]
fn incomparable_settings_are_refused_by_option() {
    let refused = |settings: Settings| match with_task("fillrandom", &settings, check) {
        Err(Error::InvalidOptions(mistakes)) => mistakes[0].option.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Settings { rate: Some(5.0), ..Settings::default() }), "rate");
    assert_eq!(refused(Settings { warmup: 5, ..Settings::default() }), "warmup");
    let value = ValueSize::Uniform(1, 2);
    assert_eq!(refused(Settings { value, ..Settings::default() }), "value-size");
}

#[test]
fn missing_program_is_not_found() {
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(find_in(std::iter::once(empty.path().to_owned())), None);
    std::fs::write(empty.path().join(PROGRAM), "").unwrap();
    assert!(find_in(std::iter::once(empty.path().to_owned())).is_some());
}

/// Runs the program, if it is installed.
#[test]
fn small_run_fills_the_report() {
    if program().is_err() {
        return;
    }
    let settings = Settings { keys: 20_000, ops: Some(10_000), threads: 2, ..Settings::default() };
    with_task("fillrandom", &settings, |task| {
        let mut started = Vec::new();
        let report = run(task, &mut |name| started.push(name.to_owned())).unwrap();
        assert_eq!(started, ["fillrandom"]);
        assert_eq!(report.phases[0].ops, 10_000);
        assert_eq!(report.total.user_bytes_written, 10_000 * 116);
        assert!(report.total.write_amplification.unwrap() > 1.0);
        assert!(report.total.latency_us.put.unwrap().p50 > 0.0);
        assert!(report.total.space_bytes > 500_000);
        assert!(report.peak_rss_bytes.is_none_or(|bytes| bytes > 1 << 20));
        assert!(report.settings["command.fillrandom"].contains("--threads=2"));
    });
}
