//! Runs the conformance kit on SkimpyFTL with every option set.
//!
//! The device is small and most of it is kept free, so that a few hundred writes wrap around it
//! several times: blocks are collected, erased and reused within one history.

mod common;

const SUBJECT: common::MappingUnderTest = common::MappingUnderTest {
    mapping: "skimpy",
    option_sets: &[
        "reserved_space=0.9",
        "reserved_space=0.5 cache=16 read_compaction_after=1",
        "reserved_space=0.9 channels=3 buffer_delay=5ms",
        "reserved_space=0.1 cache=1000 read_compaction_after=0",
        "reserved_space=0.9 retention=100ms",
        "reserved_space=0.9 buffer_delay=0s channels=2",
    ],
};

siltstone_testkit::conformance!(SUBJECT);
siltstone_testkit::conformance!(repairs SUBJECT);
