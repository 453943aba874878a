//! The `siltstone` program.
fn main() {}
