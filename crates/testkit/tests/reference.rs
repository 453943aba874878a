//! The reference engine keeps the contract, so it must pass the whole kit.

siltstone_testkit::conformance!(siltstone_testkit::ReferenceSubject::default());
