//! The LSM-trie engine.
mod files;
mod hash;
mod htable;
mod item;
