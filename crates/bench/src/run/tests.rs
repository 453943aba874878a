//! Tests of the runner: operations of the workloads, and their measurement.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::engines::Storage;
use crate::generate::ValueSize;

fn target(options: &[(&str, &str)]) -> Target {
    Target {
        engine: "lsm".to_owned(),
        options: options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        storage: Storage::Ram,
        keep: false,
        background_threads: 1,
    }
}

fn settings(keys: u64) -> Settings {
    Settings { keys, value: ValueSize::Fixed(84), ..Settings::default() }
}

fn run(names: &str, settings: &Settings, options: &[(&str, &str)]) -> Report {
    let workloads = Workload::list(names, &Choices::default()).unwrap();
    bench(&target(options), &workloads, settings, &mut |_| ()).unwrap()
}

#[test]
fn every_workload_counts_its_operations() {
    let names = crate::workload::NAMES;
    let settings = Settings { ops: Some(500), reads: Some(400), threads: 2, ..settings(1000) };
    for name in names {
        let report = run(name, &settings, &[]);
        let workload = Workload::named(name, &Choices::default()).unwrap();
        let ops = if workload.only_reads() { 400 } else { 500 };
        assert_eq!((report.total.ops, report.total.workload.as_str()), (ops, *name));
        assert_eq!(report.phases.len(), if workload.start == Start::AsIs { 1 } else { 2 });
        let done: f64 = {
            let timeline = report.phases.last().unwrap().timeline.as_ref().unwrap();
            assert_eq!(timeline.slice_seconds, 0.1);
            timeline.ops_per_second.iter().sum()
        };
        assert!(done > 0.0, "{name}");
        assert!(report.total.seconds > 0.0 && report.total.ops_per_second > 0.0, "{name}");
    }
}

#[test]
fn user_and_storage_bytes_are_reported() {
    let report = run("fillseq", &settings(10_000), &[("memtable", "64KiB")]);
    assert_eq!(report.total.user_bytes_written, 10_000 * 100);
    let written = &report.total.by_purpose;
    assert!(written["log"] >= 1_000_000 && written["flush"] > 800_000, "{written:?}");
    assert_eq!(written.values().sum::<u64>(), report.total.media_bytes_written);
    let amplification = report.total.write_amplification.unwrap();
    assert_eq!(amplification, report.total.media_bytes_written as f64 / 1e6);
    // Values are stored completely; of sequential keys little more than the last digits.
    assert!(report.total.space_bytes > 10_000 * 84);
    assert_eq!(report.total.latency_us.get, None);
    assert!(report.total.latency_us.put.unwrap().p50 > 0.0);
}

#[test]
fn load_is_a_separate_phase_outside_the_total() {
    let report = run("ycsb-c,ycsb-f", &settings(2000), &[]);
    let names: Vec<_> = report.phases.iter().map(|phase| phase.workload.as_str()).collect();
    assert_eq!(names, ["load", "ycsb-c", "ycsb-f"]);
    assert_eq!(report.total.ops, 4000);
    assert_eq!(report.phases[0].user_bytes_written, 2000 * 100);
    assert_eq!(report.phases[1].write_amplification, None);
    // Half of the operations of f write, give or take five standard deviations.
    let written = report.phases[2].user_bytes_written / 100;
    assert!((900..1100).contains(&written), "{written}");
    assert_eq!(report.total.user_bytes_written, report.phases[2].user_bytes_written);
}

#[test]
fn reads_find_exactly_the_loaded_keys() {
    for (name, found) in [("readrandom", 3000), ("readmissing", 0)] {
        let mut session = Session::new(target(&[]).open(1).unwrap(), settings(3000)).unwrap();
        let workload = Workload::named(name, &Choices::default()).unwrap();
        session.run(&workload, &mut |_| ()).unwrap();
        let stats = session.engine().stats();
        assert_eq!((stats.gets, stats.gets_found), (3000, found), "{name}");
    }
    // TRIAD's workloads start with half of the keys.
    let half = Settings { ops: Some(1), ..settings(3000) };
    let mut session = Session::new(target(&[]).open(1).unwrap(), half).unwrap();
    session.run(&Workload::named("ws3", &Choices::default()).unwrap(), &mut |_| ()).unwrap();
    assert_eq!(session.phases()[0].counts.user_bytes, 1500 * 100);
}

#[test]
fn fillrandom_draws_with_replacement() {
    let mut session = Session::new(target(&[]).open(1).unwrap(), settings(10_000)).unwrap();
    session.run(&Workload::named("fillrandom", &Choices::default()).unwrap(), &mut |_| ()).unwrap();
    session.engine().flush().unwrap();
    let mut cursor = session.engine().iter().unwrap();
    let mut keys = 0;
    let mut valid = cursor.first().unwrap();
    while valid {
        keys += 1;
        valid = cursor.next().unwrap();
    }
    // 1 - 1/e of all keys.
    assert!((6200..6450).contains(&keys), "{keys}");
}

#[test]
fn additional_writer_is_not_counted() {
    let settings = Settings { threads: 2, reads: Some(20_000), ..settings(1000) };
    let report = run("readwhilewriting", &settings, &[]);
    assert_eq!(report.total.ops, 20_000);
    assert!(report.total.user_bytes_written > 0);
    assert!(report.total.latency_us.put.is_some() && report.total.latency_us.get.is_some());
}

#[test]
fn inserts_grow_the_key_space() {
    let settings = Settings { ops: Some(4000), ..settings(1000) };
    let mut session = Session::new(target(&[]).open(1).unwrap(), settings).unwrap();
    session.run(&Workload::named("ycsb-d", &Choices::default()).unwrap(), &mut |_| ()).unwrap();
    let stats = session.engine().stats();
    assert_eq!(stats.gets, stats.gets_found);
    let inserted = session.population.load(Relaxed) - 1000;
    assert!((130..270).contains(&inserted), "{inserted}");
    assert_eq!(stats.writes, 1000 + inserted);
}

#[test]
fn warmup_is_not_measured() {
    let settings = Settings { warmup: 700, ops: Some(300), ..settings(1000) };
    let report = run("fillrandom", &settings, &[]);
    assert_eq!(report.total.ops, 300);
    assert_eq!(report.total.user_bytes_written, 300 * 100);
}

#[test]
fn open_loop_keeps_its_rate() {
    let settings = Settings { rate: Some(2000.0), ops: Some(600), threads: 2, ..settings(1000) };
    let report = run("fillrandom", &settings, &[]);
    // Never faster than the schedule; slower only on a busy machine.
    assert!((0.299..1.5).contains(&report.total.seconds), "{}", report.total.seconds);
}

#[test]
fn open_loop_latency_counts_from_the_scheduled_time() {
    // With a rate above any engine's, the last operation has waited for the whole run.
    let settings = Settings { rate: Some(1e9), ops: Some(20_000), ..settings(1000) };
    let report = run("fillrandom", &settings, &[]);
    let put = report.total.latency_us.put.unwrap();
    assert!(put.max > 0.95 * report.total.seconds * 1e6, "{put:?} in {} s", report.total.seconds);
}

#[test]
fn progress_reaches_its_end() {
    let workloads = Workload::list("fillrandom", &Choices::default()).unwrap();
    let settings = Settings { warmup: 100, ..settings(1000) };
    let mut last = (0, 0);
    bench(&target(&[]), &workloads, &settings, &mut |p| last = (p.done, p.total)).unwrap();
    assert_eq!(last, (1100, 1100));
}

#[test]
fn invalid_settings_are_refused_before_the_run() {
    let workloads = Workload::list("fillrandom", &Choices::default()).unwrap();
    let refused = |settings: Settings| {
        let result = bench(&target(&[]), &workloads, &settings, &mut |_| panic!("ran"));
        assert!(matches!(result, Err(Error::InvalidOptions(_))));
    };
    refused(Settings { threads: 0, ..settings(10) });
    refused(Settings { value: ValueSize::Fixed(usize::MAX), ..settings(10) });
    let inserts = Workload::list("ycsb-d", &Choices::default()).unwrap();
    let narrow = Settings { keys: 1 << 32, key_bytes: 4, ..settings(10) };
    assert!(bench(&target(&[]), &inserts, &narrow, &mut |_| panic!("ran")).is_err());
}

#[test]
fn replayable_environment_repeats_every_byte() {
    let counts = || {
        let env = siltstone_runtime::Env::replayable(
            std::sync::Arc::new(siltstone_engine::ManualClock::at(0)),
            7,
        );
        let opened = target(&[("memtable", "64KiB")]).open_in(env).unwrap();
        let mut session = Session::new(opened, settings(5000)).unwrap();
        for workload in Workload::list("fillrandom,overwrite", &Choices::default()).unwrap() {
            session.run(&workload, &mut |_| ()).unwrap();
        }
        let written = |phase: &Phase| phase.counts.written.clone();
        session.phases().iter().map(written).collect::<Vec<BTreeMap<_, _>>>()
    };
    assert_eq!(counts(), counts());
}

#[test]
fn phase_lasts_as_long_as_its_slowest_thread() {
    let settings = Settings { rate: Some(100.0), ops: Some(10), threads: 1, ..settings(100) };
    let report = run("fillrandom", &settings, &[]);
    assert!(report.total.seconds >= Duration::from_millis(90).as_secs_f64());
}

#[test]
fn replay_loads_the_prelude_and_sends_every_request() {
    let text = "get a\nput b 84\nget b\nscan a 2\ndel b\nget c\n@ 0.05\nput a 10\n";
    let trace = Arc::new(crate::trace::replay::tests::trace(text).unwrap());
    for (threads, paced) in [(1, false), (1, true), (3, false)] {
        let workload = Workload::replay(trace.clone(), paced);
        assert!(workload.needs_order() && !workload.only_reads());
        let settings = Settings { threads, keys: trace.distinct_keys(), ..settings(1) };
        let mut session = Session::new(target(&[]).open(1).unwrap(), settings).unwrap();
        session.run(&workload, &mut |_| ()).unwrap();
        let phases = session.phases();
        assert_eq!((phases[0].is_load, phases[0].counts.ops), (true, 2), "a and c are loaded");
        let latencies = &phases[1].latencies;
        let counts = [Kind::Put, Kind::Get, Kind::Scan].map(|kind| latencies.count(kind));
        assert_eq!((phases[1].counts.ops, counts), (7, [3, 3, 1]));
        assert_eq!(phases[1].counts.seconds >= 0.05, paced);
        // Two values of 84 and 10 bytes, and a removal.
        assert_eq!(phases[1].counts.user_bytes, 1 + 84 + 1 + 10 + 1);
        let value = session.engine().get(b"a").unwrap().unwrap().value;
        assert_eq!((value.len(), session.engine().get(b"b").unwrap()), (10, None));
    }
}

#[test]
fn recorded_workload_replays_identically() {
    use crate::trace::{Recorder, RecordingEngine, Trace};
    let directory = tempfile::tempdir().unwrap();
    let record = |name: &str, workload: &Workload, settings: &Settings| {
        let path = directory.path().join(name);
        let recorder = Recorder::create(&path).unwrap();
        recorder.start();
        let mut opened = target(&[]).open(1).unwrap();
        opened.engine = Arc::new(RecordingEngine::new(opened.engine.clone(), recorder.clone()));
        let mut session = Session::new(opened, settings.clone()).unwrap();
        session.run(workload, &mut |_| ()).unwrap();
        recorder.finish().unwrap();
        Trace::read(&path).unwrap()
    };
    let settings = Settings { ops: Some(300), ..settings(100) };
    let workload = Workload::named("ycsb-a", &Choices::default()).unwrap();
    let first = record("first", &workload, &settings);
    assert_eq!(first.len(), 100 + 300, "the load and the workload");
    let again = record(
        "again",
        &Workload::replay(Arc::new(first.clone()), false),
        &Settings { ops: None, ..settings },
    );
    let requests = |trace: &Trace| {
        let request = |i| (trace.get(i).verb, trace.get(i).key.to_vec());
        (0..trace.len()).map(request).collect::<Vec<_>>()
    };
    assert_eq!(requests(&first), requests(&again));
}
