//! And so does VFTL: SEMEL's mapping over a translation layer of its own.

mod common;

const SUBJECT: common::MappingSubject =
    common::MappingSubject { mapping: "vftl", variants: &["free=0.8", "free=0.5"] };

siltstone_testkit::conformance!(SUBJECT);
siltstone_testkit::conformance!(repairs SUBJECT);
