//! Random commands of one Redis client, as a pipeline and one by one, and random scripts in the
//! sandbox: what the fuzz targets `redis_commands` and `redis_scripts` run, with random bytes.
//!
//! `SILTSTONE_FUZZED=100000` sets the number of inputs, `SILTSTONE_SEED=N` draws others.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use siltstone_server::fuzzing::RedisHarness;
use siltstone_testkit::TestRng;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn commands_have_the_same_replies_in_a_pipeline_and_one_by_one() {
    let mut harness = RedisHarness::new().unwrap();
    let mut rng = TestRng::of(number("SILTSTONE_SEED", 1), 1);
    for _ in 0..number("SILTSTONE_FUZZED", 300) {
        let len = rng.index(160);
        harness.chosen_commands(&rng.bytes(len));
    }
}

#[test]
fn scripts_get_one_reply_and_leave_the_sandbox_as_it_was() {
    let mut harness = RedisHarness::new().unwrap();
    let mut rng = TestRng::of(number("SILTSTONE_SEED", 1), 2);
    for _ in 0..number("SILTSTONE_FUZZED", 1000) {
        let len = rng.index(24);
        harness.chosen_script(&rng.bytes(len));
    }
}
