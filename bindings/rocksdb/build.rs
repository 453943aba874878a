//! Gives the library the soname of RocksDB 11.8, which programs that are linked with it look for.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librocksdb.so.11");
    println!("cargo:rerun-if-changed=build.rs");
}
