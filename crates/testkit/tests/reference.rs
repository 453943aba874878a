//! The reference engine passes the whole kit.

siltstone_testkit::conformance!(siltstone_testkit::ReferenceUnderTest::default());
