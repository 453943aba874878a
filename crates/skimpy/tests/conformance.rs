//! The engine passes the conformance kit with every option set.
//!
//! The device is small and most of it is kept free, so that a few hundred writes go round it several
//! times: blocks are collected, erased and used again within a history.

mod common;

const SUBJECT: common::MappingSubject = common::MappingSubject {
    mapping: "skimpy",
    variants: &[
        "free=0.9",
        "free=0.5 cache=16 tidy=1",
        "free=0.9 lanes=3 pack=5ms",
        "free=0.1 cache=1000 tidy=0",
        "free=0.9 retention=100ms",
        "free=0.9 pack=0s lanes=2",
    ],
};

siltstone_testkit::conformance!(SUBJECT);
siltstone_testkit::conformance!(repairs SUBJECT);
