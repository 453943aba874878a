//! The conformance kit that every engine must pass.
