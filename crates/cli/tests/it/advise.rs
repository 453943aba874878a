//! `advise` recommends for any valid workload, gives reasons for excluded engines, and prints
//! options that the engines accept.

use std::process::{Command, Output};

use serde_json::Value;

fn siltstone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap()
}

fn advise(arguments: &[&str]) -> Value {
    let output = siltstone(&[&["advise", "--json"], arguments].concat());
    assert!(output.status.code().unwrap() < 2, "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn scans_need_ordered_keys_and_a_cache_needs_memory() {
    assert_eq!(advise(&["--keys", "1e6", "--scans", "0.1"])["recommended"], "lsm");
    assert_eq!(advise(&["--keys", "1e6", "--volatile"])["recommended"], "mica");
    let little = advise(&["--keys", "1e9", "--value-size", "40", "--memory", "600MiB"]);
    assert_eq!(little["recommended"], "silt", "{little}");
    let nothing = advise(&["--keys", "1e9", "--scans", "0.5", "--memory", "16MiB"]);
    assert_eq!(nothing["recommended"], Value::Null);
    assert!(
        nothing["ruled_out"].as_array().unwrap().iter().all(|out| out["reasons"][0].is_string())
    );
}

#[test]
fn lsm_can_serve_values_of_a_byte() {
    assert_eq!(advise(&["--keys", "1e6", "--value-size", "1", "--ordered"])["recommended"], "lsm");
}

#[test]
fn recommended_options_are_accepted_by_their_engines() {
    for keys in ["1e5", "1e8"] {
        let advice = advise(&["--keys", keys, "--volatile", "--memory", "30GB"]);
        for candidate in advice["candidates"].as_array().unwrap() {
            let engine = candidate["engine"].as_str().unwrap();
            let mut bench = vec!["bench", "--media", "ram", "--workload", "load", "--keys", "10"];
            bench.extend(["--engine", engine]);
            let options = candidate["options"].as_object().unwrap().iter();
            // A store in memory allocates its whole budget at once.
            let options = options.filter(|(name, _)| !(engine == "mica" && *name == "memory"));
            let options: Vec<String> = options
                .map(|(name, value)| format!("{name}={}", value.as_str().unwrap()))
                .collect();
            bench.extend(options.iter().flat_map(|option| ["--option", option]));
            let output = siltstone(&bench);
            assert!(
                output.status.success(),
                "{bench:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

#[test]
fn trace_is_used_as_the_workload() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    let lines: String =
        (0..2000).map(|i| format!("put key{} 100\nget key{i}\n", i % 700)).collect();
    std::fs::write(&path, lines).unwrap();
    let advice = advise(&["--trace", path.to_str().unwrap()]);
    assert_eq!(advice["keys"], 2000.0);
    std::fs::write(&path, "get a\nfetch b\n").unwrap();
    let output = siltstone(&["advise", "--trace", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 2"));
}

#[test]
fn invalid_parameters_are_refused_by_name() {
    for (arguments, named) in [
        (&["--keys", "1"][..], "keys"),
        (&["--keys", "1e6", "--reads", "1.5"], "reads"),
        (&["--keys", "1e6", "--reads", "0.6", "--scans", "0.6"], "scans"),
        (&["--keys", "1e6", "--skew", "11"], "skew"),
        (&["--keys", "1e6", "--ops", "0"], "ops"),
        (&["--trace", "x", "--keys", "5"], "--keys"),
        (&[], "--keys"),
    ] {
        let output = siltstone(&[&["advise"], arguments].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(named), "{arguments:?}: {error}");
    }
}

#[test]
fn check_reports_predicted_and_measured_costs() {
    let advice = advise(&["--keys", "20000", "--memory", "1GiB", "--check"]);
    let checked = &advice["checked"];
    assert!(checked["predicted"]["write_amplification"].as_f64().unwrap() >= 1.0);
    assert!(checked["measured"]["write_amplification"].as_f64().unwrap() >= 1.0);
}
