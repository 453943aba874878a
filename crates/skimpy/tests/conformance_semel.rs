//! SEMEL's mapping passes the conformance kit, too.

mod common;

const SUBJECT: common::MappingSubject =
    common::MappingSubject { mapping: "semel", variants: &["free=0.9", "free=0.5"] };

siltstone_testkit::conformance!(SUBJECT);
siltstone_testkit::conformance!(repairs SUBJECT);
