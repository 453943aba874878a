//! Gives the library the soname of LevelDB 1.23, which programs that are linked with it look for.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libleveldb.so.1");
    println!("cargo:rerun-if-changed=build.rs");
}
