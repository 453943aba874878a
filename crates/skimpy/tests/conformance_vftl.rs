//! Runs the conformance kit on VFTL: SEMEL's mapping over a translation layer.

mod common;

const SUBJECT: common::MappingUnderTest = common::MappingUnderTest {
    mapping: "vftl",
    option_sets: &["reserved_space=0.8", "reserved_space=0.5"],
};

siltstone_testkit::conformance!(SUBJECT);
siltstone_testkit::conformance!(repairs SUBJECT);
