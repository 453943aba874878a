//! Runs the conformance kit on SEMEL's mapping.

mod common;

const SUBJECT: common::MappingUnderTest = common::MappingUnderTest {
    mapping: "semel",
    option_sets: &["reserved_space=0.9", "reserved_space=0.5"],
};

siltstone_testkit::conformance!(SUBJECT);
siltstone_testkit::conformance!(repairs SUBJECT);
