//! `model wa` predicts the cost of every design by stage, and refuses invalid parameters by name.

use std::process::{Command, Output};

const DESIGNS: [&str; 7] = ["leveldb", "cola", "samt", "silt", "lsm", "trie", "skimpy"];

fn wa(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    command.args(["model", "wa", "--json", "--design"]).args(arguments).output().unwrap()
}

fn total(arguments: &[&str]) -> f64 {
    let output = wa(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let stages = answer["by_stage"].as_object().unwrap();
    let total = answer["write_amplification"].as_f64().unwrap();
    let sum: f64 = stages.values().map(|cost| cost.as_f64().unwrap()).sum();
    assert!((sum - total).abs() < 1e-9);
    total
}

#[test]
fn every_design_has_a_cost_by_stage() {
    for design in DESIGNS {
        for skew in ["0", "0.99"] {
            let total = total(&[design, "--keys", "1e8", "--skew", skew]);
            assert!(total >= 1.0 && total.is_finite(), "{design}: {total}");
        }
    }
}

#[test]
fn each_technique_of_the_lsm_lowers_its_cost() {
    // TRIAD-MEM is for strong skew: otherwise its copies in each log cost more than it saves.
    let workload = ["lsm", "--keys", "1e6", "--skew", "1.4"];
    let total = |more: &[&str]| total(&[&workload, more].concat());
    let plain = total(&[]);
    assert!(total(&["--hot-keys", "100", "--flush-share", "0.3"]) < plain);
    assert!(total(&["--index-share", "0.05"]) < plain);
    assert!(total(&["--overlap", "0.9"]) < plain);
    assert!(total(&["--l0-capacity", "64MiB"]) < plain);
}

#[test]
fn deletions_sizes_and_changes_of_the_load_have_a_cost() {
    let leveldb = ["leveldb", "--keys", "1e7", "--skew", "0.99"];
    let total = |more: &[&str]| total(&[&leveldb, more].concat());
    let plain = total(&[]);
    assert_eq!(total(&["--deletes", "0"]), plain);
    assert!(total(&["--phase", "1e6"]) > plain, "fewer overwrites meet");
    assert!(total(&["--phase", "1e15"]) < plain * 1.01);
    // Large hot items are overwritten in the upper levels.
    let sizes =
        |first: u32, rest: u32| total(&["--item-sizes", &format!("0.1:{first},0.9:{rest}")]);
    assert!(sizes(2000, 200) < sizes(200, 2000));
    assert!((sizes(1000, 1000) - plain).abs() < 1e-6);
    let simulated = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
        let common = ["model", "simulate", "--json", "--keys", "1e5", "--skew", "0.99"];
        let output = command.args(common).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["write_amplification"].as_f64().unwrap()
    };
    assert!(simulated(&["--phase", "1e4"]) > simulated(&[]));
}

#[test]
fn invalid_parameters_are_refused_by_name() {
    let refused = |arguments: &[&str], name: &str| {
        let output = wa(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(name), "{arguments:?}: '{name}' is not in: {error}");
        assert!(output.stdout.is_empty());
    };
    for design in DESIGNS {
        for keys in ["0", "-1", "nan", "inf"] {
            refused(&[design, &format!("--keys={keys}")], "keys");
        }
        refused(&[design, "--keys", "1e6", "--skew=-1"], "skew");
        refused(&[design, "--keys", "1e6", "--skew", "nan"], "skew");
        for item_size in ["0", "-5", "nan"] {
            refused(&[design, "--keys", "1e6", &format!("--item-size={item_size}")], "item_size");
        }
    }
    refused(&["leveldb", "--keys", "1e8", "--sizes", "100MiB:10MiB"], "level_items");
    refused(&["leveldb", "--keys=nan", "--worst-case"], "keys");
    refused(&["leveldb", "--keys", "1e6", "--deletes", "1"], "deletes");
    refused(&["leveldb", "--keys", "1e6", "--item-sizes", "0.5:100"], "shares");
    refused(&["leveldb", "--keys", "1e6", "--item-sizes", "0.5"], "SHARE:BYTES");
    refused(&["leveldb", "--keys", "1e6", "--phase", "0"], "phase");
    for design in &DESIGNS[1..] {
        refused(&[design, "--keys", "1e6", "--deletes", "0.1"], "deletes");
    }
    refused(&["lsm", "--keys", "1e8", "--hot-keys", "1e9"], "hot_keys");
    refused(&["lsm", "--keys", "1e8", "--overlap", "nan"], "overlap");
    refused(&["silt", "--keys", "1e8", "--instances", "0"], "instances");
    refused(&["trie", "--keys", "1e8", "--garbage-share", "0"], "garbage_share");
    refused(&["cola", "--keys", "1e8", "--growth", "1"], "growth");
    refused(&["skimpy", "--keys", "1e8", "--capacity", "1GiB"], "capacity_items");
}
